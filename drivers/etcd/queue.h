/* queue.h - which contenders hold a lock, and which one blocks which. No I/O: it writes the request for the keys of a name that
 * matter, and evaluates the answer.
 *
 * The contenders queue in the order of their create revisions. Who may hold:
 *
 *   a claim           is admitted when                                               otherwise it watches
 *   exclusive         no contender is before it                                      the nearest one before it
 *   shared            only shared ones with the same permits are before it,          the nearest one before it that is not
 *                     and, with permits P, fewer than P                              such; or the nearest P before it
 *
 * So a shared claim never overtakes an exclusive one, and there is no herd: when an exclusive claim ends, all shared ones
 * behind it go on, and nobody else. A shared claim does not overtake one with another number of permits either: that one may be
 * about to be refused, or about to be the first, and the two must never hold together. With P permits, one of *any* P
 * contenders before a claim has to go before the claim can be admitted. So it is enough to watch P of them, and it does not
 * matter which permits come back, or how many at once. If the first contender is shared with another number of permits, and
 * still is at a second look, the acquire fails (INVALID).
 *
 * An exclusive holder that becomes shared keeps its key and its place, and says so in the value of the key (note.c). A shared
 * claim reads the value of the nearest exclusive key before it. If the value says that it became shared, its holder once was
 * the first of all contenders. So nobody is before that key, and it blocks no shared claim without permits. Only clients of
 * Mortise understand that. Exclusive claims wait for every key, whatever its value says. */
#ifndef MORTISE_ETCD_QUEUE_H
#define MORTISE_ETCD_QUEUE_H

#include "messages.h"
#include "names.h"

#define CROWD_MAX 64 /* with more permits than this, one watch covers all shared keys */
#define QUEUE_OPS_MAX 5

/* The borders of a name's keys: [begin, shared_begin) are exclusive, [shared_begin, shared_end) are shared, and of these
 * [same_begin, same_end) have the permits of the claim. */
struct borders {
    struct bytes begin, shared_begin, same_begin, same_end, shared_end, end;
};

/* Adds the ranges that show what blocks such a claim, as of the claim's create revision (0: it has no key, or gets it in
 * the same transaction). Returns the number of ranges. */
size_t queue_ask(struct writer *writer, enum branch branch, const struct borders *borders,
                 struct kind kind, int64_t created);

/* What the answers show. The pointers are keys in the answer; NULL: there is none. */
struct queue_view {
    bool is_second;          /* `before` is the only contender before an exclusive one */
    const struct kv *before; /* the key that blocks the claim; NULL: it may hold, or */
    bool is_stranger; /* `before` has another number of permits, and is not the first contender */
    const struct kvs
        *crowd; /* the permits are used up: these keys block the claim (one may be its own) */
    const struct kv
        *other_permits;        /* the first contender, if it holds with another number of permits */
    const struct kv *somebody; /* possibly a holder: for a caller that does not wait */
};
/* ops: the answers to those ranges. key: the claim's own; empty: it has none. False: the answer makes no sense. */
bool queue_look(const struct kvs *ops, size_t count, struct kind kind, struct bytes key,
                struct queue_view *view);

#endif
