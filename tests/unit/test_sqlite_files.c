/* test_sqlite_files.c - the file of the SQLite module while it is in use: locked by other programs, damaged, replaced.
 * test_sqlite_place.c has the files that the module refuses to open, test_sqlite_full.c a full disk. */
#include "sqlite_host.h"
#include "support.h"

static const char *path;

/* ---- a database that others keep locked ---------------------------------------------------------- */

struct locker {
    int ready[2], go[2];
};

static void hold_lock(void *argument)
{
    struct locker *locker = argument;
    void *db = NULL;
    CU_ASSERT_EQUAL(outside(path, "BEGIN IMMEDIATE", &db), 0);
    say(locker->ready);
    CU_ASSERT_TRUE(hear(locker->go));
    CU_ASSERT_EQUAL(outside(path, "COMMIT", &db), 0);
    outside_close(db);
}

static pid_t lock_database(struct locker *locker)
{
    if (pipe2(locker->ready, O_CLOEXEC) != 0 || pipe2(locker->go, O_CLOEXEC) != 0)
        abort();
    pid_t pid = child_start(hold_lock, locker);
    CU_ASSERT_TRUE_FATAL(hear(locker->ready));
    return pid;
}

static void unlock_database(struct locker *locker, pid_t pid)
{
    say(locker->go);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    for (int i = 0; i < 2; i++) {
        close(locker->ready[i]);
        close(locker->go[i]);
    }
}

static void test_busy_then_free(void)
{
    enum { N = 5 };
    struct locker locker;
    struct client client;
    struct call calls[N], batch[N];
    mortise_op *ops[N];
    static const char *const names[N] = {"a", "b", "a", "c", "a"};
    path = database("busy");
    OPEN_OK(&client, "path", path);
    pid_t pid = lock_database(&locker);
    for (int i = 0; i < N; i++) {
        calls[i] = call_make(MORTISE_OP_ACQUIRE, names[i]);
        calls[i].op.flags = MORTISE_OP_TRY;
        call_start(&client, &calls[i]);
        batch[i] = call_make(MORTISE_OP_ACQUIRE, "d");
        batch[i].op.flags = MORTISE_OP_TRY;
        ops[i] = &batch[i].op;
    }
    module->start(client.ctx, ops, N);
    for (int64_t until_ns = time_now() + 30 * MS;
         time_now() < until_ns || client.turns <= 2;) /* by timer */
        client_turn(&client, time_now() + 30 * MS);
    for (int i = 0; i < N; i++)
        CU_ASSERT_FALSE(calls[i].done || batch[i].done);
    CU_ASSERT_TRUE(client.turns < 100); /* and not in a hurry */
    unlock_database(&locker, pid);
    for (int i = 0; i < N; i++) {
        bool first = i == 0 || i == 1 || i == 3; /* in the order in which they came */
        CU_ASSERT_TRUE(wait_done(&client, &calls[i]) && wait_done(&client, &batch[i]));
        CU_ASSERT_EQUAL(calls[i].op.status, first ? MORTISE_OK : MORTISE_BUSY);
        CU_ASSERT_EQUAL(batch[i].op.status, i == 0 ? MORTISE_OK : MORTISE_BUSY);
    }
    /* the claim counts from the try that made it, not from the tries that did nothing */
    CU_ASSERT_TRUE(calls[0].op.from_ns > time_now() - 5000 * MS);
    CU_ASSERT_EQUAL(calls[0].op.from_ns, calls[0].op.first_sent_ns);
    client_close(&client);
}

