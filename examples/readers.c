/* readers.c - processes that read a pair of numbers together, at most three at once, and others that change it alone. A
 * reader that saw a half-changed pair, or a fourth one beside three others, would be a mistake of the lock.
 *
 *     readers WHERE
 *
 * WHERE: a config file or URL, as for mortise_open(), of a driver with shared locks and permits. */
#include <mortise/mortise.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READERS = 6, WRITERS = 2, TURNS = 50, PERMITS = 3 };

/* Shared by all processes. The lock protects the pair; the rest counts. */
struct table {
    volatile long left, right; /* always equal, except while a writer is at work */
    atomic_int inside;         /* readers, now */
    atomic_int most;           /* readers at once, so far */
    atomic_int wrong;          /* pairs that were not equal */
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "readers: %s: %s\n", what, why);
    return -1;
}

static void look(struct table *table)
{
    int now = atomic_fetch_add(&table->inside, 1) + 1, most = atomic_load(&table->most);
    while (now > most && !atomic_compare_exchange_weak(&table->most, &most, now))
        continue;
    long left = table->left;
    sched_yield(); /* a writer may run just here: without the lock it would change the pair */
    if (left != table->right)
        atomic_fetch_add(&table->wrong, 1);
    atomic_fetch_sub(&table->inside, 1);
}

static void change(struct table *table)
{
    if (atomic_load(&table->inside) != 0)
        atomic_fetch_add(&table->wrong, 1);
    table->left++;
    sched_yield();
    table->right++;
}

static int take_turns(mortise_client *client, struct table *table, bool reads)
{
    const mortise_options *shared =
        MORTISE_OPTIONS(.wait_ms = 60000, .mode = MORTISE_SHARED, .permits = PERMITS);
    const mortise_options *alone = MORTISE_OPTIONS(.wait_ms = 60000);
    mortise_lease *lease;
    mortise_error error;

    for (int i = 0; i < TURNS; i++) {
        if (mortise_acquire(client, "table", reads ? shared : alone, &lease, &error) != MORTISE_OK)
            return fail("acquiring", error.message);
        if (reads)
            look(table);
        else
            change(table);
        if (mortise_release(lease, &error) != MORTISE_OK)
            return fail("releasing", error.message);
    }
    return 0;
}

/* A client is opened after the fork: it belongs to the process that opened it. */
static int work(const char *where, struct table *table, bool reads)
{
    mortise_client *client;
    mortise_error error;

    if (mortise_open(where, &client, &error) != MORTISE_OK)
        return fail("opening", error.message);
    int result = take_turns(client, table, reads);
    mortise_close(client, NULL);
    return result;
}

int main(int argc, char **argv)
{
    int failed = 0, status;

    if (argc != 2) {
        fprintf(stderr, "usage: readers WHERE\n");
        return 64;
    }
    struct table *table =
        mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return 1;
    for (int i = 0; i < READERS + WRITERS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(work(argv[1], table, i < READERS) == 0 ? 0 : 1);
        failed += pid < 0;
    }
    while (wait(&status) > 0)
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (failed > 0)
        return 1;
    printf("%d reads beside %ld changes: %d wrong, at most %d readers at once\n", READERS * TURNS,
           table->left, atomic_load(&table->wrong), atomic_load(&table->most));
    return atomic_load(&table->wrong) == 0 && atomic_load(&table->most) <= PERMITS ? 0 : 1;
}
