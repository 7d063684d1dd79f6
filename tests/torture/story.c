/* story.c - follows each client through its events: which callers asked with which outcome, which leases were granted
 * and how they ended. Reports what does not add up, and leaves the holds for the verdict. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#define WRONG(line, ...) violation(UNBALANCED, (line)->file, (line)->number, __VA_ARGS__)
#define WORD(word) (int)(word).size, (word).bytes
#define TEXT(text) (int)(text)->size, (text)->bytes

static void *made(size_t size)
{
    void *memory = calloc(1, size);
    if (!memory)
        abort();
    return memory;
}

const struct text *text_of(struct word word)
{
    static struct text *texts;
    struct text *text;
    if (word.size == 0)
        return NULL;
    HASH_FIND(hh, texts, word.bytes, word.size, text);
    if (text)
        return text;
    text = made(sizeof *text + word.size);
    text->size = word.size;
    memcpy(text->bytes, word.bytes, word.size);
    HASH_ADD(hh, texts, bytes, word.size, text);
    return text;
}

/* ---- clients ---------------------------------------------------------------------------------------- */

static struct client *client_of(const struct line *line)
{
    const struct text *id = text_of(line->client);
    struct client *client;
    HASH_FIND_PTR(world.clients, &id, client);
    if (client || !id)
        return client;
    client = made(sizeof *client);
    client->id = id;
    client->file = line->file;
    client->line = line->number;
    HASH_ADD_PTR(world.clients, id, client);
    return client;
}

static void opened(struct client *client, const struct line *line)
{
    if (client->pid != 0)
        WRONG(line, "the client was opened before, in line %lu", client->line);
    client->pid = line->pid;
    client->opened_ns = line->at_ns;
    client->line = line->number;
}

static void closed(struct client *client, const struct line *line)
{
    if (client->closed)
        WRONG(line, "the client was closed before");
    client->closed = true;
}

static void dropped(struct client *client, const struct line *line)
{
    (void)client;
    violation(GARBLED, line->file, line->number, "%llu events are missing",
              (unsigned long long)line->count);
}

/* ---- callers ---------------------------------------------------------------------------------------- */

/* When the claim that this caller may get was asked for at the earliest: a claim that a process has asked for goes to the
 * next caller there if the first one leaves, and keeps its place and its token. */
static int64_t wanted_since(const struct client *client, const struct text *name, int64_t at_ns)
{
    const struct caller *caller, *next;
    HASH_ITER (hh, client->callers, caller, next)
        if (caller->name == name && caller->since_ns < at_ns)
            at_ns = caller->since_ns;
    return at_ns;
}

static void asked(struct client *client, const struct line *line)
{
    struct caller *caller;
    HASH_FIND(hh, client->callers, &line->caller, sizeof line->caller, caller);
    if (caller) {
        WRONG(line, "caller %llu asks while it waits", (unsigned long long)line->caller);
        return;
    }
    const struct text *name = text_of(line->name);
    int64_t since_ns = wanted_since(client, name, line->at_ns);
    caller = made(sizeof *caller);
    *caller = (struct caller){.number = line->caller,
                              .name = name,
                              .asked_ns = line->at_ns,
                              .since_ns = since_ns,
                              .file = line->file,
                              .line = line->number};
    HASH_ADD(hh, client->callers, number, sizeof caller->number, caller);
}

/* Whether it was too long the verdict tells: the end of the faults is not known yet. */
static void note_wait(const struct caller *caller, const struct line *line)
{
    static const char *const usual[] = {"OK", "BUSY", "TIMEDOUT", "CANCELED", "CLOSED"};
    struct wait wait = {.name = caller->name,
                        .asked_ns = caller->asked_ns,
                        .done_ns = line->at_ns,
                        .failed = line->status.size > 0,
                        .file = line->file,
                        .line = line->number};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        wait.failed &= !word_is(line->status, usual[i]);
    utarray_push_back(world.waits, &wait);
}

/* The caller has its outcome, whatever it is. False: nobody had asked. */
static bool answered(struct client *client, const struct line *line, int64_t *since_ns)
{
    struct caller *caller;
    HASH_FIND(hh, client->callers, &line->caller, sizeof line->caller, caller);
    if (!caller) {
        WRONG(line, "%.*s: caller %llu has not asked, or had its outcome", WORD(line->event),
              (unsigned long long)line->caller);
        return false;
    }
    if (caller->name != text_of(line->name))
        WRONG(line, "caller %llu had asked for another name", (unsigned long long)line->caller);
    note_wait(caller, line);
    *since_ns = caller->since_ns;
    HASH_DEL(client->callers, caller);
    free(caller);
    return true;
}

