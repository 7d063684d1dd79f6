/* names.h - the keys of a lock and of its contenders. protocol.md, "The keys", lists them. No I/O. */
#ifndef MORTISE_ETCD_NAMES_H
#define MORTISE_ETCD_NAMES_H

#include "wire.h"

#include <mortise/driver.h>

#define ESCAPED_MAX (3 * MORTISE_NAME_MAX + 1)
#define HEX_SIZE (2 * MORTISE_GRANT_ID_SIZE + 1)
#define INSTANCE_SIZE 10 /* random bytes of an instance of the driver */
#define CONTENDER_MAX 64 /* "s4294967295-" and a key id */
#define PREFIX_MAX 256
#define KEY_MAX (PREFIX_MAX + ESCAPED_MAX + CONTENDER_MAX + 1)

/* The borders before the contenders of a name, between the exclusive and the shared ones, behind the shared ones, and behind
 * all keys of the name. Each is the character that follows `<prefix><name>/`, or for the last one `<prefix><name>`. Below the
 * first border may lie %tokens, %sessions and %records of clients whose prefix is `<prefix><name>`. */
#define CONTENDERS_BEGIN '&' /* '%' + 1 */
#define SHARED_BEGIN 's'
#define SHARED_END 't'
#define NAME_END '0' /* '/' + 1 */

/* Writes a name in its escaped form, as in keys; returns the length. */
size_t name_write(const char *name, size_t name_len, char escaped[ESCAPED_MAX]);
/* Reads the escaped form; 0: it is no lock's name. */
size_t name_read(const char *escaped, size_t length, char *name, size_t size);

/* The mode and the permits that a claim asks for. */
struct kind {
    bool shared;
    uint32_t permits; /* shared: at most so many; 0: any number */
};

void grant_write(const mortise_grant_id *grant, char hex[HEX_SIZE]);

/* The key id: which of its keys an instance of the driver uses. See claim.h, KEYS. */
struct key_id {
    uint8_t instance[INSTANCE_SIZE];
    uint32_t series, slot; /* 24 bits */
};

/* Writes the last part of a contender's key; returns the length. */
size_t contender_write(struct kind kind, const struct key_id *id, char text[CONTENDER_MAX]);

struct contender {
    struct kind kind;
    char id[HEX_SIZE]; /* "": not of Mortise */
};
struct contender contender_read(const char *text, size_t length);

/* The part of a key behind its last slash. */
const char *key_last(struct bytes key, size_t *length);

#endif
