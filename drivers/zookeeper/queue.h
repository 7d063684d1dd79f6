/* queue.h - which contender holds a lock, and which one blocks whom. Pure: it looks at the children of a folder.
 *
 * The contender that was made first holds the lock; the numbers say which one that is. Every other one waits for the
 * nearest contender before it.
 *
 * TWO STYLES. A client of Mortise counts the nodes of both styles, whatever its own style is. A client of Curator or kazoo
 * counts those of its own style only. The name of a node says whether Mortise made it. A claim of style S that has read the
 * folder follows this table, so two clients of Mortise never hold at once, whatever their styles are:
 *
 *   the folder has                                   the claim             why that is safe
 *   nodes of style S only                            queues                all count each other
 *   a node of T, not Mortise's; another recipe       CONFIG                its client does not count ours
 *   Mortise's nodes of T, and the first is of S      queues behind all     clients of Mortise count both, by number
 *   Mortise's node of T is the first                 looks once more,      nothing is granted; clients of S from another
 *                                                    then CONFIG           library would be let in beside T
 *   two made at once, S before T                     S goes on, T CONFIG   S is the first in both lists
 *   S before T, S is gone when T looks               T is the only one     as above
 *
 * So of two clients of Mortise the one that comes to a folder in use fails, and not those that are there. It looks once
 * more because T may be there only until it fails itself. A node that an older version of Mortise made has no mark, and
 * counts as a node of another library. */
#ifndef MORTISE_ZOOKEEPER_QUEUE_H
#define MORTISE_ZOOKEEPER_QUEUE_H

#include "names.h"

/* The names of the nodes in a folder. */
struct children {
    size_t count;
    char *names[];
};

/* What the children of a folder mean to one contender. The pointers are names among the children; NULL: there is none. */
struct queue_view {
    const char *first;   /* the first contender */
    size_t count;        /* of contenders */
    const char *foreign; /* beside this node no client of our style may hold (see TWO STYLES) */
    bool found;          /* our own node is there */
    const char *before;  /* the contender that blocks our own node; NULL: it is first */
};

/* own: our node, "" if there is none.
 *
 * At the end of the numbers they do not decide which of two nodes is before (number_compare). Then the node with the
 * smaller czxid is. The caller reads the czxid of `before`; if that node is not before ours, the caller looks again with its
 * name as `passed`. Undecided nodes come in the order of their names, and those up to `passed` do not block ours: they were
 * all passed or have gone, or came later. "": none was passed.
 *
 * The order of the czxids is the order in which the nodes were made, so it is right for every pair. Clients of Curator and
 * kazoo sort by the text of the numbers: "-2147483648" is before "2147483647" for them, and equal numbers have no order.
 * At the end of the numbers they may hold together with each other, and with ours. */
struct queue_view queue_look(const struct children *children, enum node_style style,
                             const char *own, const char *passed);
/* The node whose name begins with this prefix; NULL: there is none. */
const char *queue_find(const struct children *children, const char *prefix);

#endif
