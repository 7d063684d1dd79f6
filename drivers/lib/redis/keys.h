/* keys.h - names of keys, made of pieces; see keys.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_KEYS_H
#define MORTISE_DRIVERS_LIB_REDIS_KEYS_H

#include "link.h"

#define GRANT_HEX 32

#define SLOT_TAG_LENGTH 4

struct key_parts {
    struct link_part part[8];
    unsigned count;
    char slot_tag[SLOT_TAG_LENGTH];
};
/* The slot of a cluster that has the lock and all keys beside it. */
#define KEY_SLOTS 16384
unsigned key_slot(const char *name, size_t length);
void key_add(struct key_parts *parts, const void *data, size_t length);
void key_add_text(struct key_parts *parts, const char *text);
/* A key beside the lock `name`, in the same slot of a cluster as the lock (keys.c has the three forms). The parts point to
 * `name`, to `word` and into *parts itself, so do not copy *parts. */
void key_add_side(struct key_parts *parts, const char *name, size_t length, const char *word);
/* The same, as the next argument. */
void key_put_side(struct link *link, const char *name, size_t length, const char *word);
/* The key as one text, malloc'ed; *length is its length. NULL: no memory. */
char *key_join(const struct key_parts *parts, size_t *length);
/* A lock of this name could be mistaken for a key beside another lock. */
bool key_is_side(const char *name, size_t name_len);
void key_hex(const mortise_grant_id *grant, char hex[GRANT_HEX + 1]);

#endif
