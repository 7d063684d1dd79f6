/* state_tests.c - the states of drivers/zookeeper/claim.h and session.h that are hard to reach by chance: an acquire
 * that is canceled in each of them, and connections that are lost while a list waits for its answer. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- canceled in each state --------------------------------------------------------------------------------- */

#define TURNS 10 /* by then an acquire is granted, or waits */

struct folder {
    const char *name;
    int wanted;
};

static bool has_nodes(void *argument)
{
    const struct folder *folder = argument;
    struct String_vector nodes = {0, NULL};
    char path[64];
    snprintf(path, sizeof path, "/ops/%s", folder->name);
    int rc = zoo_get_children(stage.peek, path, 0, &nodes);
    int count = rc == ZOK ? nodes.count : rc == ZNONODE ? 0 : -1;
    deallocate_String_vector(&nodes);
    return count == folder->wanted;
}

static mortise_status release_until_sure(struct rig *rig, const mortise_op *op)
{
    mortise_op back;
    mortise_status status;
    do {
        back = (mortise_op){.kind = MORTISE_OP_RELEASE,
                            .name = op->name,
                            .name_len = op->name_len,
                            .grant = op->grant};
        rig_start(rig, &back);
        status = rig_finish(rig, NULL, &back);
    } while (status != MORTISE_TIMEDOUT && !back.sure);
    return status;
}

/* Cancels after so many turns; whatever the acquire had come to, nothing of it stays. */
static void cancel_after(struct rig *rig, const char *name, int turns, uint32_t flags, int others)
{
    static unsigned char grant;
    mortise_info info = {.size = sizeof info};
    struct folder folder = {name, others};
    mortise_op op = rig_acquire(name, ++grant, 0);
    op.flags = flags;
    op.info = &info;
    rig_start(rig, &op);
    for (int i = 0; i < turns && !op.issuer; i++)
        rig_run(rig);
    bool done = op.issuer != NULL;
    if (!done)
        rig_cancel(rig, &op);
    CU_ASSERT_PTR_NOT_NULL_FATAL(op.issuer); /* without waiting for the server */
    if (!done)
        CU_ASSERT(op.status == MORTISE_CANCELED || op.status == MORTISE_INDETERMINATE);
    if (done && op.status != MORTISE_BUSY)
        CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    mortise_status status = release_until_sure(rig, &op);
    CU_ASSERT(status == MORTISE_OK || (status == MORTISE_LOST && op.status != MORTISE_OK));
    CU_ASSERT(test_poll(has_nodes, &folder, TEST_PATIENCE_MS));
}

static void test_canceled_in_each_state(void)
{
    static struct rig one, holder;
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000011");
    rig_open(&holder, "00000000000000000000000000000012");
    mortise_op first = rig_acquire("state-a", 1, 0), held = rig_acquire("state-b", 2, 0);
    rig_start(&holder, &first); /* so that the folders are there */
    CU_ASSERT_EQUAL(rig_finish(&holder, NULL, &first), MORTISE_OK);
    rig_release(&holder, &first);
    rig_start(&holder, &held);
    CU_ASSERT_EQUAL(rig_finish(&holder, NULL, &held), MORTISE_OK);
    for (int turns = 0; turns < TURNS; turns++)
        for (int try = 0; try < 2; try++) {
            uint32_t flags = try ? MORTISE_OP_TRY : 0;
            cancel_after(&one, "state-a", turns, flags, 0);
            cancel_after(&one, "state-b", turns, flags, 1);
        }
    rig_release(&holder, &held);
    rig_close(&one);
    rig_close(&holder);
}

/* ---- the connection is lost ------------------------------------------------------------------------------------ */

static mortise_op list_of(const char *name)
{
    return (mortise_op){.kind = MORTISE_OP_LIST, .name = name, .name_len = strlen(name)};
}

static void proxy_say(const char *command)
{
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "%s", command));
}

static void open_behind_proxy(struct rig *rig, const char *client_id, int64_t timeout_ms)
{
    static char server[32];
    snprintf(server, sizeof server, "127.0.0.1:%d", stage.proxy.port);
    rig_open_at(rig, client_id, server, timeout_ms);
}