static void test_busy_for_too_long(void)
{
    struct locker locker;
    struct client client, reader;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "b");
    path = database("too-busy");
    OPEN_OK(&client, "path", path, "busy_timeout", "100ms");
    OPEN_OK(&reader, "path", path);
    acquire(&client, &lock, "a", 0);
    pid_t pid = lock_database(&locker);
    int64_t before_ns = time_now();
    struct call renewal = call_about(MORTISE_OP_RENEW, &lock);
    call_start(&client, &renewal);
    call_start(&client, &other);
    CU_ASSERT_TRUE(inspect(&reader, "a").held); /* reading waits for nobody */
    CU_ASSERT_TRUE(wait_done(&client, &renewal) && wait_done(&client, &other));
    CU_ASSERT_EQUAL(renewal.op.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(other.op.status, MORTISE_UNREACHABLE);
    CU_ASSERT_TRUE(other.error.retryable);
    CU_ASSERT_PTR_NOT_NULL(strstr(other.error.message, path));
    CU_ASSERT_PTR_NOT_NULL(strstr(other.error.message, "locked"));
    CU_ASSERT_PTR_NOT_NULL(strstr(other.error.message, "acquire \"b\""));
    CU_ASSERT_TRUE(time_now() - before_ns >= 100 * MS);
    unlock_database(&locker, pid);
    CU_ASSERT_EQUAL(run(&client, &renewal), MORTISE_OK);
    CU_ASSERT_FALSE(inspect(&client, "b").held);
    client_close(&client);
    client_close(&reader);
}

static void test_cancel_while_busy(void)
{
    struct locker locker;
    struct client client;
    struct call calls[3];
    path = database("cancel");
    OPEN_OK(&client, "path", path);
    pid_t pid = lock_database(&locker);
    for (int i = 0; i < 3; i++) {
        calls[i] = call_make(MORTISE_OP_ACQUIRE, "a");
        calls[i].op.flags = i == 1 ? MORTISE_OP_REPEAT : 0;
        call_start(&client, &calls[i]);
    }
    module->cancel(client.ctx, &calls[0].op);
    module->cancel(client.ctx, &calls[1].op);
    CU_ASSERT_TRUE(calls[0].done && calls[1].done && !calls[2].done);
    CU_ASSERT_EQUAL(calls[0].op.status, MORTISE_CANCELED);
    CU_ASSERT_EQUAL(calls[1].op.status, MORTISE_INDETERMINATE); /* an earlier try may hold */
    module->cancel(client.ctx, &calls[0].op);                   /* too late: ignored */
    unlock_database(&locker, pid);
    CU_ASSERT_TRUE(wait_done(&client, &calls[2]));
    CU_ASSERT_EQUAL(calls[2].op.status, MORTISE_OK);
    client_close(&client);
}

/* A waiter gives up while the file is locked: it is removed from the list later. */
static void test_unwatch_while_busy(void)
{
    struct locker locker;
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    path = database("unwatch-busy");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    acquire(&holder, &lock, "b", 0);
    acquire(&holder, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    pid_t pid = lock_database(&locker);
    module->unwatch(client.ctx, "a", 1);
    module->watch(client.ctx, "b", 1); /* added to a list later, and notified once */
    CU_ASSERT_EQUAL(client.news, 0);
    unlock_database(&locker, pid);
    CU_ASSERT_TRUE(wait_news(&client, 1, PATIENCE_NS));
    CU_ASSERT_EQUAL(inspect(&holder, "b").waiters, 1);
    int64_t until_ns = time_now() + PATIENCE_NS;
    while (inspect(&holder, "a").waiters > 0 && time_now() < until_ns)
        client_turn(&client, time_now() + 10 * MS);
    CU_ASSERT_EQUAL(inspect(&holder, "a").waiters, 0);
    module->unwatch(client.ctx, "b", 1);
    client_close(&client);
    client_close(&holder);
}

/* ---- broken, foreign, replaced -------------------------------------------------------------------- */

/* Broken pages inside: ops that read them fail and say so; the lock does not count as free. */
static void test_corrupt_inside(void)
{
    struct client client;
    struct call lock, pages;
    path = database("corrupt");
    OPEN_OK(&client, "path", path);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        acquire(&client, &lock, name, 0);
    }
    client_close(&client);
    struct stat about;
    CU_ASSERT_EQUAL(stat(path, &about), 0);
    write_at(path, about.st_size - 4096, 'x', 4096);
    OPEN_OK(&client, "path", path);
    unsigned broken = 0;
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        mortise_status status = acquire(&client, &pages, name, MORTISE_OP_TRY);
        CU_ASSERT_NOT_EQUAL(status, MORTISE_OK);
        broken += status == MORTISE_BACKEND &&
                  strstr(pages.error.message, "corrupt.db: the database is corrupt") != NULL;
    }
    CU_ASSERT_TRUE(broken > 0);
    client_close(&client);
}