static void queued(struct client *client, const struct line *line)
{
    struct caller *caller;
    HASH_FIND(hh, client->callers, &line->caller, sizeof line->caller, caller);
    if (!caller)
        WRONG(line, "caller %llu waits and has not asked", (unsigned long long)line->caller);
}

static void failed(struct client *client, const struct line *line)
{
    int64_t since_ns;
    answered(client, line, &since_ns);
}

/* ---- leases ----------------------------------------------------------------------------------------- */

static void given(struct client *client, const struct line *line)
{
    struct lease *lease;
    struct hold hold = {.client = client,
                        .name = text_of(line->name),
                        .owner = text_of(line->owner),
                        .lease = line->lease,
                        .token = line->token,
                        .permits = line->permits,
                        .handed_over = !word_is(line->event, "granted"),
                        .asked_ns = line->at_ns,
                        .shared_ns = word_is(line->mode, "shared") ? line->at_ns : NEVER,
                        .from_ns = line->at_ns,
                        .deadline_ns = line->deadline_ns,
                        .end_ns = NEVER,
                        .end = "deadline",
                        .file = line->file,
                        .line = line->number};
    answered(client, line, &hold.asked_ns);
    HASH_FIND(hh, client->leases, &line->lease, sizeof line->lease, lease);
    if (lease || !hold.name || line->grant.size != GRANT_DIGITS) {
        WRONG(line, "lease %llu was given before, or has no name or grant",
              (unsigned long long)line->lease);
        return;
    }
    memcpy(hold.grant, line->grant.bytes, GRANT_DIGITS);
    utarray_push_back(world.holds, &hold);
    lease = made(sizeof *lease);
    lease->number = line->lease;
    lease->hold = utarray_len(world.holds) - 1;
    HASH_ADD(hh, client->leases, number, sizeof lease->number, lease);
}

/* Of a lease that stands; NULL, and told, if there is none. */
static struct hold *hold_of(struct client *client, const struct line *line, struct lease **found)
{
    struct lease *lease;
    HASH_FIND(hh, client->leases, &line->lease, sizeof line->lease, lease);
    *found = lease;
    if (!lease) {
        WRONG(line, "%.*s: lease %llu was not given, or was given back", WORD(line->event),
              (unsigned long long)line->lease);
        return NULL;
    }
    return (struct hold *)utarray_eltptr(world.holds, lease->hold);
}

static void renewed(struct client *client, const struct line *line)
{
    struct lease *lease;
    struct hold *hold = hold_of(client, line, &lease);
    if (!hold)
        return;
    if (hold->end_ns != NEVER)
        WRONG(line, "lease %llu is lost, and renewed", (unsigned long long)line->lease);
    if (hold->token != line->token)
        violation(ORDER, line->file, line->number, "lease %llu: another token by a renewal",
                  (unsigned long long)line->lease);
    if (line->deadline_ns == 0)
        return; /* it has passed since; what was known of it before stands */
    if (line->deadline_ns < hold->deadline_ns) {
        WRONG(line, "lease %llu: a renewal that shortens it", (unsigned long long)line->lease);
        return;
    }
    struct late late = {.pid = client->pid,
                        .deadline_ns = hold->deadline_ns,
                        .at_ns = line->at_ns,
                        .lease = line->lease,
                        .file = line->file,
                        .line = line->number};
    if (hold->end_ns == NEVER && line->at_ns >= hold->deadline_ns &&
        line->at_ns < line->deadline_ns)
        utarray_push_back(world.late, &late);
    hold->deadline_ns = line->deadline_ns;
}

static void suspect(struct client *client, const struct line *line)
{
    struct lease *lease;
    const struct hold *hold = hold_of(client, line, &lease);
    if (hold && hold->end_ns != NEVER)
        WRONG(line, "lease %llu is lost, and suspect", (unsigned long long)line->lease);
}

