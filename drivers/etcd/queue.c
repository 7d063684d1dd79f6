/* queue.c - asks for the keys that matter in a queue, and evaluates them. See queue.h. */
#include "queue.h"

#include "driver.h"

#include <string.h>

/* The answers to the ranges of a shared claim. */
enum { SHARED_BEFORE, SHARED_FIRST, SHARED_BELOW, SHARED_ABOVE, SHARED_NEAREST };

static size_t ops_of(struct kind kind)
{
    return !kind.shared ? 1 : kind.permits == 0 ? SHARED_NEAREST : SHARED_NEAREST + 1;
}

/* Asks for the nearest key with another number of permits. Such keys sort below or above the keys with its own number. */
static void ask_others(struct writer *writer, enum branch branch, const struct borders *borders,
                       int64_t created)
{
    struct range others = {.begin = borders->shared_begin,
                           .end = borders->same_begin,
                           .order = ORDER_NEWEST,
                           .made_by = created,
                           .limit = 1,
                           .keys_only = true};
    txn_range(writer, branch, &others);
    others.begin = borders->same_end;
    others.end = borders->shared_end;
    txn_range(writer, branch, &others);
}

size_t queue_ask(struct writer *writer, enum branch branch, const struct borders *borders,
                 struct kind kind, int64_t created)
{
    struct range nearest = {.order = ORDER_NEWEST, .made_by = created, .begin = borders->begin};
    if (!kind.shared) {
        nearest.end = borders->end;
        nearest.limit = 3; /* the own key, and two before it */
        nearest.keys_only = true;
        txn_range(writer, branch, &nearest);
        return ops_of(kind);
    }
    nearest.end = borders->shared_begin;
    nearest.limit = 1;
    txn_range(writer, branch, &nearest);
    txn_range(writer, branch,
              &(struct range){.begin = borders->shared_begin,
                              .end = borders->shared_end,
                              .order = ORDER_OLDEST,
                              .limit = 1});
    ask_others(writer, branch, borders, created);
    if (kind.permits == 0)
        return ops_of(kind);
    txn_range(writer, branch,
              &(struct range){.begin = borders->shared_begin,
                              .end = borders->shared_end,
                              .order = ORDER_NEWEST,
                              .made_by = created,
                              .limit = (int64_t)kind.permits + 1,
                              .keys_only = true});
    return ops_of(kind);
}

static bool is_key(const struct kv *kv, struct bytes key)
{
    return kv->key.size == key.size && key.size > 0 &&
           memcmp(kv->key.data, key.data, key.size) == 0;
}

/* A key other than the claim's own. */
static const struct kv *other(const struct kvs *kvs, struct bytes key)
{
    for (size_t i = 0; i < kvs->count; i++)
        if (!is_key(&kvs->all[i], key))
            return &kvs->all[i];
    return NULL;
}

static bool is_opened(const struct kv *kv)
{
    mortise_info info = {.size = sizeof(info)};
    return note_read(kv->value, &info) >= 0 && info.mode == MORTISE_SHARED;
}

static uint32_t permits_of(const struct kv *kv)
{
    size_t length;
    const char *last = key_last(kv->key, &length);
    return contender_read(last, length).kind.permits;
}

static const struct kv *only(const struct kvs *kvs)
{
    return kvs->count > 0 ? kvs->all : NULL;
}

/* The key that came later; NULL: there is none. */
static const struct kv *later(const struct kv *one, const struct kv *two)
{
    return one == NULL || (two != NULL && two->created > one->created) ? two : one;
}

static void look_shared(const struct kvs *ops, struct kind kind, struct bytes key,
                        struct queue_view *view)
{
    const struct kv *before = only(&ops[SHARED_BEFORE]), *first = only(&ops[SHARED_FIRST]);
    const struct kv *stranger = later(only(&ops[SHARED_BELOW]), only(&ops[SHARED_ABOVE]));
    bool opened = before != NULL && is_opened(before);
    view->somebody = before != NULL ? before : first;
    if (before != NULL && !opened)
        view->before = before;
    else if (opened && kind.permits != 0)
        view->other_permits = before;
    else if (!opened && first != NULL && !is_key(first, key) && permits_of(first) != kind.permits)
        view->other_permits = first;
    else if (stranger != NULL) {
        view->before = stranger;
        view->is_stranger = true;
    } else if (kind.permits != 0) {
        const struct kvs *nearest = &ops[SHARED_NEAREST];
        size_t others = 0;
        for (size_t i = 0; i < nearest->count; i++)
            others += !is_key(&nearest->all[i], key);
        if (others >= kind.permits)
            view->crowd = nearest;
    }
}

bool queue_look(const struct kvs *ops, size_t count, struct kind kind, struct bytes key,
                struct queue_view *view)
{
    *view = (struct queue_view){0};
    if (count != ops_of(kind))
        return false;
    if (kind.shared)
        look_shared(ops, kind, key, view);
    else {
        view->somebody = view->before = other(&ops[0], key);
        view->is_second = view->before != NULL && ops[0].count == 2;
    }
    return true;
}
