/* verdict.c - what the holds and waits of all clients show together: two holders of one name at one instant, tokens
 * that do not grow in the order of the holds, holders that do not learn of their loss, waiters that get no turn. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#define TEXT(text) (int)(text)->size, (text)->bytes
#define NS_PER_MS 1000000

int64_t hold_until(const struct hold *hold)
{
    return hold->end_ns < hold->deadline_ns ? hold->end_ns : hold->deadline_ns;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* By name, then by the beginning; else as they were read: each client's are in order. */
static int compare_holds(const void *a, const void *b)
{
    const struct hold *one = a, *other = b;
    if (one->name != other->name)
        return (uintptr_t)one->name < (uintptr_t)other->name ? -1 : 1;
    int order = compare_numbers(one->from_ns, other->from_ns);
    if (order == 0)
        order = compare_numbers(hold_until(one), hold_until(other));
    return order ? order : (one->token > other->token) - (one->token < other->token);
}

static bool share(const struct hold *one, const struct hold *other)
{
    return one->owner && one->owner == other->owner;
}

static bool is_shared(const struct hold *hold, int64_t at_ns)
{
    return hold->shared_ns <= at_ns;
}

static void tell_permits(const struct hold *hold, const struct hold *other, uint64_t count)
{
    violation(PERMITS, hold->file, hold->line,
              "%.*s: lease %llu of client %.*s (token %llu, permits %llu) is holder number %llu, "
              "beside lease %llu of client %.*s (token %llu, permits %llu, %s:%lu)",
              TEXT(hold->name), (unsigned long long)hold->lease, TEXT(hold->client->id),
              (unsigned long long)hold->token, (unsigned long long)hold->permits,
              (unsigned long long)count, (unsigned long long)other->lease, TEXT(other->client->id),
              (unsigned long long)other->token, (unsigned long long)other->permits, other->file,
              other->line);
}

static void tell_overlap(const struct hold *first, const struct hold *second)
{
    int64_t until_ns = hold_until(first);
    violation(
        OVERLAP, second->file, second->line,
        "%.*s: lease %llu of client %.*s (token %llu) while lease %llu of client %.*s (token %llu, "
        "%s:%lu) was held for %.3f ms more (%s)",
        TEXT(second->name), (unsigned long long)second->lease, TEXT(second->client->id),
        (unsigned long long)second->token, (unsigned long long)first->lease,
        TEXT(first->client->id), (unsigned long long)first->token, first->file, first->line,
        (double)(until_ns - second->from_ns) / NS_PER_MS,
        until_ns == first->end_ns ? first->end : "deadline");
}

/* Holds that have begun, of one name, and may go on. */
struct active {
    const struct hold **holds;
    size_t count, room;
};

static void add_active(struct active *active, const struct hold *hold)
{
    if (active->count == active->room) {
        active->room = active->room * 2 + 8;
        const struct hold **more = realloc(active->holds, active->room * sizeof(*more));
        if (!more)
            abort();
        active->holds = more;
    }
    active->holds[active->count++] = hold;
}

/* together: how many hold it with that one, and this one with them. */
static void check_permits(const struct hold *hold, const struct hold *other, uint64_t together)
{
    if (hold->permits != other->permits || (hold->permits > 0 && together == hold->permits + 1))
        tell_permits(hold, other, together);
}

static void check_overlap(struct active *active, const struct hold *hold)
{
    size_t kept = 0;
    uint64_t together = 1;
    for (size_t i = 0; i < active->count; i++) {
        const struct hold *other = active->holds[i];
        if (other->name != hold->name || hold_until(other) <= hold->from_ns)
            continue;
        active->holds[kept++] = other;
        bool both_read = is_shared(other, hold->from_ns) && is_shared(hold, hold->from_ns);
        if (!share(other, hold) && !both_read)
            tell_overlap(other, hold);
        else if (both_read)
            check_permits(hold, other, ++together);
    }
    active->count = kept;
    add_active(active, hold);
}

/* What one name's holds before had for tokens. Readers may be told in another order than that of their tokens, if they
 * asked before the other one was told. */
struct before {
    const struct hold *last,
        *writer; /* the one with the largest token, of all, and of those that began exclusive */
    const struct hold **largest; /* by their beginning: the largest token of a reader up to there */
    int64_t *from_ns;
    size_t count, room;
};

