/* names.c - folders and nodes: escaped, read, compared. See names.h. */
#include "names.h"

#include <ctype.h>
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
        if (c == '%') { /* "%sessions" and the like are the driver's own */
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

/* What lock recipes put before the number; and what only Mortise puts before that. */
static const char *const marks[] = {[STYLE_CURATOR] = "-lock-", [STYLE_KAZOO] = "__lock__"};
static const char *const own_marks[] = {[STYLE_CURATOR] = "-mortise", [STYLE_KAZOO] = "__mortise"};

void node_prefix(enum node_style style, const mortise_grant_id *grant, char prefix[NODE_MAX])
{
    char uuid[UUID_SIZE];
    uuid_text(grant, style == STYLE_CURATOR, uuid);
    snprintf(prefix, NODE_MAX, "%s%s%s%s", style == STYLE_CURATOR ? "_c_" : "", uuid,
             own_marks[style], marks[style]);
}

bool node_is_of(const char *node, const mortise_grant_id *grant)
{
    char wanted[UUID_SIZE], found[33];
    uuid_text(grant, false, wanted);
    return node_owner(node, found) && strcmp(found, wanted) == 0;
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

/* Behind the last of the marks that lock recipes put before the number; NULL: no contender. */
static const char *after_mark(const char *node, enum node_style *style)
{
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *place = NULL, *next = node;
        while ((next = strstr(next, marks[i])) != NULL)
            place = next++;
        *style = (enum node_style)i;
        if (place != NULL)
            return place + strlen(marks[i]);
    }
    *style = STYLE_CURATOR;
    return strncmp(node, "lock-", 5) == 0 ? node + 5 : NULL; /* Curator's, not protected */
}

bool node_number(const char *node, int32_t *number)
{
    enum node_style style;
    const char *text = after_mark(node, &style);
    if (text == NULL)
        return false;
    const char *first = text + (*text == '-');
    size_t length = strspn(first, "0123456789");
    if (length == 0 || length > 10 || first[length] != '\0')
        return false;
    long long value = strtoll(text, NULL, 10);
    *number = (int32_t)value;
    return value >= INT32_MIN && value <= INT32_MAX;
}

/* The server puts ten digits there, or a minus and nine or ten. */
static bool is_sequential(const char *node)
{
    size_t length = strlen(node), digits_len = 0;
    while (digits_len < length && isdigit((unsigned char)node[length - 1 - digits_len]))
        digits_len++;
    bool negative = length > digits_len && node[length - 1 - digits_len] == '-';
    return digits_len >= 10 || (negative && digits_len == 9);
}

bool node_is_mortise(const char *node)
{
    enum node_style style;
    const char *text = after_mark(node, &style);
    size_t length = text == NULL ? 0 : strlen(marks[style]) + strlen(own_marks[style]);
    return length > 0 && (size_t)(text - node) >= length &&
           strncmp(text - length, own_marks[style], strlen(own_marks[style])) == 0;
}

/* Curator sorts each child of the folder by what stands behind its last "lock-", or by all of it. kazoo's Lock
 * and WriteLock count the nodes with "__lock__", and no others. */
enum node_kin node_kin(const char *node, enum node_style style)
{
    int32_t number;
    enum node_style theirs;
    if (node_number(node, &number)) {
        after_mark(node, &theirs);
        return theirs == style ? KIN_OWN : node_is_mortise(node) ? KIN_MORTISE : KIN_STYLE;
    }
    return is_sequential(node) ? KIN_OTHER : KIN_NONE;
}

bool number_is_before(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b) < 0;
}

/* ---- queues ------------------------------------------------------------------------------------- */

const char *queue_foreign(const struct children *children, enum node_style style)
{
    for (size_t i = 0; i < children->count; i++) {
        enum node_kin kin = node_kin(children->names[i], style);
        if (kin == KIN_STYLE || kin == KIN_OTHER)
            return children->names[i];
    }
    const char *first = queue_first(children, NULL);
    return first != NULL && node_kin(first, style) == KIN_MORTISE ? first : NULL;
}

const char *queue_first(const struct children *children, size_t *count)
{
    const char *first = NULL;
    int32_t first_number = 0, number;
    size_t contenders = 0;
    for (size_t i = 0; i < children->count; i++) {
        if (!node_number(children->names[i], &number))
            continue;
        contenders++;
        if (first == NULL || number_is_before(number, first_number)) {
            first = children->names[i];
            first_number = number;
        }
    }
    if (count != NULL)
        *count = contenders;
    return first;
}

static bool is_among(const char *node, char *const *later, size_t later_count)
{
    for (size_t i = 0; i < later_count; i++)
        if (strcmp(node, later[i]) == 0)
            return true;
    return false;
}

struct queue_place queue_look(const struct children *children, const char *own, char *const *later,
                              size_t later_count)
{
    struct queue_place place = {false, NULL};
    int32_t own_number, before_number = 0, number;
    if (!node_number(own, &own_number))
        return place;
    for (size_t i = 0; i < children->count; i++) {
        const char *node = children->names[i];
        if (strcmp(node, own) == 0) {
            place.found = true;
            continue;
        }
        if (!node_number(node, &number) || number_is_before(own_number, number) ||
            is_among(node, later, later_count))
            continue;
        if (place.before == NULL || number_is_before(before_number, number)) {
            place.before = node;
            before_number = number;
        }
    }
    return place;
}
