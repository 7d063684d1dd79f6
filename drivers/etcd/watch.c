/* watch.c - the watches on keys: one stream of the connection, a number for each watch.
 *
 * A watch begins at the revision behind the one that its owner has read. So nothing is missed between the two. It ends when its
 * owner stops it, when the server ends it (its revision is compacted, or the user has no right), or with the connection; A
 * number is never used again, so a late message of a watch that was stopped does no harm.
 *
 * REFUSED. The server checks each new watch against the token with which the stream was opened, which may have expired long ago.
 * From 3.4.22 and 3.5.6 on, the answer to a watch that it refuses does not say which watch that is.
 *
 * PROMPT WATCHES. A server reports events from before a watch was made only ten times a second. In a cluster that is in use,
 * some revision nearly always comes between a look and the watch, so the client would hear late of a release soon after the
 * look. Therefore a watch of one key that blocks a claim begins at the server's present revision. If that is above the revision
 * that the owner has read, the key is read once more after the server has said that the watch is made. Then either the read or
 * the watch shows the change.
 *
 * TURNS (wait.c). The watch of a claim's turn is a prompt one, of the range from one of its two keys to the other. Messages of
 * one watch come in the order of revisions, and all events of one revision come in one message. Keys between the two are
 * ignored. The watch is *sure* when it was made at a revision that its owner knows, or when the read has shown both keys.
 * Before that, somebody may have deleted the own key unseen. A deletion at an earlier revision than the owner knows belongs to
 * an earlier life of the key. (It comes from a member that is behind, which a balancer of calls may choose.) */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (1000 * NS_PER_MS) /* the pause for a server that ends all watches at once */
#define NO_WATCH (-1)               /* in place of the number of a watch that was refused */

struct watch {
    UT_hash_handle hh; /* by number */
    int64_t number;
    enum watch_target kind;
    void *target;
    int64_t from_revision; /* its owner knows everything before it */
    bool puts;
    size_t key_size; /* 0: the watch begins at from_revision, and needs no read */
    bool is_sure;    /* of a turn */
    size_t own_size; /* > 0: the watch of a turn; the claim's own key follows the key */
    uint8_t key[];
};

static struct bytes key_of(const struct watch *watch)
{
    return (struct bytes){watch->key, watch->key_size};
}

static struct bytes own_of(const struct watch *watch)
{
    return (struct bytes){watch->key + watch->key_size, watch->own_size};
}

static struct watch *watch_of(struct driver *driver, int64_t number)
{
    struct watch *watch;
    HASH_FIND(hh, driver->watches, &number, sizeof(number), watch);
    return watch;
}

static void forget(struct driver *driver, struct watch *watch)
{
    HASH_DELETE(hh, driver->watches, watch);
    free(watch);
}

/* key: the key to read again when the watch is made. own: the own key, for a turn. Either may be empty. */
static struct watch *watch_new(struct driver *driver, enum watch_target kind, void *target,
                               struct bytes key, struct bytes own, int64_t from_revision)
{
    struct watch *watch =
        is_connected(driver) ? calloc(1, sizeof(*watch) + key.size + own.size) : NULL;
    if (watch == NULL)
        return NULL;
    watch->number = ++driver->watch_number;
    watch->kind = kind;
    watch->target = target;
    watch->from_revision = from_revision;
    watch->key_size = key.size;
    watch->own_size = own.size;
    if (key.size > 0)
        memcpy(watch->key, key.data, key.size);
    if (own.size > 0)
        memcpy(watch->key + key.size, own.data, own.size);
    HASH_ADD(hh, driver->watches, number, sizeof(watch->number), watch);
    if (watch->hh.tbl != NULL)
        return watch;
    free(watch);
    return NULL;
}

int64_t watch_start(struct driver *driver, enum watch_target kind, void *target, struct bytes begin,
                    struct bytes end, int64_t from_revision, bool puts)
{
    size_t mark;
    bool is_prompt = kind == WATCHES_BLOCKER && end.size == 0;
    struct watch *watch = watch_new(driver, kind, target, is_prompt ? begin : (struct bytes){0},
                                    (struct bytes){0}, from_revision);
    if (watch == NULL)
        return 0;
    watch->puts = puts;
    struct writer *out = link_watch_begin(&driver->link, &mark);
    write_watch(out, watch->number, begin, end, is_prompt ? 0 : from_revision, puts, false);
    link_watch_end(&driver->link, mark);
    return watch->number;
}

/* Whether `one` sorts before the other as a key. */
static bool is_less(struct bytes one, struct bytes two)
{
    size_t size = one.size < two.size ? one.size : two.size;
    int order = memcmp(one.data, two.data, size);
    return order != 0 ? order < 0 : one.size < two.size;
}

int64_t watch_turn(struct driver *driver, struct claim *claim, struct bytes own,
                   struct bytes before, int64_t from_revision)
{
    uint8_t end[KEY_MAX + 1];
    size_t mark;
    struct bytes first = is_less(own, before) ? own : before;
    struct bytes last = is_less(own, before) ? before : own;
    struct watch *watch =
        last.size > KEY_MAX ? NULL
                            : watch_new(driver, WATCHES_BLOCKER, claim, before, own, from_revision);
    if (watch == NULL)
        return 0;
    memcpy(end, last.data, last.size);
    end[last.size] = '\0'; /* the first key behind it */
    struct writer *out = link_watch_begin(&driver->link, &mark);
    write_watch(out, watch->number, first, (struct bytes){end, last.size + 1}, 0, false, true);
    link_watch_end(&driver->link, mark);
    return watch->number;
}

