/* names.h - what the nodes of a lock are called, and which of them comes first.
 *
 * The folder of a lock is its name, with the bytes that ZooKeeper or a path cannot have as %XX; so a plain
 * name is the very folder that Curator and kazoo use. In it stand the contenders, one ephemeral sequential
 * node each: "_c_<uuid>-lock-NNNNNNNNNN" as Curator makes them, "<uuid>__lock__NNNNNNNNNN" as kazoo does.
 * Whoever made it, the number at its end is its place in the queue. Mortise's nodes say so before that mark:
 * "_c_<uuid>-mortise-lock-NNNNNNNNNN", "<uuid>__mortise__lock__NNNNNNNNNN". Pure: no server, no driver. */
#ifndef MORTISE_ZOOKEEPER_NAMES_H
#define MORTISE_ZOOKEEPER_NAMES_H

#include <mortise/driver.h>

#define FOLDER_MAX (3 * MORTISE_NAME_MAX + 1) /* an escaped name */
#define UUID_SIZE 37                          /* 8-4-4-4-12 and the NUL */
#define NODE_MAX 128                          /* an own node's name; others' may be longer */

enum node_style { STYLE_CURATOR, STYLE_KAZOO };

/* Writes the folder of a name; at_top: it stands directly below "/", where "zookeeper" is the server's. */
void folder_of_name(const char *name, size_t name_len, bool at_top, char folder[FOLDER_MAX]);
/* The name of a folder; its length, 0 if it is no lock's. */
size_t name_of_folder(const char *folder, char *name, size_t size);

/* The beginning of an own node's name, to which the server puts the number. */
void node_prefix(enum node_style style, const mortise_grant_id *grant, char prefix[NODE_MAX]);
/* Whether this node is that grant's, in whatever style. */
bool node_is_of(const char *node, const mortise_grant_id *grant);
/* The uuid in a contender's name as 32 hex digits; false: it has none. */
bool node_owner(const char *node, char hex[33]);
/* Whether this node is a contender, and its number. */
bool node_number(const char *node, int32_t *number);
/* What a node in the folder is to a driver that makes nodes of this style. */
enum node_kin {
    KIN_OWN,     /* a contender; its recipe counts our nodes, as we count it */
    KIN_STYLE,   /* a contender of the other style: its recipe does not count our nodes */
    KIN_MORTISE, /* the same, but made by Mortise, which counts the nodes of both styles */
    KIN_OTHER,   /* of another recipe (a read/write lock, the C recipe): neither counts the other */
    KIN_NONE     /* no contender of any recipe: no number at its end */
};
enum node_kin node_kin(const char *node, enum node_style style);
/* Whether a client of Mortise made this contender, of whatever style (and not one older than that mark). */
bool node_is_mortise(const char *node);
/* Whether number a was given before b. They are given in order from 0 and go on at -2^31 after 2^31 - 1;
 * two that stand in one queue are never 2^31 apart. */
bool number_is_before(int32_t a, int32_t b);

/* What a folder holds. */
struct children {
    size_t count;
    char *names[];
};

/* A node beside which nobody of this style may be let in; NULL: there is none. It is KIN_STYLE or KIN_OTHER, or it is
 * KIN_MORTISE and the first of the queue (internal.h, TWO STYLES). */
const char *queue_foreign(const struct children *children, enum node_style style);
/* The first of the contenders; NULL: there is none. *count: how many there are (may be NULL). */
const char *queue_first(const struct children *children, size_t *count);

struct queue_place {
    bool found;         /* the own node stands in it */
    const char *before; /* the contender next before it, to be waited for; NULL: it is first */
};

/* Where the own node stands. later[]: contenders that were found to have come after it in spite of what
 * their numbers say (a number may be given twice: see internal.h). */
struct queue_place queue_look(const struct children *children, const char *own, char *const *later,
                              size_t later_count);

#endif
