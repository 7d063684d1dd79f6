/* run.c - one run of a plan: begins the processes, waits for their workers, closes all clients, and has the checker of
 * tests/torture look at the history. See world.h. */
#include "backend.h"
#include "world.h"
#include "world_settings.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int check_main(int argc, char **argv); /* of tests/torture/check.c */

/* ---- the folder ---- */

char *run_config_of(int process, char *path, size_t size)
{
    snprintf(path, size, "%s/p%d.conf", run_world.folder, process);
    return path;
}

static void write_module_path(FILE *file, int process)
{
    fprintf(file, "module_path = ");
    if (run_world.copies[0])
        fprintf(file, "%s/p%d:", run_world.copies, process);
    fprintf(file, "%s\n", run_world.module_path);
}

static void write_config(int process)
{
    const struct plan *plan = &run_world.plan;
    char path[300];
    FILE *file = fopen(run_config_of(process, path, sizeof path), "w");
    if (!file || fchmod(fileno(file), 0600) != 0)
        abort();
    fprintf(file,
            "[mortise]\ndriver = %s\nobserve = recorder\nlog = %s\nttl = %lldms\n"
            "handover_window = %lldms\nhandover_max = %lld\nunreachable_timeout = %lldms\n"
            "close_timeout = %lldms\n",
            run_world.backend->module, plan->log ? "stderr" : "none", (long long)plan->ttl_ms,
            (long long)plan->handover_window_ms, (long long)plan->handover_max,
            (long long)plan->unreachable_ms, (long long)plan->close_ms);
    write_module_path(file, process);
    fprintf(file, "[recorder]\nfolder = %s\n", run_world.folder);
    run_world.backend->write_section(file);
    fclose(file);
}

static void write_configs(void)
{
    for (int p = 0; p < PLAN_PROCESSES; p++)
        write_config(p);
}

/* ---- the checker ---- */

bool run_has_losses(void)
{
    return run_world.plan.losses;
}

bool run_has_stalls(void)
{
    return run_world.plan.stalls;
}

enum { FILES = 1024 };

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A close that leaves a thread which has not returned in time leaves its modules open, and the recorder with them. */
static void record_open_histories(void)
{
    DIR *folder = opendir(run_world.folder);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strlen(entry->d_name) > 32 && strcmp(entry->d_name + 32, ".jsonl") == 0)
            record_closed_by_close(entry->d_name);
    closedir(folder);
}

/* A name may pass to each caller of a process that was killed, and stays with it for its ttl. The queue of the sim looks
 * at such a claim when the claim before would have expired. */
int64_t run_patience_ms(void)
{
    const struct plan *plan = &run_world.plan;
    int64_t ms = 9000 + run_world.backend->patience_ms();
    for (int p = 1; p <= plan->processes; p++)
        if (sched_is_killed(p))
            ms += 8 * plan->ttl_ms + (plan->queue ? 20000 : 0);
    return ms;
}

static int check(void)
{
    static char words[3][32] = {"check", "", "fencing=1"};
    static char *arguments[FILES + 4] = {words[0], words[1], words[2]};
    snprintf(words[1], sizeof words[1], "patience=%lld", (long long)run_patience_ms());
    int count = 3;
    DIR *folder = opendir(run_world.folder);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 6, ".jsonl") != 0)
            continue;
        if (count == FILES + 3 ||
            asprintf(&arguments[count], "%s/%s", run_world.folder, entry->d_name) < 0)
            abort();
        count++;
    }
    closedir(folder);
    qsort(arguments + 3, (size_t)count - 3, sizeof(char *), compare_paths);
    return check_main(count, arguments);
}

/* ---- the run ---- */

static bool all_workers(bool after_calm)
{
    for (int i = 0; i < run_world.plan.workers; i++) {
        const struct worker *worker = &run_world.workers[i];
        if (!sched_is_killed(worker->process) && !(after_calm ? worker->done : worker->done_steps))
            return false;
    }
    return true;
}

static void wait_for_workers(bool after_calm)
{
    while (!all_workers(after_calm)) {
        nemesis_end_faults();
        usleep(50000);
    }
}

static void begin_workers(void)
{
    const struct plan *plan = &run_world.plan;
    for (int i = 0; i < plan->workers; i++) {
        struct worker *worker = &run_world.workers[i];
        worker->number = i;
        worker->process = plan->process_of[i];
        sched_create(&worker->thread, NULL, worker_main, worker, worker->process);
    }
}

/* Everything that was acquired has been released, and no caller waits. */
static void check_stats(struct opened *opened)
{
    mortise_stats stats = {.size = sizeof stats};
    if (mortise_stats_get(opened->handle, &stats) != MORTISE_OK)
        return;
    if (stats.held != 0 || stats.waiting != 0)
        sched_fail("all leases were released, and the statistics say held=%llu waiting=%llu",
                   (unsigned long long)stats.held, (unsigned long long)stats.waiting);
}