static void test_moved_away(void)
{
    struct client client;
    struct call lock, next;
    char elsewhere[PATHS_MAX];
    path = database("moved");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    joined(elsewhere, path, "-elsewhere");
    CU_ASSERT_EQUAL(rename(path, elsewhere), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_LOST); /* the new file knows nothing of it */
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "was moved or deleted"));
    CU_ASSERT_EQUAL(client.news_all, 1);
    CU_ASSERT_EQUAL(acquire(&client, &next, "a", 0), MORTISE_OK);
    CU_ASSERT_TRUE(next.op.token > lock.op.token);
    CU_ASSERT_EQUAL(access(path, F_OK), 0);

    /* and if nothing can replace it, every op says why */
    remove_tree(path);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(acquire(&client, &next, "b", 0), MORTISE_UNREACHABLE);
    CU_ASSERT_TRUE(next.error.retryable);
    CU_ASSERT_PTR_NOT_NULL(strstr(next.error.message, "is not a file"));
    CU_ASSERT_EQUAL(acquire(&client, &next, "b", 0), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(rmdir(path), 0);
    clock_shift_ns += 251 * MS;
    CU_ASSERT_EQUAL(acquire(&client, &next, "b", 0), MORTISE_OK);
    client_close(&client);
}

static void test_restart_of_the_host(void)
{
    struct client client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    path = database("boot");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    client_close(&client);
    OPEN_OK(&client, "path", path); /* the same boot: nothing is freed */
    CU_ASSERT_TRUE(inspect(&client, "a").held);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    client_close(&client);
    CU_ASSERT_EQUAL(outside(path,
                            "UPDATE mortise_meta SET value = 'another' WHERE key = 'boot_id'; "
                            "UPDATE mortise_lock SET version = 9000000000000000000, waiters = "
                            "x'010203040506070800000000'",
                            NULL),
                    0);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    CU_ASSERT_EQUAL(inspect(&client, "a").waiters, 0);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_LOST);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_OK);
    CU_ASSERT_EQUAL(other.op.token, UINT64_C(9000000000000000001)); /* tokens go on */
    client_close(&client);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_TRUE(inspect(&client, "a").held);
    client_close(&client);
}

/* ---- several clients of one process --------------------------------------------------------------- */

/* A process that shares nothing with this one: forked before anything was opened. On command it opens and closes a
 * client, and with it the log if it believes that it is the last; then it reports whether "a" can be acquired. */
static void stranger(void *argument)
{
    struct locker *locker = argument;
    struct client client;
    struct call lock;
    for (int held = 1; held >= 0; held--) {
        CU_ASSERT_TRUE(hear(locker->go));
        OPEN_OK(&client, "path", path);
        client_close(&client);
        say(locker->ready);
        CU_ASSERT_TRUE(hear(locker->go));
        OPEN_OK(&client, "path", path);
        CU_ASSERT_EQUAL(acquire(&client, &lock, "a", MORTISE_OP_TRY),
                        held ? MORTISE_BUSY : MORTISE_OK);
        client_close(&client);
        say(locker->ready);
    }
}

static void ask(struct locker *locker)
{
    say(locker->go);
    CU_ASSERT_TRUE(hear(locker->ready));
}

static pid_t stranger_start(struct locker *locker)
{
    if (pipe2(locker->ready, O_CLOEXEC) != 0 || pipe2(locker->go, O_CLOEXEC) != 0)
        abort();
    return child_start(stranger, locker);
}

