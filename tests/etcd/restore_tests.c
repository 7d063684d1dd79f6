/* restore_tests.c - servers that are made of a snapshot, under clients that live on. One server. */
#include "stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* To the same address. With the same cluster token, which is the usual way, the cluster has the same id; with another one (`mark`)
 * it has another id. Then the server runs. */
static bool restore_as(const char *snapshot, const char *mark)
{
    char command[1500];
    snprintf(command, sizeof command,
             "exec >'%s/restore.log' 2>&1; cd '%s' && peer=http://127.0.0.1:$(cat 1-peer.port) && "
             "rm -rf 1/data && ETCDCTL_API=3 $(command -v etcdutl || echo etcdctl) "
             "snapshot restore '%s' --name m1 --data-dir 1/data --initial-cluster m1=$peer "
             "--initial-advertise-peer-urls $peer "
             "--initial-cluster-token mortise-$(cat 1-peer.port)%s",
             stage.folder, stage.folder, snapshot, mark);
    return stage_server("kill", 1) && system(command) == 0 && stage_server("start", 1);
}

static bool restore(const char *snapshot)
{
    return restore_as(snapshot, "");
}

static void save(char *snapshot, size_t size)
{
    snprintf(snapshot, size, "%s/snapshot.db", stage.folder);
    remove(snapshot);
    CHECK(CTL("snapshot", "save", snapshot));
}