static uint64_t session_number(struct rig *rig)
{
    char text[256] = "";
    mortise_op ping = {.kind = MORTISE_OP_PING, .buffer = text, .buffer_size = sizeof text};
    rig_start(rig, &ping);
    CU_ASSERT_EQUAL_FATAL(rig_finish(rig, NULL, &ping), MORTISE_OK);
    return strtoull(strstr(text, "0x"), NULL, 16);
}

static void run_for(struct rig *rig, int64_t ms)
{
    for (int64_t until_ms = test_now_ms() + ms; test_now_ms() < until_ms;)
        rig_run(rig);
}

struct turned {
    struct rig *rig;
    struct folder *folder;
};

/* The driver gets its turns meanwhile: what it has to send may wait for one. */
static bool has_nodes_at_last(void *argument)
{
    struct turned *turned = argument;
    rig_run(turned->rig);
    return has_nodes(turned->folder);
}

/* While "hold-down" holds pings, too, and the successor of a connection that is lost meanwhile: what is not seen by then, is not
 * seen later. */
#define SEEN_MS (LIFE_MS / 2)

/* The answer to the create is lost. The acquire is canceled before the connection is lost (0), or after that (1), or not at
 * all (2): then it adopts the node. The answer to the delete is lost too. False: a connection was lost before, or the session
 * ended, and the test has to try again. */
static bool lose_replies(struct rig *one, unsigned char when)
{
    static unsigned char grant;
    struct folder nobody = {"lost", 1};
    struct turned turned = {one, &nobody};
    mortise_op made = rig_acquire("lost", ++grant, 0), op = rig_acquire("lost", ++grant, 0);
    rig_start(one, &made); /* so that the folder is there */
    CU_ASSERT_EQUAL_FATAL(rig_finish(one, NULL, &made), MORTISE_OK);
    rig_release(one, &made);
    uint64_t session = session_number(one);
    proxy_say("hold-down");
    rig_start(one, &op);
    bool seen = test_poll(has_nodes_at_last, &turned, SEEN_MS);
    if (seen && when == 0)
        rig_cancel(one, &op);
    if (seen) {
        proxy_say("cut");
        run_for(one, 20);
    }
    if (seen && when == 1)
        rig_cancel(one, &op);
    proxy_say("pass");
    CU_ASSERT_EQUAL(rig_finish(one, NULL, &op),
                    !seen || when == 2 ? MORTISE_OK : MORTISE_INDETERMINATE);
    if (seen && when == 2)
        proxy_say("hold-down");
    mortise_op back = {
        .kind = MORTISE_OP_RELEASE, .name = "lost", .name_len = 4, .grant = op.grant};
    rig_start(one, &back);
    nobody.wanted = 0;
    if (seen && when == 2)
        seen = test_poll(has_nodes_at_last, &turned, SEEN_MS);
    proxy_say("cut");
    proxy_say("pass");
    mortise_status status = rig_finish(one, NULL, &back);
    seen = session_number(one) == session && seen;
    CU_ASSERT(status == MORTISE_OK || (!seen && status == MORTISE_LOST));
    CU_ASSERT(test_poll(has_nodes_at_last, &turned, TEST_PATIENCE_MS));
    return seen;
}

static void test_replies_lost(void)
{
    static struct rig one;
    CU_ASSERT_FATAL(rig_load());
    open_behind_proxy(&one, "00000000000000000000000000000015", LIFE_MS);
    for (unsigned char when = 0; when < 3; when++) {
        bool seen = false;
        for (int tries = 0; tries < TRIES && !seen; tries++)
            seen = lose_replies(&one, when);
        CU_ASSERT(seen);
    }
    rig_close(&one);
}

