/* torture.c - a process of a torture run: threads that contend for a few names, and use their locks for a counter
 * (counter.h) that only holders may write. They try and wait, in calls that block and in async ones, which they may cancel;
 * they have no owners, no on_state, and no several names at once. Knows no driver, and nothing of the faults around it
 * (nemesis.py).
 *
 *     torture WHERE FOLDER NAME,NAME… [threads=N] [clients=N] [seed=N] [ttl=MS] [calm_ttl=MS] [long=N] [hold=MS]
 *             [pause=MS] [plain=1] [modes=1|2] [broken=1]
 *
 * Of a hundred holds of the first name, `long` (60) last for up to `hold` (three times the ttl); of the other names
 * one of a hundred does. So faults hit holders, and there are many cycles. Whenever a holder checks its lease and it
 * is not LOST, the holder records that for the checker, with an instant from before the check. No hold is long once
 * all is calm. Each thread pauses for up to `pause` (0) between two acquires. With `plain` every hold lasts for up to
 * `hold`, and no token protects the counters. With `modes` most leases are shared: their holders read the counter twice,
 * and it must be the same, and some writers downgrade their lease and go on reading. With modes=2, each third name has two
 * permits. With `broken` the server does not keep its promise, so it need not be the same.
 *
 * The first line out is "ready", or a status and its message. Commands on stdin, one line each:
 *   calm    the last fault has ended: from now on every caller waits as long as it takes, and asks for calm_ttl (20 s), so
 *           a waiter that misses a notification is not saved soon by a claim that expires
 *   clock   prints the time of day, in seconds
 *   count   prints how often each status occurred: "acquire.OK=12 release.LOST=1 …", how often each name was acquired:
 *           "had.NAME=3 …", and "holding=1" during a long hold
 *   fork    a child comes into being, which does nothing and lives on for 20 seconds, whatever becomes of this process
 *   exec    this process is another program, which does nothing
 *   unwatch closes the connections to a witness, and the memory that it reads: as a daemon does that closes what it does not
 *           know
 *   close-all closes all descriptors from 3 up, whoever uses them. Whoever holds a lease goes on holding it from then on, for as
 *           long as it is not LOST: nobody else may have it before this process is killed
 *   stop    all threads finish what they do; the clients are closed; the counts are printed; the process ends. The end of
 *           stdin does the same
 * What must not happen is printed on stderr at once, and sets the exit code 1. Dies with its parent. */
#include "counter.h"
#include "own_files.h"
#include "own_pid.h"
#include "tally.h"

#include <mortise/mortise.h>

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { NAMES_MAX = 128, PERMITS = 2 };

static atomic_ulong had[NAMES_MAX];
static atomic_bool calm, stopping;
static atomic_int holding; /* long holds, now */

static char *names[NAMES_MAX];
static size_t name_count;
static const char *folder;
static int64_t threads = 3, clients = 1, seed = 1, ttl_ms = 1000, calm_ttl_ms = 20000;
static int64_t long_share = 60;
static int64_t hold_ms, pause_ms, plain, modes, broken;
static int plain_fds[NAMES_MAX];

static void tell_counts(void)
{
    tally_print();
    for (size_t i = 0; i < name_count; i++)
        printf("had.%s=%lu ", names[i], atomic_load(&had[i]));
    if (atomic_load(&holding) > 0)
        printf("holding=%d ", atomic_load(&holding));
    putchar('\n');
}

/* ---- a thread ------------------------------------------------------------------------------------------ */

struct fighter {
    pthread_t thread;
    mortise_client *client;
    uint64_t random;
    struct counter counters[NAMES_MAX];
};

static uint64_t next_random(struct fighter *fighter)
{
    fighter->random ^= fighter->random << 13;
    fighter->random ^= fighter->random >> 7;
    fighter->random ^= fighter->random << 17;
    return fighter->random;
}

static int64_t below(struct fighter *fighter, int64_t limit)
{
    return limit > 0 ? (int64_t)(next_random(fighter) % (uint64_t)limit) : 0;
}

/* The work that a holder does; nothing wakes it. */
static void work(int64_t for_ms)
{
    poll(NULL, 0, (int)for_ms);
}

