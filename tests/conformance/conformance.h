/* conformance.h - what the parts of the conformance suite share.
 *
 * The suite runs on one *subject*: a driver or stack, given as a config and a short descriptor. It uses only the
 * public header. It also tests what the subject does not promise: that must return NOTSUP, exactly. */
#ifndef MORTISE_TESTS_CONFORMANCE_H
#define MORTISE_TESTS_CONFORMANCE_H

#include <expect.h>
#include <mortise/mortise.h>
#include <support.h>

#include <CUnit/CUnit.h>

/* ---- The subject (subject.c) ------------------------------------------------------------------ */

/* What a hook can do to the server, besides starting it. */
enum {
    HOOK_RESTART =
        1u << 0, /* stop, start: it is down, and comes back with what it promises to keep */
    HOOK_FREEZE = 1u << 1, /* freeze, thaw: it accepts requests, and answers none until it is thawed */
    HOOK_LOSE = 1u << 2    /* lose, pass: requests are executed, replies are lost */
};

struct subject {
    const char
        *where; /* a config file's template or a URL; with @DIR@ and the output of `start` replaced */
    const char *hooks; /* a script, "sim" for the sim driver's own, or NULL */
    unsigned can;      /* HOOK_… */
    bool processes;    /* other processes see the locks */
    bool lingers;      /* nobody can know when a request that was sent on a lost connection is done */
    int64_t ttl_ms;    /* a short one, for tests in which time must pass */
    int64_t slack_ms;  /* how late a call may be in the best of several tries; see soon() */
    int64_t killed_ms; /* how long the claim of a killed holder lasts; 0: its ttl */
    int64_t
        kept_ms; /* the ttl of the lease that is held from the first test on; see kept_begin() */
    int names, waiters; /* how many the crowd tests use */
    unsigned part, parts; /* only the tests number `part`, part + parts and so on; parts 0: all */
    const char *taker;  /* the program; NULL: none was built */
    char folder[256];   /* @DIR@ */
    uint32_t capabilities;
    mortise_client *looker; /* checks the backend after each test */
};
extern struct subject subject;

/* Reads the descriptor (key=value …), creates the directory, starts the server. Returns 0 or an exit code. */
int subject_begin(int argc, char **argv);
/* Returns false if something was left in the server, or if it could not be ended. */
bool subject_end(void);
/* Calls the hook. Returns false if it failed. */
bool subject_hook(const char *verb);
static inline bool has(mortise_capability capability)
{
    return (subject.capabilities & (uint32_t)capability) != 0;
}

/* Returns what to open for the subject with these settings of the [mortise] section ("ttl = 1s\nwait = 2s"; NULL:
 * none): a path or URL, valid until the end. With "!" before the settings, the driver does not wait long for answers
 * of the server. */
const char *subject_where(const char *settings);
/* If the subject is the end of a migration: writes the register that admits its clients, in the namespace of these
 * settings. */
bool subject_write_stage3(const char *settings);
/* Returns the taker that was installed with the suite, or NULL (installed.c). */
const char *installed_taker(void);
/* The in-process hooks of the sim driver (sim_hooks.c). */
bool sim_hook(const char *verb);

/* Bounds failure, as TEST_PATIENCE_MS does, where a claim of 60 s must be gone before it expires. (No longer ttl will do:
 * redlock refuses one.) */
#define LESS_THAN_A_MINUTE_MS 45000

/* ---- Helpers of the tests (helpers.c) --------------------------------------------------------- */

/* Opens the subject, and asserts that it worked. NULL on failure. */
mortise_client *open_client(const char *settings);
void close_client(mortise_client *client);
/* Returns an unused name with this run's prefix. Valid for the next 64 calls. */
const char *fresh_name(void);
/* Returns the prefix of all names of this test. */
const char *test_prefix(void);
void helpers_before(void);
/* After a test: asserts that the backend soon holds nothing under this test's prefix. */
void helpers_after(void);

/* Acquires it within patience, and asserts that. NULL on failure. ttl 0: the config's. */
mortise_lease *take(mortise_client *client, const char *name, int64_t ttl_ms);
/* Tries once. */
mortise_status try_once(mortise_client *client, const char *name);
/* The same for a shared lease; permits 0: any number of holders. */
mortise_lease *take_shared(mortise_client *client, const char *name, int64_t ttl_ms,
                           uint32_t permits);
