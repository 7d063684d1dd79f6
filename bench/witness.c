/* witness.c - what a witness costs (docs/crash.md): the uncontended cycle with one and without, on sim and on Redis; a
 * witness of a thousand processes that hold ten claims each, while nothing dies; and the time until all their locks are free
 * when they are killed at once. The witness and the Redis server are children of this program. */
#include "redis_server.h"

#include "common.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLAIMS = 10, IDLE_S = 5, BATCH = 10, BATCHES_MAX = 100000 };
#define TTL_MS 30000
#define FREE_MS 5000
#define MEMORY_MB 20
#define EXTRA_NS 100
#define RATIO 1.02
#define PAIR_ROUNDS 5 /* of the usual time of a round */

static char path[108];
static pid_t witness;

/* ---- the witness ------------------------------------------------------------------------------------------- */

static bool listens(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, sizeof(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool there = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return there;
}

/* `mortise` of the same build. */
static void start_witness(void)
{
    char self[4000], command[4096], folder[100];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        bench_die("/proc/self/exe cannot be read");
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(command, sizeof(command), "%s/../bin/mortise", self);
    snprintf(folder, sizeof(folder), "%.80s/witness", bench_folder());
    mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%.90s/socket", folder);
    witness = fork();
    if (witness == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(command, command, "witness", "--socket", path, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && !listens(); i++)
        bench_sleep_until_ns(bench_now_ns() + 10000000);
    if (!listens())
        bench_die("%s does not start as a witness", command);
}

static double witness_cpu_ms(void)
{
    char name[64];
    unsigned long long ns = 0;
    snprintf(name, sizeof(name), "/proc/%d/schedstat", (int)witness);
    FILE *file = fopen(name, "re");
    if (file == NULL || fscanf(file, "%llu", &ns) != 1)
        bench_die("%s cannot be read", name);
    fclose(file);
    return (double)ns / 1e6;
}

static double witness_megabytes(void)
{
    char name[64];
    long total, resident = 0;
    snprintf(name, sizeof(name), "/proc/%d/statm", (int)witness);
    FILE *file = fopen(name, "re");
    if (file == NULL || fscanf(file, "%ld %ld", &total, &resident) != 2)
        bench_die("%s cannot be read", name);
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

/* ---- a crowd ------------------------------------------------------------------------------------------------ */

static void hold_some(const char *where, int number, int ready)
{
    char name[64];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    mortise_client *client = bench_open(where);
    for (int i = 0; i < CLAIMS; i++) {
        snprintf(name, sizeof(name), "crowd-%d-%d", number, i);
        bench_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 60000, .ttl_ms = TTL_MS));
    }
    if (write(ready, "!", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static bool count_one(const mortise_info *info, void *user_data)
{
    *(size_t *)user_data += info->held;
    return true;
}

static size_t held(mortise_client *client)
{
    mortise_error error;
    size_t count = 0;
    if (mortise_list(client, "crowd-", count_one, &count, &error) != MORTISE_OK)
        bench_die("list: %s", error.message);
    return count;
}

/* Starts them in groups of ten, because opening them is not measured. */
static pid_t *start_crowd(const char *where, int count)
{
    int ready[2];
    char byte;
    pid_t *children = calloc((size_t)count, sizeof(*children));
    if (children == NULL || pipe(ready) != 0)
        bench_die("out of memory or descriptors");
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0)
            hold_some(where, i, ready[1]);
        if (i >= 10 && read(ready[0], &byte, 1) != 1)
            bench_die("a process of the crowd has ended");
    }
    for (int i = 0; i < 10 && i < count; i++)
        if (read(ready[0], &byte, 1) != 1)
            bench_die("a process of the crowd has ended");
    close(ready[0]);
    close(ready[1]);
    return children;
}

static void measure_crowd(const char *where, const char *unwatched)
{
    int count = bench.quick ? 50 : 1000;
    struct bench_series *memory =
                            bench_new_series("witness_memory", "a witness of the crowd", "MB"),
                        *cpu = bench_new_series("witness_cpu", "its processor time", "ms/s"),
                        *freed =
                            bench_new_series("crowd_freed", "killed at once: all free after", "ms");
    pid_t *children = start_crowd(where, count);
    mortise_client *client = bench_open(unwatched);
    size_t all = held(client);
    bench_proof("crowd_holds", "the crowd holds all its locks", all == (size_t)count * CLAIMS);
    double before = witness_cpu_ms();
    bench_sleep_until_ns(bench_now_ns() + INT64_C(1000000000) * IDLE_S);
    bench_add_only(cpu, (witness_cpu_ms() - before) / IDLE_S, BENCH_ONCE);
    bench_add_only(memory, witness_megabytes(), BENCH_ONCE);
    int64_t began = bench_now_ns();
    for (int i = 0; i < count; i++)
        kill(children[i], SIGKILL);
    while (held(client) > 0)
        bench_sleep_until_ns(bench_now_ns() + 20000000);
    bench_add_only(freed, (double)(bench_now_ns() - began) / 1e6, BENCH_ONCE);
    for (int i = 0; i < count; i++)
        waitpid(children[i], NULL, 0);
    free(children);
    bench_close(client);
    bench_check("witness_memory", "memory of the witness", memory, NULL, BENCH_AT_MOST, MEMORY_MB);
    bench_check("witness_cpu", "its processor time while nothing dies", cpu, NULL, BENCH_AT_MOST,
                0.1);
    bench_check("crowd_freed", "until all locks are free", freed, NULL, BENCH_AT_MOST, FREE_MS);
}

/* ---- the cycle ---------------------------------------------------------------------------------------------- */

static void cycles(void *context, size_t n)
{
    while (n-- > 0)
        bench_release(bench_acquire(context, "cycle", NULL));
}

/* Counts this thread's processor time: sim answers in this thread, and other work of the machine is not included. */
static double cpu_ns_per_turn(struct bench_case *self, double seconds)
{
    struct timespec begin, end;
    size_t turns = 0;
    int64_t until = bench_now_ns() + (int64_t)(seconds * 1e9);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        self->loop(self->context, 1000);
        turns += 1000;
    } while (bench_now_ns() < until);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
           (double)turns;
}

/* Two clients of one server take turns, with a few cycles each, so that other work of the machine, and occasional work of the
 * server, affects both. A figure is the lower quartile of the batches, on which interrupted batches have hardly any effect. */
struct pair {
    mortise_client *clients[2]; /* without a witness, and with one */
    double *ns[2];
    struct bench_series *off;
    int warm_ups; /* those that bench_rounds() has yet to make */
};

static int by_size(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static double pairs_ns(struct bench_case *self, double seconds)
{
    struct pair *pair = self->context;
    int64_t until_ns = bench_now_ns() + (int64_t)(PAIR_ROUNDS * seconds * 1e9);
    size_t count = 0;
    for (; count < BATCHES_MAX && (count < 4 || bench_now_ns() < until_ns); count++)
        for (size_t i = 0; i < 2; i++) {
            size_t which = (count + i) % 2;
            int64_t began_ns = bench_now_ns();
            cycles(pair->clients[which], BATCH);
            pair->ns[which][count] = (double)(bench_now_ns() - began_ns) / BATCH;
        }
    for (size_t i = 0; i < 2; i++)
        qsort(pair->ns[i], count, sizeof(double), by_size);
    if (pair->warm_ups > 0)
        pair->warm_ups--;
    else
        bench_add(pair->off, pair->ns[0][count / 4]);
    return pair->ns[1][count / 4];
}

static void measure_cycles(const char *redis, const char *redis_watched, const char *sim_watched)
{
    struct pair pair = {.clients = {bench_open(redis), bench_open(redis_watched)}, .warm_ups = 2};
    struct bench_series *sim = bench_new_series("sim", "sim, witness = off", "ns"),
                        *watched_sim = bench_new_series("sim_witness", "sim, with a witness", "ns"),
                        *off = bench_new_series("redis", "Redis, witness = off", "ns"),
                        *on = bench_new_series("redis_witness", "Redis, with a witness", "ns");
    pair.off = off;
    for (size_t i = 0; i < 2; i++)
        if ((pair.ns[i] = calloc(BATCHES_MAX, sizeof(double))) == NULL)
            bench_die("out of memory");
    struct bench_series *extra = bench_new_series("sim_extra", "sim: what the witness adds", "ns");
    struct bench_case cases[] = {
        {.series = sim,
         .measure = cpu_ns_per_turn,
         .loop = cycles,
         .context = bench_open("sim:?witness=off")},
        {.series = watched_sim,
         .measure = cpu_ns_per_turn,
         .loop = cycles,
         .context = bench_open(sim_watched)},
        {.series = on, .measure = pairs_ns, .context = &pair},
    };
    bench_rounds(cases, sizeof(cases) / sizeof(cases[0]));
    for (size_t i = 0; i < sim->count && i < watched_sim->count; i++) /* both of the same round */
        bench_add(extra, watched_sim->values[i] - sim->values[i]);
    bench_check("sim_extra", "sim: with a witness - without", extra, NULL, BENCH_AT_MOST, EXTRA_NS);
    bench_check("redis_ratio", "Redis: with a witness / without", on, off, BENCH_AT_MOST, RATIO);
    for (size_t i = 0; i < 2; i++) {
        bench_close(cases[i].context);
        bench_close(pair.clients[i]);
        free(pair.ns[i]);
    }
}

int main(int argc, char **argv)
{
    struct redis_server server;
    char off[200], on[400], sim[400];
    struct rlimit limit;
    bench.rounds = 15;
    bench_begin(argc, argv, "witness", "what a witness costs, and how fast it is", 0.1);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    bench_close(bench_open("sim:?witness=off")); /* sets the module path, also for the witness */
    redis_server_start(&server, bench.cpu);
    start_witness();
    snprintf(off, sizeof(off), "redis://127.0.0.1:%d?witness=off", server.port);
    snprintf(on, sizeof(on), "redis://127.0.0.1:%d?witness=%s", server.port, path);
    snprintf(sim, sizeof(sim), "sim:?witness=%s", path);
    measure_crowd(on, off);
    measure_cycles(off, on, sim);
    kill(witness, SIGTERM);
    waitpid(witness, NULL, 0);
    redis_server_stop(&server);
    return bench_end();
}
