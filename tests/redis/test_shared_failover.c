/* test_shared_failover.c - shared holders when another server becomes the primary, and with min_replicas: what the replicas
 * had goes on with its holders, its marker and its permits; what they did not have is lost for its holder alone. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

#define LAYOUTS 2
static const char *const layouts[LAYOUTS] = {"", "mode = hash\nqueue = no\n"};

static struct house house;

static mortise_client *open_house(const char *more, int layout)
{
    char settings[240];
    snprintf(settings, sizeof settings, "connect_timeout = 1s\ncommand_timeout = 1s\n%s%s", more,
             layouts[layout]);
    return open_at(&house.server, house.list, "unreachable_timeout = 60s", settings);
}

static mortise_status share(mortise_client *client, const char *name, struct told *told,
                            mortise_lease **lease)
{
    *lease = NULL;
    return mortise_acquire(client, name,
                           MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS, .mode = MORTISE_SHARED,
                                           .permits = 3, .on_state = told ? note_state : NULL,
                                           .user_data = told),
                           lease, &detail);
}

static int64_t sharing(const char *name)
{
    return ask_number(&house.server, "ZCARD {mortise:%s}:mortise:holders", name);
}

static void fail_over(int layout)
{
    struct told one = TOLD_INIT, two = TOLD_INIT;
    mortise_lease *kept, *unseen, *fresh;
    char name[32];
    house_mend(&house, 0);
    snprintf(doing, sizeof doing, "layout %d", layout);
    snprintf(name, sizeof name, "failover-%d", layout);
    mortise_client *first = open_house("", layout), *second = open_house("", layout);
    mortise_client *third = open_house("", layout);
    CHECK(wait_works(first) && wait_works(second) && wait_works(third));
    EXPECT(OK, share(first, name, &one, &kept));
    house_wait_replicas(&house, 2);
    house_strand(&house, 1);
    house_strand(&house, 2);
    EXPECT(OK, share(second, name, &two, &unseen));
    CHECK(sharing(name) == 2);
    house_do(&house, "kill", 0);
    house_promote(&house, 1);
    CHECK(test_count_wait(&two.lost, 1));
    CHECK(wait_renewals(first, 1));
    CHECK(wait_state(kept, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&one.lost) == 0);
    CHECK(sharing(name) == 1);
    EXPECT(BUSY, try_once(third, name));
    EXPECT(OK, share(third, name, NULL, &fresh));
    CHECK(mortise_token(fresh) > mortise_token(unseen));
    EXPECT(LOST, mortise_release(unseen, &detail));
    CHECK(sharing(name) == 2);
    give(fresh);
    give(kept);
    EXPECT(OK, try_once(third, name));
    close_client(first);
    close_client(second);
    close_client(third);
    CHECK(server_is_clean(&house.server));
    house_do(&house, "start", 0);
}

static void test_failover(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        fail_over(i);
}

/* It is taken back, and the other holder is not touched. */
static void unconfirmed(int layout)
{
    mortise_lease *held, *lease;
    char name[32];
    house_mend(&house, 0);
    snprintf(doing, sizeof doing, "layout %d", layout);
    snprintf(name, sizeof name, "unconfirmed-%d", layout);
    mortise_client *client = open_house("min_replicas = 1\nreplica_timeout = 300ms\n", layout);
    mortise_client *other = open_house("", layout);
    CHECK(wait_works(client));
    EXPECT(OK, share(client, name, NULL, &lease));
    EXPECT(OK, share(other, name, NULL, &held));
    give(lease);
    house_do(&house, "freeze", 1);
    house_do(&house, "freeze", 2);
    CHECK(not_reached(share(client, name, NULL, &lease)));
    SAYS("0 of 1 replicas");
    CHECK(sharing(name) == 1);
    CHECK(mortise_state(held) == MORTISE_STATE_HELD);
    house_do(&house, "thaw", 1);
    house_do(&house, "thaw", 2);
    house_wait_replicas(&house, 2);
    CHECK(wait_works(client));
    EXPECT(OK, share(client, name, NULL, &lease));
    give(lease);
    give(held);
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                               &lease, &detail));
    EXPECT(OK, mortise_downgrade(lease, &detail));
    give(lease);
    close_client(client);
    close_client(other);
    CHECK(server_is_clean(&house.server));
}

static void test_unconfirmed(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        unconfirmed(i);
}

/* The command, on each server. */
static void everywhere(const char *command)
{
    for (int i = 0; i < HOUSE; i++)
        freeReplyObject(house_ask(&house, i, command));
}

/* The right to WAIT is withdrawn: the primary has executed the downgrade all the same, so it is not refused. */
static void downgrade_unconfirmed(int layout)
{
    struct pending reader = PENDING_INIT;
    mortise_lease *lease = NULL;
    char name[32], settings[200];
    house_mend(&house, 0);
    snprintf(doing, sizeof doing, "layout %d", layout);
    snprintf(name, sizeof name, "downgrade-%d", layout);
    snprintf(settings, sizeof settings,
             "username = poor\npassword = word\nmin_replicas = 1\nreplica_timeout = 10s\n%s",
             layouts[layout]);
    everywhere("ACL SETUSER poor on >word ~* &* +@all");
    mortise_client *client =
        open_at(&house.server, house.list, "unreachable_timeout = 1s", settings);
    mortise_client *other = open_house("", layout);
    CHECK(wait_works(client) && wait_works(other));
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = LONG_MS),
                               &lease, &detail));
    pending_start(&reader, other, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .mode = MORTISE_SHARED));
    everywhere("ACL SETUSER poor -wait");
    CHECK(not_reached(mortise_downgrade(lease, &detail)));
    EXPECT(OK, pending_join(&reader));
    CHECK(sharing(name) == 2);
    EXPECT(OK, mortise_release(lease, &detail));
    CHECK(sharing(name) == 1);
    give(reader.lease);
    close_client(client);
    close_client(other);
    CHECK(server_is_clean(&house.server));
    everywhere("ACL DELUSER poor");
}

static void test_downgrade_unconfirmed(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        downgrade_unconfirmed(i);
}

static const CU_TestInfo tests[] = {
    {"another primary", test_failover},
    {"replicas do not acknowledge", test_unconfirmed},
    {"a downgrade that may not be confirmed", test_downgrade_unconfirmed},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const keys[] = {"replicas=2", "conf=repl-diskless-sync yes",
                                       "conf=repl-diskless-sync-delay 0", NULL};
    int code = house_start(&house, keys);
    if (code == 0)
        code = run_tests("redis: shared holders and replicas", tests, argc, argv);
    return servers_end((struct server *const[]){&house.server}, 1, code);
}
