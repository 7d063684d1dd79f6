/* release.c - releases, which must come to an end though nobody may be waiting for it.
 *
 * A release names the grant id, so it can be sent any number of times. It is over when the backend found
 * and released the claim; or said that it is not there and is sure that no lost request can make it
 * come back (R4); or when the claim has ended by itself. Until then it is repeated: at once, then with
 * a growing pause. The caller of mortise_release() is told at the first answer; one that stops waiting
 * leaves it running in the background. */
#include "client/core.h"

#include <stdlib.h>
#include <string.h>

#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 2000

static void release_done(mortise_op *op);

struct release *release_room_locked(struct client *client, size_t owner_len)
{
    struct release *release;
    if (!timer_reserve(&client->timers))
        return NULL;
    if (owner_len == 0 && client->free_releases.first != NULL) {
        release = (struct release *)client->free_releases.first;
        task_remove(&client->free_releases, &release->task);
    } else if ((release = malloc(sizeof(*release) + owner_len)) == NULL) {
        timer_unreserve(&client->timers);
        return NULL;
    }
    release->task.op.owner_len = owner_len;
    return release;
}

void release_room_free_locked(struct client *client, struct release *room)
{
    timer_unreserve(&client->timers);
    if (room->task.op.owner_len == 0)
        task_append(&client->free_releases, &room->task);
    else
        free(room);
}

static void release_free_locked(struct release *release)
{
    struct client *client = release->client;
    timer_stop(&client->timers, &release->timer);
    if (release->previous_release != NULL)
        release->previous_release->next_release = release->next_release;
    else
        client->releases = release->next_release;
    if (release->next_release != NULL)
        release->next_release->previous_release = release->previous_release;
    entry_unref_locked(client, release->entry);
    release_room_free_locked(client, release);
    client_ended_locked(client);
}

/* A task is used once: what is kept over the repeats is put aside and set anew. */
static void run_locked(struct release *release, struct task_list *starts)
{
    mortise_op *op = &release->task.op, asked = *op;
    memset(&release->task, 0, sizeof(release->task));
    op->core_state = OP_IDLE;
    op->kind = MORTISE_OP_RELEASE;
    op->flags = release->attempts > 0 ? MORTISE_OP_REPEAT : 0u;
    op->name = release->entry->name;
    op->name_len = release->entry->name_len;
    op->owner = asked.owner;
    op->owner_len = asked.owner_len;
    op->note = release->client->note;
    op->note_len = release->client->note_len;
    op->grant = asked.grant;
    op->token = asked.token;
    op->done = release_done;
    release->task.unattended = release->sleeper == NULL;
    release->running = true;
    int64_t patience_ms = release->client->settings.unreachable_timeout_ms / 2 + 1;
    timer_set_locked(release->client, &release->timer, clock_after_ms(clock_now(), patience_ms));
    task_append(starts, &release->task);
}

struct release *release_begin_locked(struct client *client, struct entry *entry,
                                     const mortise_grant_id *id, const char *owner,
                                     size_t owner_len, uint64_t token, int64_t until_ns,
                                     struct release *room, struct task_list *starts)
{
    struct release *release = room != NULL ? room : release_room_locked(client, owner_len);
    if (release == NULL) {
        client->left_behind = true; /* to its ttl */
        return NULL;
    }
    memset(release, 0, sizeof(*release));
    release->client = client;
    release->timer.kind = TIMER_RELEASE;
    mortise_op *op = &release->task.op;
    release->entry = entry;
    entry->references++;
    release->until_ns = until_ns;
    if (owner_len > 0) {
        memcpy(release->owner, owner, owner_len);
        op->owner = release->owner;
        op->owner_len = owner_len;
    }
    op->grant = *id;
    op->token = token;
    release->next_release = client->releases;
    if (client->releases != NULL)
        client->releases->previous_release = release;
    client->releases = release;
    client_began_locked(client);
    run_locked(release, starts);
    return release;
}

void release_attend_locked(struct release *release, struct sleeper *sleeper, mortise_status *status,
                           mortise_error *error)
{
    release->sleeper = sleeper;
    release->status = status;
    release->error = error;
    release->task.unattended = false; /* not yet started */
    *status = MORTISE_INDETERMINATE;
}

/* Reports to the caller and wakes it; its memory may be gone then. detail NULL: keeps the error reported before. */
static void tell_locked(struct release *release, mortise_status status, const mortise_error *detail)
{
    struct sleeper *sleeper = release->sleeper;
    if (sleeper == NULL)
        return;
    *release->status = status;
    if (release->error != NULL && detail != NULL) {
        *release->error = *detail;
        release->error->status = status;
    }
    release->sleeper = NULL;
    release->status = NULL;
    release->error = NULL;
    sleeper_wake_later(sleeper, &release->client->wakes);
}

