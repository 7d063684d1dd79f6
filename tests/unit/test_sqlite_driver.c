/* test_sqlite_driver.c - the SQLite module's ops, through driver.h alone: what each op answers, what its repeat
 * answers, and what it does not change. One client or several in this process, on a clock that the test moves.
 * Waiting is in test_sqlite_waiting.c, files and faults are in test_sqlite_files.c. */
#include "sqlite_host.h"

static void test_module(void)
{
    CU_ASSERT_EQUAL(module->magic, MORTISE_MODULE_MAGIC);
    CU_ASSERT_EQUAL(module->op_size, sizeof(mortise_op));
    CU_ASSERT_EQUAL(module->capabilities, MORTISE_CAP_LEASE | MORTISE_CAP_FENCING |
                                              MORTISE_CAP_DURABLE | MORTISE_CAP_INSPECT |
                                              MORTISE_CAP_LIST | MORTISE_CAP_NOTIFY |
                                              MORTISE_CAP_REENTRANT | MORTISE_CAP_SHARED |
                                              MORTISE_CAP_PERMITS);
    void *db = NULL;
    CU_ASSERT_EQUAL(outside(database("schema"), module->schema(), &db), 0);
    CU_ASSERT_EQUAL(outside(NULL, "SELECT name, version FROM mortise_lock", &db), 0);
    outside_close(db);
}

static void test_acquire_and_release(void)
{
    struct client client;
    struct call lock, next;
    OPEN_OK(&client, "path", database("basic"));
    int64_t before_ns = time_now();
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_TRUE(lock.op.from_ns >= before_ns - 1000 && lock.op.from_ns <= time_now());
    CU_ASSERT_EQUAL(lock.op.first_sent_ns, lock.op.from_ns);
    CU_ASSERT_EQUAL(lock.op.good_for_ms, 30000);
    CU_ASSERT_TRUE(lock.op.token > 0);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(&client, &next, "a", 0), MORTISE_OK);
    CU_ASSERT_TRUE(next.op.token > lock.op.token);
    CU_ASSERT_EQUAL(release(&client, &next), MORTISE_OK);
    client_close(&client);
}

static void test_repeats(void)
{
    struct client client;
    struct call lock;
    OPEN_OK(&client, "path", database("repeats"));
    acquire(&client, &lock, "a", 0);
    struct call again = lock;
    again.op.flags = MORTISE_OP_REPEAT;
    clock_shift_ns += 1000 * MS;
    CU_ASSERT_EQUAL(run(&client, &again), MORTISE_OK);
    CU_ASSERT_EQUAL(again.op.token, lock.op.token);
    CU_ASSERT_EQUAL(again.op.from_ns, lock.op.from_ns);
    CU_ASSERT_EQUAL(again.op.good_for_ms, lock.op.good_for_ms);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_LOST);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_LOST);
    client_close(&client);
}

