/* test_turn.c - a release that takes the next caller's acquire along (turn.c): several clients of several threads contend
 * for one name in strict order. Nobody else holds it meanwhile, tokens grow, everybody gets its turns, and nothing is left;
 * also while the server forgets scripts, is out of memory, and ends connections; and while callers give up. */
#include "rig.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define CLIENTS 3
#define THREADS 4
#define CALLERS (CLIENTS * THREADS)

static struct server server;

struct contest {
    const char *name;
    int rounds;
    bool gives_up;       /* every second caller waits for a moment only */
    const char *user;    /* of all callers; NULL: one with all rights */
    _Atomic int holders; /* in the section */
    _Atomic int finished, held;
    _Atomic int last, changes; /* the client that held it last; how often it was another */
    _Atomic uint64_t token;
    int until; /* of the thread that disturbs */
};

struct caller {
    struct contest *contest;
    mortise_client *client;
    int number;
};

/* One alone is in here. */
static void hold(struct contest *contest, int client, mortise_lease *lease)
{
    uint64_t token = mortise_token(lease);
    CHECK(atomic_fetch_add(&contest->holders, 1) == 0);
    CHECK(atomic_exchange(&contest->token, token) < token);
    if (atomic_exchange(&contest->last, client) != client)
        atomic_fetch_add(&contest->changes, 1);
    atomic_fetch_sub(&contest->holders, 1);
    atomic_fetch_add(&contest->held, 1);
}

static void call(void *argument)
{
    struct caller *caller = argument;
    struct contest *contest = caller->contest;
    bool hurries = contest->gives_up && caller->number % 2 == 1;
    snprintf(doing, sizeof doing, "%s, caller %d", contest->name, caller->number);
    for (int i = 0; i < contest->rounds; i++) {
        mortise_lease *lease = NULL;
        int64_t wait_ms = hurries ? 1 + (i + caller->number) % 4 : TEST_PATIENCE_MS;
        mortise_status status = mortise_acquire(
            caller->client, contest->name, MORTISE_OPTIONS(.wait_ms = wait_ms, .ttl_ms = LONG_MS),
            &lease, &detail);
        if (hurries && status != MORTISE_OK)
            continue;
        if (!EXPECT(OK, status))
            break;
        hold(contest, caller->number % CLIENTS, lease);
        status = mortise_release(lease, &detail);
        CHECK(status == MORTISE_OK || status == MORTISE_INDETERMINATE); /* a connection was ended */
    }
    atomic_fetch_add(&contest->finished, 1);
}

static int64_t refused_for_memory(void)
{
    static const char words[] = "errorstat_OOM:count=";
    redisReply *reply = ask(&server, "INFO errorstats");
    const char *at = reply && reply->str ? strstr(reply->str, words) : NULL;
    int64_t count = at ? strtoll(at + sizeof words - 1, NULL, 10) : 0;
    freeReplyObject(reply);
    return count;
}

static int64_t scripts_called(void)
{
    return calls_of(&server, "evalsha") + calls_of(&server, "eval");
}

static void run(struct contest *contest, void *(*trouble)(void *contest))
{
    static struct caller callers[CALLERS];
    mortise_client *clients[CLIENTS];
    pthread_t troubles;
    for (int i = 0; i < CLIENTS; i++)
        clients[i] =
            open_at(&server, NULL, "handover_max = 0\nunreachable_timeout = 1m", contest->user);
    for (int i = 0; i < CALLERS; i++)
        callers[i] = (struct caller){contest, clients[i % CLIENTS], i};
    bool troubled =
        trouble != NULL && CHECK(pthread_create(&troubles, NULL, trouble, contest) == 0);
    in_parallel(call, callers, sizeof *callers, CALLERS);
    if (troubled)
        pthread_join(troubles, NULL);
    for (int i = 0; i < CLIENTS; i++)
        close_client(clients[i]);
    CHECK(wait_holds(&server, contest->name, 0));
    CHECK(wait_queue(&server, contest->name, 0));
}

/* ---- undisturbed -------------------------------------------------------------------------------------------------- */

/* Apart, each turn would be two requests at least. */
static void test_turns(void)
{
    struct contest contest = {.name = "turns", .rounds = 100};
    CHECK(ask_is(&server, "OK", "CONFIG RESETSTAT"));
    run(&contest, NULL);
    CHECK(contest.held == CALLERS * contest.rounds);
    CHECK(2 * contest.changes >
          contest.held); /* in strict order nobody goes twice while others wait */
    int64_t called = scripts_called();
    CHECK(called > 0 && called < 2 * contest.held);
}

static void test_giving_up(void)
{
    struct contest contest = {.name = "giving up", .rounds = 100, .gives_up = true};
    run(&contest, NULL);
    CHECK(contest.held >= CALLERS / 2 * contest.rounds);
}

/* ---- disturbed ---------------------------------------------------------------------------------------------------- */

static bool has_gone_on(void *argument)
{
    struct contest *contest = argument;
    return contest->finished == CALLERS || contest->held >= contest->until;
}

static void disturb(struct contest *contest, const char *command)
{
    contest->until = contest->held + 10;
    freeReplyObject(ask(&server, command));
    CHECK(test_poll(has_gone_on, contest, TEST_PATIENCE_MS));
}

