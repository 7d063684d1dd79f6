/* keys.c - the names of keys and channels, and the names of grants and owners in the server. */
#include "redis.h"

void key_put(struct link *link, const mortise_op *op, enum key key)
{
    key_put_of(link, op->name, op->name_len, key);
}

void key_put_of(struct link *link, const char *name, size_t name_len, enum key key)
{
    static const char *const words[] = {
        [KEY_TOKEN] = "token",   [KEY_NEWS] = "news",       [KEY_QUEUE] = "queue",
        [KEY_RECORD] = "record", [KEY_HOLDERS] = "holders", [KEY_SHARES] = "shares"};
    if (key == KEY_LOCK)
        link_argument(link, name, name_len);
    else
        key_put_side(link, name, name_len, words[key]);
}

/* Redisson's channel is "redisson_lock__channel:{name}", without these braces if the name has some. */
void key_add_channel(struct key_parts *parts, const struct driver *driver, const char *name,
                     size_t length)
{
    if (driver->layout != LAYOUT_REDISSON) {
        key_add_side(parts, name, length, "news");
        return;
    }
    bool braced = memchr(name, '{', length) != NULL;
    key_add_text(parts, braced ? "redisson_lock__channel:" : "redisson_lock__channel:{");
    key_add(parts, name, length);
    key_add_text(parts, braced ? "" : "}");
}

void key_put_channel(struct link *link, const struct driver *driver, const mortise_op *op)
{
    struct key_parts parts = {.count = 0};
    if (driver->layout != LAYOUT_REDISSON) {
        key_put_side(link, op->name, op->name_len, "news");
        return;
    }
    key_add_channel(&parts, driver, op->name, op->name_len);
    link_parts(link, parts.part, parts.count);
}

void key_put_grant(struct link *link, const mortise_op *op)
{
    char hex[GRANT_HEX + 1];
    key_hex(&op->grant, hex);
    link_argument(link, hex, GRANT_HEX);
}

/* The owner as given; for an unshared claim, "uuid:0" made from the grant. */
static size_t make_field(const mortise_op *op, char field[FIELD_MAX + 1])
{
    static const unsigned char groups[] = {8, 4, 4, 4, 12};
    char hex[GRANT_HEX + 1];
    if (op->owner_len > 0 && op->owner_len <= FIELD_MAX) {
        memcpy(field, op->owner, op->owner_len);
        return op->owner_len;
    }
    key_hex(&op->grant, hex);
    const char *from = hex;
    char *to = field;
    for (size_t i = 0; i < sizeof(groups); i++) {
        memcpy(to, from, groups[i]);
        from += groups[i];
        to += groups[i];
        *to++ = i + 1 < sizeof(groups) ? '-' : ':';
    }
    *to++ = '0';
    return (size_t)(to - field);
}

void key_put_owner(struct link *link, const mortise_op *op)
{
    char field[FIELD_MAX + 1];
    link_argument(link, field, make_field(op, field));
    link_text(link, op->owner_len > 0 ? "1" : "0");
}