/* Acquires and releases "a" while the other process looks. */
static void hold_before(struct locker *locker, struct client *client)
{
    struct call lock;
    ask(locker);
    CU_ASSERT_EQUAL(acquire(client, &lock, "a", 0), MORTISE_OK);
    ask(locker);
    ask(locker);
    CU_ASSERT_EQUAL(release(client, &lock), MORTISE_OK);
    ask(locker);
}

/* Advisory locks belong to the process: opening or closing one client must not drop those of the other. */
static void test_two_in_one_process(void)
{
    struct locker locker;
    struct client one, two;
    path = database("two");
    pid_t pid = stranger_start(&locker);
    OPEN_OK(&one, "path", path);
    OPEN_OK(&two, "path", path);
    client_close(&two);
    hold_before(&locker, &one);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    client_close(&one);
}

struct family {
    struct locker stranger, child;
};

/* Of this process, on any file. */
static unsigned advisory_locks(void)
{
    char line[256], self[32];
    unsigned count = 0;
    FILE *locks = fopen("/proc/locks", "re");
    snprintf(self, sizeof(self), " %d ", (int)getpid());
    while (locks != NULL && fgets(line, sizeof(line), locks) != NULL)
        count += strstr(line, self) != NULL;
    if (locks != NULL)
        fclose(locks);
    return count;
}

/* The kernel's list is read in pieces, and other processes lock and unlock meanwhile: one may be missed. */
static bool has_locks(void *count)
{
    return advisory_locks() == *(unsigned *)count;
}

static void child_with_client(void *argument)
{
    struct family *family = argument;
    struct client client;
    unsigned none = 0, both = 2; /* on the database, and on the log's index */
    CU_ASSERT(test_poll(has_locks, &none, TEST_PATIENCE_MS));
    OPEN_OK(&client, "path", path);
    CU_ASSERT(test_poll(has_locks, &both, TEST_PATIENCE_MS));
    say(family->child.ready);
    CU_ASSERT_TRUE(hear(family->child.go));
    hold_before(&family->stranger, &client);
    client_close(&client);
}

/* A child opens a client of its own while its parent has two: its locks must be real ones, and remain when the
 * parent's are released. The parent's outlast the child, too. */
static void test_forked(void)
{
    struct family family;
    struct client one, two;
    path = database("forked");
    pid_t outsider = stranger_start(&family.stranger);
    if (pipe2(family.child.ready, O_CLOEXEC) != 0 || pipe2(family.child.go, O_CLOEXEC) != 0)
        abort();
    OPEN_OK(&one, "path", path);
    OPEN_OK(&two, "path", path);
    pid_t child = child_start(child_with_client, &family);
    CU_ASSERT_TRUE(hear(family.child.ready));
    client_close(&one);
    client_close(&two);
    say(family.child.go);
    CU_ASSERT_EQUAL(child_end(child), 0);
    CU_ASSERT_EQUAL(child_end(outsider), 0);
}

static void child_in_passing(void *argument)
{
    struct client client;
    (void)argument;
    OPEN_OK(&client, "path", path);
    client_close(&client);
}

static void test_forked_in_passing(void)
{
    struct locker locker;
    struct client client;
    path = database("passing");
    pid_t outsider = stranger_start(&locker);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(child_end(child_start(child_in_passing, NULL)), 0);
    hold_before(&locker, &client);
    CU_ASSERT_EQUAL(child_end(outsider), 0);
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"busy, then free", test_busy_then_free},
        {"busy for too long", test_busy_for_too_long},
        {"canceled while busy", test_cancel_while_busy},
        {"unwatched while busy", test_unwatch_while_busy},
        {"corrupt inside", test_corrupt_inside},
        {"moved away in use", test_moved_away},
        {"the host was restarted", test_restart_of_the_host},
        {"two clients in one process", test_two_in_one_process},
        {"a forked child with a client of its own", test_forked},
        {"a forked child in passing", test_forked_in_passing},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite files", tests);
}