/* Whether it is ours still; the checker is told what we are told. */
static bool look(mortise_lease *lease, size_t number)
{
    char line[256];
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    if (mortise_state(lease) == MORTISE_STATE_LOST)
        return false;
    int length = snprintf(
        line, sizeof line,
        "{\"event\":\"held\",\"at_ns\":%" PRId64 ",\"name\":\"%s\",\"token\":%" PRIu64 "}\n",
        (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, names[number], mortise_token(lease));
    if (length >= (int)sizeof line || !told_write(line, (size_t)length))
        complain("what was seen", names[number], "it cannot be written");
    return true;
}

/* As counter_read() and counter_write(), and complain if that fails. False: it did, or all descriptors are closed. */
static bool ask_counter(struct fighter *fighter, size_t number, uint64_t token, uint64_t *value)
{
    if (!own_files_enter())
        return false;
    bool done = counter_read(&fighter->counters[number], token, value);
    own_files_leave();
    if (!done)
        complain("the counter", names[number], "it cannot be read");
    return done;
}

static bool set_counter(struct fighter *fighter, size_t number, uint64_t token, uint64_t value,
                        bool *taken)
{
    if (!own_files_enter())
        return false;
    bool done = counter_write(&fighter->counters[number], token, value, taken);
    own_files_leave();
    if (!done)
        complain("the counter", names[number], "it cannot be written");
    return done;
}

/* Reads, thinks, and writes one more. */
static void add_one(struct fighter *fighter, mortise_lease *lease, size_t number, int64_t think_ms)
{
    uint64_t value, token = mortise_token(lease);
    bool taken = false;
    if (!look(lease, number) || !ask_counter(fighter, number, token, &value))
        return;
    work(think_ms);
    if (look(lease, number) && set_counter(fighter, number, token, value + 1, &taken))
        count(WRITE, taken ? MORTISE_OK : MORTISE_LOST);
}

/* The same where nothing but the lock protects it. */
static void add_one_plainly(struct fighter *fighter, mortise_lease *lease, size_t number,
                            int64_t think_ms)
{
    int64_t value;
    (void)fighter;
    bool done = plain_read(plain_fds[number], &value);
    work(think_ms);
    if (!done || !plain_write(plain_fds[number], value + 1))
        complain("the counter", names[number], "it cannot be read, or written");
    count(WRITE, mortise_state(lease) == MORTISE_STATE_LOST ? MORTISE_LOST : MORTISE_OK);
}

/* Reads, thinks, and reads again. Who stood still, and writes late, is refused since the first time: his token is older. */
static void read_twice(struct fighter *fighter, mortise_lease *lease, size_t number,
                       int64_t think_ms)
{
    uint64_t value, again, token = mortise_token(lease);
    if (!look(lease, number) || !ask_counter(fighter, number, token, &value))
        return;
    work(think_ms);
    if (!look(lease, number) || !ask_counter(fighter, number, token, &again))
        return;
    if (again != value && !broken && mortise_state(lease) != MORTISE_STATE_LOST)
        complain("the counter", names[number], "it changed while it was read");
    count(READ, MORTISE_OK);
}

static void read_twice_plainly(struct fighter *fighter, mortise_lease *lease, size_t number,
                               int64_t think_ms)
{
    int64_t value, again;
    bool done = plain_read(plain_fds[number], &value);
    (void)fighter;
    work(think_ms);
    if (!done || !plain_read(plain_fds[number], &again))
        complain("the counter", names[number], "it cannot be read");
    else if (again != value && mortise_state(lease) != MORTISE_STATE_LOST)
        complain("the counter", names[number], "it changed while it was read");
    count(READ, MORTISE_OK);
}

typedef void visitor(struct fighter *fighter, mortise_lease *lease, size_t number,
                     int64_t think_ms);

/* Mostly for an instant, sometimes for longer than the ttl. */
static void use(struct fighter *fighter, mortise_lease *lease, size_t number, visitor *visit)
{
    int64_t share = number == 0 ? long_share : 1;
    if (plain) {
        visit(fighter, lease, number, below(fighter, hold_ms));
    } else if (below(fighter, 100) < share && !atomic_load(&calm)) {
        atomic_fetch_add(&holding, 1);
        for (int64_t left_ms = below(fighter, hold_ms); left_ms > 0 && !atomic_load(&calm);
             left_ms -= 25)
            visit(fighter, lease, number, 25);
        atomic_fetch_sub(&holding, 1);
    } else {
        visit(fighter, lease, number, below(fighter, 3) ? 0 : below(fighter, 8));
    }
    while (all_closed() && look(lease, number)) /* until this process is killed */
        work(10);
}

/* Some writers go on as readers. Whatever the answer is, they write no more. */
static void downgrade(struct fighter *fighter, mortise_lease *lease, size_t number)
{
    mortise_error error;
    if (!look(lease, number))
        return;
    seen(DOWNGRADE, names[number], mortise_downgrade(lease, &error), &error);
    use(fighter, lease, number, plain ? read_twice_plainly : read_twice);
}

static void give_back(struct fighter *fighter, mortise_lease *lease, const char *name)
{
    mortise_error error;
    if (below(fighter, 2))
        seen(RELEASE, name, mortise_release(lease, &error), &error);
    else
        seen(NOWAIT, name, mortise_release_nowait(lease, &error), &error);
}

/* An async acquire: its outcome, which comes exactly once. */
struct wish {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int times;
    mortise_status status;
    mortise_lease *lease;
    mortise_error error;
};

static void wish_done(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    struct wish *wish = user_data;
    pthread_mutex_lock(&wish->lock);
    wish->times++;
    wish->status = status;
    wish->lease = lease;
    if (error)
        wish->error = *error;
    pthread_cond_signal(&wish->done);
    pthread_mutex_unlock(&wish->lock);
}

static mortise_status acquire_async(struct fighter *fighter, const char *name,
                                    const mortise_options *options, mortise_lease **lease,
                                    mortise_error *error)
{
    struct wish wish = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    mortise_request request;
    mortise_status status =
        mortise_acquire_async(fighter->client, name, options, wish_done, &wish, &request, error);
    if (status != MORTISE_OK)
        return status;
    if (below(fighter, 3) == 0) {
        work(below(fighter, 4));
        mortise_cancel(fighter->client, request);
    }
    pthread_mutex_lock(&wish.lock);
    while (wish.times == 0)
        pthread_cond_wait(&wish.done, &wish.lock);
    pthread_mutex_unlock(&wish.lock);
    *lease = wish.lease;
    *error = wish.error;
    return wish.status;
}

static bool has_permits(size_t number)
{
    return modes > 1 && number % 3 == 2;
}

/* Most are shared; with permits now and then one is not. */
static void choose_mode(struct fighter *fighter, size_t number, mortise_options *options)
{
    int64_t draw = modes > 0 ? below(fighter, 16) : 0;
    bool exclusive = modes == 0 || draw < (has_permits(number) ? 1 : 5);
    options->mode = exclusive ? MORTISE_EXCLUSIVE : MORTISE_SHARED;
    options->permits = !exclusive && has_permits(number) ? PERMITS : 0;
}

static mortise_options choose(struct fighter *fighter)
{
    mortise_options options = {.size = sizeof options, .ttl_ms = ttl_ms};
    int64_t kind = below(fighter, 10);
    if (atomic_load(&calm)) {
        options.wait_ms = MORTISE_WAIT_FOREVER;
        options.ttl_ms = calm_ttl_ms;
    } else {
        options.wait_ms = kind < 2 ? 0 : kind < 6 ? below(fighter, 400) + 1 : 3000;
    }
    if (plain && kind >= 6)
        options.wait_ms = 600000; /* for its turn */
    options.no_renew = below(fighter, 16) == 0;
    return options;
}

static void fight_once(struct fighter *fighter)
{
    size_t number = (size_t)below(fighter, (int64_t)name_count);
    mortise_options options = choose(fighter);
    mortise_error error = {.message = ""};
    mortise_lease *lease = NULL;
    mortise_status status;
    choose_mode(fighter, number, &options);
    bool writes = options.mode == MORTISE_EXCLUSIVE;
    if (below(fighter, 8) == 0)
        status = acquire_async(fighter, names[number], &options, &lease, &error);
    else
        status = mortise_acquire(fighter->client, names[number], &options, &lease, &error);
    if (seen_acquire(names[number], options.wait_ms, status, &error) == MORTISE_OK) {
        atomic_fetch_add(&had[number], 1);
        if (writes)
            use(fighter, lease, number, plain ? add_one_plainly : add_one);
        else
            use(fighter, lease, number, plain ? read_twice_plainly : read_twice);
        if (writes && modes > 0 && !has_permits(number) && below(fighter, 4) == 0)
            downgrade(fighter, lease, number);
        give_back(fighter, lease, names[number]);
    } else if (status != MORTISE_BUSY && status != MORTISE_TIMEDOUT) {
        work(20); /* a backend that is away is not asked all the time */
    }
}

static void *fight(void *argument)
{
    struct fighter *fighter = argument;
    while (!atomic_load(&stopping)) {
        fight_once(fighter);
        work(below(fighter, pause_ms));
    }
    return NULL;
}

static bool fighter_start(struct fighter *fighter, mortise_client *client, int64_t number)
{
    fighter->client = client;
    fighter->random = (uint64_t)seed * 1000003 + (uint64_t)number * 7919 + 88172645463325252u;
    for (size_t i = 0; i < name_count && !plain; i++)
        if (!counter_open(&fighter->counters[i], folder, names[i]))
            return false;
    return pthread_create(&fighter->thread, NULL, fight, fighter) == 0;
}

static void fighter_join(struct fighter *fighter)
{
    pthread_join(fighter->thread, NULL);
    for (size_t i = 0; i < name_count && !plain; i++)
        counter_close(&fighter->counters[i]);
}

/* ---- the process ---------------------------------------------------------------------------------------- */

static bool set_argument(const char *argument)
{
    const struct {
        const char *key;
        int64_t *to;
    } keys[] = {{"threads=", &threads}, {"clients=", &clients},      {"seed=", &seed},
                {"ttl=", &ttl_ms},      {"calm_ttl=", &calm_ttl_ms}, {"long=", &long_share},
                {"hold=", &hold_ms},    {"pause=", &pause_ms},       {"plain=", &plain},
                {"modes=", &modes},     {"broken=", &broken}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t length = strlen(keys[i].key);
        char *end;
        if (strncmp(argument, keys[i].key, length) != 0)
            continue;
        *keys[i].to = strtoll(argument + length, &end, 10);
        return *end == '\0' && *keys[i].to >= 0;
    }
    return false;
}

static void split_names(char *text)
{
    char *rest = text;
    for (char *name; name_count < NAMES_MAX && (name = strtok_r(rest, ",", &rest));)
        names[name_count++] = name;
}

static void make_child(void)
{
    if (fork() != 0)
        return;
    alarm(20);
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    for (;;)
        pause();
}

static void become_another(void)
{
    tally_before_exec();
    execlp("sleep", "sleep", "60", (char *)NULL);
}

/* What only the faults around a witness need. False: it is no such command. */
static bool obey_for_witness(const char *line)
{
    if (strcmp(line, "fork\n") == 0)
        make_child();
    else if (strcmp(line, "exec\n") == 0)
        become_another();
    else if (strcmp(line, "unwatch\n") == 0)
        close_of_witness();
    else if (strcmp(line, "close-all\n") == 0)
        close_all();
    else
        return false;
    printf("done\n");
    return true;
}

/* Until "stop". */
static void obey(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "stop\n") != 0) {
        if (strcmp(line, "calm\n") == 0)
            atomic_store(&calm, true);
        else if (obey_for_witness(line))
            continue;
        else if (strcmp(line, "count\n") == 0)
            tell_counts();
        else if (strcmp(line, "clock\n") == 0)
            printf("%lld\n", (long long)time(NULL));
    }
    atomic_store(&stopping, true);
}