/* A list whose answers are lost begins anew with the next connection, and tells each name once. */
static void test_list_begins_anew(void)
{
    static struct rig one;
    CU_ASSERT_FATAL(rig_load());
    open_behind_proxy(&one, "00000000000000000000000000000013", LIFE_MS);
    mortise_op held = rig_acquire("anew", 1, 0), list = list_of("anew");
    rig_start(&one, &held);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&one, NULL, &held), MORTISE_OK);
    uint64_t session = session_number(&one);
    proxy_say("hold-down");
    rig_start(&one, &list);
    run_for(&one, 50);
    CU_ASSERT_PTR_NULL(list.issuer);
    proxy_say("cut");
    proxy_say("pass");
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &list), MORTISE_OK);
    CU_ASSERT_EQUAL(one.emitted, 1);
    CU_ASSERT_EQUAL(session_number(&one), session);
    rig_release(&one, &held);
    rig_close(&one);
}

/* The session is LEAVING, because an acquire has come while a list is open, and its connection is lost: both go on in
 * the next session. */
#define RESTS_AFTER_MS 2000

static void test_lost_while_leaving(void)
{
    static struct rig one;
    CU_ASSERT_FATAL(rig_load());
    open_behind_proxy(&one, "00000000000000000000000000000014", RESTS_AFTER_MS);
    mortise_op held = rig_acquire("leave", 1, 0), next = rig_acquire("leave", 2, 0),
               list = list_of("leave");
    rig_start(&one, &held);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&one, NULL, &held), MORTISE_OK);
    rig_release(&one, &held);
    run_for(&one, 2 * RESTS_AFTER_MS); /* it rests */
    uint64_t session = session_number(&one);
    proxy_say("hold-down");
    rig_start(&one, &list);
    run_for(&one, 50);
    rig_start(&one, &next);
    run_for(&one, 50);
    CU_ASSERT(list.issuer == NULL && next.issuer == NULL);
    proxy_say("cut");
    proxy_say("pass");
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &next), MORTISE_OK);
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &list), MORTISE_OK);
    CU_ASSERT(session_number(&one) != session);
    rig_release(&one, &next);
    rig_close(&one);
}

/* ---- the servers refuse the user --------------------------------------------------------------------------------- */

/* A server that starts anew, and does or does not know the users of the scheme "digest". */
static void restart(bool has_users)
{
    const char *const keys[] = {has_users
                                    ? "java=-Dzookeeper.DigestAuthenticationProvider.enabled=true"
                                    : "java=-Dzookeeper.DigestAuthenticationProvider.enabled=false",
                                NULL};
    CU_ASSERT_FATAL(stage_server("kill", 1));
    CU_ASSERT_FATAL(stage_server_with(1, keys));
}

