/* test_renew_script.c - the script that renews many locks (drivers/lib/redis), as it is and as a server before Redis 7 executes it,
 * which does not know PEXPIRE's "GT". */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT MORTISE_SOURCE "/drivers/lib/redis/scripts/include/renew_strings.lua"
#define OURS "0123456789abcdef0123456789abcdef"
#define OTHERS "fedcba9876543210fedcba9876543210"
#define TTL_MS 60000
#define NO_STRING "a set"

static struct server server;
static char modern[4096], old[4096];

/* Of these locks, in this order; what the script answers for each, and about how long it lasts then. */
static const struct {
    const char *name, *value;
    int64_t ttl_ms; /* 0: for ever; no value: it is not there */
    char answer;
    int64_t lasts_ms; /* -1: for ever, -2: it is not there */
} locks[] = {
    {"shorter", OURS, 1000, '2', TTL_MS},
    {"longer", OURS, 10 * TTL_MS, '2', 10 * TTL_MS},
    {"with more behind the grant", OURS "17:host", 1000, '2', TTL_MS},
    {"without an end", OURS, 0, '2', TTL_MS},
    {"another's", OTHERS, 10 * TTL_MS, '1', 10 * TTL_MS},
    {"another's, without an end", OTHERS, 0, '1', -1},
    {"gone", NULL, 0, '0', -2},
    {"shorter, behind the others", OURS, 1000, '2', TTL_MS},
};
#define LOCKS (sizeof locks / sizeof *locks)

static void lay_out(void)
{
    for (size_t i = 0; i < LOCKS; i++) {
        if (locks[i].value != NULL)
            freeReplyObject(ask(&server, "SET %s %s", locks[i].name, locks[i].value));
        if (locks[i].ttl_ms > 0)
            freeReplyObject(
                ask(&server, "PEXPIRE %s %lld", locks[i].name, (long long)locks[i].ttl_ms));
    }
    freeReplyObject(ask(&server, "SADD %s x", NO_STRING));
}

/* Executes the script for all of them, and for a key that has no string. */
static void renew(const char *script)
{
    const char *words[3 + 3 * (LOCKS + 1)] = {"EVAL", script};
    char count[8], ttl[16], wanted[LOCKS + 2] = "";
    snprintf(count, sizeof count, "%zu", LOCKS + 1);
    snprintf(ttl, sizeof ttl, "%d", TTL_MS);
    words[2] = count;
    for (size_t i = 0; i <= LOCKS; i++) {
        words[3 + i] = i < LOCKS ? locks[i].name : NO_STRING;
        words[3 + LOCKS + 1 + 2 * i] = OURS;
        words[3 + LOCKS + 2 + 2 * i] = ttl;
        wanted[i] = i < LOCKS ? locks[i].answer : '1';
    }
    redisReply *reply =
        redisCommandArgv(server.looker, (int)(sizeof words / sizeof *words), words, NULL);
    CHECK(reply != NULL && reply->type == REDIS_REPLY_STRING && strcmp(reply->str, wanted) == 0);
    if (reply != NULL && reply->type != REDIS_REPLY_STRING)
        printf("answer: %s\n", reply->str);
    freeReplyObject(reply);
}

static void look(void)
{
    for (size_t i = 0; i < LOCKS; i++) {
        int64_t left = ask_number(&server, "PTTL %s", locks[i].name);
        snprintf(doing, sizeof doing, "%s: %lld ms", locks[i].name, (long long)left);
        if (locks[i].lasts_ms < 0)
            CHECK(left == locks[i].lasts_ms);
        else
            CHECK(left <= locks[i].lasts_ms && left > locks[i].lasts_ms - TTL_MS / 2);
        freeReplyObject(ask(&server, "DEL %s", locks[i].name));
    }
    freeReplyObject(ask(&server, "DEL %s", NO_STRING));
}

static void test_modern(void)
{
    lay_out();
    renew(modern);
    look();
}

static void test_old(void)
{
    lay_out();
    renew(old);
    look();
}

static const CU_TestInfo tests[] = {
    {"every lock gets what is right for it", test_modern},
    {"the same before Redis 7", test_old},
    CU_TEST_INFO_NULL,
};

/* The same length: a word that no version of Redis knows. */
static bool read_script(void)
{
    FILE *file = fopen(SCRIPT, "r");
    if (file == NULL)
        return false;
    size_t length = fread(modern, 1, sizeof modern - 1, file);
    fclose(file);
    memcpy(old, modern, length);
    char *word = strstr(old, "'gt'");
    if (word == NULL)
        return false;
    memcpy(word, "'x7'", 4);
    return true;
}

int main(int argc, char **argv)
{
    if (!read_script()) {
        fprintf(stderr, "%s cannot be read, or has no 'gt'\n", SCRIPT);
        return 1;
    }
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: the script that renews", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
