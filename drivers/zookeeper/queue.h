/* queue.h - which contenders hold a lock, and which one blocks which. No I/O: it only looks at the children of a folder.
 *
 * The contenders queue in the order in which they were made; the numbers show that order. Who may hold:
 *
 *   a claim           is admitted when                                               otherwise it watches
 *   exclusive         no contender is before it                                      the nearest one before it
 *   shared            only shared ones with the same permits are before it,          the nearest one before it that is not
 *                     and, with permits P, fewer than P                              such; or the nearest P before it
 *
 * So a shared claim never overtakes an exclusive one, and there is no herd: when an exclusive claim ends, all shared ones
 * behind it go on, and nobody else. With P permits, one of *any* P contenders before a claim has to go before the claim can
 * be admitted. So it is enough to watch P of them, and it does not matter which permits come back, or how many at once. A
 * node is watched by at most P others, because each claim watches the nearest ones. If the first contender is shared with
 * another number of permits, the acquire fails (INVALID).
 *
 * An exclusive holder that becomes shared keeps its node and its place, and says so in the data of the node (note.c). Only
 * clients of Mortise understand that. A shared claim that waits for a node reads its data, and takes such a node as a shared
 * one without permits (`opened`). Exclusive claims wait for every node, whatever it says.
 *
 * The leases of another library's SEMAPHORE say that they are shared, but not with how many permits. They count against the
 * permits of our claims, but do not block them otherwise. Only the contender in the gate (names.h) looks at the leases to
 * get in.
 *
 * STYLES. A client of Mortise counts the nodes of all styles, whatever its own style is. A client of another library
 * counts those of its own recipe only. The name of a node says whether Mortise made it. A claim of style S that has read the
 * folder follows this table. So two clients of Mortise never break the rules above, whatever their styles are:
 *
 *   the folder has                                   the claim             why that is safe
 *   nodes of style S only                            queues                all count each other
 *   a node of T, not Mortise's; another recipe       CONFIG                its client does not count ours
 *   Mortise's nodes of T, and the first is of S      queues behind all,    clients of Mortise count both, by number
 *                                                    shared ones too
 *   Mortise's node of T is the first                 looks once more,      nothing is granted; clients of S from another
 *                                                    then CONFIG           library would be let in beside T
 *   two made at once, S before T                     S goes on, T CONFIG   S is the first in both lists
 *   S before T, S is gone when T looks               T is the only one     as above
 *
 * So of two clients of Mortise, the one that comes to a folder in use fails, and not the one that is there. It looks once
 * more, because T may be there only until T fails itself. A node that an older version of Mortise made has no mark, and
 * counts as a node of another library. */
#ifndef MORTISE_ZOOKEEPER_QUEUE_H
#define MORTISE_ZOOKEEPER_QUEUE_H

#include "names.h"

/* The names of the nodes in a folder. */
struct children {
    size_t count;
    char *names[];
};

/* The contender that looks, and what it knows already. */
struct seeker {
    enum node_style style;
    struct node_kind kind;
    const char *node;   /* its own node; "": none, so all contenders are before it */
    const char *passed; /* see queue_look(); "": none */
    const char *opened; /* an exclusive node that its holder made shared; "": none is known */
};

/* What the children of a folder mean to the seeker. The pointers are names among the children, or the seeker's own; NULL:
 * there is none. */
struct queue_view {
    const char *first;   /* the first contender */
    size_t count;        /* of contenders */
    const char *foreign; /* no client of our style may hold beside this node (see STYLES) */
    const char *other_permits; /* the first contender that says how many, if it holds with another number of permits */
    bool found;                /* our own node is there */
    const char *before;        /* the contender that blocks the seeker; NULL: it may hold */
    bool crowded;              /* the permits are used up, and nothing else blocks it: see queue_nearest() */
};

/* At the end of the numbers, the numbers do not decide which of two nodes comes first (number_compare). Then the node with
 * the smaller czxid does. The caller reads the czxid of `before`. If that node is not before ours, the caller looks again
 * with its name as `passed`. Undecided nodes are taken in the order of their names, and those up to `passed` do not block
 * ours, because they were all passed, have gone, or came later. An undecided node that is before ours blocks it, shared or
 * not.
 *
 * The order of the czxids is the order in which the nodes were made, so it is right for every pair. Clients of Curator and
 * kazoo sort by the text of the numbers: "-2147483648" is before "2147483647" for them, and equal numbers have no order.
 * So at the end of the numbers they may hold at the same time as each other, and as ours. */
struct queue_view queue_look(const struct children *children, const struct seeker *seeker);
/* Finds the contenders before ours that are nearest to it, at most `count`. Sorts them into `all`, which has room for each
 * child, and returns how many there are. */
size_t queue_nearest(const struct children *children, const struct seeker *seeker, size_t count,
                     struct contender *all);
/* Sorts the contenders of all styles into `all`, which has room for each child; returns how many there are. */
size_t queue_sort(const struct children *children, enum node_style style, struct contender *all);
/* How many of these contenders, from the first one on, may hold, according to their names. If the first is exclusive: one. At
 * the end of the numbers: all that may be the first. */
size_t queue_holders(const struct contender *all, size_t count);
/* Whose nodes to read to know who holds: the first `now` of these contenders; and if the last of those says that it is shared,
 * though it is exclusive by its name, also `more` behind it. */
struct queue_reads {
    size_t now, more;
};
struct queue_reads queue_to_read(const struct contender *all, size_t count);
/* The node whose name begins with this prefix; NULL: there is none. */
const char *queue_find(const struct children *children, const char *prefix);

#endif
