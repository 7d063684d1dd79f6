/* adapter.c - reads the lines that tell an adapter what to do, and runs the threads that do the turns; see adapter.h.
 * Knows nothing of locks. */
#include "adapter.h"

#include "../common.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 256
#define NAME_SIZE 128
#define BATCH_LEAST 64
#define BATCH_MOST 100000000
#define REFUSED_NAP_NS 1000000 /* no busy loop if each turn is refused at once */

struct worker {
    pthread_t thread;
    void *own;
    struct instants *records;
    size_t count, room;
};

/* One parsed line. */
struct order {
    char verb[16], name[NAME_SIZE], out[1024];
    int64_t own, threads, hold_us, period_us, from_ns, to_ns, count, ttl_ms, patience_ms;
};

static const struct adapter *adapter;
static struct worker workers[THREADS_MAX];
static unsigned open_workers;
static struct order order;

/* ---- turns ---- */

static struct instants *next_record(struct worker *worker)
{
    if (worker->count == worker->room) {
        worker->room = worker->room == 0 ? 4096 : 2 * worker->room;
        worker->records = realloc(worker->records, worker->room * sizeof(worker->records[0]));
        if (worker->records == NULL)
            bench_die("out of memory");
    }
    return &worker->records[worker->count++];
}

/* Writes the thread's own name, or the common one. */
static void name_of(const struct worker *worker, char *name)
{
    if (order.own == 0)
        snprintf(name, NAME_SIZE, "%s", order.name);
    else
        snprintf(name, NAME_SIZE, "%.*s/%u", NAME_SIZE - 16, order.name,
                 (unsigned)(worker - workers));
}

static void whole_turn(struct worker *worker, const char *name, struct instants *at)
{
    at->asked_ns = bench_now_ns();
    adapter->cycle(worker->own, name);
    at->done_ns = at->granted_ns = at->releasing_ns = bench_now_ns();
}

static void turn_in_halves(struct worker *worker, const char *name, struct instants *at)
{
    void *held = NULL;
    at->asked_ns = bench_now_ns();
    if (!adapter->take(worker->own, name, &held)) {
        at->granted_ns = at->releasing_ns = 0;
        at->done_ns = bench_now_ns();
        bench_sleep_until_ns(at->done_ns + REFUSED_NAP_NS);
        return;
    }
    at->granted_ns = bench_now_ns();
    if (order.hold_us > 0)
        bench_sleep_until_ns(at->granted_ns + order.hold_us * 1000);
    at->releasing_ns =
        bench_now_ns(); /* a reading of its own: even an empty section can be overlapped */
    adapter->give(worker->own, name, held);
    at->done_ns = bench_now_ns();
}

static bool has_turns(void)
{
    return adapter->take != NULL || (order.own != 0 && adapter->cycle != NULL);
}

static void turn(struct worker *worker, const char *name, struct instants *at)
{
    (order.own != 0 && adapter->cycle != NULL ? whole_turn : turn_in_halves)(worker, name, at);
}

static void *turns(void *argument)
{
    struct worker *worker = argument;
    char name[NAME_SIZE];
    name_of(worker, name);
    bench_sleep_until_ns(order.from_ns);
    do
        turn(worker, name, next_record(worker));
    while (bench_now_ns() < order.to_ns);
    return NULL;
}

/* A latency counts from when the turn was due, so a turn is late, too, if the one before was slow. */
static void *pulse(void *argument)
{
    struct worker *worker = argument;
    for (int64_t due_ns = order.from_ns; due_ns < order.to_ns; due_ns += order.period_us * 1000) {
        bench_sleep_until_ns(due_ns);
        struct instants *at = next_record(worker);
        turn(worker, order.name, at);
        at->asked_ns = due_ns;
    }
    return NULL;
}

static void write_records(unsigned threads)
{
    FILE *file = fopen(order.out, "we");
    if (file == NULL)
        bench_die("%s cannot be written", order.out);
    for (unsigned i = 0; i < threads; i++) {
        fwrite(workers[i].records, sizeof(struct instants), workers[i].count, file);
        workers[i].count = 0;
    }
    if (ferror(file) != 0 || fclose(file) != 0)
        bench_die("%s cannot be written", order.out);
}

static void open_workers_up_to(unsigned threads)
{
    for (; open_workers < threads; open_workers++)
        if (adapter->worker != NULL)
            workers[open_workers].own = adapter->worker(open_workers);
}

static void run_threads(void *(*body)(void *), unsigned threads)
{
    open_workers_up_to(threads);
    for (unsigned i = 0; i < threads; i++)
        workers[i].thread = bench_thread(body, &workers[i]);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    write_records(threads);
}

static bool do_turns(void)
{
    if (!has_turns())
        return false;
    if (order.threads < 1 || order.threads > THREADS_MAX)
        bench_die("threads: from 1 to %d", THREADS_MAX);
    run_threads(turns, (unsigned)order.threads);
    puts("done");
    return true;
}

static bool do_pulse(void)
{
    if (!has_turns() || order.period_us < 1)
        return false;
    run_threads(pulse, 1);
    puts("done");
    return true;
}

/* ---- what is counted, not recorded ---- */

/* Runs batches until the end of the time. The speed of one batch decides the size of the next one, which should fill the
 * rest of the time. Each batch ends with a wait for what is on its way, so few long batches are most exact. */
