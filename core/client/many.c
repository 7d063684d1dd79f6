/* many.c - several names at once, all or none.
 *
 * All missing names are tried at the same time. If some are held by others, or a request got no answer, the call waits for
 * the first of these names (in byte order), and only for that one. Before that, it releases the leases of all names after it. So
 * a call waits only while the names that it holds are smaller, and two calls cannot wait for each other; with n names it waits n
 * times at most. A lease that was lost while the call waited for another name is acquired again. */
#include "client/calls.h"

#include <stdlib.h>
#include <string.h>

/* One of the names. */
struct part {
    struct full_name name;
    size_t index; /* in the caller's arrays */
    mortise_lease *lease;
    mortise_status status;
    mortise_error error;
    struct waiter waiter;
};

struct many {
    struct client *client;
    mortise_options options;
    char thread_owner[THREAD_OWNER_SIZE];
    struct waiter model; /* what all waiters have in common */
    int64_t until_ns;
    size_t count;
    struct part parts[];
};

static int by_name(const void *a, const void *b)
{
    const struct full_name *left = &((const struct part *)a)->name;
    const struct full_name *right = &((const struct part *)b)->name;
    size_t shorter = left->length < right->length ? left->length : right->length;
    int order = memcmp(left->text, right->text, shorter);
    return order != 0 ? order : (left->length > right->length) - (left->length < right->length);
}

/* ---- asking ---- */

static void prepare_part(struct many *many, struct part *part, bool try_once)
{
    struct waiter *waiter = &part->waiter;
    /* a request of an earlier round may still be executed; to the caller, all rounds are one call */
    bool unsure = waiter->unsure || part->status == MORTISE_INDETERMINATE;
    memcpy(waiter, &many->model, offsetof(struct waiter, async));
    waiter->unsure = unsure;
    waiter->async = false;
    waiter->error = &part->error;
    waiter->asked_ns = clock_now();
    waiter->try_once = try_once;
    waiter->until_ns = many->until_ns;
    waiter->on_state = NULL; /* until the caller has the lease */
    sleeper_init(&waiter->sleeper, &many->client->pump);
}

static void take_outcome(struct many *many, struct part *part)
{
    int64_t until_ns = call_patience_ns(many->client, &part->waiter);
    if (many->options.wait_ms != 0 && many->until_ns < until_ns)
        until_ns = many->until_ns;
    if (part->status == MORTISE_OK)
        part->status = call_await(many->client, &part->waiter, until_ns);
    part->lease = part->status == MORTISE_OK ? part->waiter.lease : NULL;
}

/* Tries all that are missing, in one batch of requests. */
static void try_missing(struct many *many)
{
    struct locks *locks = &many->client->locks;
    for (size_t i = 0; i < many->count; i++)
        if (many->parts[i].lease == NULL)
            prepare_part(many, &many->parts[i], true);
    pthread_mutex_lock(&locks->lock);
    for (size_t i = 0; i < many->count; i++)
        if (many->parts[i].lease == NULL)
            many->parts[i].status =
                call_join_locked(locks, &many->parts[i].name, &many->parts[i].waiter);
    locks_unlock(locks, START_SOON); /* in one batch, by the first wait */
    for (size_t i = 0; i < many->count; i++)
        if (many->parts[i].lease == NULL)
            take_outcome(many, &many->parts[i]);
}

static void wait_for(struct many *many, struct part *part)
{
    struct locks *locks = &many->client->locks;
    prepare_part(many, part, false);
    pthread_mutex_lock(&locks->lock);
    part->status = call_join_locked(locks, &part->name, &part->waiter);
    locks_unlock(locks, START_NOW);
    take_outcome(many, part);
}

/* ---- giving back ---- */

static void give_back_from(struct many *many, size_t first)
{
    for (size_t i = first; i < many->count; i++) {
        mortise_release_nowait(many->parts[i].lease, NULL);
        many->parts[i].lease = NULL;
    }
}

/* A close of the client spends the handles of all leases. */
static mortise_status explain_lost(struct many *many, struct part *part)
{
    struct locks *locks = &many->client->locks;
    pthread_mutex_lock(&locks->lock);
    bool closing = locks->closing;
    locks_unlock(locks, START_NOW);
    return closing ? failed(&part->error, MORTISE_CLOSED, "the client was closed: open another one")
                   : failed(&part->error, MORTISE_BUSY,
                            "mortise_acquire_many: a lease was lost while others were missing");
}