/* The session lives on in the servers, and so does the node: a release is not sure before the node is gone. */
static void test_refused_by_auth(void)
{
    static struct rig one;
    struct folder folder = {"refused", 1};
    CU_ASSERT_FATAL(rig_load());
    /* A folder that everybody may see, and that stays: the servers would remove an empty one of the driver's. */
    zoo_create(stage.peek, "/ops", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    CU_ASSERT_EQUAL_FATAL(
        zoo_create(stage.peek, "/ops/refused", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    rig_open_as(&one, "00000000000000000000000000000017", "digest:me:secret");
    mortise_op op = rig_acquire("refused", 2, 0);
    rig_start(&one, &op);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&one, NULL, &op), MORTISE_OK);
    restart(false);
    mortise_op back = {
        .kind = MORTISE_OP_RELEASE, .name = "refused", .name_len = 7, .grant = op.grant};
    mortise_op renewal = op;
    renewal.kind = MORTISE_OP_RENEW;
    do { /* until the driver has heard that it is refused */
        run_for(&one, 20);
        rig_start(&one, &renewal);
    } while (rig_finish(&one, NULL, &renewal) != MORTISE_LOST);
    rig_start(&one, &back);
    run_for(&one, 200);
    CU_ASSERT(test_poll(has_nodes, &folder, TEST_PATIENCE_MS));
    if (!back.issuer)
        rig_cancel(&one, &back);
    SAFE(!back.sure);
    restart(true);
    CU_ASSERT_EQUAL(release_until_sure(&one, &op), MORTISE_OK);
    folder.wanted = 0;
    CU_ASSERT(test_poll(has_nodes, &folder, TEST_PATIENCE_MS));
    rig_close(&one);
}

/* One waits, and others ask when the servers refuse the user: each is told after its patience, although the connection comes
 * back again and again. The waiter's node is there, so it is in doubt. */
static void test_waits_while_refused(void)
{
    static struct rig one, holder;
    char text[256];
    CU_ASSERT_FATAL(rig_load());
    rig_open(&holder, "00000000000000000000000000000018");
    rig_open_as(&one, "00000000000000000000000000000019", "digest:me:secret");
    zoo_create(stage.peek, "/ops", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_create(stage.peek, "/ops/waits", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    struct folder folder = {"waits", 2};
    mortise_op held = rig_acquire("waits", 2, 0), op = rig_acquire("waits", 3, 0),
               other = rig_acquire("waits", 4, 0), ping;
    rig_start(&holder, &held);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&holder, NULL, &held), MORTISE_OK);
    rig_start(&one, &op);
    struct turned turned = {&one, &folder};
    CU_ASSERT_FATAL(test_poll(has_nodes_at_last, &turned, TEST_PATIENCE_MS));
    restart(false);
    rig_start(&one, &other);
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &op), MORTISE_INDETERMINATE);
    mortise_status status = rig_finish(&one, NULL, &other);
    CU_ASSERT(status == MORTISE_INDETERMINATE ||
              status == MORTISE_BACKEND); /* sent to a server that was about to refuse, or not */
    int64_t until_ms = test_now_ms() + TEST_PATIENCE_MS;
    do { /* a server that is not there yet has refused nobody */
        ping = (mortise_op){.kind = MORTISE_OP_PING, .buffer = text, .buffer_size = sizeof text};
        rig_start(&one, &ping);
        status = rig_finish(&one, NULL, &ping);
    } while (status == MORTISE_UNREACHABLE && test_now_ms() < until_ms);
    CU_ASSERT_EQUAL(status, MORTISE_BACKEND);
    restart(true);
    SAFE(release_until_sure(&one, &op) !=
         MORTISE_TIMEDOUT); /* as the core does with what is in doubt */
    SAFE(release_until_sure(&one, &other) != MORTISE_TIMEDOUT);
    folder.wanted = 1;
    CU_ASSERT(test_poll(has_nodes_at_last, &turned, TEST_PATIENCE_MS));
    rig_release(&holder, &held);
    rig_close(&one);
    rig_close(&holder);
}

/* ---- a record that cannot be written ------------------------------------------------------------------------------- */

static void set_rights(int rights)
{
    struct ACL some = {rights, ZOO_ANYONE_ID_UNSAFE};
    const struct ACL_vector acl = {1, &some};
    CU_ASSERT_EQUAL(zoo_set_acl(stage.peek, "/ops", -1, &acl), ZOK);
}

/* Nobody may make the folder of the records: that is a failure, and no other version of the record. */
static void test_no_folder_for_records(void)
{
    static struct rig one;
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000018");
    mortise_op held = rig_acquire("r", 1, 0);
    rig_start(&one, &held);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&one, NULL, &held), MORTISE_OK);
    rig_release(&one, &held);
    set_rights(ZOO_PERM_READ | ZOO_PERM_DELETE | ZOO_PERM_ADMIN);
    for (int allowed = 0; allowed < 2; allowed++) {
        mortise_op op = {.kind = MORTISE_OP_WRITE,
                         .name = "none",
                         .name_len = 4,
                         .record = "x",
                         .record_size = 1};
        rig_start(&one, &op);
        CU_ASSERT_EQUAL(rig_finish(&one, NULL, &op), allowed ? MORTISE_OK : MORTISE_BACKEND);
        set_rights(ZOO_PERM_ALL);
    }
    rig_close(&one);
}

const CU_TestInfo state_tests[] = {
    {"canceled in each state", test_canceled_in_each_state},
    {"replies lost", test_replies_lost},
    {"a list begins anew", test_list_begins_anew},
    {"the connection is lost while a session leaves", test_lost_while_leaving},
    {"refused by auth", test_refused_by_auth},
    {"waits while refused", test_waits_while_refused},
    {"no folder for records", test_no_folder_for_records},
    CU_TEST_INFO_NULL,
};