/* Before the backend is asked: the holder only reads from now on. */
static void downgraded(struct client *client, const struct line *line)
{
    struct lease *lease;
    struct hold *hold = hold_of(client, line, &lease);
    if (hold && hold->shared_ns > line->at_ns)
        hold->shared_ns = line->at_ns;
}

static void lost(struct client *client, const struct line *line)
{
    struct lease *lease;
    struct hold *hold = hold_of(client, line, &lease);
    if (!hold)
        return;
    if (hold->end_ns != NEVER)
        WRONG(line, "lease %llu is lost twice", (unsigned long long)line->lease);
    hold->end_ns = line->at_ns;
    hold->end = "lost";
}

static void released(struct client *client, const struct line *line)
{
    struct lease *lease;
    struct hold *hold = hold_of(client, line, &lease);
    if (!hold)
        return;
    if (hold->end_ns == NEVER) {
        hold->end_ns = line->at_ns;
        hold->end = "released";
    }
    HASH_DEL(client->leases, lease);
    free(lease);
}

/* ---- what the run tells ------------------------------------------------------------------------------ */

static void calm(const struct line *line)
{
    world.calm_ns = line->at_ns;
}

static void killed(const struct line *line)
{
    struct killed one = {line->pid, line->at_ns};
    utarray_push_back(world.killed, &one);
}

static void stopped(const struct line *line)
{
    struct stop one = {line->pid, line->at_ns, line->until_ns};
    utarray_push_back(world.stops, &one);
}

/* Who writes the file, where it is no client's. */
static void process(const struct line *line)
{
    struct process one = {line->file, line->pid, line->at_ns};
    utarray_push_back(world.processes, &one);
}

static void left(const struct line *line)
{
    violation(LEFTOVER, line->file, line->number, "%.*s", WORD(line->text));
}

static void held(const struct line *line)
{
    struct told told = {.name = text_of(line->name),
                        .token = line->token,
                        .at_ns = line->at_ns,
                        .file = line->file,
                        .line = line->number};
    utarray_push_back(world.told, &told);
}

static struct counter *counter_of(const struct line *line)
{
    const struct text *name = text_of(line->name);
    struct counter *counter;
    HASH_FIND_PTR(world.counters, &name, counter);
    if (counter)
        return counter;
    counter = made(sizeof *counter);
    counter->name = name;
    HASH_ADD_PTR(world.counters, name, counter);
    return counter;
}

static void counter_read(const struct line *line)
{
    struct counter *counter = counter_of(line);
    if (line->token > counter->fence)
        counter->fence = line->token;
}

static void counter_write(const struct line *line)
{
    struct counter *counter = counter_of(line);
    if (line->token < counter->fence) {
        counter->refused++;
        return;
    }
    if (line->value != counter->value + 1)
        violation(LOST_UPDATE, line->file, line->number,
                  "%.*s: %llu was written over %llu, with token %llu", WORD(line->name),
                  (unsigned long long)line->value, (unsigned long long)counter->value,
                  (unsigned long long)line->token);
    counter->fence = line->token;
    counter->value = line->value;
    counter->writes++;
}

/* ---- lines ------------------------------------------------------------------------------------------- */

void story_line(const struct line *line)
{
    static const struct {
        const char *event;
        void (*of_client)(struct client *, const struct line *);
        void (*of_run)(const struct line *);
    } events[] = {
        {"asked", asked, NULL},       {"queued", queued, NULL},
        {"granted", given, NULL},     {"handed-over", given, NULL},
        {"joined", given, NULL},      {"renewed", renewed, NULL},
        {"suspect", suspect, NULL},   {"lost", lost, NULL},
        {"failed", failed, NULL},     {"released", released, NULL},
        {"opened", opened, NULL},     {"closed", closed, NULL},
        {"dropped", dropped, NULL},   {"calm", NULL, calm},
        {"killed", NULL, killed},     {"left", NULL, left},
        {"read", NULL, counter_read}, {"write", NULL, counter_write},
        {"held", NULL, held},         {"downgraded", downgraded, NULL},
        {"process", NULL, process},   {"stopped", NULL, stopped},
    };
    world.events++;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (!word_is(line->event, events[i].event))
            continue;
        struct client *client = events[i].of_client ? client_of(line) : NULL;
        if (events[i].of_run)
            events[i].of_run(line);
        else if (!client)
            WRONG(line, "%.*s: of which client?", WORD(line->event));
        else
            events[i].of_client(client, line);
        return;
    }
}