void watch_stop(struct driver *driver, int64_t number)
{
    size_t mark;
    struct watch *watch = number == 0 ? NULL : watch_of(driver, number);
    if (watch == NULL)
        return;
    forget(driver, watch);
    if (!is_connected(driver))
        return;
    write_unwatch(link_watch_begin(&driver->link, &mark), number);
    link_watch_end(&driver->link, mark);
}

/* The server ended a watch, or refused to make it, and not because of a compaction. Most likely the token with which the stream
 * was opened has expired. So all watches get another stream. Each owner reads its keys first, and by that the link gets a new
 * token. */
static void restart(struct driver *driver)
{
    struct watch *all = driver->watches;
    int64_t now_ns = now_of(driver);
    driver->watch_pause_ns = now_ns - driver->watch_ended_ns < AGAIN_NS ? AGAIN_NS : 0;
    driver->watch_ended_ns = now_ns;
    driver->watches = NULL;
    link_watch_stop(&driver->link);
    while (all != NULL) {
        struct watch *watch = all;
        HASH_DELETE(hh, all, watch);
        driver->upcalls->watched(driver, watch->kind, watch->target, WATCH_ENDED);
        free(watch);
    }
}

/* ---- prompt watches -------------------------------------------------------------------------------- */

static void tell(struct driver *driver, const struct watch *watch, enum watch_event event)
{
    driver->upcalls->watched(driver, watch->kind, watch->target, event);
}

/* The answer of the read: the keys after the watch was made. */
static void checked(struct driver *driver, struct call *call)
{
    struct watch *watch = watch_of(driver, (int64_t)call->to.step);
    if (watch == NULL || call->end == CALL_LOST)
        return;
    const struct kvs *found = &call->answer.ops[0], *own = &call->answer.ops[1];
    bool own_gone =
        watch->own_size > 0 && (own->count == 0 || own->all[0].created >= watch->from_revision);
    if (call->end == CALL_REFUSED || own_gone) /* the owner finds out why */
        tell(driver, watch, WATCH_CHANGED);
    else if (found->count == 0 || found->all[0].created >= watch->from_revision)
        tell(driver, watch, WATCH_DELETED);
    else if (watch->puts && found->all[0].modified >= watch->from_revision)
        tell(driver, watch, WATCH_CHANGED);
    else
        watch->is_sure = true;
}

static void made(struct driver *driver, struct watch *watch, int64_t revision)
{
    watch->is_sure = revision < watch->from_revision;
    if (watch->key_size == 0 || watch->is_sure)
        return;
    struct call *call =
        link_begin(&driver->link, METHOD_TXN,
                   (struct reply_to){.answered = checked, .step = (uint64_t)watch->number});
    if (call != NULL)
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = key_of(watch), .keys_only = true});
    if (call != NULL && watch->own_size > 0)
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = own_of(watch), .keys_only = true});
    if (call == NULL || !link_send(&driver->link, call))
        tell(driver, watch, WATCH_CHANGED);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Something between the two keys of a turn was deleted. */
static void turn_message(struct driver *driver, const struct watch *watch, struct bytes message)
{
    int64_t from = watch->from_revision, revision;
    struct bytes value;
    if (watch_deletion(message, own_of(watch), from, &revision, &value))
        tell(driver, watch, WATCH_CHANGED);
    else if (!watch_deletion(message, key_of(watch), from, &revision, &value))
        return;
    else if (watch->is_sure)
        driver->upcalls->turn(driver, watch->target, revision, value);
    else
        tell(driver, watch, WATCH_DELETED);
}

bool watch_message(struct driver *driver, struct bytes message)
{
    struct watch_answer answer;
    if (!watch_answer_read(message, &answer))
        return false;
    struct watch *watch = watch_of(driver, answer.id);
    bool is_of_ours = watch != NULL || answer.id == NO_WATCH;
    if (answer.kind == WATCH_CANCELED && answer.compacted == 0 && is_of_ours) {
        restart(driver);
        return true;
    }
    if (watch == NULL)
        return true;
    if (answer.kind == WATCH_MADE) {
        made(driver, watch, answer.header.revision);
        return true;
    }
    if (answer.kind == WATCH_EVENTS && watch->own_size > 0) {
        turn_message(driver, watch, message);
        return true;
    }
    enum watch_target kind = watch->kind;
    void *target = watch->target;
    enum watch_event event = answer.deleted ? WATCH_DELETED : WATCH_CHANGED;
    if (answer.kind == WATCH_CANCELED) {
        event = WATCH_ENDED;
        forget(driver, watch);
    } else if (!answer.deleted && !answer.put) /* progress */
        return true;
    driver->upcalls->watched(driver, kind, target, event);
    return true;
}

void watches_end(struct driver *driver)
{
    while (driver->watches != NULL)
        forget(driver, driver->watches);
}