static void add_reader(struct before *before, const struct hold *hold)
{
    if (before->count == before->room) {
        before->room = before->room * 2 + 64;
        before->largest = realloc(before->largest, before->room * sizeof(*before->largest));
        before->from_ns = realloc(before->from_ns, before->room * sizeof(*before->from_ns));
        if (!before->largest || !before->from_ns)
            abort();
    }
    const struct hold *largest = before->count > 0 ? before->largest[before->count - 1] : hold;
    before->largest[before->count] = largest->token > hold->token ? largest : hold;
    before->from_ns[before->count++] = hold->from_ns;
}

/* The reader with the largest token that was told of it before that instant; NULL: there is none. */
static const struct hold *reader_before(const struct before *before, int64_t at_ns)
{
    size_t low = 0, high = before->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (before->from_ns[middle] < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? before->largest[low - 1] : NULL;
}

/* last may be NULL. */
static void check_after(const struct hold *last, const struct hold *hold)
{
    if (!last || hold->token > last->token || (hold->token == 0 && last->token == 0))
        return;
    bool handed_over = hold->client == last->client && strcmp(hold->grant, last->grant) == 0;
    if (hold->token < last->token || !(handed_over || share(hold, last)))
        violation(ORDER, hold->file, hold->line,
                  "%.*s: lease %llu of client %.*s has token %llu, and %s:%lu had %llu before",
                  TEXT(hold->name), (unsigned long long)hold->lease, TEXT(hold->client->id),
                  (unsigned long long)hold->token, last->file, last->line,
                  (unsigned long long)last->token);
}

/* A reader has a larger token than all writers before, and than all readers that were told before it asked; but a lease that
 * was handed over, or joins one of its process, has that one's token. */
static void check_order(struct before *before, const struct hold *hold)
{
    bool reads = is_shared(hold, hold->from_ns);
    if (world.fencing && hold->token == 0)
        violation(ORDER, hold->file, hold->line, "%.*s: lease %llu of client %.*s has no token",
                  TEXT(hold->name), (unsigned long long)hold->lease, TEXT(hold->client->id));
    check_after(reads ? before->writer : before->last, hold);
    if (reads && !hold->handed_over)
        check_after(reader_before(before, hold->asked_ns), hold);
    if (reads)
        add_reader(before, hold);
    else if (!before->writer || hold->token > before->writer->token)
        before->writer = hold;
    if (!before->last || hold->token > before->last->token)
        before->last = hold;
}

static void judge_holds(void)
{
    struct active active = {NULL, 0, 0};
    struct before before = {.last = NULL};
    if (utarray_len(world.holds) > 1)
        utarray_sort(world.holds, compare_holds);
    for (struct hold *hold = NULL; (hold = (struct hold *)utarray_next(world.holds, hold));) {
        if (hold->from_ns >= hold_until(hold))
            continue; /* told too late to be of use: held at no instant */
        if (before.last && before.last->name != hold->name) {
            before.last = before.writer = NULL;
            before.count = 0;
        }
        check_overlap(&active, hold);
        check_order(&before, hold);
    }
    free(active.holds);
    free(before.largest);
    free(before.from_ns);
}

static int compare_tokens(const void *a, const void *b)
{
    const struct hold *one = a, *other = b;
    return (one->token > other->token) - (one->token < other->token);
}

/* A holder knows nothing of the namespace that stands before its names in the history. */
static bool is_of(const struct hold *hold, const struct text *name)
{
    const struct text *whole = hold->name;
    return name && whole->size >= name->size &&
           memcmp(whole->bytes + whole->size - name->size, name->bytes, name->size) == 0;
}

/* The last hold of that name and token: by hand-over, and among owners, there are several. NULL: there is none. */
static const struct hold *last_of(const struct told *told)
{
    const struct hold key = {.token = told->token}, *last = NULL;
    const struct hold *begin = (const struct hold *)utarray_front(world.holds);
    const struct hold *hold =
        begin ? (const struct hold *)utarray_find(world.holds, &key, compare_tokens) : NULL;
    if (!hold)
        return NULL;
    while (hold > begin && hold[-1].token == told->token)
        hold--;
    for (; hold < begin + utarray_len(world.holds) && hold->token == told->token; hold++)
        if (is_of(hold, told->name) && (!last || hold_until(hold) > hold_until(last)))
            last = hold;
    return last;
}

static bool reads_twice(const struct hold *one, const struct hold *other)
{
    return one->token == other->token && one->token != 0 && one->name == other->name &&
           is_shared(one, one->from_ns) && is_shared(other, other->from_ns) &&
           strcmp(one->grant, other->grant) != 0;
}

/* No two readers have one token, however near to each other they asked. The holds stand by their tokens. */
static void judge_readers(void)
{
    const struct hold *begin = (const struct hold *)utarray_front(world.holds);
    size_t count = utarray_len(world.holds);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i; j-- > 0 && begin[j].token == begin[i].token;)
            if (reads_twice(&begin[i], &begin[j]) && begin[j].asked_ns <= begin[i].from_ns &&
                begin[i].asked_ns <= begin[j].from_ns)
                violation(ORDER, begin[i].file, begin[i].line,
                          "%.*s: two readers have token %llu, the other one in %s:%lu",
                          TEXT(begin[i].name), (unsigned long long)begin[i].token, begin[j].file,
                          begin[j].line);
}