static void test_anothers_grant(void)
{
    struct client one, two;
    struct call lock, other;
    OPEN_OK(&one, "path", database("others"));
    OPEN_OK(&two, "path", database("others"));
    acquire(&one, &lock, "a", 0);
    CU_ASSERT_EQUAL(acquire(&two, &other, "a", MORTISE_OP_TRY), MORTISE_BUSY);
    CU_ASSERT_TRUE(other.op.hint_ms > 20000 && other.op.hint_ms <= 30000);
    CU_ASSERT_TRUE(other.info.held);
    CU_ASSERT_EQUAL(other.info.pid, 4711);
    other.op.token = lock.op.token;
    CU_ASSERT_EQUAL(renew(&two, &other), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(&two, &other), MORTISE_NOTOWNER);
    other.op.token = 0; /* a clean-up that never learned a token */
    CU_ASSERT_EQUAL(release(&two, &other), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(renew(&one, &lock), MORTISE_OK);
    lock.op.token = 0;
    CU_ASSERT_EQUAL(release(&two, &lock), MORTISE_OK); /* whoever asks: it names the grant */
    client_close(&one);
    client_close(&two);
}

static void test_expiry(void)
{
    struct client one, two;
    struct call lock, next;
    OPEN_OK(&one, "path", database("expiry"));
    OPEN_OK(&two, "path", database("expiry"));
    acquire(&one, &lock, "a", 0);
    clock_shift_ns += 20000 * MS;
    CU_ASSERT_EQUAL(acquire(&two, &next, "a", MORTISE_OP_TRY), MORTISE_BUSY);
    clock_shift_ns += 10001 * MS;
    CU_ASSERT_EQUAL(renew(&one, &lock), MORTISE_LOST);
    CU_ASSERT_EQUAL(release(&one, &lock), MORTISE_LOST);
    CU_ASSERT_EQUAL(acquire(&two, &next, "a", MORTISE_OP_TRY), MORTISE_OK);
    CU_ASSERT_TRUE(next.op.token > lock.op.token);
    CU_ASSERT_EQUAL(release(&one, &lock), MORTISE_NOTOWNER);
    /* a short renewal of a long claim */
    struct call renewal = call_about(MORTISE_OP_RENEW, &next);
    renewal.op.ttl_ms = 100;
    CU_ASSERT_EQUAL(run(&two, &renewal), MORTISE_OK);
    CU_ASSERT_EQUAL(renewal.op.from_ns + renewal.op.good_for_ms * MS < next.op.from_ns + 29000 * MS,
                    false);
    CU_ASSERT_TRUE(inspect(&one, "a").remaining_ms > 20000);
    client_close(&one);
    client_close(&two);
}

static struct call shared(const char *name, const char *owner, int64_t ttl_ms)
{
    struct call call = call_make(MORTISE_OP_ACQUIRE, name);
    call.op.owner = owner;
    call.op.owner_len = strlen(owner);
    call.op.ttl_ms = ttl_ms;
    return call;
}

static void test_shared_owners(void)
{
    struct client one, two;
    struct call first = shared("a", "ann\xff", 120000), second = shared("a", "ann\xff", 30000);
    struct call stranger = shared("a", "ann", 30000);
    stranger.op.flags = MORTISE_OP_TRY;
    OPEN_OK(&one, "path", database("shared"));
    OPEN_OK(&two, "path", database("shared"));
    CU_ASSERT_EQUAL(run(&one, &first), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&two, &second), MORTISE_OK);
    CU_ASSERT_EQUAL(second.op.token, first.op.token);
    CU_ASSERT_EQUAL(run(&two, &stranger), MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(&two, &stranger, "a", MORTISE_OP_TRY), MORTISE_BUSY);
    mortise_info info = inspect(&one, "a");
    CU_ASSERT_EQUAL(info.leases, 2);
    CU_ASSERT_STRING_EQUAL(info.owner, "ann\xff");
    CU_ASSERT_TRUE(info.remaining_ms > 30000);

    struct call again = second; /* a repeat joins nothing */
    CU_ASSERT_EQUAL(run(&two, &again), MORTISE_OK);
    CU_ASSERT_EQUAL(again.op.from_ns, second.op.from_ns);
    CU_ASSERT_EQUAL(inspect(&one, "a").leases, 2);
    clock_shift_ns += 30001 * MS; /* the second one's end, in the first one's hold */
    CU_ASSERT_EQUAL(inspect(&one, "a").leases, 1);
    CU_ASSERT_EQUAL(renew(&two, &second), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(run(&two, &second), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&one, &first), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&one, &first), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(renew(&two, &second), MORTISE_OK);
    CU_ASSERT_TRUE(inspect(&one, "a").remaining_ms <= 30000);
    CU_ASSERT_EQUAL(release(&two, &second), MORTISE_OK);
    CU_ASSERT_FALSE(inspect(&one, "a").held);
    /* both kinds exclude each other */
    CU_ASSERT_EQUAL(acquire(&one, &first, "a", MORTISE_OP_TRY), MORTISE_OK);
    second.op.flags = MORTISE_OP_TRY;
    CU_ASSERT_EQUAL(run(&two, &second), MORTISE_BUSY);
    client_close(&one);
    client_close(&two);
}

static void test_break(void)
{
    struct client one, two;
    struct call lock;
    OPEN_OK(&one, "path", database("break"));
    OPEN_OK(&two, "path", database("break"));
    acquire(&one, &lock, "a", 0);
    struct call breaking = call_make(MORTISE_OP_RELEASE, "a");
    breaking.op.flags = MORTISE_OP_BREAK;
    breaking.op.token = lock.op.token - 1;
    CU_ASSERT_EQUAL(run(&two, &breaking), MORTISE_NOTOWNER);
    breaking.op.token = lock.op.token;
    CU_ASSERT_EQUAL(run(&two, &breaking), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&two, &breaking), MORTISE_LOST);
    CU_ASSERT_EQUAL(renew(&one, &lock), MORTISE_LOST);
    client_close(&one);
    client_close(&two);
}