mortise_status try_shared(mortise_client *client, const char *name, uint32_t permits);
/* Whether the subject lacks it; then it prints that the test is skipped. */
bool lacks(mortise_capability capability);
/* Releases it, and asserts OK. */
void give(mortise_lease *lease);
/* All of them are HELD at this instant. */
bool all_held(mortise_lease **leases, size_t count);
/* Asserts the status of a call on a lease whose client was closed. */
void expect_spent(mortise_status status);
mortise_info look(mortise_client *client, const char *name);
/* Inspects until that reports this token; false: it never did. On ZooKeeper a holder writes the base of its token into its
 * node, and does not wait until that is done. */
bool soon_tells_token(mortise_client *client, const char *name, uint64_t token);
mortise_stats stats_of(mortise_client *client);
/* Polls until the state is reached. Returns false if that takes longer than timeout_ms. */
bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms);
/* Waits until inspect reports that many waiters. False: not within patience, or the driver does not report them. */
bool wait_waiters(const char *name, int count);
/* Waits until that many more renewals have succeeded. */
bool wait_renewals(mortise_client *client, uint64_t more);
/* The same by the client's own count. */
bool wait_local_waiters(mortise_client *client, uint64_t count);

/* An async acquire and its outcome. */
struct pending {
    mortise_request request;
    struct test_count calls; /* of the callback */
    mortise_status status;
    mortise_lease *lease;
    uint64_t token;
    int place;            /* in the order of completions */
    pthread_t thread;     /* that ran the callback */
    bool release_at_once; /* in the callback */
};
#define PENDING_INIT                                                                               \
    (struct pending)                                                                               \
    {                                                                                              \
        .calls = TEST_COUNT_INIT                                                                   \
    }
void pending_start(struct pending *pending, mortise_client *client, const char *name,
                   const mortise_options *options);
/* Waits for the callback, asserts the status. Ends the suite if it does not come. */
void pending_expect(struct pending *pending, mortise_status status);
#define PENDING_EXPECT(pending, wanted) pending_expect(pending, MORTISE_##wanted)
/* Places count from 1 again. */
void pending_reset_places(void);

/* A thread in a blocking acquire. */
struct blocked {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    mortise_options options;
    struct test_count done;
    mortise_status status;
    mortise_lease *lease;
    int64_t took_ms;
};
void blocked_start(struct blocked *blocked, mortise_client *client, const char *name,
                   const mortise_options *options);
/* Returns whether news ended a wait that began at that instant and has ended now: it took less than the time after
 * which a waiter asks again by itself, which is 10 s in drivers/lib/sql. If the driver does not promise news, returns
 * whether the wait was bounded. */
bool was_told(int64_t began_ms);
/* Returns whether a case can be fast enough: runs it up to eight times, until it is at most slack_ms late. A busy
 * machine delays some of the runs, a defect delays them all. The function runs the case once, asserts what does not
 * depend on time, and returns how many milliseconds it was late. */
bool soon(int64_t (*late_ms)(void *argument), void *argument);
/* A machine that stood still for so long shows nothing: what asserts that somebody is told tries so often. */
#define TOLD_TRIES 3
/* Waits for its return; ends the suite if that does not come. */
mortise_status blocked_join(struct blocked *blocked);

/* The ttl of a lease that is renewed and that the test wants to be short (machine.c). A busy machine may lose the lease. */
struct short_ttl {
    int64_t ms;
    pthread_t thread;
    struct test_count ended;
    int64_t late_ms;
};
/* Before it is acquired: begins to look how late the machine is. */
void short_ttl_begin(struct short_ttl *ttl);
/* Ends that. Returns whether the lease was lost while the machine was so late that this shows nothing; then the next ttl is twice as
 * long. */
bool short_ttl_excuses(struct short_ttl *ttl, bool lost);

/* A taker (tests/taker.c) on the subject; asserts that it is ready. */
bool taker_start(struct test_process *taker, const char *settings);
/* Says a line and hears the answer, of which it asserts the beginning. */
bool taker_expect(struct test_process *taker, const char *line, const char *answer);
/* The number after "OK ". */
uint64_t taker_number(struct test_process *taker, const char *line);
void taker_end(struct test_process *taker);

/* ---- The parts -------------------------------------------------------------------------------- */

extern const CU_TestInfo basic_tests[], names_tests[], contend_tests[], order_tests[],
    async_tests[], callback_tests[], life_tests[], break_tests[], owner_tests[], look_tests[],
    shared_tests[], holders_tests[], downgrade_tests[], process_tests[], dead_tests[], fork_tests[], close_tests[], open_tests[],
    kept_tests[], server_tests[], repeat_tests[], many_tests[], many_server_tests[];
/* Takes the lease that kept_tests looks at. */
void kept_begin(void);
void kept_end(void);

#endif