/* R2: a holder who looks when its end has come sees that. */
static void judge_told(void)
{
    if (utarray_len(world.holds) > 1)
        utarray_sort(world.holds, compare_tokens);
    judge_readers();
    for (struct told *told = NULL; (told = (struct told *)utarray_next(world.told, told));) {
        const struct hold *hold = last_of(told);
        if (!hold)
            violation(UNBALANCED, told->file, told->line, "%.*s: token %llu was never given",
                      TEXT(told->name), (unsigned long long)told->token);
        else if (told->at_ns >= hold_until(hold))
            violation(
                OUTLIVED, told->file, told->line,
                "%.*s: held with token %llu, %.3f ms after the end of lease %llu of client %.*s",
                TEXT(told->name), (unsigned long long)told->token,
                (double)(told->at_ns - hold_until(hold)) / NS_PER_MS,
                (unsigned long long)hold->lease, TEXT(hold->client->id));
    }
}

/* Once the faults have ended, what is asked is had within `patience`, and nothing fails. */
static void judge_wait(const struct wait *wait)
{
    int64_t from_ns = wait->asked_ns > world.calm_ns ? wait->asked_ns : world.calm_ns;
    int64_t healed_ns = world.calm_ns + world.patience_ns;
    int64_t took_ns = wait->done_ns - from_ns;
    if (took_ns > world.longest_ns && world.calm_ns > 0)
        world.longest_ns = took_ns;
    if (took_ns > world.patience_ns)
        violation(STARVED, wait->file, wait->line, "%.*s: waited for %lld ms", TEXT(wait->name),
                  (long long)(took_ns / NS_PER_MS));
    else if (wait->failed && wait->asked_ns > healed_ns && world.calm_ns > 0)
        violation(STARVED, wait->file, wait->line, "%.*s: failed long after the last fault",
                  TEXT(wait->name));
}

/* A process that is stopped between its look at the clock and the exchange of the deadline goes on as if no time had passed.
 * No other thread of it has looked meanwhile, and the backend holds the claim: nobody was told anything false. The stop may end
 * before the deadline: who goes on is slow at first. Within the slack, a millisecond where no process waits for a processor: a later
 * one has looked at the clock again. */
static void judge_late(const struct late *late)
{
    bool stood = false;
    for (struct stop *one = NULL; (one = (struct stop *)utarray_next(world.stops, one));)
        stood |= one->pid == late->pid && one->from_ns <= late->deadline_ns &&
                 late->at_ns - one->until_ns < world.slack_ns;
    if (!stood)
        violation(OUTLIVED, late->file, late->line, "lease %llu: renewed %.3f ms after its end",
                  (unsigned long long)late->lease,
                  (double)(late->at_ns - late->deadline_ns) / NS_PER_MS);
}

void verdict(void)
{
    for (struct late *late = NULL; (late = (struct late *)utarray_next(world.late, late));)
        judge_late(late);
    judge_holds();
    judge_told();
    for (struct wait *wait = NULL; (wait = (struct wait *)utarray_next(world.waits, wait));)
        judge_wait(wait);
}