static void drop_lost(struct many *many)
{
    for (size_t i = 0; i < many->count; i++) {
        struct part *part = &many->parts[i];
        if (part->lease == NULL || mortise_state(part->lease) != MORTISE_STATE_LOST)
            continue;
        mortise_release_nowait(part->lease, NULL);
        part->lease = NULL;
        part->status = explain_lost(many, part);
    }
}

/* ---- all of them ---- */

/* The failure may pass if the call waits. A failure after which mortise_acquire() asks again must not end this call only because
 * the name was tried first. */
static bool may_pass(const struct many *many, const struct part *part)
{
    if (part->status == MORTISE_BUSY)
        return true;
    if (many->options.wait_ms == 0 || clock_now() >= many->until_ns)
        return false;
    return part->status == MORTISE_UNREACHABLE || part->status == MORTISE_INDETERMINATE ||
           (part->status == MORTISE_BACKEND && part->error.retryable);
}

/* Returns the first name that is missing; NULL: none is. Failures that cannot pass (*mends is false) come before those that
 * may. */
static struct part *missing(struct many *many, bool *mends)
{
    struct part *first = NULL;
    for (size_t i = 0; i < many->count; i++) {
        struct part *part = &many->parts[i];
        *mends = part->lease != NULL || may_pass(many, part);
        if (!*mends)
            return part;
        if (part->lease == NULL && first == NULL)
            first = part;
    }
    return first;
}

static struct part *acquire_all(struct many *many)
{
    for (;;) {
        try_missing(many);
        drop_lost(many);
        bool mends;
        struct part *part = missing(many, &mends);
        if (part == NULL)
            return NULL;
        if (!mends || many->options.wait_ms == 0)
            return part;
        give_back_from(many, (size_t)(part - many->parts) + 1);
        wait_for(many, part);
        if (part->lease == NULL)
            return part;
    }
}

/* Gives the leases to the caller. False: one was lost before that. */
static bool hand_out(struct many *many, mortise_lease **leases)
{
    struct locks *locks = &many->client->locks;
    bool all = true;
    pthread_mutex_lock(&locks->lock);
    int64_t now = clock_now();
    for (size_t i = 0; i < many->count && all; i++)
        all = lease_is_held_locked(many->parts[i].lease, now);
    for (size_t i = 0; i < many->count && all; i++) {
        leases[many->parts[i].index] = many->parts[i].lease;
        lease_call_back_locked(many->parts[i].lease, many->options.on_state,
                               many->options.user_data);
    }
    locks_unlock(locks, START_NOW);
    return all;
}

/* The part whose status and message the call returns. UNREACHABLE says that no request has, or may still have, a lasting effect.
 * So it is the status only if that is true of all names. As in mortise_acquire(), the same holds for a refusal that may pass. */
static struct part *told(struct many *many, struct part *failed_part)
{
    bool passes = failed_part->status == MORTISE_BACKEND && failed_part->error.retryable;
    if (failed_part->status != MORTISE_UNREACHABLE && !passes)
        return failed_part;
    bool unsure = false;
    for (size_t i = 0; i < many->count; i++) {
        if (many->parts[i].status == MORTISE_INDETERMINATE)
            return &many->parts[i];
        unsure |= many->parts[i].waiter.unsure;
    }
    if (unsure)
        failed_part->status = failed_part->error.status = MORTISE_INDETERMINATE;
    return failed_part;
}

static mortise_status acquire_and_hand_out(struct many *many, mortise_lease **leases,
                                           mortise_error *error)
{
    struct part *failed_part;
    while ((failed_part = acquire_all(many)) == NULL)
        if (hand_out(many, leases))
            return MORTISE_OK;
    failed_part = told(many, failed_part);
    mortise_status status = failed_part->status;
    if (error != NULL)
        *error = failed_part->error;
    give_back_from(many, 0);
    return status;
}