/* What is not in the snapshot is LOST, what is in it goes on, and who waited waits. Tokens are above those that were lost. */
static void test_restored(void)
{
    char snapshot[300], kept_name[64];
    mortise_client *client = client_direct("ttl=60s"), *other = client_direct("ttl=60s");
    snprintf(kept_name, sizeof kept_name, "%s", fresh_name());
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *kept = take(client, kept_name);
    save(snapshot, sizeof snapshot);
    waiter_start(&waiter, other, kept_name);
    CHECK(wait_contenders(client, kept_name, 2));
    for (int i = 0; i < 30; i++)
        give_back(take(client, name));
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    CHECK(restore(snapshot));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(wait_contenders(client, kept_name, 2));
    CHECK(wait_state(kept, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    lease = take(client, name);
    SAFE(mortise_token(lease) > token);
    give_back(lease);
    give_back(kept);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    lease = take(other, name);
    SAFE(mortise_token(lease) > token);
    give_back(lease);
    client_end(other);
    client_end(client);
}

/* All that the client knows was in the snapshot. But its session is of a term that does not come again. */
static void test_restored_term(void)
{
    char snapshot[300];
    const char *name = fresh_name();
    for (int i = 0; i < 2; i++) {
        CHECK(stage_server("kill", 1));
        CHECK(stage_server("start", 1));
    }
    mortise_client *client = client_direct("ttl=1s");
    mortise_lease *lease = take(client, name);
    save(snapshot, sizeof snapshot);
    CHECK(restore(snapshot));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    lease = take(client, name);
    give_back(lease);
    client_end(client);
}

static int64_t base_of_tokens(void)
{
    char said[200];
    CHECK(ctl_at(1, (const char *const[]){"get", "--print-value-only", "mortise/%tokens", NULL},
                 said, sizeof said));
    return strtoll(said, NULL, 10);
}

/* Takes it and gives it back so often. The last token. */
static uint64_t take_often(mortise_client *client, const char *name, int times)
{
    uint64_t token = 0;
    for (int i = 0; i < times; i++) {
        mortise_lease *lease = take(client, name);
        token = mortise_token(lease);
        give_back(lease);
    }
    return token;
}

/* Two clients notice it. Both have read the base of the tokens behind the snapshot, so the second one sees that the first one has
 * raised it. */
static void test_one_jump(void)
{
    char snapshot[300];
    const char *name = fresh_name();
    mortise_client *one = client_direct("ttl=60s"), *two = client_direct("ttl=60s");
    take_often(one, name, 1);
    int64_t base = base_of_tokens();
    save(snapshot, sizeof snapshot);
    take_often(one, name, 30);
    take_often(two, name, 30);
    uint64_t token = take_often(one, name, 1);
    CHECK(restore(snapshot));
    SAFE(take_often(one, name, 1) > token);
    SAFE(take_often(two, name, 1) > token);
    CHECK(base_of_tokens() == base + (INT64_C(1) << 40));
    client_end(two);
    client_end(one);
}

/* Only one that was idle notices it. It has not read the base since that was raised for another cluster: what it finds is in the
 * snapshot, and no sign of a raise for this one. */
static void test_jump_of_idle(void)
{
    char snapshot[300], value[60];
    const char *name = fresh_name();
    mortise_client *idle = client_direct("ttl=60s"), *client = client_direct("ttl=60s");
    mortise_lease *lease = take(idle, fresh_name());
    snprintf(value, sizeof value, "%" PRId64 " abc", base_of_tokens() + 1);
    CHECK(CTL("put", "mortise/%tokens", value));
    take_often(client, name, 1);
    save(snapshot, sizeof snapshot);
    uint64_t token = take_often(client, name, 30);
    EXPECT(OK, mortise_ping(idle, NULL, 0, &detail)); /* now it knows these revisions */
    client_end(client);
    CHECK(restore(snapshot));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    SAFE(take_often(idle, name, 1) > token);
    give_back(lease);
    client_end(idle);
}

/* Before the client is back, others have written more than was lost, and one has the lock that the snapshot does not have. The
 * session is in the snapshot, and of the same term, which is that of any server without a past. */
static void test_overtaken(void)
{
    char snapshot[300];
    const char *name = fresh_name();
    save(snapshot, sizeof snapshot);
    CHECK(restore(snapshot));
    mortise_client *client = client_behind_proxy("ttl=60s"), *other = client_direct("ttl=60s");
    mortise_lease *kept = take(client, fresh_name());
    save(snapshot, sizeof snapshot);
    mortise_lease *lease = take(client, name);
    CHECK(test_proxy_say(&stage.proxy, "refuse"));
    CHECK(restore(snapshot));
    for (int i = 0; i < 10; i++)
        give_back(take(other, fresh_name()));
    mortise_lease *next = take(other, name);
    CHECK(test_proxy_say(&stage.proxy, "accept"));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(wait_state(kept, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    SAFE(mortise_state(next) == MORTISE_STATE_HELD);
    give_back(next);
    give_back(kept);
    client_end(other);
    client_end(client);
}

/* The cluster has another id, as docs/etcd.md advises, and the member does not tell its status, as 3.6 does not to a user without
 * root: so the first answer that shows the id is that of another call. */
static void test_other_id(void)
{
    char snapshot[300];
    const char *name = fresh_name();
    middle_rule(&(struct rule){.method = "Maintenance/Status",
                               .fault = REFUSE_NOT,
                               .times = 1000,
                               .status = 7,
                               .text = "etcdserver: permission denied"});
    mortise_client *client = client_behind_middle("ttl=60s");
    mortise_lease *kept = take(client, fresh_name());
    save(snapshot, sizeof snapshot);
    mortise_lease *lease = take(client, name);
    uint64_t token = mortise_token(lease);
    CHECK(restore_as(snapshot, "-other"));
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    lease = take(client, name);
    SAFE(mortise_token(lease) > token + (UINT64_C(1) << 40));
    CHECK(wait_state(kept, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    give_back(lease);
    give_back(kept);
    CHECK(middle_clear() > 1);
    client_end(client);
}

const CU_TestInfo restore_tests[] = {
    {"restored", test_restored},
    {"restored to an earlier term", test_restored_term},
    {"restored under two clients", test_one_jump},
    {"restored under an idle client", test_jump_of_idle},
    {"restored and overtaken", test_overtaken},
    {"restored with another id", test_other_id},
    CU_TEST_INFO_NULL,
};
