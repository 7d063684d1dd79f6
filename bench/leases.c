/* leases.c - what it costs to hold very many leases: 100,000 at once on the sim driver, renewed as a ttl of
 * 30 s asks for.
 *
 * Memory: how much the heap grew per lease, and how much the process's resident memory grew. Both include what the
 * sim driver keeps for each name, because its backend is in this process. Processor: all the time that other threads
 * took over a number of whole renewal periods (this thread sleeps meanwhile), from the kernel's accounts of each
 * thread, as a share of one processor. These threads are the watchdog and the service thread, with the driver and its
 * backend. */
#include "common.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TTL_MS 30000
#define PERIOD_NS (INT64_C(1000000) * TTL_MS / 3)
#define THREADS_MAX 16

static size_t lease_count = 100000;

/* ---- what the process has taken ---- */

static double heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

static double resident_bytes(void)
{
    long total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%ld %ld", &total, &resident) != 2)
        bench_die("/proc/self/statm cannot be read");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

struct thread_time {
    long id;
    char what[17];
    double ns;
};

static void read_thread_time(struct thread_time *thread)
{
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%ld/schedstat", thread->id);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%llu", &ns) != 1)
        bench_die("%s cannot be read", path);
    fclose(file);
    thread->ns = (double)ns;
    snprintf(path, sizeof(path), "/proc/self/task/%ld/comm", thread->id);
    file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%16s", thread->what) != 1)
        snprintf(thread->what, sizeof(thread->what), "?");
    if (file != NULL)
        fclose(file);
}

static size_t read_thread_times(struct thread_time *threads)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        bench_die("/proc/self/task cannot be read");
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL && count < THREADS_MAX;) {
        threads[count].id = strtol(entry->d_name, NULL, 10);
        if (threads[count].id > 0 && threads[count].id != (long)getpid())
            read_thread_time(&threads[count++]);
    }
    closedir(tasks);
    return count;
}

/* ---- leases ---- */

static mortise_lease **acquire_all(mortise_client *client)
{
    mortise_lease **leases = calloc(lease_count, sizeof(leases[0]));
    char name[64];
    if (leases == NULL)
        bench_die("out of memory");
    for (size_t i = 0; i < lease_count; i++) {
        snprintf(name, sizeof(name), "bench/lease/%08zu", i);
        leases[i] = bench_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = TTL_MS));
    }
    return leases;
}

static mortise_stats stats_of(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof(stats)};
    if (mortise_stats_get(client, &stats) != MORTISE_OK)
        bench_die("no counters");
    return stats;
}

/* ---- the two measurements ---- */

struct memory {
    struct bench_series *heap, *resident;
};

static mortise_lease **measure_memory(mortise_client *client, struct memory memory)
{
    double heap = heap_bytes(), resident = resident_bytes();
    mortise_lease **leases = acquire_all(client);
    double count = (double)lease_count, list = count * sizeof(leases[0]); /* is the program's own */
    bench_add_only(memory.heap, (heap_bytes() - heap - list) / count, BENCH_ONCE);
    bench_add_only(memory.resident, (resident_bytes() - resident - list) / count, BENCH_ONCE);
    return leases;
}

struct load {
    struct bench_series *share, *watchdog, *renewal;
};

/* Measures one window of so many whole periods, in which each lease is renewed so many times. */
static void measure_window(mortise_client *client, struct load load, int periods)
{
    struct thread_time before[THREADS_MAX], after[THREADS_MAX];
    size_t count = read_thread_times(before);
    uint64_t renewals = stats_of(client).renewals;
    int64_t from = bench_now_ns();
    bench_sleep_until_ns(from + periods * PERIOD_NS);
    double window = (double)(bench_now_ns() - from), all = 0;
    size_t count_after = read_thread_times(after);
    renewals = stats_of(client).renewals - renewals;
    for (size_t i = 0; i < count_after; i++) {
        for (size_t k = 0; k < count; k++)
            if (before[k].id == after[i].id)
                after[i].ns -= before[k].ns;
        all += after[i].ns;
        if (strstr(after[i].what, "watch") != NULL)
            bench_add(load.watchdog, after[i].ns / window * 100);
    }
    bench_add(load.share, all / window * 100);
    if (renewals > 0)
        bench_add(load.renewal, all / (double)renewals);
}

int main(int argc, char **argv)
{
    bench.rounds = 5;
    bench_begin(argc, argv, "leases", "very many leases held at once, ttl 30 s, sim driver", 10);
    mortise_client *client = bench_open("sim:");
    struct memory memory = {
        bench_new_series("heap_per_lease", "heap per lease", "bytes"),
        bench_new_series("resident_per_lease", "resident memory per lease", "bytes")};
    struct load load = {
        bench_new_series("all_threads", "all threads of the library, of one processor", "%"),
        bench_new_series("watchdog", "the watchdog of them", "%"),
        bench_new_series("renewal", "processor time per renewal", "ns")};
    if (bench.quick)
        lease_count /= 10;
    bench_release(bench_acquire(client, "first", NULL)); /* makes its threads and tables */
    mortise_lease **leases = measure_memory(client, memory);
    int periods = (int)(bench.seconds * 1e9 / (double)PERIOD_NS);
    int windows = bench.quick ? 1 : bench.rounds;
    for (int i = 0; i < windows; i++)
        measure_window(client, load, periods < 1 ? 1 : periods);
    bool all_held = stats_of(client).held == lease_count && stats_of(client).losses == 0;
    for (size_t i = 0; i < lease_count; i++)
        bench_release(leases[i]);
    free(leases);
    bench_close(client);
    bench_check("memory", "heap per lease", memory.heap, NULL, BENCH_AT_MOST, 500);
    bench_check("load", "all threads of the library", load.share, NULL, BENCH_AT_MOST, 5);
    bench_proof("all_held", "every lease was held to the end", all_held);
    return bench_end();
}
