/* names.c - writes and reads the names of folders and nodes. See names.h. */
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

/* What lock recipes write before the number, and what only Mortise writes before that. */
static const char *const marks[] = {[STYLE_CURATOR] = "-lock-", [STYLE_KAZOO] = "__lock__"};
static const char *const own_marks[] = {[STYLE_CURATOR] = "-mortise", [STYLE_KAZOO] = "__mortise"};

void node_prefix(enum node_style style, const mortise_grant_id *grant, unsigned session,
                 char prefix[NODE_MAX])
{
    char uuid[UUID_SIZE];
    bool curator = style == STYLE_CURATOR;
    uuid_text(grant, curator, uuid);
    snprintf(prefix, NODE_MAX, "%s%s%s%u%s%s", curator ? "_c_" : "", uuid, curator ? "-" : "__",
             session, own_marks[style], marks[style]);
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

/* The text behind the last mark of a lock recipe; NULL: no contender. */
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
    return strncmp(node, "lock-", 5) == 0 ? node + 5 : NULL; /* Curator's, without protection */
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

/* The server writes ten digits, or a minus sign and nine or ten. */
static bool is_sequential(const char *node)
{
    size_t length = strlen(node), digits_len = 0;
    while (digits_len < length && isdigit((unsigned char)node[length - 1 - digits_len]))
        digits_len++;
    bool negative = length > digits_len && node[length - 1 - digits_len] == '-';
    return digits_len >= 10 || (negative && digits_len == 9);
}

static bool is_of_mortise(const char *node)
{
    enum node_style style;
    const char *text = after_mark(node, &style);
    size_t length = text == NULL ? 0 : strlen(marks[style]) + strlen(own_marks[style]);
    return length > 0 && (size_t)(text - node) >= length &&
           strncmp(text - length, own_marks[style], strlen(own_marks[style])) == 0;
}

/* Curator sorts every child of the folder by the text behind its last "lock-", or by its whole name. kazoo's Lock and
 * WriteLock count only nodes with "__lock__". */
enum node_kin node_kin(const char *node, enum node_style style)
{
    int32_t number;
    enum node_style theirs;
    if (node_number(node, &number)) {
        after_mark(node, &theirs);
        return theirs == style ? KIN_OWN : is_of_mortise(node) ? KIN_MORTISE : KIN_STYLE;
    }
    return is_sequential(node) ? KIN_OTHER : KIN_NONE;
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