static void batches(void (*batch)(const char *, size_t), int64_t from_ns, int64_t to_ns)
{
    size_t count = 0, n = BATCH_LEAST;
    bench_sleep_until_ns(from_ns);
    int64_t began_ns = bench_now_ns(), now_ns = began_ns;
    do {
        int64_t before_ns = now_ns;
        batch(order.name, n);
        count += n;
        now_ns = bench_now_ns();
        int64_t took_ns = now_ns - before_ns + 1;
        double wanted = (double)n * (double)(to_ns - now_ns) / (double)took_ns;
        n = wanted < BATCH_LEAST ? BATCH_LEAST : wanted > BATCH_MOST ? BATCH_MOST : (size_t)wanted;
    } while (now_ns < to_ns);
    printf("done count=%zu ns=%lld\n", count, (long long)(now_ns - began_ns));
}

static bool do_batches(void)
{
    void (*batch)(const char *, size_t) = order.verb[0] == 'm'   ? adapter->many
                                          : order.verb[0] == 'l' ? adapter->loop
                                                                 : adapter->state;
    if (batch != NULL)
        batches(batch, order.from_ns, order.to_ns);
    return batch != NULL;
}

/* ---- what is held and waited for ---- */

/* Takes names as in a turn, for an adapter without a ttl: holds them until this process ends. */
static void take_some(void)
{
    char name[NAME_SIZE];
    void *held;
    open_workers_up_to(1);
    for (int64_t i = 0; i < order.count; i++) {
        snprintf(name, sizeof(name), "%s/%lld", order.name, (long long)i);
        if (!adapter->take(workers[0].own, name, &held))
            bench_die("hold: refused");
    }
}

static bool do_hold(void)
{
    if (adapter->hold == NULL && adapter->take == NULL)
        return false;
    if (adapter->hold != NULL)
        adapter->hold(order.name, (unsigned)order.count, order.ttl_ms);
    else
        take_some();
    puts("done");
    return true;
}

static bool do_wait(void)
{
    if (adapter->wait == NULL)
        return false;
    adapter->wait(order.name, (unsigned)order.count);
    puts("done");
    return true;
}

/* ---- many of something ---- */

static bool do_many_of(void)
{
    unsigned count = (unsigned)order.count;
    if (adapter->crowd == NULL)
        return false;
    if (strcmp(order.verb, "crowd") == 0)
        adapter->crowd(order.name, count);
    else if (strcmp(order.verb, "clients") == 0)
        adapter->clients(order.name, count, order.ttl_ms);
    else
        adapter->touch(order.name, count);
    puts("done");
    return true;
}

static bool do_instant(void)
{
    if (adapter->crowd == NULL)
        return false;
    int64_t at_ns = strcmp(order.verb, "free") == 0 ? adapter->free() : adapter->first();
    printf("done ns=%lld\n", (long long)at_ns);
    return true;
}

/* ---- lines ---- */

static bool understood(char *word)
{
    const struct {
        const char *key;
        int64_t *value;
    } numbers[] = {{"own=", &order.own},
                   {"threads=", &order.threads},
                   {"hold_us=", &order.hold_us},
                   {"period_us=", &order.period_us},
                   {"from_ns=", &order.from_ns},
                   {"to_ns=", &order.to_ns},
                   {"count=", &order.count},
                   {"ttl_ms=", &order.ttl_ms},
                   {"patience_ms=", &order.patience_ms}};
    if (strncmp(word, "name=", 5) == 0)
        return snprintf(order.name, sizeof(order.name), "%s", word + 5) < NAME_SIZE;
    if (strncmp(word, "out=", 4) == 0)
        return snprintf(order.out, sizeof(order.out), "%s", word + 4) < (int)sizeof(order.out);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t length = strlen(numbers[i].key);
        char *end;
        if (strncmp(word, numbers[i].key, length) != 0)
            continue;
        *numbers[i].value = strtoll(word + length, &end, 10);
        return end > word + length && *end == '\0' && *numbers[i].value >= 0;
    }
    return false;
}

static void read_order(char *line)
{
    char *rest = NULL;
    const char *verb = strtok_r(line, " \n", &rest);
    order = (struct order){.threads = 1, .count = 1};
    snprintf(order.verb, sizeof(order.verb), "%s", verb != NULL ? verb : "");
    for (char *word; (word = strtok_r(NULL, " \n", &rest)) != NULL;)
        if (!understood(word))
            bench_die("\"%s\" is not understood", word);
}

static bool obey(void)
{
    static const struct {
        const char *verb;
        bool (*act)(void);
    } verbs[] = {{"turns", do_turns},   {"pulse", do_pulse},   {"many", do_batches},
                 {"loop", do_batches},  {"state", do_batches}, {"hold", do_hold},
                 {"wait", do_wait},     {"crowd", do_many_of}, {"clients", do_many_of},
                 {"touch", do_many_of}, {"free", do_instant},  {"first", do_instant}};
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(order.verb, verbs[i].verb) == 0)
            return verbs[i].act();
    return false;
}

/* Every user of the host can read the arguments of a process, and a URL may contain a password. */
static char *take_address(char *argument)
{
    char *where = strdup(argument);
    if (where == NULL)
        bench_die("no memory");
    if (strpbrk(argument, "@?") != NULL)
        memset(argument, '*', strlen(argument));
    return where;
}

int adapter_main(int argc, char **argv, const struct adapter *self)
{
    char line[2048];
    adapter = self;
    bench_name(self->name);
    if (argc != 2)
        bench_die("an address is expected, and then lines on the standard input; see adapter.h");
    setvbuf(stdout, NULL, _IOLBF, 0);
    char *where = take_address(argv[1]);
    printf("ready %s\n", self->open(where));
    while (fgets(line, sizeof(line), stdin) != NULL) {
        read_order(line);
        if (strcmp(order.verb, "quit") == 0)
            break;
        if (!obey())
            puts("cannot");
    }
    if (self->close != NULL)
        self->close();
    for (unsigned i = 0; i < THREADS_MAX; i++)
        free(workers[i].records);
    free(where);
    return EXIT_SUCCESS;
}