static void *forget(void *argument)
{
    struct contest *contest = argument;
    while (contest->finished < CALLERS)
        disturb(contest, "SCRIPT FLUSH");
    return NULL;
}

static bool was_refused(void *argument)
{
    struct contest *contest = argument;
    return contest->finished == CALLERS || refused_for_memory() > 0;
}

static void *fill(void *argument)
{
    struct contest *contest = argument;
    while (contest->finished < CALLERS) {
        CHECK(ask_is(&server, "OK", "CONFIG RESETSTAT"));
        CHECK(ask_is(&server, "OK", "CONFIG SET maxmemory 1"));
        CHECK(test_poll(was_refused, contest, TEST_PATIENCE_MS));
        disturb(contest, "CONFIG SET maxmemory 0");
    }
    return NULL;
}

static void *cut(void *argument)
{
    struct contest *contest = argument;
    while (contest->finished < CALLERS) {
        disturb(contest, "CLIENT KILL TYPE normal SKIPME yes");
        disturb(contest, "CLIENT KILL TYPE pubsub");
    }
    return NULL;
}

/* A place, fresh, of a client that nobody hears any more: it is passed over. */
static void haunt_once(struct contest *contest)
{
    redisReply *time = ask(&server, "TIME");
    if (!CHECK(time && time->elements == 2))
        return;
    int64_t now = strtoll(time->element[0]->str, NULL, 10) * 1000000;
    freeReplyObject(time);
    contest->until = contest->held + 10;
    char place[256];
    snprintf(place, sizeof place,
             "%032d %016lld %010d %016lld %010d %019d %016d mortise:inbox:%032d\n", 1,
             (long long)now, LONG_MS, (long long)now + 2000LL * LONG_MS, LONG_MS, 1, 1, 1);
    freeReplyObject(ask(&server, "RPUSH {mortise:%s}:mortise:queue %s", contest->name, place));
    CHECK(test_poll(has_gone_on, contest, TEST_PATIENCE_MS));
}

static void *haunt(void *argument)
{
    struct contest *contest = argument;
    while (contest->finished < CALLERS)
        haunt_once(contest);
    freeReplyObject(ask(&server, "DEL {mortise:%s}:mortise:queue", contest->name));
    return NULL;
}

/* Asks to share, for a moment each time. */
static void *share(void *argument)
{
    struct contest *contest = argument;
    mortise_client *client = open_at(&server, NULL, NULL, NULL);
    while (contest->finished < CALLERS) {
        mortise_lease *lease = NULL;
        mortise_status status = mortise_acquire(
            client, contest->name,
            MORTISE_OPTIONS(.mode = MORTISE_SHARED, .wait_ms = 100, .ttl_ms = LONG_MS), &lease,
            &detail);
        CHECK(status != MORTISE_OK || contest->holders == 0);
        if (status == MORTISE_OK)
            give(lease);
    }
    close_client(client);
    return NULL;
}

static void *haunt_and_share(void *argument)
{
    pthread_t sharer;
    if (CHECK(pthread_create(&sharer, NULL, share, argument) == 0)) {
        haunt(argument);
        pthread_join(sharer, NULL);
    }
    return NULL;
}

/* The callers may not let in those who share. */
static void test_poorer(void)
{
    struct contest contest = {
        .name = "poorer", .rounds = 40, .user = "username = poor\npassword = word\n"};
    CHECK(ask_is(&server, "OK", "ACL SETUSER poor on >word ~* &* +@all -zscore"));
    run(&contest, haunt_and_share);
    CHECK(contest.held == CALLERS * contest.rounds);
    CHECK(ask_number(&server, "ACL DELUSER poor") == 1);
}

static void test_unheard(void)
{
    struct contest contest = {.name = "unheard", .rounds = 40};
    run(&contest, haunt);
    CHECK(contest.held == CALLERS * contest.rounds);
}

static void test_forgotten(void)
{
    struct contest contest = {.name = "scripts are forgotten", .rounds = 60};
    run(&contest, forget);
    CHECK(contest.held == CALLERS * contest.rounds);
}

static void test_full(void)
{
    struct contest contest = {.name = "memory is full", .rounds = 30};
    run(&contest, fill);
    CHECK(contest.held == CALLERS * contest.rounds);
}

static void test_cut(void)
{
    struct contest contest = {.name = "connections end", .rounds = 40};
    run(&contest, cut);
    CHECK(contest.held == CALLERS * contest.rounds);
}

static void test_cut_giving_up(void)
{
    struct contest contest = {.name = "connections end, giving up", .rounds = 40, .gives_up = true};
    run(&contest, cut);
    CHECK(contest.held >= CALLERS / 2 * contest.rounds);
}

static const CU_TestInfo tests[] = {
    {"turns are one request", test_turns},
    {"who waits gives up", test_giving_up},
    {"nobody hears the first", test_unheard},
    {"nobody hears the first, and the next may not be let in", test_poorer},
    {"scripts are forgotten", test_forgotten},
    {"the memory is full", test_full},
    {"connections end", test_cut},
    {"connections end while callers give up", test_cut_giving_up},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: turns", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