void story_begin(void)
{
    static const UT_icd hold = {sizeof(struct hold), NULL, NULL, NULL};
    static const UT_icd told = {sizeof(struct told), NULL, NULL, NULL};
    static const UT_icd wait = {sizeof(struct wait), NULL, NULL, NULL};
    static const UT_icd killed = {sizeof(struct killed), NULL, NULL, NULL};
    static const UT_icd torn = {sizeof(struct torn), NULL, NULL, NULL};
    static const UT_icd process = {sizeof(struct process), NULL, NULL, NULL};
    static const UT_icd stop = {sizeof(struct stop), NULL, NULL, NULL};
    static const UT_icd late = {sizeof(struct late), NULL, NULL, NULL};
    utarray_new(world.holds, &hold);
    utarray_new(world.told, &told);
    utarray_new(world.waits, &wait);
    utarray_new(world.killed, &killed);
    utarray_new(world.torn, &torn);
    utarray_new(world.processes, &process);
    utarray_new(world.stops, &stop);
    utarray_new(world.late, &late);
}

/* ---- the end ----------------------------------------------------------------------------------------- */

/* When the process that was there at that instant was killed; NEVER: it was not. A pid may be given twice. */
static int64_t killed_at(int64_t pid, int64_t since_ns)
{
    int64_t at_ns = NEVER;
    for (struct killed *one = NULL; (one = (struct killed *)utarray_next(world.killed, one));)
        if (one->pid == pid && one->at_ns >= since_ns && one->at_ns < at_ns)
            at_ns = one->at_ns;
    return at_ns;
}

/* It has left callers and leases behind, and holds nothing any more. */
static void end_killed(struct client *client, int64_t at_ns)
{
    struct lease *lease, *next;
    client->killed = true;
    HASH_ITER (hh, client->leases, lease, next) {
        struct hold *hold = (struct hold *)utarray_eltptr(world.holds, lease->hold);
        if (at_ns < hold->end_ns) {
            hold->end_ns = at_ns;
            hold->end = "killed";
        }
    }
}

static void end_client(struct client *client)
{
    struct caller *caller, *next_caller;
    struct lease *lease, *next_lease;
    if (!client->closed)
        violation(UNBALANCED, client->file, client->line,
                  "client %.*s: its history does not end, and nobody killed it", TEXT(client->id));
    HASH_ITER (hh, client->callers, caller, next_caller)
        violation(client->closed ? UNBALANCED : STARVED, caller->file, caller->line,
                  "%.*s: caller %llu has no outcome", TEXT(caller->name),
                  (unsigned long long)caller->number);
    HASH_ITER (hh, client->leases, lease, next_lease) {
        struct hold *hold = (struct hold *)utarray_eltptr(world.holds, lease->hold);
        if (hold->end_ns == NEVER)
            violation(LEFTOVER, hold->file, hold->line, "%.*s: lease %llu was never given back",
                      TEXT(hold->name), (unsigned long long)hold->lease);
    }
}

/* Only a process that is killed may leave half a line. */
static void end_torn(const struct torn *torn)
{
    struct client *client, *next;
    bool killed = false;
    HASH_ITER (hh, world.clients, client, next)
        killed |= client->killed && strcmp(client->file, torn->file) == 0;
    for (struct process *one = NULL; (one = (struct process *)utarray_next(world.processes, one));)
        killed |= strcmp(one->file, torn->file) == 0 && killed_at(one->pid, one->at_ns) != NEVER;
    if (!killed)
        violation(GARBLED, torn->file, torn->line, "half a line");
}

void story_garbled(const char *file, unsigned long number, bool last)
{
    struct torn torn = {file, number};
    if (last)
        utarray_push_back(world.torn, &torn);
    else
        violation(GARBLED, file, number, "cannot be read");
}

void story_end(void)
{
    struct client *client, *next;
    HASH_ITER (hh, world.clients, client, next) {
        int64_t at_ns = client->closed ? NEVER : killed_at(client->pid, client->opened_ns);
        if (at_ns != NEVER)
            end_killed(client, at_ns);
        else
            end_client(client);
    }
    for (struct torn *torn = NULL; (torn = (struct torn *)utarray_next(world.torn, torn));)
        end_torn(torn);
}
