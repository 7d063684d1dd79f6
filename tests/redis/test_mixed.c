/* test_mixed.c - clients whose settings differ where docs/redis.md permits it, on the same lock. */
#include "rig.h"

static struct server server;

#define NAME "mixed"

/* One that has no tokens holds first, and others of its owner, who have tokens, join it. */
static void join_without_token(const char *settings)
{
    mortise_client *plain = open_at(&server, NULL, NULL, "mode = hash\nfencing = off\n");
    mortise_client *one = open_at(&server, NULL, NULL, settings);
    mortise_client *other = open_at(&server, NULL, NULL, "mode = hash\n");
    mortise_lease *lease = take_as(one, NAME, "us", LONG_MS);
    uint64_t before = mortise_token(lease);
    give(lease);
    mortise_lease *first = take_as(plain, NAME, "us", LONG_MS);
    lease = take_as(one, NAME, "us", LONG_MS);
    uint64_t token = mortise_token(lease);
    SAFE(token > before);
    CHECK(mortise_token(first) == 0);
    mortise_lease *last = take_as(other, NAME, "us", LONG_MS);
    CHECK(mortise_token(last) == token); /* as in every shared hold */
    CHECK(holds(&server, NAME) == 3);
    give(first);
    give(lease);
    give(last);
    lease = take_as(other, NAME, "us", LONG_MS);
    SAFE(mortise_token(lease) > token);
    give(lease);
    close_client(plain);
    close_client(one);
    close_client(other);
}

static void test_join_without_token(void)
{
    join_without_token("mode = hash\nqueue = no\n");
    join_without_token("mode = hash\n");
}

static const CU_TestInfo tests[] = {
    {"a hold that began without a token", test_join_without_token},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: mixed", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
