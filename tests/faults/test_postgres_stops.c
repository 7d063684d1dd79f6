/* test_postgres_stops.c - the PostgreSQL server is stopped in each possible way during acquires, renewals, releases
 * and waits, and started again. On a private server. */
#define SERVER_SETTINGS "conf=checkpoint_timeout = 1h\n"
#include "postgres_server.h"

#include <stdatomic.h>

enum { BUSY = 6, TTL_MS = 2000 };

struct busy {
    pthread_t thread;
    mortise_client *client;
    bool shares; /* the name of all */
    char name[16];
    _Atomic bool stop;
    _Atomic int cycles;
    int twice, odd;
    uint64_t token;
};

static _Atomic int inside;

/* Two hold it, and both have it by their own clocks: never. Tokens of one name grow. */
static void look_around(struct busy *self, mortise_lease *lease)
{
    uint64_t token = mortise_token(lease);
    bool crowded = self->shares && atomic_fetch_add(&inside, 1) > 0;
    self->twice += crowded && mortise_state(lease) == MORTISE_STATE_HELD;
    self->odd += token < self->token; /* equal: handed over */
    self->token = token;
    if (self->shares)
        atomic_fetch_sub(&inside, 1);
}

static void *be_busy(void *argument)
{
    struct busy *self = argument;
    mortise_error error;
    while (!self->stop) {
        mortise_lease *lease;
        mortise_status status = mortise_acquire(
            self->client, self->name, MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = TTL_MS),
            &lease, &error);
        if (status == MORTISE_OK) {
            look_around(self, lease);
            status = mortise_release(lease, &error);
            self->cycles++;
        }
        bool away = status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE ||
                    status == MORTISE_LOST || status == MORTISE_BACKEND;
        self->odd += status != MORTISE_OK && !away;
    }
    return NULL;
}

static bool goes_on(void *argument)
{
    return ((struct busy *)argument)->cycles >= 3;
}

static bool is_held(void *lease)
{
    return mortise_state(lease) == MORTISE_STATE_HELD;
}

static bool has_renewed(void *argument)
{
    mortise_stats stats = {.size = sizeof stats};
    return mortise_stats_get(argument, &stats) == MORTISE_OK && stats.renewals > 0;
}

static void all_go_on(struct busy *busy)
{
    for (size_t i = 0; i < BUSY; i++)
        busy[i].cycles = 0;
    for (size_t i = 0; i < BUSY; i++)
        CU_ASSERT(test_poll(goes_on, &busy[i], PATIENCE_MS));
}

static void goes_down(int signal)
{
    static struct busy busy[BUSY];
    mortise_client *clients[2] = {open_client("", ""), open_client("", "")};
    mortise_client *holder = open_client("renew_every = 50ms", "");
    struct waiter waiter;
    mortise_lease *lease = take(holder, "kept", HOLD_MS);
    waiter_begin(&waiter, clients[0], "kept");
    CU_ASSERT(test_poll(has_renewed, holder, PATIENCE_MS));
    for (size_t i = 0; i < BUSY; i++) {
        busy[i] = (struct busy){.client = clients[i % 2], .shares = i < 4};
        snprintf(busy[i].name, sizeof busy[i].name, i < 4 ? "busy" : "busy-%zu", i);
        CU_ASSERT_FATAL(pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]) == 0);
    }
    all_go_on(busy);
    CU_ASSERT_FATAL(server_stop(signal));
    CU_ASSERT_FATAL(act("start", "only=1"));
    all_go_on(busy);
    for (size_t i = 0; i < BUSY; i++)
        busy[i].stop = true;
    for (size_t i = 0; i < BUSY; i++) {
        pthread_join(busy[i].thread, NULL);
        CU_ASSERT_EQUAL(busy[i].twice, 0);
        CU_ASSERT_EQUAL(busy[i].odd, 0);
    }
    CU_ASSERT(test_poll(is_held, lease, PATIENCE_MS)); /* through all of it */
    give(lease);
    CU_ASSERT_EQUAL(waiter_end(&waiter), MORTISE_OK);
    mortise_close(holder, NULL);
    for (size_t i = 0; i < 2; i++)
        mortise_close(clients[i], NULL);
    CU_ASSERT(soon("SELECT count(*) FROM mortise_lock WHERE grants IS NOT NULL "
                   "AND expires_at > clock_timestamp()",
                   "0"));
}

static void test_fast(void)
{
    goes_down(SIGINT);
}

static void test_immediate(void)
{
    goes_down(SIGQUIT);
}

static void test_killed(void)
{
    goes_down(SIGKILL);
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"pg_ctl stop -m fast", test_fast},
        {"pg_ctl stop -m immediate", test_immediate},
        {"kill -9", test_killed},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
