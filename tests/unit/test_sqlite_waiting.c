/* test_sqlite_waiting.c - the SQLite module between processes: mutual exclusion, and who is woken when.
 *
 * A forked process opens its own clients (it does not touch the parent's). Tests wait for events; times only bound
 * failure, or are compared with a hint that would have been waited out. */
#include "sqlite_talk.h"

#include <sched.h>
#include <sys/socket.h>

/* As the core does it: BUSY, watch, and at each news or hint again. */
static mortise_status acquire_waiting(struct client *client, struct call *lock, const char *name)
{
    bool watched = false;
    *lock = waiting(name);
    for (;;) {
        unsigned seen = client->news;
        mortise_status status = run(client, lock);
        if (status == MORTISE_BUSY && !watched)
            module->watch(client->ctx, name, strlen(name));
        watched = watched || status == MORTISE_BUSY;
        if (status != MORTISE_BUSY) {
            if (watched)
                module->unwatch(client->ctx, name, strlen(name));
            return status;
        }
        wait_news(client, seen + 1, (lock->op.hint_ms + 1) * MS);
    }
}

/* ---- mutual exclusion --------------------------------------------------------------------------- */

struct counter {
    int inside, total, by[8];
    uint64_t token;
};

static struct counter *counter;
enum { WORKERS = 4, ROUNDS = 250 };

static void work(void *number)
{
    struct client client;
    struct call lock;
    OPEN_OK(&client, "path", path);
    for (int i = 0; i < ROUNDS; i++) {
        CU_ASSERT_EQUAL_FATAL(acquire_waiting(&client, &lock, "counter"), MORTISE_OK);
        CU_ASSERT_EQUAL(++counter->inside, 1);
        CU_ASSERT_TRUE(lock.op.token > counter->token);
        counter->token = lock.op.token;
        int total = counter->total;
        if (i % 16 == 0)
            sched_yield();
        counter->total = total + 1;
        counter->by[*(int *)number]++;
        counter->inside--;
        CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    }
    client_close(&client);
}