static void *close_process(void *argument)
{
    struct process *it = argument;
    sched_name_thread("closer");
    if (it->opened && !it->opened->closing) {
        check_stats(it->opened);
        client_close(it->opened);
    }
    return NULL;
}

/* A callback may still be closing a client. */
static void wait_for_closers(void)
{
    for (int p = 1; p <= run_world.plan.processes; p++)
        while (run_world.processes[p].closers > 0 && !sched_is_killed(p))
            usleep(50000);
}

static void end_workers(void)
{
    for (int i = 0; i < run_world.plan.workers; i++)
        if (!sched_is_killed(run_world.workers[i].process))
            pthread_join(run_world.workers[i].thread, NULL);
    for (int p = 1; p <= run_world.plan.processes; p++) {
        pthread_t thread;
        if (sched_is_killed(p))
            continue;
        sched_create(&thread, NULL, close_process, &run_world.processes[p], p);
        pthread_join(thread, NULL);
    }
}

static bool count_held(const mortise_info *info, void *held)
{
    sched_trace("left: %s, token %llu, for %lld ms more, owner %s", info->name,
                (unsigned long long)info->token, (long long)info->remaining_ms, info->owner);
    ++*(int *)held;
    return true;
}

/* What is counted as waiting for any name, "d" of callbacks.c too. */
static int count_waiters(const struct opened *opened)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    mortise_error error;
    int waiters = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mortise_info info = {.size = sizeof info};
        if (mortise_inspect(opened->handle, names[i], &info, &error) != MORTISE_OK)
            sched_fail("mortise_inspect: %s", error.message);
        if (info.waiters > 0) /* -1: it is not known */
            waiters += info.waiters;
    }
    return waiters;
}

/* If no process was killed and every close was clean, the backend has nothing of anybody. */
static void check_backend(void)
{
    mortise_error error;
    for (int p = 1; p <= run_world.plan.processes; p++)
        if (sched_is_killed(p))
            return;
    if (!run_world.all_clean)
        return;
    struct opened *opened = client_of(0); /* its list leaves out what has expired */
    int held = 0;
    if (mortise_list(opened->handle, NULL, count_held, &held, &error) != MORTISE_OK)
        sched_fail("mortise_list: %s", error.message);
    int waiters = count_waiters(opened);
    client_close(opened);
    run_world.backend->check_left(held, waiters);
}

static void process_killed(int process, int64_t at_ns)
{
    record_killed(process, at_ns);
    run_world.backend->process_killed(process);
}

/* A run that fails. */
static void give_up(void)
{
    run_world.backend->end();
}

/* The core bears with a module that breaks its contract, and only says so. */
static void look_at_log(int level, const char *line, void *nothing)
{
    (void)level;
    (void)nothing;
    if (strstr(line, "the module completed an op"))
        sched_fail("%s", line);
}

static void begin(const struct plan *plan)
{
    run_world.plan = *plan;
    run_world.may_be_away = plan->faults;
    run_world.all_clean = true;
    for (int p = 0; p < PLAN_PROCESSES; p++)
        pthread_mutex_init(&run_world.processes[p].lock, NULL);
    write_configs();
    record_begin(run_world.folder);
}

int run_plan(const struct plan *plan, bool tracing, bool points)
{
    struct sched_settings settings = {.seed = plan->schedule,
                                      .switch_one_in = plan->switch_one_in,
                                      .change_one_in = plan->change_one_in,
                                      .jitter_ns = plan->jitter_ns,
                                      .stall_one_in = plan->stall_one_in,
                                      .stall_ns = plan->stall_ms * NS_PER_MS,
                                      .spurious_one_in = plan->spurious_one_in,
                                      .kills_anywhere = !run_world.backend->shares_memory,
                                      .step_limit = 400000,
                                      .time_limit_ns = INT64_C(300000) * NS_PER_MS,
                                      .trace_points = points,
                                      .failed = give_up,
                                      .killed = process_killed};
    begin(plan);
    sched_tracing = tracing;
    sched_begin(&settings);
    if (plan->log)
        mortise_on_log(look_at_log, NULL);
    run_world.backend->begin();
    begin_workers();
    nemesis_run();
    wait_for_workers(false);
    nemesis_calm();
    wait_for_workers(true);
    end_workers();
    wait_for_closers();
    check_backend();
    uint64_t hash = sched_hash(), steps = sched_steps(), switches = sched_switches();
    int64_t took_ns = sched_now() - SCHED_START_NS;
    sched_end();
    run_world.backend->end();
    if (run_world.stuck)
        record_open_histories();
    record_end();
    int code = check();
    printf("points=%llu switches=%llu virtual=%lld ms\nhash %016llx\n", (unsigned long long)steps,
           (unsigned long long)switches, (long long)(took_ns / NS_PER_MS),
           (unsigned long long)hash);
    return code;
}
