/* test_etcd_away.c - which answers count, when a connection is lost again and again: fault.c, PATIENCE. And a session that a
 * server grants for longer than the clock can count. */
#include "etcd_rig.h"

#include "suite.h"

#include <CUnit/CUnit.h>

#define PATIENCE_MS 2000
#define CREATED 5

static const struct upcalls upcalls = {.seen = claim_move};
static mortise_op op;

static struct claim *begin_claim(enum claim_state state)
{
    begin();
    driver.upcalls = &upcalls;
    driver.settings.connect_timeout_ms = PATIENCE_MS;
    driver.away_due_ns = MORTISE_NEVER;
    driver.link.round = 1;
    next.state = SESSION_GRANTING; /* so no key is moved */
    op = (mortise_op){.kind = MORTISE_OP_ACQUIRE, .name = "a", .name_len = 1, .status = 99};
    struct claim *claim = make_claim(state, MOVE_NONE);
    claim->ttl_ms = 1000;
    claim->lease = OLD_LEASE;
    claim->created = CREATED;
    claim->made = true;
    claim->op = &op;
    return claim;
}

static void end_claim(struct claim *claim)
{
    claim_end(&driver, claim, MORTISE_OK);
    watches_end(&driver);
    grpc_call_free(&driver.link.watch);
    end_moves();
}

/* What is on its way is lost, after as long as a caller is patient. */
static void lose(void)
{
    while (driver.link.open > 0)
        answer(CALL_LOST);
    now_ns += PATIENCE_MS * NS_PER_MS;
    driver.link.state = LINK_DOWN;
    driver.link.tries++;
    lease_down(&driver);
    lease_away(&driver);
}

/* The next connection, and its look is answered. is_noted: its key says with which base it counts; else it must write that. */
static void look(struct claim *claim, bool is_noted, bool is_blocked)
{
    char value[DATA_MAX];
    size_t size = note_write(&driver, &claim->grant, is_noted ? 0 : 7, 1, false, value);
    struct key key;
    claim_key(claim, &key);
    struct kv own = {.key = key_bytes(&key),
                     .value = bytes_of(value, size),
                     .created = CREATED,
                     .lease = OLD_LEASE};
    struct kv both[] = {{.key = bytes_of("b", 1), .created = 1}, own};
    driver.link.state = LINK_UP;
    lease_up(&driver);
    CU_ASSERT_EQUAL(claim->state, CLAIM_QUEUED);
    answer_look(&own, &(struct kvs){.all = is_blocked ? both : both + 1, .count = 1u + is_blocked});
}

/* The disks hang: its look is answered, it is the first, and what it writes then is lost. */
static void test_first(void)
{
    struct claim *claim = begin_claim(CLAIM_QUEUED);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(op.status, 99);
        look(claim, false, false);
        CU_ASSERT_EQUAL(claim->state, CLAIM_FIRST);
        CU_ASSERT_EQUAL(driver.link.open, 1);
        lose();
    }
    CU_ASSERT_EQUAL(op.status, MORTISE_INDETERMINATE);
    end_claim(claim);
}

/* The same, and it needs no write, but a proof: the next session is not granted. */
static void test_ready(void)
{
    struct claim *claim = begin_claim(CLAIM_QUEUED);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(op.status, 99);
        look(claim, true, false);
        CU_ASSERT_EQUAL(claim->state, CLAIM_READY);
        lose();
    }
    CU_ASSERT_EQUAL(op.status, MORTISE_INDETERMINATE);
    end_claim(claim);
}

/* The write is answered: it has been served meanwhile. */
static void test_written(void)
{
    struct claim *claim = begin_claim(CLAIM_QUEUED);
    for (int i = 0; i < 4; i++) {
        look(claim, false, false);
        answer(CALL_DONE);
        CU_ASSERT_EQUAL(claim->state, CLAIM_READY);
        CU_ASSERT_EQUAL(claim->patience.away_ns, 0);
        lose();
        CU_ASSERT_EQUAL(op.status, 99);
    }
    end_claim(claim);
}

/* Others are before it: it waits on, however often the connection is lost. */
static void test_waiting(void)
{
    struct claim *claim = begin_claim(CLAIM_QUEUED);
    for (int i = 0; i < 4; i++) {
        look(claim, true, true);
        CU_ASSERT_EQUAL(claim->state, CLAIM_WAITING);
        CU_ASSERT_EQUAL(claim->patience.away_ns, 0);
        lose();
        CU_ASSERT_NOT_EQUAL(claim->patience.away_ns, 0);
        CU_ASSERT_EQUAL(op.status, 99);
    }
    end_claim(claim);
}

/* Two endpoints fail again and again: no pause between them, then a growing one, of which the second half is random. */
static void test_pause(void)
{
    static const int64_t pauses_ms[] = {50, 100, 200, 400, 800, 1000, 1000};
    begin();
    driver.link.socket.fd = -1;
    driver.link.endpoints.count = 2;
    for (size_t i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
        int64_t half_ns = pauses_ms[i] * NS_PER_MS / 2;
        driver.link.state = LINK_CONNECTING;
        link_break(&driver.link, "the first");
        CU_ASSERT_EQUAL(driver.link.due_ns, now_ns);
        driver.link.state = LINK_CONNECTING;
        drawn = i % 2 == 0 ? 0 : (uint32_t)half_ns;
        link_break(&driver.link, "the second");
        CU_ASSERT_EQUAL(driver.link.due_ns, now_ns + half_ns + drawn);
    }
    end_moves();
}

static void ignore_proof(struct driver *of, struct session *session)
{
    (void)of;
    (void)session;
}

/* A server grants a session for so long that its end is no instant. */
static void test_endless(void)
{
    static const struct upcalls endless = {.proven = ignore_proof};
    begin();
    driver.upcalls = &endless;
    next.state = SESSION_WANTED;
    next.wanted = 1;
    sessions_turn(&driver);
    CU_ASSERT_EQUAL_FATAL(next.state, SESSION_GRANTING);
    struct call *call = driver.link.calls;
    call->sent_ns = 3600 * INT64_C(1000) * NS_PER_MS;
    call->answer.lease = next.lease;
    call->answer.ttl_s = INT64_MAX / (1000 * NS_PER_MS) - 1;
    answer(CALL_DONE);
    CU_ASSERT_EQUAL(next.state, SESSION_WANTED);
    CU_ASSERT_EQUAL(next.deadline_ns, 0);
    end_moves();
}

static const CU_TestInfo tests[] = {
    {"who is the first, and cannot write", test_first},
    {"who is the first, and has no proof", test_ready},
    {"who is the first, and can write", test_written},
    {"a waiter whose looks are answered", test_waiting},
    {"the pause between attempts", test_pause},
    {"a session without an end", test_endless},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return suite_run("etcd: away", tests);
}
