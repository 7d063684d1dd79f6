/* command.c - what `mortise run NAME -- true` costs as a whole process, beside `flock FILE true` and a
 * process that opens a database and makes one bare cycle on it: the lock of one host, and the price of a
 * lock that is kept in a file.
 *
 * posix_spawn() starts the processes one after another. The bare process is this program itself. */
#include "common.h"

#include <spawn.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the bare process -------------------------------------------------------------------------- */

static void must(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        bench_die("bare: %s", message);
}

static int bare(const char *path)
{
    sqlite3 *db;
    if (sqlite3_open(path, &db) != SQLITE_OK)
        bench_die("bare: cannot open %s", path);
    sqlite3_busy_timeout(db, 1000);
    must(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
             "CREATE TABLE IF NOT EXISTS bare (name BLOB PRIMARY KEY, version INTEGER, owner BLOB,"
             " expires_at INTEGER) WITHOUT ROWID");
    must(db,
         "INSERT INTO bare VALUES ('x', 1, 'o', 1) ON CONFLICT (name) DO UPDATE"
         " SET version = version + 1, owner = 'o' WHERE expires_at IS NOT NULL RETURNING version");
    must(db, "UPDATE bare SET owner = NULL WHERE name = 'x'");
    sqlite3_close(db);
    return 0;
}

/* ---- processes --------------------------------------------------------------------------------- */

#define WORDS 8

/* posix_spawn() takes words that are not const. */
struct words {
    char *at[WORDS];
};

static struct words make_words(const char *const *from)
{
    struct words words = {.at = {NULL}};
    for (size_t i = 0; i + 1 < WORDS && from[i] != NULL; i++)
        if ((words.at[i] = strdup(from[i])) == NULL)
            bench_die("out of memory");
    return words;
}

static void free_words(struct words *words)
{
    for (size_t i = 0; i < WORDS; i++)
        free(words->at[i]);
}

static double us_per_process(struct bench_case *self, double seconds)
{
    return bench_ns_per_turn(self, seconds) / 1000;
}

static void spawn_each(void *context, size_t n)
{
    char *const *arguments = ((struct words *)context)->at;
    while (n-- > 0) {
        pid_t child;
        int status;
        if (posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ) != 0)
            bench_die("cannot start %s", arguments[0]);
        if (waitpid(child, &status, 0) != child || status != 0)
            bench_die("%s failed", arguments[0]);
    }
}

/* The command of the same build: ../bin/mortise beside this program's folder. */
static void find_command(char *path, size_t size, const char *self)
{
    const char *slash = strrchr(self, '/');
    int folder = slash == NULL ? 1 : (int)(slash - self);
    snprintf(path, size, "%.*s/../bin/mortise", folder, slash == NULL ? "." : self);
    if (access(path, X_OK) != 0)
        bench_die("%s is not there: build the command first", path);
}

static void add_sum(struct bench_series *sum, const struct bench_series *a,
                    const struct bench_series *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        bench_add(sum, a->values[i] + b->values[i]);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--bare") == 0)
        return bare(argv[2]);
    char self[512], command[1024], url[1024], file[1024], database[1024];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length < 0 ? 0 : length] = '\0';
    bench.rounds = 11;
    bench_begin(argc, argv, "command", "`mortise run x -- true` as a whole process, on SQLite",
                0.3);
    find_command(command, sizeof(command), self);
    snprintf(url, sizeof(url), "sqlite:%s/run.db", bench_folder());
    snprintf(file, sizeof(file), "%s/flock", bench_folder());
    snprintf(database, sizeof(database), "%s/bare.db", bench_folder());
    struct words with_flock = make_words((const char *[]){"flock", file, "true", NULL});
    struct words with_bare = make_words((const char *[]){self, "--bare", database, NULL});
    struct words with_run =
        make_words((const char *[]){command, "-C", url, "run", "x", "--", "true", NULL});
    struct bench_series *flock = bench_new_series("flock", "flock FILE true", "us");
    struct bench_series *open =
        bench_new_series("bare_open", "a bare open and cycle of SQLite", "us");
    struct bench_series *run = bench_new_series("run", "mortise run x -- true", "us");
    struct bench_case cases[] = {
        {.series = flock, .measure = us_per_process, .loop = spawn_each, .context = &with_flock},
        {.series = open, .measure = us_per_process, .loop = spawn_each, .context = &with_bare},
        {.series = run, .measure = us_per_process, .loop = spawn_each, .context = &with_run}};
    bench_rounds(cases, sizeof(cases) / sizeof(cases[0]));
    struct bench_series *both = bench_new_series("floor", "the first two together", "us");
    add_sum(both, flock, open);
    bench_check("run_over_floor", "mortise run / (flock + bare open and cycle)", run, both,
                BENCH_AT_MOST, 1.5);
    free_words(&with_flock);
    free_words(&with_bare);
    free_words(&with_run);
    return bench_end();
}
