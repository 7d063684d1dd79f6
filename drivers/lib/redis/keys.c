/* keys.c - names of keys. A key beside a lock has the same hash tag, so that a cluster would keep them together. */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#define MARK "}:mortise:"

void key_add(struct key_parts *parts, const void *data, size_t length)
{
    parts->part[parts->count++] = (struct link_part){data, length};
}

void key_add_text(struct key_parts *parts, const char *text)
{
    key_add(parts, text, strlen(text));
}

/* The part of a key that a cluster hashes: between the first '{' and the next '}', if that is not empty. */
static bool find_tag(const char *name, size_t length, const char **tag, size_t *tag_len)
{
    const char *open = memchr(name, '{', length);
    if (open == NULL)
        return false;
    *tag = open + 1;
    const char *shut = memchr(*tag, '}', length - (size_t)(*tag - name));
    *tag_len = shut != NULL ? (size_t)(shut - *tag) : 0;
    return *tag_len > 0;
}

/* "{name}:mortise:word", or "{tag}:mortise:word:name". */
void key_add_side(struct key_parts *parts, const char *name, size_t length, const char *word)
{
    const char *tag = name;
    size_t tag_len = length;
    bool tagged = find_tag(name, length, &tag, &tag_len);
    key_add_text(parts, "{");
    key_add(parts, tagged ? tag : name, tagged ? tag_len : length);
    key_add_text(parts, MARK);
    key_add_text(parts, word);
    if (tagged) {
        key_add_text(parts, ":");
        key_add(parts, name, length);
    }
}

void key_put_side(struct link *link, const char *name, size_t length, const char *word)
{
    struct key_parts parts = {.count = 0};
    key_add_side(&parts, name, length, word);
    link_parts(link, parts.part, parts.count);
}

bool key_is_side(const char *name, size_t name_len)
{
    return name_len > 0 && name[0] == '{' && memmem(name, name_len, MARK, sizeof(MARK) - 1) != NULL;
}

void key_hex(const mortise_grant_id *grant, char hex[GRANT_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
        hex[2 * i] = digits[grant->bytes[i] >> 4];
        hex[2 * i + 1] = digits[grant->bytes[i] & 15];
    }
    hex[GRANT_HEX] = '\0';
}

char *key_join(const struct key_parts *parts, size_t *length)
{
    *length = 0;
    for (unsigned i = 0; i < parts->count; i++)
        *length += parts->part[i].length;
    char *text = malloc(*length + 1), *to = text;
    for (unsigned i = 0; text != NULL && i < parts->count; i++) {
        memcpy(to, parts->part[i].data, parts->part[i].length);
        to += parts->part[i].length;
    }
    return text;
}
