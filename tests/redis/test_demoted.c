/* test_demoted.c - the primary becomes a replica and keeps its connections, and its clients only read: no answer says READONLY. They
 * find the new primary nevertheless. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static struct house house;

static mortise_client *open_house(void)
{
    return open_at(&house.server, house.list, "unreachable_timeout = 60s\n",
                   "connect_timeout = 1s\ncommand_timeout = 1s\n");
}

static bool reads_new(void *client)
{
    char text[8] = "";
    size_t size = sizeof text;
    uint64_t version = 0;
    mortise_status status = mortise_record_read(client, "record", text, &size, &version, &detail);
    CHECK(status == MORTISE_OK ? version == 2 : status == MORTISE_UNREACHABLE);
    return status == MORTISE_OK;
}

static void test_record(void)
{
    char text[8] = "";
    size_t size = sizeof text;
    uint64_t version = 0;
    house_mend(&house, 0);
    mortise_client *client = open_house();
    EXPECT(OK, mortise_record_write(client, "record", "old", 3, &version, &detail));
    EXPECT(OK, mortise_record_read(client, "record", text, &size, &version, &detail));
    CHECK(version == 1);
    house_wait_replicas(&house, 2);
    house_promote(&house, 1);
    house_strand(&house, 0);
    mortise_client *other = open_house();
    EXPECT(OK, mortise_record_write(other, "record", "new", 3, &version, &detail));
    CHECK(test_poll(reads_new, client, TEST_PATIENCE_MS));
    CHECK(ask_number(&house.server, "DEL {mortise:record}:mortise:record") == 1);
    close_client(other);
    close_client(client);
    CHECK(server_is_clean(&house.server));
}

static bool pings(void *client)
{
    mortise_status status = mortise_ping(client, NULL, 0, &detail);
    CHECK(status == MORTISE_OK || (status == MORTISE_UNREACHABLE && detail.retryable));
    return status == MORTISE_OK;
}

static void test_ping(void)
{
    char text[256], at[40];
    house_mend(&house, 0);
    mortise_client *client = open_house();
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    house_promote(&house, 1);
    house_strand(&house, 0);
    CHECK(test_poll(pings, client, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    snprintf(at, sizeof at, "127.0.0.1:%d", house.ports[1]);
    CHECK(strstr(text, at) != NULL);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"a record", test_record},
    {"a ping", test_ping},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const replicas[] = {"replicas=2", "conf=repl-diskless-sync yes",
                                           "conf=repl-diskless-sync-delay 0", NULL};
    int code = house_start(&house, replicas);
    if (code == 0)
        code = run_tests("redis: demoted", tests, argc, argv);
    if (code == 0)
        house_mend(&house, house.primary);
    return servers_end((struct server *const[]){&house.server}, 1, code);
}