static void test_counter(void)
{
    pid_t pids[WORKERS];
    int numbers[WORKERS];
    path = database("counter");
    counter =
        mmap(NULL, sizeof(*counter), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(counter != MAP_FAILED);
    for (int i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        pids[i] = child_start(work, &numbers[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        CU_ASSERT_EQUAL(child_end(pids[i]), 0);
    CU_ASSERT_EQUAL(counter->total, WORKERS * ROUNDS);
    munmap(counter, sizeof(*counter));
    assert_nothing_left();
}

/* Many names at once, all in one file: nobody waits for a lock, all meet in the file. */
static void work_apart(void *number)
{
    struct client client;
    struct call lock;
    char name[16];
    snprintf(name, sizeof(name), "own%d", *(int *)number);
    OPEN_OK(&client, "path", path);
    for (int i = 0; i < 4 * ROUNDS; i++) {
        CU_ASSERT_EQUAL_FATAL(acquire(&client, &lock, name, MORTISE_OP_TRY), MORTISE_OK);
        CU_ASSERT_EQUAL_FATAL(release(&client, &lock), MORTISE_OK);
    }
    client_close(&client);
}

static void test_apart(void)
{
    pid_t pids[WORKERS];
    int numbers[WORKERS];
    path = database("apart");
    for (int i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        pids[i] = child_start(work_apart, &numbers[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        CU_ASSERT_EQUAL(child_end(pids[i]), 0);
    assert_nothing_left();
}

/* ---- waking ------------------------------------------------------------------------------------ */

static void test_woken_by_a_release(void)
{
    struct client client;
    struct call lock;
    struct talk talk = talk_open();
    path = database("woken");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    pid_t pid = child_start(wait_once, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    CU_ASSERT_EQUAL(inspect(&client, "a").waiters, 1);
    int64_t released_ns = time_now();
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    CU_ASSERT_EQUAL(talk.shared[1], 1); /* turned once, by the message: no polling */
    printf(" (woken after %lld us) ", (long long)(talk.shared[0] - released_ns) / 1000);
    CU_ASSERT_TRUE(talk.shared[0] - released_ns < WAIT_MS * MS / 2);
    client_close(&client);
    talk_close(&talk);
    assert_nothing_left();
}

static void test_woken_by_a_break(void)
{
    struct client client;
    struct call lock;
    struct talk talk = talk_open();
    path = database("woken-by-break");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    pid_t pid = child_start(wait_once, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    struct call breaking = call_make(MORTISE_OP_RELEASE, "a");
    breaking.op.flags = MORTISE_OP_BREAK;
    breaking.op.token = lock.op.token;
    CU_ASSERT_EQUAL(run(&client, &breaking), MORTISE_OK);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    client_close(&client);
    talk_close(&talk);
    assert_nothing_left();
}

/* Clients of one process: the order is that of their coming, and the releaser cannot push in. */
static void test_in_order(void)
{
    struct client clients[4];
    struct call locks[4], again;
    path = database("order");
    for (int i = 0; i < 4; i++) {
        OPEN_OK(&clients[i], "path", path);
        locks[i] = waiting("a");
        CU_ASSERT_EQUAL(run(&clients[i], &locks[i]), i == 0 ? MORTISE_OK : MORTISE_BUSY);
        if (i > 0)
            module->watch(clients[i].ctx, "a", 1);
    }
    for (int i = 0; i < 3; i++) {
        unsigned before = clients[i + 1].news;
        clock_stop(); /* for so long it is the next one's alone */
        CU_ASSERT_EQUAL(release(&clients[i], &locks[i]), MORTISE_OK);
        CU_ASSERT_EQUAL(acquire(&clients[i], &again, "a", MORTISE_OP_TRY), MORTISE_BUSY);
        CU_ASSERT_TRUE(again.op.hint_ms <= 20);
        for (int later = i + 2; later < 4; later++)
            CU_ASSERT_EQUAL(run(&clients[later], &locks[later]), MORTISE_BUSY);
        CU_ASSERT_TRUE(wait_news(&clients[i + 1], before + 1, WAIT_MS * MS));
        CU_ASSERT_EQUAL(run(&clients[i + 1], &locks[i + 1]), MORTISE_OK);
        clock_go_on();
    }
    release(&clients[3], &locks[3]);
    for (int i = 0; i < 4; i++) {
        if (i > 0)
            module->unwatch(clients[i].ctx, "a", 1);
        client_close(&clients[i]);
    }
    assert_nothing_left();
}

/* A claim that is shorter than the one before it, and whose holder could die: it wakes nobody, but nobody sleeps for longer
 * than ten seconds, whatever the claim before it was. */
static void test_shorter_claim(void)
{
    for (int shorter = 0; shorter < 2; shorter++) {
        struct client holder, first, second;
        struct call lock, one = waiting("a"), two = waiting("a");
        path = database(shorter ? "shorter" : "as-long");
        OPEN_OK(&holder, "path", path);
        OPEN_OK(&first, "path", path);
        OPEN_OK(&second, "path", path);
        acquire(&holder, &lock, "a", 0);
        one.op.ttl_ms = shorter ? 1000 : 31000;
        CU_ASSERT_EQUAL(run(&first, &one), MORTISE_BUSY);
        module->watch(first.ctx, "a", 1);
        CU_ASSERT_EQUAL(run(&second, &two), MORTISE_BUSY);
        CU_ASSERT_TRUE(two.op.hint_ms > 0 && two.op.hint_ms <= 10000);
        module->watch(second.ctx, "a", 1);
        clock_stop(); /* a second is not over before all have looked */
        CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
        CU_ASSERT_EQUAL(run(&first, &one), MORTISE_OK);
        CU_ASSERT_FALSE(wait_news(&second, 1, 20 * MS));
        CU_ASSERT_EQUAL(run(&second, &two), MORTISE_BUSY);
        CU_ASSERT_EQUAL(two.op.hint_ms <= 1000, shorter == 1);
        clock_go_on();
        module->unwatch(first.ctx, "a", 1);
        module->unwatch(second.ctx, "a", 1);
        release(&first, &one);
        client_close(&holder);
        client_close(&first);
        client_close(&second);
        assert_nothing_left();
    }
}

/* ---- between looking and queueing ---------------------------------------------------------------- */

static int calls_left, happened_times, kept_out_times;
static const char *in_between;

/* While the acquire has the file's write lock, nothing else can happen to the row. */
static void happen(void)
{
    if (--calls_left == 0) {
        on_now = NULL;
        if (outside(path, in_between, NULL) == 0)
            happened_times++;
        else
            kept_out_times++;
        on_now = happen;
    }
}

/* Released, or lost to another, at each point at which an acquire that waits looks at the clock: it either
 * gets it, or is in the list of a name that is held. */
static void test_released_in_between(void)
{
    static const char *const events[] = {
        "UPDATE mortise_lock SET grants = NULL, expires_at = 0 WHERE waiters IS NULL; "
        "INSERT INTO mortise_record SELECT x'00', 1, x'00' WHERE changes() = 1",
        "UPDATE mortise_lock SET version = version + 1, grants = zeroblob(16) WHERE waiters IS "
        "NULL; "
        "INSERT INTO mortise_record SELECT x'01', 1, x'01' WHERE changes() = 1"};
    for (int i = 0; i < 2 * 8; i++) {
        struct client holder, client;
        struct call lock, other = waiting("a"), happened = call_make(MORTISE_OP_READ, "");
        char name[32], buffer[8], key[1] = {(char)(i / 8)};
        snprintf(name, sizeof(name), "between%d", i);
        path = database(name);
        OPEN_OK(&holder, "path", path);
        OPEN_OK(&client, "path", path);
        acquire(&holder, &lock, "a", 0);
        in_between = events[i / 8];
        calls_left = i % 8 + 1;
        on_now = happen;
        mortise_status status = run(&client, &other);
        on_now = NULL;
        happened.op.name = key;
        happened.op.name_len = 1;
        happened.op.buffer = buffer;
        happened.op.buffer_size = sizeof(buffer);
        CU_ASSERT_EQUAL(run(&client, &happened), MORTISE_OK);
        bool in_time = happened.op.record_version > 0;
        CU_ASSERT_EQUAL(status, in_time && i < 8 ? MORTISE_OK : MORTISE_BUSY);
        mortise_info info = inspect(&holder, "a");
        CU_ASSERT_TRUE(info.held);
        CU_ASSERT_EQUAL(info.waiters, status == MORTISE_BUSY);
        CU_ASSERT_EQUAL(info.token, status == MORTISE_OK ? other.op.token
                                                         : lock.op.token + (in_time && i >= 8));
        client_close(&client);
        client_close(&holder);
    }
    CU_ASSERT_TRUE(happened_times > 0 && kept_out_times > 0);
}

/* Two callers of one client, one behind the other: it is woken by its own release. */
static void test_own_waiter(void)
{
    struct client client;
    struct call lock, next = waiting("a");
    path = database("own");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &next), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(client.news, 1);
    CU_ASSERT_EQUAL(run(&client, &next), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &next), MORTISE_OK);
    CU_ASSERT_EQUAL(client.news, 2); /* watched still, though in no list */
    module->unwatch(client.ctx, "a", 1);
    client_close(&client);
    assert_nothing_left();
}

/* More names come free at once than an inbox holds messages: none is missed. */
static void test_many_names_at_once(void)
{
    enum { N = 200 };
    static struct call held[N], other[N];
    static char names[N][16];
    static mortise_op *ops[N];
    struct client holder, client;
    path = database("many");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        CU_ASSERT_EQUAL(acquire(&holder, &held[i], names[i], 0), MORTISE_OK);
        other[i] = waiting(names[i]);
        CU_ASSERT_EQUAL(run(&client, &other[i]), MORTISE_BUSY);
        module->watch(client.ctx, names[i], strlen(names[i]));
    }
    for (int i = 0; i < N; i++) {
        held[i] = call_about(MORTISE_OP_RELEASE, &held[i]);
        ops[i] = &held[i].op;
    }
    module->start(holder.ctx, ops, N);
    CU_ASSERT_TRUE(wait_news(&client, 1, WAIT_MS * MS));
    CU_ASSERT_TRUE(client.news >= N || client.news_all > 0);
    for (int i = 0; i < N; i++) {
        CU_ASSERT_EQUAL(run(&client, &other[i]), MORTISE_OK);
        module->unwatch(client.ctx, names[i], strlen(names[i]));
        CU_ASSERT_EQUAL(release(&client, &other[i]), MORTISE_OK);
    }
    client_close(&client);
    client_close(&holder);
    assert_nothing_left();
}

/* The program closes the inbox by mistake, and has a blocking socket of its own under the number, from which one message can be
 * read: the module does not wait for a second one. */
static void test_foreign_socket(void)
{
    const struct timeval bound = {.tv_sec = 30}; /* of who blocks */
    struct client holder, client;
    struct call held, waits = waiting("a");
    struct pollfd fd = {.fd = -1};
    int64_t due_ns = MORTISE_NEVER;
    int ends[2];
    path = database("foreign");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&holder, &held, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&client, &waits), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL_FATAL(module->interest(client.ctx, &fd, 1, &due_ns), 1);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    CU_ASSERT_EQUAL(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)), 0);
    CU_ASSERT_EQUAL(send(ends[1], "a", 1, MSG_NOSIGNAL), 1);
    CU_ASSERT_EQUAL_FATAL(dup3(ends[0], fd.fd, O_CLOEXEC), fd.fd);
    int64_t from_ns = time_of_waiting();
    client_turn(&client, time_now() + PATIENCE_NS);
    CU_ASSERT_TRUE(time_of_waiting() - from_ns < bound.tv_sec * 1000 * MS);
    CU_ASSERT_EQUAL(client.news, 1);
    CU_ASSERT_EQUAL(release(&holder, &held), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&client, &waits), MORTISE_OK);
    module->unwatch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(release(&client, &waits), MORTISE_OK);
    close(ends[0]);
    close(ends[1]);
    client_close(&client);
    client_close(&holder);
    assert_nothing_left();
}

/* So many processes do not read what the holder has told them that the kernel takes no more of its socket: another waiter, who
 * does read, is told nevertheless. */
static void test_unread_elsewhere(void)
{
    enum { CLIENTS = 32, NAMES = 10, N = CLIENTS * NAMES };
    static struct call held[N], other[N];
    static char names[N][16];
    static mortise_op *ops[N];
    static struct client stopped[CLIENTS];
    struct client holder, client;
    struct call last, waits = waiting("last");
    path = database("unread");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&holder, &last, "last", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&client, &waits), MORTISE_BUSY);
    module->watch(client.ctx, "last", 4);
    for (int i = 0; i < N; i++) {
        struct client *waiter = &stopped[i / NAMES];
        if (i % NAMES == 0)
            OPEN_OK(waiter, "path", path);
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        CU_ASSERT_EQUAL(acquire(&holder, &held[i], names[i], 0), MORTISE_OK);
        other[i] = waiting(names[i]);
        CU_ASSERT_EQUAL(run(waiter, &other[i]), MORTISE_BUSY);
        module->watch(waiter->ctx, names[i], strlen(names[i]));
        held[i] = call_about(MORTISE_OP_RELEASE, &held[i]);
        ops[i] = &held[i].op;
    }
    module->start(holder.ctx, ops, N);
    CU_ASSERT_EQUAL(release(&holder, &last), MORTISE_OK);
    CU_ASSERT_TRUE(wait_news(&client, 1, 2000 * MS));
    module->unwatch(client.ctx, "last", 4);
    for (int i = 0; i < N; i++)
        module->unwatch(stopped[i / NAMES].ctx, names[i], strlen(names[i]));
    for (int i = 0; i < CLIENTS; i++)
        client_close(&stopped[i]);
    client_close(&client);
    client_close(&holder);
    assert_nothing_left();
}