static void test_token_floor_and_end(void)
{
    struct client client;
    struct call lock = call_make(MORTISE_OP_ACQUIRE, "a");
    OPEN_OK(&client, "path", database("tokens"));
    lock.op.token_floor = UINT64_C(9000000000000000000);
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(lock.op.token, UINT64_C(9000000000000000000));
    release(&client, &lock);
    lock.op.token_floor = INT64_MAX;
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_OK);
    release(&client, &lock);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_BACKEND);
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "are used up"));
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "tokens.db: "));
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "(acquire \"a\")"));
    lock = call_make(MORTISE_OP_ACQUIRE, "b");
    lock.op.token_floor = UINT64_MAX;
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_BACKEND);
    client_close(&client);
}

/* ---- batches ----------------------------------------------------------------------------------- */

static void test_batch(void)
{
    enum { N = 700 };
    static struct call calls[N];
    static mortise_op *ops[N];
    static char names[N][16];
    struct client client;
    OPEN_OK(&client, "path", database("batch"));
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i % 350); /* the later half finds them held */
        calls[i] = call_make(MORTISE_OP_ACQUIRE, names[i]);
        calls[i].op.flags = MORTISE_OP_TRY;
        ops[i] = &calls[i].op;
    }
    calls[100] = call_make(MORTISE_OP_INSPECT, "n99"); /* sees what was before it */
    calls[100].op.info = &calls[100].info;
    calls[101].op.ttl_ms = 0; /* makes no sense: alone fails */
    calls[102] = call_make((mortise_op_kind)77, "n102");
    module->start(client.ctx, ops, N);
    for (int i = 0; i < N; i++) {
        CU_ASSERT_TRUE_FATAL(wait_done(&client, &calls[i]));
        mortise_status wanted = i < 350 || (i >= 450 && i <= 452) ? MORTISE_OK : MORTISE_BUSY;
        wanted = i == 101 ? MORTISE_INVALID : i == 102 ? MORTISE_NOTSUP : wanted;
        CU_ASSERT_EQUAL(calls[i].op.status, wanted);
    }
    CU_ASSERT_TRUE(calls[100].info.held);
    for (int i = 0; i < 350; i++) {
        struct call gone = call_about(MORTISE_OP_RENEW, &calls[i == 100 ? 450 : i]);
        gone.op.kind = i % 2 == 0 ? MORTISE_OP_RENEW : MORTISE_OP_RELEASE;
        calls[i] = gone;
    }
    module->start(client.ctx, ops, 100);
    for (int i = 0; i < 100; i++)
        CU_ASSERT_TRUE(calls[i].done && calls[i].op.status == MORTISE_OK);
    CU_ASSERT_TRUE(inspect(&client, "n50").held);
    CU_ASSERT_FALSE(inspect(&client, "n51").held);
    client_close(&client);
}

/* A row that makes no sense spoils the transaction; the other ops of the batch do not suffer. */
static void test_batch_with_a_bad_row(void)
{
    struct client client;
    struct call calls[3], lock;
    mortise_op *ops[3];
    OPEN_OK(&client, "path", database("bad"));
    acquire(&client, &lock, "bad", 0);
    CU_ASSERT_EQUAL(outside(database("bad"), "UPDATE mortise_lock SET grants = x'00'", NULL), 0);
    static const char *const names[] = {"good", "bad", "fine"};
    for (int i = 0; i < 3; i++) {
        calls[i] = call_make(MORTISE_OP_ACQUIRE, names[i]);
        ops[i] = &calls[i].op;
    }
    module->start(client.ctx, ops, 3);
    CU_ASSERT_EQUAL(calls[0].op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(calls[1].op.status, MORTISE_BACKEND);
    CU_ASSERT_PTR_NOT_NULL(strstr(calls[1].error.message, "makes no sense"));
    CU_ASSERT_EQUAL(calls[2].op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &calls[2]), MORTISE_OK);
    client_close(&client);
}

/* ---- names ------------------------------------------------------------------------------------- */

