/* names.c - writes and reads the names of folders and nodes. See names.h. */
#include "names.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789ABCDEF";

/* ---- folders ------------------------------------------------------------------------------------ */

static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '/' && c != '%';
}

void folder_of_name(const char *name, size_t name_len, bool at_top, char folder[FOLDER_MAX])
{
    bool dots = (name_len == 1 || name_len == 2) && memcmp(name, "..", name_len) == 0;
    bool servers = at_top && name_len == 9 && memcmp(name, "zookeeper", 9) == 0;
    char *to = folder;
    for (size_t i = 0; i < name_len && i < MORTISE_NAME_MAX; i++) {
        unsigned char c = (unsigned char)name[i];
        if (is_plain(c) && !dots && !(servers && i == 0)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    *to = '\0';
}

static int digit_value(char c)
{
    const char *place = c == '\0' ? NULL : strchr(digits, c);
    return place == NULL ? -1 : (int)(place - digits);
}

size_t name_of_folder(const char *folder, char *name, size_t size)
{
    size_t length = 0;
    for (const char *from = folder; *from != '\0'; from++) {
        int c = (unsigned char)*from;
        if (c == '%') { /* "%sessions" and the like are no locks */
            int high = digit_value(from[1]), low = high < 0 ? -1 : digit_value(from[2]);
            if (low < 0)
                return 0;
            c = high << 4 | low;
            from += 2;
        }
        if (length == size || c == 0)
            return 0;
        name[length++] = (char)c;
    }
    return length;
}

/* ---- the two folders of a semaphore --------------------------------------------------------------- */

static const char *const suffixes[STYLE_COUNT][2] = {
    [STYLE_CURATOR_SEMAPHORE] = {[PART_LEASES] = "/leases", [PART_GATE] = "/locks"},
    [STYLE_KAZOO_SEMAPHORE] = {[PART_LEASES] = "", [PART_GATE] = "-__lock__"},
};

bool style_has_gate(enum node_style style)
{
    return suffixes[style][PART_GATE] != NULL;
}

enum node_style style_of_part(enum node_style style, enum part part)
{
    if (part == PART_LEASES)
        return style;
    return style == STYLE_CURATOR_SEMAPHORE ? STYLE_CURATOR : STYLE_KAZOO;
}

void folder_of_part(enum node_style style, enum part part, char folder[PART_MAX])
{
    const char *suffix = suffixes[style][part];
    size_t length = strlen(folder);
    snprintf(folder + length, PART_MAX - length, "%s", suffix == NULL ? "" : suffix);
}

bool is_gate_folder(enum node_style style, const char *folder)
{
    const char *suffix = suffixes[style][PART_GATE];
    size_t length = strlen(folder), suffix_len = suffix == NULL ? 0 : strlen(suffix);
    return suffix_len > 0 && length > suffix_len &&
           strcmp(folder + length - suffix_len, suffix) == 0;
}

/* ---- nodes -------------------------------------------------------------------------------------- */

static void uuid_text(const mortise_grant_id *grant, bool dashes, char text[UUID_SIZE])
{
    char *to = text;
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
        if (dashes && (i == 4 || i == 6 || i == 8 || i == 10))
            *to++ = '-';
        snprintf(to, 3, "%02x", grant->bytes[i]);
        to += 2;
    }
}

/* What lock recipes write before the number. `counted_by`: the styles whose nodes their clients count. */
#define BY(style) (1u << (style))
static const struct mark {
    const char *text;
    bool kazoo, shared;
    unsigned counted_by;
} marks[] = {
    {"-lock-", false, false, BY(STYLE_CURATOR)},
    {"__WRIT__", false, false, BY(STYLE_CURATOR_RW)},
    {"__READ__", false, true, BY(STYLE_CURATOR_RW)},
    {"__lock__", true, false, BY(STYLE_KAZOO) | BY(STYLE_KAZOO_RW)},
    {"__rlock__", true, true, BY(STYLE_KAZOO) | BY(STYLE_KAZOO_RW)},
    {"-lease-", false, true, BY(STYLE_CURATOR_SEMAPHORE)},
    {"__lease__", true, true, BY(STYLE_KAZOO_SEMAPHORE)},
};
enum {
    MARK_LOCK,
    MARK_WRIT,
    MARK_READ,
    MARK_KAZOO_LOCK,
    MARK_KAZOO_READ,
    MARK_LEASE,
    MARK_KAZOO_LEASE,
    MARK_COUNT
};

/* What only Mortise writes before such a mark. */
static const char *own_mark(bool kazoo)
{
    return kazoo ? "__mortise" : "-mortise";
}

static const struct mark *mark_of(enum node_style style, bool shared)
{
    static const unsigned char places[STYLE_COUNT][2] = {
        [STYLE_CURATOR] = {MARK_LOCK, MARK_LOCK},
        [STYLE_CURATOR_RW] = {MARK_WRIT, MARK_READ},
        [STYLE_KAZOO] = {MARK_KAZOO_LOCK, MARK_KAZOO_LOCK},
        [STYLE_KAZOO_RW] = {MARK_KAZOO_LOCK, MARK_KAZOO_READ},
        [STYLE_CURATOR_SEMAPHORE] = {MARK_LEASE, MARK_LEASE},
        [STYLE_KAZOO_SEMAPHORE] = {MARK_KAZOO_LEASE, MARK_KAZOO_LEASE},
    };
    return &marks[places[style][shared]];
}

const char *node_style_name(enum node_style style)
{
    static const char *const names[STYLE_COUNT] = {[STYLE_CURATOR] = "curator",
                                                   [STYLE_CURATOR_RW] = "curator-rw",
                                                   [STYLE_KAZOO] = "kazoo",
                                                   [STYLE_KAZOO_RW] = "kazoo-rw",
                                                   [STYLE_CURATOR_SEMAPHORE] = "curator-semaphore",
                                                   [STYLE_KAZOO_SEMAPHORE] = "kazoo-semaphore"};
    return names[style];
}

void node_prefix(enum node_style style, struct node_kind kind, const mortise_grant_id *grant,
                 unsigned session, char prefix[NODE_MAX])
{
    char uuid[UUID_SIZE], permits[16] = "";
    const struct mark *mark = mark_of(style, kind.shared);
    const char *dash = mark->kazoo ? "__" : "-";
    uuid_text(grant, !mark->kazoo, uuid);
    if (kind.shared)
        snprintf(permits, sizeof(permits), "%ss%" PRIu32, dash, kind.permits);
    snprintf(prefix, NODE_MAX, "%s%s%s%u%s%s%s", mark->kazoo ? "" : "_c_", uuid, dash, session,
             permits, own_mark(mark->kazoo), mark->text);
}

bool node_owner(const char *node, char hex[33])
{
    size_t length = 0;
    if (strncmp(node, "_c_", 3) == 0)
        node += 3;
    for (; length < 32 && (isxdigit((unsigned char)*node) || *node == '-'); node++)
        if (*node != '-')
            hex[length++] = (char)tolower((unsigned char)*node);
    hex[length] = '\0';
    return length == 32;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t end_len = strlen(end);
    return length >= end_len && memcmp(text + length - end_len, end, end_len) == 0;
}

/* The mark that this text ends with; NULL: none. */
static const struct mark *mark_at_end(const char *text, size_t length)
{
    for (size_t i = 0; i < MARK_COUNT; i++)
        if (ends_with(text, length, marks[i].text))
            return &marks[i];
    if (length == 5 && memcmp(text, "lock-", 5) == 0) /* Curator's, without protection */
        return &marks[MARK_LOCK];
    return length == 6 && memcmp(text, "lease-", 6) == 0 ? &marks[MARK_LEASE] : NULL;
}

/* Reads the number behind the mark of a recipe. Returns the mark, and where it ends. NULL: the node is no contender. */
static const struct mark *read_number(const char *node, size_t *mark_end, int32_t *number)
{
    size_t length = strlen(node), digits_len = 0;
    while (digits_len < length && isdigit((unsigned char)node[length - 1 - digits_len]))
        digits_len++;
    *mark_end = length - digits_len;
    if (digits_len == 0 || digits_len > 10)
        return NULL;
    const struct mark *mark = mark_at_end(node, *mark_end);
    if (mark == NULL && *mark_end > 0 && node[*mark_end - 1] == '-')
        mark = mark_at_end(node, --*mark_end);
    long long value = strtoll(node + *mark_end, NULL, 10);
    *number = (int32_t)value;
    return value >= INT32_MIN && value <= INT32_MAX ? mark : NULL;
}

/* What Mortise writes before its own mark: "s" and the permits, if the node is shared. length: up to that mark. */
static void read_kind(const char *node, size_t length, struct node_kind *kind)
{
    size_t digits_len = 0;
    while (digits_len < length && isdigit((unsigned char)node[length - 1 - digits_len]))
        digits_len++;
    if (digits_len == 0 || digits_len + 2 > length || node[length - digits_len - 1] != 's' ||
        strchr("-_", node[length - digits_len - 2]) == NULL)
        return;
    kind->shared = true;
    kind->permits = (uint32_t)strtoul(node + length - digits_len, NULL, 10);
}

/* The server writes ten digits, or a minus sign and nine or ten. */
static bool is_sequential(const char *node)
{
    size_t length = strlen(node), digits_len = 0;
    while (digits_len < length && isdigit((unsigned char)node[length - 1 - digits_len]))
        digits_len++;
    bool negative = length > digits_len && node[length - 1 - digits_len] == '-';
    return digits_len >= 10 || (negative && digits_len == 9);
}

static bool is_lease_of_kazoo(const char *node)
{
    return strlen(node) == 32 && strspn(node, "0123456789abcdef") == 32;
}

/* Whether the node belongs to a semaphore: Curator's has two folders here, kazoo's has the leases. */
static bool is_of_semaphore(const char *node)
{
    return strcmp(node, "leases") == 0 || strcmp(node, "locks") == 0 ||
           strcmp(node, "__lock__") == 0 || is_lease_of_kazoo(node);
}

/* The kind of a node with this mark. Leases of other libraries do not say how many permits there are. */
static struct node_kind kind_by_mark(const struct mark *mark, bool is_ours)
{
    bool is_lease = mark >= &marks[MARK_LEASE];
    return (struct node_kind){.shared = mark->shared && !(is_lease && is_ours),
                              .any_permits = is_lease && !is_ours};
}

/* Curator's mutex sorts every child of the folder by the text behind its last "lock-", or by its whole name; its read/write
 * locks do the same with "__READ__" and "__WRIT__". kazoo's Lock counts nodes with "__lock__", its WriteLock those with
 * "__rlock__" too. Its ReadLock waits for "__lock__", so it counts the nodes that we make with either style of kazoo. */
bool node_read(const char *node, enum node_style style, struct contender *contender)
{
    size_t end;
    *contender = (struct contender){.node = node};
    const struct mark *mark = read_number(node, &end, &contender->number);
    if (mark == NULL && style == STYLE_KAZOO_SEMAPHORE && is_lease_of_kazoo(node)) {
        /* It has no number: the one contender in the gate sees all leases, and no other is made meanwhile. */
        contender->number = 0;
        contender->style = style;
        contender->kind = (struct node_kind){.shared = true, .any_permits = true};
        return true;
    }
    if (mark == NULL) {
        contender->kin = is_sequential(node) || is_of_semaphore(node) ? KIN_OTHER : KIN_NONE;
        return false;
    }
    const char *own = own_mark(mark->kazoo);
    size_t before_len = end - strlen(mark->text) * (end >= strlen(mark->text));
    bool is_ours = ends_with(node, before_len, own);
    unsigned counted_by = mark->counted_by;
    contender->kind = kind_by_mark(mark, is_ours);
    if (is_ours)
        read_kind(node, before_len - strlen(own), &contender->kind);
    if (is_ours && mark->kazoo && mark != &marks[MARK_KAZOO_LEASE] && contender->kind.shared)
        counted_by = mark->shared ? BY(STYLE_KAZOO_RW) : BY(STYLE_KAZOO);
    contender->style = STYLE_CURATOR;
    while ((counted_by & BY(contender->style)) == 0)
        contender->style++;
    contender->kin = (counted_by & BY(style)) != 0 ? KIN_OWN : is_ours ? KIN_MORTISE : KIN_STYLE;
    return true;
}

/* Whether a number was certainly given before every negative one. */
static bool is_before_negative(int32_t number)
{
    return number >= INT32_MAX / 2 && number < INT32_MAX;
}

enum number_order number_compare(int32_t a, int32_t b)
{
    if (a >= 0 && b >= 0 && a != b)
        return a < b ? NUMBER_BEFORE : NUMBER_AFTER;
    if (b < 0 && is_before_negative(a))
        return NUMBER_BEFORE;
    if (a < 0 && is_before_negative(b))
        return NUMBER_AFTER;
    return NUMBER_UNDECIDED;
}