/* ---- time namespaces ------------------------------------------------------------------------------ */

static void shifted_try(void *argument)
{
    struct client client;
    struct call lock;
    (void)argument;
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", MORTISE_OP_TRY), MORTISE_BUSY);
    CU_ASSERT_TRUE(lock.op.hint_ms > 20000 && lock.op.hint_ms <= 30000);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "b", 0), MORTISE_OK);
    CU_ASSERT_TRUE(lock.op.from_ns <= time_now() && lock.op.from_ns > time_now() - 5000 * MS);
    client_close(&client);
}

static void enter_time_namespace(void *argument)
{
    struct client client;
    int fd = unshare(CLONE_NEWTIME) == 0 ? open("/proc/self/timens_offsets", O_WRONLY) : -1;
    if (fd < 0 || write(fd, "boottime 864000 0\n", 18) != 18) {
        fputs(" (skipped: no time namespace can be made here) ", stderr);
        _exit(0);
    }
    close(fd);
    CU_ASSERT_EQUAL(OPEN(&client, "path", path), MORTISE_CONFIG); /* its shift is not known here */
    pid_t pid = child_start(shifted_try, argument);
    CU_ASSERT_EQUAL(child_end(pid), 0);
}

static void test_time_namespace(void)
{
    struct client client;
    struct call lock;
    path = database("timens");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    CU_ASSERT_EQUAL(child_end(child_start(enter_time_namespace, NULL)), 0);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "b", MORTISE_OP_TRY), MORTISE_BUSY);
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"processes count together", test_counter},
        {"processes with names of their own", test_apart},
        {"woken by a release, without polling", test_woken_by_a_release},
        {"woken by a break", test_woken_by_a_break},
        {"in order, and nobody pushes in", test_in_order},
        {"a shorter claim than the one before", test_shorter_claim},
        {"released while it queues", test_released_in_between},
        {"a waiter behind its own client", test_own_waiter},
        {"many names at once", test_many_names_at_once},
        {"the program's socket under the number of the inbox", test_foreign_socket},
        {"what others have not read", test_unread_elsewhere},
        {"another time namespace", test_time_namespace},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite waiting", tests);
}