static void test_names_of_every_byte(void)
{
    struct client client;
    static char long_name[MORTISE_NAME_MAX];
    static struct call locks[258];
    static char names[256][3];
    OPEN_OK(&client, "path", database("names"));
    for (int i = 0; i < 256; i++) {
        names[i][0] = 'x';
        names[i][1] = (char)i;
        locks[i] = call_make(MORTISE_OP_ACQUIRE, "");
        locks[i].op.name = names[i];
        locks[i].op.name_len = 2;
        CU_ASSERT_EQUAL(run(&client, &locks[i]), MORTISE_OK);
    }
    memset(long_name, '\'', sizeof(long_name));
    locks[256] = call_make(MORTISE_OP_ACQUIRE, "");
    locks[256].op.name = long_name;
    locks[256].op.name_len = sizeof(long_name);
    CU_ASSERT_EQUAL(run(&client, &locks[256]), MORTISE_OK);
    locks[257] = call_make(MORTISE_OP_ACQUIRE, "");
    CU_ASSERT_EQUAL(run(&client, &locks[257]), MORTISE_INVALID);
    for (int i = 0; i < 257; i++)
        CU_ASSERT_EQUAL(release(&client, &locks[i]), MORTISE_OK);
    client_close(&client);
}

static unsigned list(struct client *client, const char *prefix, size_t len)
{
    struct call call = call_make(MORTISE_OP_LIST, "");
    call.op.name = prefix;
    call.op.name_len = len;
    client->emitted = 0;
    CU_ASSERT_EQUAL(run(client, &call), MORTISE_OK);
    CU_ASSERT_EQUAL(client->misplaced, 0);
    return client->emitted;
}

static void test_list(void)
{
    enum { N = 10000 };
    static struct call calls[N];
    static mortise_op *ops[N];
    static char names[N][16];
    struct client client;
    struct call lock;
    OPEN_OK(&client, "path", database("list"));
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "job:%05d", (i * 7919) % N);
        calls[i] = call_make(MORTISE_OP_ACQUIRE, names[i]);
        ops[i] = &calls[i].op;
    }
    module->start(client.ctx, ops, N);
    CU_ASSERT_EQUAL(list(&client, NULL, 0), N);
    CU_ASSERT_EQUAL(list(&client, "job:", 4), N);
    CU_ASSERT_EQUAL(list(&client, "job:000", 7), 100);
    CU_ASSERT_STRING_EQUAL(client.last_info.name, "job:00099");
    CU_ASSERT_EQUAL(list(&client, "job:00042", 9), 1);
    CU_ASSERT_EQUAL(list(&client, "kob", 3), 0);
    release(&client, &calls[0]);
    CU_ASSERT_EQUAL(list(&client, "job:", 4), N - 1);
    acquire(&client, &lock, "\xff\xff", 0);
    acquire(&client, &lock,
            "\xff\xff"
            "a",
            0);
    acquire(&client, &lock, "\xfe\xff", 0);
    CU_ASSERT_EQUAL(list(&client, "\xff\xff", 2), 2);
    CU_ASSERT_EQUAL(list(&client, "\xfe\xff", 2), 1);
    CU_ASSERT_EQUAL(list(&client, "\xfe", 1), 1);
    CU_ASSERT_EQUAL(list(&client, "", 0), N + 2);
    clock_shift_ns += 30001 * MS;
    CU_ASSERT_EQUAL(list(&client, "", 0), 0);
    client_close(&client);
}

static void test_inspect_and_ping(void)
{
    struct client client;
    struct call lock, ping = call_make(MORTISE_OP_PING, "");
    char text[200] = "";
    OPEN_OK(&client, "path", database("inspect"));
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    acquire(&client, &lock, "a", 0);
    clock_shift_ns += 5000 * MS;
    mortise_info info = inspect(&client, "a");
    CU_ASSERT_TRUE(info.held);
    CU_ASSERT_STRING_EQUAL(info.name, "a");
    CU_ASSERT_STRING_EQUAL(info.host, "web3");
    CU_ASSERT_STRING_EQUAL(info.program, "nightly");
    CU_ASSERT_EQUAL(info.pid, 4711);
    CU_ASSERT_TRUE(info.held_ms >= 5000 && info.held_ms < 15000);
    CU_ASSERT_TRUE(info.remaining_ms <= 25000 && info.remaining_ms > 15000);
    CU_ASSERT_EQUAL(info.token, lock.op.token);
    CU_ASSERT_EQUAL(info.waiters, 0);
    CU_ASSERT_EQUAL(strlen(info.owner), 32);
    static const char long_note[1000] = "host\n7\n";
    lock = call_make(MORTISE_OP_ACQUIRE, "b");
    lock.op.note = long_note;
    lock.op.note_len = sizeof(long_note);
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(inspect(&client, "b").pid, 7);
    ping.op.buffer = text;
    ping.op.buffer_size = sizeof(text);
    CU_ASSERT_EQUAL(run(&client, &ping), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "inspect.db"));
    client_close(&client);
}

/* ---- records ----------------------------------------------------------------------------------- */

