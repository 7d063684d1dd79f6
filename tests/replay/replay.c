/* replay.c - runs the real core and a driver under a scheduler that one seed determines.
 *
 *     replay --seed N            one run; the last line is the hash of its trace
 *     replay --seeds A-B         many, each in a process of its own; prints those that fail
 *     replay --seed N --trace    prints what happens
 *
 * --driver NAME sim (if it is not given), sqlite, redis, redlock;
 *               redis-failover: a primary and a replica, min_replicas = 1; redis-forgets: min_replicas = 0
 * --schedule N  the seed of the interleaving, if it is not that of the plan
 * --keep LIST   the only steps of the plan that are executed: "3,7,9-12"
 * --no-end MASK leaves out what these workers do after the faults: they acquire each name; 5: worker0 and worker2
 * --plan        prints the plan and ends
 * --net         with --trace: prints what arrives at clients and servers
 * --points      with --trace: prints every point of the scheduler
 * --fresh S      seeds that nobody has tried, for S seconds; prints where they begin
 * --modules DIR  where modules are looked for first; for planted bugs
 * --first       ends at the first failure
 * --jobs N      how many runs there are at once (1); each has a processor of its own
 * --cells       with --seeds and the core of coverage.py: prints how often each event came in each state
 * --shrink      prints the shortest plan that still fails
 *
 * Exit code 0: no run failed; 1: a run failed; 64: usage. docs/replay.md explains more. */
#include "backend.h"
#include "calls.h"
#include "cells.h"
#include "folder.h"
#include "net.h"
#include "real.h"
#include "shrink.h"
#include "world.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

static struct {
    uint64_t first, last, schedule;
    const char *keep;
    const char *modules;
    enum plan_driver driver;
    int jobs, fresh_s, processor;
    bool trace, points, plan, shrink, first_only;
    unsigned no_end;
} wanted = {.jobs = 1, .modules = REPLAY_MODULES};

/* ---- a run in a process of its own ---- */

static void use_processor(int number)
{
    cpu_set_t set;
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&set);
    CPU_SET((unsigned)((wanted.processor + number) % (int)(count > 0 ? count : 1)), &set);
    sched_setaffinity(0, sizeof set, &set); /* if it is refused, the run is only slower */
}

/* *folder, if it is wanted: where it was found. */
static void *load_module(const char *name, const char **folder)
{
    const char *const folders[] = {wanted.modules, REPLAY_MODULES, REPLAY_DRIVERS};
    char file[4096];
    void *library = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !library; i++) {
        snprintf(file, sizeof file, "%s/%s.so", folders[i], name);
        if (access(file, R_OK) == 0)
            library = dlopen(file, RTLD_NOW);
        if (library && folder)
            *folder = folders[i];
    }
    if (!library) {
        fprintf(stderr, "replay: the module %s was not found\n", name);
        exit(1);
    }
    return library;
}

static void load_copies(void)
{
    const char *const folders[] = {wanted.modules, REPLAY_COPIES};
    char name[64];
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !run_world.copies[0]; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/p0/%s.so", folders[i], run_world.backend->module);
        if (access(file, R_OK) == 0)
            snprintf(run_world.copies, sizeof run_world.copies, "%s", folders[i]);
    }
    wanted.modules = run_world.copies;
    for (int p = 0; p < PLAN_PROCESSES; p++) {
        snprintf(name, sizeof name, "p%d/%s", p, run_world.backend->module);
        load_module(name, NULL);
    }
}

/* No folder in which nothing was found: a line of the config has room for few. */
static void load_modules(void)
{
    static char path[8192];
    const char *first = NULL, *second = NULL;
    load_module("recorder", &first);
    if (run_world.backend->copies)
        load_copies();
    else
        run_world.backend->loaded(load_module(run_world.backend->module, &second));
    if (second && strcmp(first, second) != 0)
        snprintf(path, sizeof path, "%s:%s", first, second);
    else
        snprintf(path, sizeof path, "%s", first);
    run_world.module_path = path;
    unsetenv("MORTISE_MODULE_PATH");
    unsetenv("MORTISE_CONFIG");
}