static bool open_counters(void)
{
    for (size_t i = 0; i < name_count && plain; i++)
        if ((plain_fds[i] = plain_open(folder, names[i])) < 0)
            return false;
    return true;
}

static bool open_clients(const char *where, mortise_client **opened)
{
    mortise_error error;
    for (int64_t i = 0; i < clients; i++) {
        mortise_status status = mortise_open(where, &opened[i], &error);
        if (status != MORTISE_OK) {
            printf("%s %s\n", mortise_status_name(status), error.message);
            return false;
        }
    }
    return true;
}

static void close_clients(mortise_client **opened)
{
    mortise_error error;
    for (int64_t i = 0; i < clients; i++)
        seen(CLOSE, "the client", mortise_close(opened[i], &error), &error);
}

static bool run(const char *where)
{
    mortise_client **opened = calloc((size_t)clients, sizeof(*opened));
    struct fighter *fighters = calloc((size_t)(clients * threads), sizeof(*fighters));
    bool started = opened && fighters && told_open(folder, own_pid()) && open_counters() &&
                   open_clients(where, opened);
    for (int64_t i = 0; i < clients * threads && started; i++)
        started = fighter_start(&fighters[i], opened[i / threads], i);
    if (started) {
        printf("ready\n");
        obey();
        for (int64_t i = 0; i < clients * threads; i++)
            fighter_join(&fighters[i]);
        close_clients(opened);
        tell_counts();
    }
    free(opened);
    free(fighters);
    return started && !tally_is_wrong();
}

int main(int argc, char **argv)
{
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 4; i < argc; i++)
        if (!set_argument(argv[i]))
            argc = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: torture WHERE FOLDER NAME,NAME… [KEY=NUMBER …]\n");
        return 64;
    }
    folder = argv[2];
    if (hold_ms == 0)
        hold_ms = ttl_ms * 3;
    split_names(argv[3]);
    return name_count > 0 && run(argv[1]) ? 0 : 1;
}