static mortise_status write_record(struct client *client, const char *text, uint64_t version,
                                   uint64_t *written)
{
    struct call call = call_make(MORTISE_OP_WRITE, "phase");
    call.op.record = text;
    call.op.record_size = text != NULL ? strlen(text) : 0;
    call.op.record_version = version;
    mortise_status status = run(client, &call);
    *written = call.op.record_version;
    return status;
}

static mortise_status read_record(struct client *client, char *text, size_t size, struct call *call)
{
    *call = call_make(MORTISE_OP_READ, "phase");
    call->op.buffer = text;
    call->op.buffer_size = size;
    return run(client, call);
}

static void test_records(void)
{
    struct client client;
    struct call call;
    char text[MORTISE_RECORD_MAX];
    uint64_t version, next;
    OPEN_OK(&client, "path", database("records"));
    CU_ASSERT_EQUAL(read_record(&client, text, sizeof(text), &call), MORTISE_OK);
    CU_ASSERT_EQUAL(call.op.record_version, 0);
    CU_ASSERT_EQUAL(write_record(&client, "old", 5, &version), MORTISE_BUSY);
    CU_ASSERT_EQUAL(write_record(&client, "old", 0, &version), MORTISE_OK);
    CU_ASSERT_EQUAL(write_record(&client, "old", 0, &next), MORTISE_BUSY);
    CU_ASSERT_EQUAL(write_record(&client, NULL, version, &next), MORTISE_OK);
    CU_ASSERT_TRUE(next > version);
    CU_ASSERT_EQUAL(read_record(&client, text, sizeof(text), &call), MORTISE_OK);
    CU_ASSERT_EQUAL(call.op.record_size, 0);
    CU_ASSERT_EQUAL(write_record(&client, "both", next, &version), MORTISE_OK);
    CU_ASSERT_EQUAL(read_record(&client, text, sizeof(text), &call), MORTISE_OK);
    CU_ASSERT_EQUAL(call.op.record_version, version);
    CU_ASSERT_TRUE(call.op.record_size == 4 && memcmp(text, "both", 4) == 0);
    CU_ASSERT_EQUAL(read_record(&client, text, 3, &call), MORTISE_BACKEND);
    CU_ASSERT_FALSE(inspect(&client, "phase").held); /* apart from the locks */
    client_close(&client);
}

static void test_sweep(void)
{
    struct client client;
    struct call lock;
    char name[16], log[PATHS_MAX];
    OPEN_OK(&client, "path", database("sweep"));
    lock = call_make(MORTISE_OP_ACQUIRE, "held");
    lock.op.ttl_ms = 3600000;
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_OK);
    clock_shift_ns += 61000 * MS; /* by chance, it swept when it was opened */
    CU_ASSERT_EQUAL(
        outside(database("sweep"),
                "UPDATE mortise_lock SET version = 5;"
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i "
                "< 2000) INSERT INTO mortise_lock(name, version, acquired_at, expires_at) "
                "SELECT CAST('old' || i AS BLOB), 7, 0, 0 FROM n",
                NULL),
        0);
    for (int i = 0; i < 4000; i++) { /* checkpoints come by, and with them the sweeps */
        snprintf(name, sizeof(name), "new%d", i % 10);
        acquire(&client, &lock, name, 0);
        release(&client, &lock);
    }
    void *db = NULL;
    CU_ASSERT_EQUAL(outside(database("sweep"),
                            "CREATE TEMP TABLE t(x CHECK (x = 11)); INSERT INTO t SELECT count(*) "
                            "FROM mortise_lock",
                            &db),
                    0);
    outside_close(db);
    struct stat about;
    CU_ASSERT_EQUAL(stat(joined(log, database("sweep"), "-wal"), &about), 0);
    CU_ASSERT_TRUE(about.st_size < 3 * 1024 * 1024); /* it is begun anew after each checkpoint */
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the module", test_module},
        {"acquire and release", test_acquire_and_release},
        {"repeats change nothing", test_repeats},
        {"another's grant is left alone", test_anothers_grant},
        {"expiry", test_expiry},
        {"shared owners", test_shared_owners},
        {"break", test_break},
        {"token floor, and the last token", test_token_floor_and_end},
        {"a batch", test_batch},
        {"a batch with a bad row", test_batch_with_a_bad_row},
        {"names of every byte", test_names_of_every_byte},
        {"ten thousand names, listed", test_list},
        {"inspect and ping", test_inspect_and_ping},
        {"records", test_records},
        {"rows long free are swept", test_sweep},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite driver", tests);
}