/* If somebody kills the program, its jobs and their runs do not go on. */
static void end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

struct child child_begin(const struct plan *plan, bool trace, int processor)
{
    int ends[2];
    struct child child;
    fflush(stdout);
    if (pipe(ends) != 0)
        abort();
    child.lock = folder_make(child.folder, sizeof child.folder);
    child.pid = fork();
    if (child.pid == 0) {
        end_with_parent();
        snprintf(run_world.folder, sizeof run_world.folder, "%s", child.folder);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        use_processor(processor);
        if (trace)
            setvbuf(stdout, NULL, _IOLBF, 0); /* a run that crashes leaves its trace */
        int code = run_plan(plan, trace, wanted.points);
        fflush(stdout);
        if (cells_wanted())
            exit(code); /* a core that counts its lines writes the counts */
        _exit(code);
    }
    close(ends[1]);
    child.output = ends[0];
    return child;
}

/* The output, to be freed. Returns the exit code; 128 and more: the run crashed. */
int child_end(struct child *child, char **output)
{
    size_t size = 0, room = 65536;
    char *text = malloc(room);
    ssize_t count;
    int status;
    while ((count = read(child->output, text + size, room - size - 1)) > 0) {
        size += (size_t)count;
        if (room - size < 4096)
            text = realloc(text, room *= 2);
    }
    text[size] = '\0';
    close(child->output);
    waitpid(child->pid, &status, 0);
    folder_remove(child->folder, child->lock);
    *output = text;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- many seeds ---- */

static void make(struct plan *plan, uint64_t seed)
{
    plan_make(plan, wanted.driver, seed, wanted.schedule);
    plan->no_end |= wanted.no_end;
    if (wanted.keep && !plan_keep(plan, wanted.keep)) {
        fprintf(stderr, "replay: --keep %s: not a list\n", wanted.keep);
        exit(64);
    }
}

/* Nothing but the seed determines a run: a busy machine fails none, and other seeds that pass prove nothing. Not so if
 * somebody killed it, or there is no server. */
static bool is_finding(int code)
{
    return code == 1 || (code > 128 && code != 128 + SIGKILL);
}

/* Every job has its own process, which takes every n-th seed, one after the other. */
static int run_job(int job)
{
    int failed = 0;
    struct plan plan;
    time_t began = time(NULL);
    for (uint64_t seed = wanted.first + (uint64_t)job; seed <= wanted.last;
         seed += (uint64_t)wanted.jobs) {
        if (wanted.fresh_s > 0 && time(NULL) - began >= wanted.fresh_s)
            break;
        char *output;
        make(&plan, seed);
        struct child child = child_begin(&plan, false, job);
        int code = child_end(&child, &output);
        if (code != 0) {
            failed = 1;
            printf("seed %llu fails (%d):\n%s\n", (unsigned long long)seed, code, output);
            if (is_finding(code)) /* behind the output, which may end in the middle of a line */
                printf("\nFINDING: seed %llu\n", (unsigned long long)seed);
            fflush(stdout);
        }
        free(output);
        if (failed && wanted.first_only)
            break;
    }
    return failed;
}

static int run_seeds(void)
{
    int failed = 0, status;
    pid_t jobs[64];
    for (int job = 0; job < wanted.jobs; job++) {
        fflush(stdout);
        jobs[job] = fork();
        if (jobs[job] == 0) {
            end_with_parent();
            exit(run_job(job));
        }
    }
    for (int job = 0; job < wanted.jobs; job++) {
        waitpid(jobs[job], &status, 0);
        failed |= status != 0;
    }
    cells_print();
    printf("seeds %llu-%llu: %s\n", (unsigned long long)wanted.first,
           (unsigned long long)wanted.last, failed ? "some fail" : "all is well");
    return failed;
}

static int run_one(void)
{
    struct plan plan;
    char *output;
    make(&plan, wanted.first);
    if (wanted.plan || wanted.trace)
        plan_print(&plan);
    if (wanted.plan)
        return 0;
    if (wanted.shrink)
        return shrink(&plan);
    struct child child = child_begin(&plan, wanted.trace, 0);
    int code = child_end(&child, &output);
    fputs(output, stdout);
    if (code >= 128)
        printf("the run ended with signal %d\n", code - 128);
    return code == 0 ? 0 : 1;
}

/* ---- arguments ---- */

static bool set_seeds(const char *text)
{
    char *end;
    wanted.first = wanted.last = strtoull(text, &end, 10);
    if (*end == '-')
        wanted.last = strtoull(end + 1, &end, 10);
    return *text && *end == '\0' && wanted.first > 0;
}

static bool set_driver(const char *name)
{
    static const struct backend *const backends[] = {
        [PLAN_SIM] = &backend_sim,           [PLAN_REDIS] = &backend_redis,
        [PLAN_REDLOCK] = &backend_redlock,   [PLAN_SQLITE] = &backend_sqlite,
        [PLAN_FAILOVER] = &backend_failover, [PLAN_FORGETS] = &backend_forgets};
    for (enum plan_driver driver = PLAN_SIM; driver < PLAN_DRIVERS; driver++)
        if (strcmp(name, backends[driver]->name) == 0) {
            wanted.driver = driver;
            run_world.backend = backends[driver];
            return true;
        }
    return false;
}

static bool set_argument(const char *key, const char *value)
{
    bool *flag = strcmp(key, "--trace") == 0    ? &wanted.trace
                 : strcmp(key, "--points") == 0 ? &wanted.points
                 : strcmp(key, "--plan") == 0   ? &wanted.plan
                 : strcmp(key, "--net") == 0    ? &net.traced
                 : strcmp(key, "--shrink") == 0 ? &wanted.shrink
                 : strcmp(key, "--first") == 0  ? &wanted.first_only
                                                : NULL;
    if (flag)
        return *flag = true;
    if (strcmp(key, "--cells") == 0) {
        cells_begin();
        return true;
    }
    if (!value)
        return false;
    if (strcmp(key, "--seed") == 0 || strcmp(key, "--seeds") == 0)
        return set_seeds(value);
    if (strcmp(key, "--schedule") == 0)
        return (wanted.schedule = strtoull(value, NULL, 10)) > 0;
    if (strcmp(key, "--no-end") == 0)
        return (wanted.no_end = (unsigned)strtoul(value, NULL, 10)) > 0;
    if (strcmp(key, "--keep") == 0)
        return (wanted.keep = value) != NULL;
    if (strcmp(key, "--modules") == 0)
        return (wanted.modules = value) != NULL;
    if (strcmp(key, "--fresh") == 0) {
        wanted.first = (uint64_t)time(NULL) << 20;
        wanted.last = UINT64_MAX / 2;
        return (wanted.fresh_s = (int)strtol(value, NULL, 10)) > 0;
    }
    if (strcmp(key, "--driver") == 0)
        return set_driver(value);
    if (strcmp(key, "--jobs") == 0)
        return (wanted.jobs = (int)strtol(value, NULL, 10)) > 0 && wanted.jobs <= 64;
    return false;
}

static bool takes_value(const char *key)
{
    return strcmp(key, "--trace") != 0 && strcmp(key, "--points") != 0 &&
           strcmp(key, "--net") != 0 && strcmp(key, "--plan") != 0 && strcmp(key, "--first") != 0 &&
           strcmp(key, "--shrink") != 0 && strcmp(key, "--cells") != 0;
}

int main(int argc, char **argv)
{
    set_driver("sim");
    for (int i = 1; i < argc; i++) {
        bool value = takes_value(argv[i]);
        if (!set_argument(argv[i], value && i + 1 < argc ? argv[i + 1] : NULL))
            wanted.first = 0, i = argc;
        i += value;
    }
    if (wanted.first == 0) {
        fprintf(stderr, "usage: replay --seed N [--trace] [--shrink] | --seeds A-B [--jobs N]\n"
                        "       replay --fresh SECONDS [--jobs N]\n");
        return 64;
    }
    wanted.processor = sched_getcpu(); /* several of these programs may run at once */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_PERTURB, 0xA5); /* freed memory does not look alive */
    folder_remove_left();
    forks_begin();
    load_modules();
    calls_find_static_data();
    return wanted.first == wanted.last ? run_one() : run_seeds();
}