static mortise_status read_names(struct many *many, const char *const *names, mortise_error *error)
{
    mortise_status status = MORTISE_OK;
    for (size_t i = 0; i < many->count && status == MORTISE_OK; i++) {
        struct part *part = &many->parts[i];
        part->index = i;
        part->lease = NULL;
        status =
            client_name(many->client, names[i], false, part->name.text, &part->name.length, error);
    }
    if (status != MORTISE_OK)
        return status;
    qsort(many->parts, many->count, sizeof(many->parts[0]), by_name);
    for (size_t i = 1; i < many->count; i++) {
        char quoted[QUOTED_SIZE];
        const struct full_name *name = &many->parts[i].name;
        if (by_name(&many->parts[i - 1], &many->parts[i]) != 0)
            continue;
        return failed(error, MORTISE_INVALID, "mortise_acquire_many: %s is given twice",
                      quote_name(name->text, name->length, quoted, sizeof(quoted)));
    }
    return MORTISE_OK;
}

static mortise_status acquire_many(struct many *many, const char *const *names,
                                   const mortise_options *given, mortise_lease **leases,
                                   mortise_error *error)
{
    mortise_status status = call_read_options(many->client, given, &many->options, error);
    if (status == MORTISE_OK)
        status =
            call_read_owner(many->client, &many->options, many->thread_owner, &many->model, error);
    if (status == MORTISE_OK)
        status = call_may_wait(&many->options, error);
    if (status == MORTISE_OK)
        status = read_names(many, names, error);
    if (status != MORTISE_OK)
        return status;
    call_fill_waiter(&many->model, &many->options);
    many->until_ns = many->model.until_ns;
    status = call_prepare(many->client, &many->model, error);
    return status == MORTISE_OK ? acquire_and_hand_out(many, leases, error) : status;
}

mortise_status mortise_acquire_many(mortise_client *handle, const char *const *names, size_t n,
                                    const mortise_options *options, mortise_lease **leases,
                                    mortise_error *error)
{
    struct client *client;
    if (names == NULL || leases == NULL || n == 0 || n > MORTISE_MANY_MAX)
        return failed(error, MORTISE_INVALID,
                      "mortise_acquire_many: %zu names; 1 to %d, and room for their leases", n,
                      MORTISE_MANY_MAX);
    memset(leases, 0, n * sizeof(leases[0]));
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct many *many = calloc(1, sizeof(*many) + n * sizeof(many->parts[0]));
    if (many == NULL)
        status = failed(error, MORTISE_NOMEM, "out of memory");
    else {
        many->client = client;
        many->count = n;
        status = acquire_many(many, names, options, leases, error);
    }
    free(many);
    client_leave(client);
    return status;
}

/* ---- releasing ---- */

struct ending {
    struct release_call call;
    bool begun;
    mortise_status status;
    mortise_error error;
};

static mortise_status release_each(mortise_lease *const *leases, size_t n, mortise_error *error)
{
    mortise_status first = MORTISE_OK;
    for (size_t i = 0; i < n; i++) {
        mortise_status status = mortise_release(leases[i], first == MORTISE_OK ? error : NULL);
        first = first == MORTISE_OK ? status : first;
    }
    return first;
}

static mortise_status release_together(struct ending *endings, mortise_lease *const *leases,
                                       size_t n, mortise_error *error)
{
    mortise_status first = MORTISE_OK;
    for (size_t i = 0; i < n; i++) {
        struct release_call *call = &endings[i].call;
        call->waits = call->several = true;
        call->error = error == NULL ? NULL : &endings[i].error;
        endings[i].status = leases[i] == NULL ? MORTISE_OK : call_begin_release(call, leases[i]);
        endings[i].begun = leases[i] != NULL && endings[i].status == MORTISE_OK;
    }
    for (size_t i = 0; i < n; i++) {
        struct release_call *call = &endings[i].call;
        mortise_status status = endings[i].begun ? call_end_release(call) : endings[i].status;
        if (first == MORTISE_OK && status != MORTISE_OK && error != NULL)
            *error = endings[i].error;
        first = first == MORTISE_OK ? status : first;
    }
    return first;
}

mortise_status mortise_release_many(mortise_lease *const *leases, size_t n, mortise_error *error)
{
    if (leases == NULL && n > 0)
        return failed(error, MORTISE_INVALID, "mortise_release_many: no leases");
    struct ending *endings = n > 1 ? calloc(n, sizeof(*endings)) : NULL;
    if (endings == NULL)
        return release_each(leases, n, error); /* a release does not fail because memory is short */
    mortise_status status = release_together(endings, leases, n, error);
    free(endings);
    return status;
}
