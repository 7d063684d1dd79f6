/* test_migrate_crowd.c - clients of all phases of the migrate plugin come and go while steps are taken in both directions. No two
 * have the name that all want, and no client of phase old has a lease beside one of phase new, whatever the name. */
#include "migrate_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <utlist.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CROWD = 9, STEPS = 8 }; /* the same steps in a quarter of the time */
#else
enum { CROWD = 24, STEPS = 8 };
#endif

enum { OLD, BOTH, NEW };
struct holder {
    struct holder *next;
    mortise_lease *lease;
    int phase;
    bool shared; /* of the one name that all want */
};
static struct {
    pthread_mutex_t lock;
    struct holder *holders;
    int grants[3], refusals, given_up;
    bool met, failed;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool crowd_ends;

/* Two that nobody may have at one instant. */
static bool must_not_meet(const struct holder *one, const struct holder *another)
{
    return (one->shared && another->shared) ||
           (one->phase != BOTH && another->phase == NEW - one->phase);
}

/* What counts is what the leases say: a thread may be stopped while it is in the list, and its lease may end meanwhile. Another one
 * that is not LOST after this one was HELD, and was in the list before, was held at the same instant. */
static void hold(mortise_lease *lease, unsigned phase, bool shared)
{
    struct holder self = {.lease = lease, .phase = (int)phase, .shared = shared};
    pthread_mutex_lock(&held.lock);
    if (mortise_state(lease) == MORTISE_STATE_HELD) {
        held.grants[phase]++;
        for (const struct holder *other = held.holders; other != NULL; other = other->next)
            held.met |=
                must_not_meet(&self, other) && mortise_state(other->lease) != MORTISE_STATE_LOST;
        LL_PREPEND(held.holders, &self);
        pthread_mutex_unlock(&held.lock);
        sched_yield();
        pthread_mutex_lock(&held.lock);
        LL_DELETE(held.holders, &self);
    }
    pthread_mutex_unlock(&held.lock);
}

/* A client of phase both may wait long for `to` beside many clients of phase new, because the locks are not fair. It
 * gives up then, so that no step waits for it: TIMEDOUT, or UNREACHABLE or INDETERMINATE if an earlier undo was not
 * sure. */
#define LIFE_MS 5000

/* The life of a process: it opens in some phase, works if it is admitted, and closes. own: a name that it shares with nobody. */
static void live(const char *where, unsigned phase, const char *own)
{
    mortise_client *client = NULL;
    mortise_error error;
    mortise_status status = mortise_open(where, &client, &error);
    for (int i = 0; i < 5 && status == MORTISE_OK; i++) {
        mortise_lease *lease;
        const char *name = i % 2 != 0 ? own : "a";
        status = mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = LIFE_MS), &lease, &error);
        if (status == MORTISE_OK) {
            hold(lease, phase, name != own);
            mortise_release(lease, NULL);
        }
    }
    pthread_mutex_lock(&held.lock);
    held.refusals += status == MORTISE_CONFIG;
    bool gave_up = status == MORTISE_TIMEDOUT || status == MORTISE_UNREACHABLE ||
                   status == MORTISE_INDETERMINATE;
    held.given_up += gave_up;
    if (status != MORTISE_OK && status != MORTISE_CONFIG && !gave_up) {
        held.failed = true;
        fprintf(stderr, "  %s: %s\n", mortise_status_name(status), error.message);
    }
    pthread_mutex_unlock(&held.lock);
    mortise_close(client, NULL);
}

static char crowd_configs[3][400];

static void *one_of_the_crowd(void *argument)
{
    unsigned state = (unsigned)(uintptr_t)argument;
    char own[16];
    snprintf(own, sizeof own, "own-%u", state);
    while (!atomic_load(&crowd_ends)) {
        state = state * 1103515245u + 12345u;
        unsigned which = (state >> 16) % 3;
        live(crowd_configs[which], which, own);
    }
    return NULL;
}

static bool has_more(void *argument)
{
    const int *before = argument; /* the phase, and how many grants it had */
    pthread_mutex_lock(&held.lock);
    bool more = held.grants[before[0]] > before[1];
    pthread_mutex_unlock(&held.lock);
    return more;
}

static void await_a_grant(int phase)
{
    pthread_mutex_lock(&held.lock);
    int before[] = {phase, held.grants[phase]};
    pthread_mutex_unlock(&held.lock);
    CU_ASSERT(test_poll(has_more, before, PATIENCE_MS));
}

/* Clients of all phases come and go while steps are taken in both directions. */
static void test_crowd(void)
{
    static const char *const phases[] = {"old", "both", "new"};
    pthread_t threads[CROWD];
    begin();
    for (int i = 0; i < 3; i++)
        snprintf(crowd_configs[i], sizeof crowd_configs[i], "%s", config(phases[i], "60s"));
    for (uintptr_t i = 0; i < CROWD; i++)
        CU_ASSERT_FATAL(pthread_create(&threads[i], NULL, one_of_the_crowd, (void *)i) == 0);
    for (int i = 0; i < STEPS; i++) {
        await_a_grant(i % 4 == 0 ? OLD : NEW); /* of the stage that the step leaves */
        take_step(i % 4 < 2);
    }
    atomic_store(&crowd_ends, true);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT_FALSE(held.met);
    CU_ASSERT_FALSE(held.failed);
    CU_ASSERT(held.grants[BOTH] > 0);
    printf("(old %d, both %d, new %d, refused %d, given up %d) ", held.grants[OLD],
           held.grants[BOTH], held.grants[NEW], held.refusals, held.given_up);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("migrate_crowd", NULL, NULL);
    CU_add_test(suite, "a crowd", test_crowd);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    int failures = (int)CU_get_number_of_failures();
    CU_cleanup_registry();
    if (folder[0] != '\0')
        test_folder_remove(folder);
    return failures > 0;
}
