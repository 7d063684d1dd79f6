/* names.h - what the folder and the nodes of a lock are called.
 *
 * The folder of a lock is its name. Bytes that ZooKeeper or a path cannot have are written as %XX, so a plain name has the very
 * folder that Curator and kazoo use. Each contender has one ephemeral sequential node in it:
 *
 *   node_style   the library's own                      Mortise, exclusive                        Mortise, shared
 *   curator      _c_<uuid>-lock-N                       _c_<uuid>-<session>-mortise-lock-N        …-<session>-s<permits>-mortise-lock-N
 *   curator-rw   _c_<uuid>-__READ__N, …-__WRIT__N       _c_<uuid>-<session>-mortise__WRIT__N      …-<session>-s<permits>-mortise__READ__N
 *   kazoo        <uuid>__lock__N, <uuid>__rlock__N      <uuid>__<session>__mortise__lock__N       …__<session>__s<permits>__mortise__lock__N
 *   kazoo-rw     the same                               the same                                  …__<session>__s<permits>__mortise__rlock__N
 *
 *
 * A semaphore of either library has two folders: a *gate*, through which one contender goes at a time, and the leases, which
 * count against the permits. A contender passes the gate, makes its lease, waits until there are few enough, and leaves the
 * gate. A contender that wants to be exclusive stays in the gate, so that nobody else comes, and waits until its lease is the
 * only one.
 *
 *   node_style          the library's gate, and leases          Mortise, in the gate          Mortise, lease
 *   curator-semaphore   <name>/locks: as curator;               as curator, exclusive         _c_<uuid>-<session>[-s<permits>]-mortise-lease-N
 *                       <name>/leases: _c_<uuid>-lease-N
 *   kazoo-semaphore     <name>-__lock__: as kazoo;              as kazoo, exclusive           <uuid>__<session>[__s<permits>]__mortise__lease__N
 *                       <name>: <uuid>
 *
 * The number N at the end is the place in the queue, whoever made the node. The uuid of a node of Mortise is its grant id.
 * <session> counts the sessions of the client, so that a claim cannot mistake a node that an earlier session of the same
 * client left behind for its own. <permits> is the number of a semaphore; 0: any number. A shared node of the styles
 * `curator` and `kazoo` looks like any other contender to the library and to clients of version 0.1: they wait for it. No I/O:
 * these functions know no server and no driver. */
#ifndef MORTISE_ZOOKEEPER_NAMES_H
#define MORTISE_ZOOKEEPER_NAMES_H

#include <mortise/driver.h>

#define FOLDER_MAX (3 * MORTISE_NAME_MAX + 1) /* an escaped name */
#define UUID_SIZE 37                          /* 8-4-4-4-12 and the NUL */
#define NODE_MAX 128                          /* a node of ours; others' names may be longer */
#define PART_MAX (FOLDER_MAX + 16)            /* the folder of a part */

enum node_style {
    STYLE_CURATOR,
    STYLE_KAZOO,
    STYLE_CURATOR_RW,
    STYLE_KAZOO_RW,
    STYLE_CURATOR_SEMAPHORE,
    STYLE_KAZOO_SEMAPHORE,
    STYLE_COUNT
};

/* A lock has one folder; a semaphore's gate has one of its own. */
enum part { PART_LEASES, PART_GATE };

/* Whether the style is that of a semaphore. */
bool style_has_gate(enum node_style style);
/* The style of the nodes in this part. */
enum node_style style_of_part(enum node_style style, enum part part);
/* Turns the folder of a name into that of the part, by appending its suffix. */
void folder_of_part(enum node_style style, enum part part, char folder[PART_MAX]);
/* Whether a child of the root is the gate of another child. */
bool is_gate_folder(enum node_style style, const char *folder);

/* Writes the folder of a name. at_top: it is directly below "/", where "zookeeper" belongs to the server. */
void folder_of_name(const char *name, size_t name_len, bool at_top, char folder[FOLDER_MAX]);
/* Writes the name of a folder and returns its length; 0 if the folder is no lock's. */
size_t name_of_folder(const char *folder, char *name, size_t size);

/* The mode and the permits that a claim asks for. */
struct node_kind {
    bool shared;
    uint32_t permits; /* shared: at most so many; 0: any number */
    bool any_permits; /* shared: the name does not say how many; its client counts itself */
};

/* Writes the name of a claim's node up to its number, which the server adds. */
void node_prefix(enum node_style style, struct node_kind kind, const mortise_grant_id *grant,
                 unsigned session, char prefix[NODE_MAX]);
/* Writes the uuid of a contender as 32 hex digits. False: it has none. */
bool node_owner(const char *node, char hex[33]);

/* What a node in the folder means to a client whose nodes have this style. */
enum node_kin {
    KIN_OWN,     /* a contender whose client counts our nodes */
    KIN_STYLE,   /* a contender of another style: its client does not count our nodes */
    KIN_MORTISE, /* the same, but Mortise made it, which counts the nodes of all styles */
    KIN_OTHER,   /* of a recipe with other rules (a semaphore, the C recipe): neither counts the other */
    KIN_NONE     /* no contender of any recipe */
};

/* A node as its name describes it. */
struct contender {
    const char *node;
    enum node_kin kin;
    enum node_style style; /* of a contender: the first style that counts it */
    int32_t number;        /* of a contender */
    struct node_kind kind; /* of a contender */
};

/* False: it is no contender, and only node and kin are set. */
bool node_read(const char *node, enum node_style style, struct contender *contender);
/* As in the config: "curator", "kazoo-rw". */
const char *node_style_name(enum node_style style);
/* What the numbers alone say about which of two nodes of one queue was made first. Numbers begin at 0 and grow, up to
 * 2^31 - 1. What comes after that depends on the server:
 *   - From ZooKeeper 3.6 on the folder's counter stays at 2^31 - 1. Requests that the server prepares together get
 *     2147483647, -2147483648, -2147483647 and so on, and the next ones get 2147483647 again.
 *   - Earlier servers count through all negative numbers to 0.
 * So a negative number comes after the numbers of the upper half, except 2147483647. Compared with any other number, it
 * decides nothing, and the czxids decide. Two numbers of one queue are less than 2^30 apart. */
enum number_order { NUMBER_BEFORE, NUMBER_AFTER, NUMBER_UNDECIDED };
enum number_order number_compare(int32_t a, int32_t b);

#endif