/* The status for a caller that stops waiting now. The last try may be unsent while another one is under way. */
static mortise_status known_by_now_locked(const struct release *release)
{
    if (*release->status == MORTISE_UNREACHABLE && release->running &&
        pump_may_be_sent(&release->client->pump, &release->task))
        return MORTISE_INDETERMINATE;
    return *release->status;
}

void release_detach_locked(struct release *release)
{
    *release->status = known_by_now_locked(release);
    release->sleeper = NULL;
    release->status = NULL;
    release->error = NULL;
    if (release->running)
        pump_unattend(&release->client->pump, &release->task);
}

static bool is_final(const mortise_op *op)
{
    switch (op->status) {
    case MORTISE_OK:
    case MORTISE_LOST:
    case MORTISE_NOTOWNER:
        return op->sure;
    case MORTISE_UNREACHABLE:
    case MORTISE_INDETERMINATE:
    case MORTISE_CANCELED:
    case MORTISE_TIMEDOUT:
    case MORTISE_NOMEM:
        return false;
    default:
        return op->error == NULL || !op->error->retryable;
    }
}

/* What the caller is told. If the reply to a former try was lost, that try may have released the claim: that nobody
 * holds it now is what a release leaves behind. That another holds it now proves nothing: it may have come after our
 * release, or before it. */
static mortise_status told(const struct release *release, mortise_status status)
{
    if (status == MORTISE_LOST)
        return release->maybe_done ? MORTISE_OK : MORTISE_LOST;
    if (status == MORTISE_NOTOWNER)
        return release->maybe_done ? MORTISE_INDETERMINATE : MORTISE_LOST;
    return status;
}

/* No answer yet: what the caller is told if it stops waiting. */
static void note_failure(struct release *release, const mortise_op *op)
{
    if (release->status == NULL)
        return;
    bool sent = op->status != MORTISE_UNREACHABLE || release->maybe_done;
    *release->status = sent ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    if (release->error != NULL && op->error != NULL)
        *release->error = *op->error;
}

static void again_locked(struct release *release, bool answered, struct task_list *starts)
{
    struct client *client = release->client;
    unsigned attempts = release->attempts++;
    if (attempts == 0 && !answered) {
        run_locked(release, starts);
        return;
    }
    int64_t ms = (int64_t)BACKOFF_MIN_MS << (attempts < 8 ? attempts : 8);
    ms = ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms;
    ms = ms / 2 + random_below(&client->random, ms / 2 + 1);
    timer_set_locked(client, &release->timer, clock_after_ms(clock_now(), ms));
}

static void answered_locked(struct release *release, const mortise_op *op, struct task_list *starts)
{
    struct client *client = release->client;
    release->running = false;
    bool found =
        op->status == MORTISE_OK || op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER;
    bool final = is_final(op);
    bool over = !(final && found) && clock_now() >= release->until_ns; /* not asked for then */
    if (final || found)
        tell_locked(release, told(release, op->status), op->error);
    else
        note_failure(release, op);
    release->maybe_done |= op->status == MORTISE_INDETERMINATE;
    release->task.op.error = NULL; /* the pump frees it after this */
    if (!final && !over && !client->abandoning) {
        again_locked(release, found, starts);
        return;
    }
    if (release->status != NULL) /* it has heard nothing yet */
        tell_locked(release, *release->status, NULL);
    client->left_behind |= !found && (client->closing || !over);
    release_free_locked(release);
}

static void release_done(mortise_op *op)
{
    struct release *release = (struct release *)op;
    struct client *client = release->client;
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    answered_locked(release, op, &starts);
    client_unlock(client);
    pump_start(&client->pump, &starts);
}

void release_timer_locked(struct release *release, struct task_list *starts)
{
    struct client *client = release->client;
    if (!release->running) {
        run_locked(release, starts);
        return;
    }
    pump_cancel(&client->pump, &release->task); /* no answer: this try has failed */
    timer_set_locked(client, &release->timer, MORTISE_NEVER);
}

void releases_hurry_locked(struct client *client, struct task_list *starts)
{
    for (struct release *release = client->releases; release != NULL;
         release = release->next_release)
        if (!release->running)
            run_locked(release, starts);
}

void releases_end_locked(struct client *client)
{
    for (struct release *release = client->releases, *next; release != NULL; release = next) {
        next = release->next_release;
        if (release->status != NULL) /* before the cancel, which changes what may be sent */
            tell_locked(release, known_by_now_locked(release), NULL);
        if (release->running) {
            pump_unattend(&client->pump, &release->task);
            pump_cancel(&client->pump, &release->task);
            continue;
        }
        release_free_locked(release);
    }
}
