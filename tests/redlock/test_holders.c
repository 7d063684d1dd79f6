/* test_holders.c - the shared holders of a lock, put together from what several nodes answer. Without a server. */
#include "redlock.h"

#include <expect.h>

#include <stdio.h>
#include <time.h>

#define MANY 20000
#define FEW 100
#define TIMES_MOST 30
#define NODES 3

/* {remaining, marker, now, {remaining of a holder, its value, ...}} */
struct answer {
    redisReply whole, parts[4], cells[2 * MANY];
    redisReply *elements[4], *list[2 * MANY];
    char values[MANY][GRANT_HEX + 2 * (1 + TOKEN_DIGITS) + 8];
};

static struct answer answers[NODES];
static struct driver driver = {.count = NODES, .quorum = NODES / 2 + 1};

static void put_number(redisReply *reply, int64_t number)
{
    *reply = (redisReply){.type = REDIS_REPLY_INTEGER, .integer = number};
}

static void put_text(redisReply *reply, char *text)
{
    *reply = (redisReply){.type = REDIS_REPLY_STRING, .str = text, .len = strlen(text)};
}

static void put_list(redisReply *reply, redisReply **elements, size_t count)
{
    *reply = (redisReply){.type = REDIS_REPLY_ARRAY, .element = elements, .elements = count};
}

/* The readers from `first` to `last`, each with the token of its number. */
static const redisReply *answer_of(struct answer *answer, int first, int last)
{
    static char marker[] = "00000000000000000000000000000000 0000000000000000 1\n(shared)";
    static char now[] = "2000000";
    int step = first < last ? 1 : -1;
    size_t count = 0;
    for (int i = first; i != last + step; i += step, count++) {
        snprintf(answer->values[count], sizeof answer->values[count], "%032d %016d %016d\nhost", i,
                 i, 1000000);
        put_number(&answer->cells[2 * count], 1000 + i);
        put_text(&answer->cells[2 * count + 1], answer->values[count]);
    }
    for (size_t i = 0; i < 2 * count; i++)
        answer->list[i] = &answer->cells[i];
    for (size_t i = 0; i < 4; i++)
        answer->elements[i] = &answer->parts[i];
    put_number(&answer->parts[0], 5000);
    put_text(&answer->parts[1], marker);
    put_text(&answer->parts[2], now);
    put_list(&answer->parts[3], answer->list, 2 * count);
    put_list(&answer->whole, answer->elements, 4);
    return &answer->whole;
}

/* A node each: the readers 1 to 4, 5 to 3, and 3. Two nodes have 3 and 4, and three have 3. */
static void test_settled(void)
{
    struct holders holders = {.all = NULL};
    holders_add(&holders, answer_of(&answers[0], 1, 4));
    holders_add(&holders, answer_of(&answers[1], 5, 3));
    holders_add(&holders, answer_of(&answers[2], 3, 3));
    CHECK(holders_settle(&holders, &driver, 0) == 2);
    const struct holder *holder = holders.all;
    for (uint64_t token = 3; token <= 4 && CHECK(holder != NULL); token++) {
        CHECK(holder->info.token == token && holder->info.holders == 2);
        CHECK(holder->nodes == (token == 3 ? 3 : 2) && holder->info.mode == MORTISE_SHARED);
        CHECK(holder->info.remaining_ms == 1000 + (int64_t)token && holder->info.held_ms == 1000);
        CHECK(strcmp(holder->info.host, "host") == 0);
        holder = holder->hh.next;
    }
    CHECK(holder == NULL && !holders.failed);
    holders_free(&holders);
    CHECK(holders.all == NULL);
}

/* A node that does not answer may have each of them. */
static void test_presumed(void)
{
    struct holders holders = {.all = NULL};
    holders_add(&holders, answer_of(&answers[0], 2, 1));
    CHECK(holders_settle(&holders, &driver, 1) == 2);
    CHECK(holders.all->info.token == 1);
    CHECK(holders_settle(&holders, &driver, 0) == 0);
    CHECK(holders.all == NULL);
}

static int64_t processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* What it takes to put so many readers together; each node has them in another order. */
static int64_t together_ns(int count)
{
    struct holders holders = {.all = NULL};
    const redisReply *first = answer_of(&answers[0], 1, count);
    const redisReply *second = answer_of(&answers[1], count, 1);
    int64_t from_ns = processor_ns();
    holders_add(&holders, first);
    holders_add(&holders, second);
    CHECK(holders_settle(&holders, &driver, 0) == (unsigned)count);
    holders_free(&holders);
    return processor_ns() - from_ns;
}

/* All of it is done in one turn of the driver, while no lease is renewed. A reader among very many costs about what one among a
 * few does; as many of the one as of the other are measured. */
static void test_cost_of_many(void)
{
    int64_t many_ns = together_ns(MANY), few_ns = 0;
    for (int round = 0; round < MANY / FEW; round++)
        few_ns += together_ns(FEW);
    if (!CHECK(many_ns < TIMES_MOST * few_ns))
        fprintf(stderr, "among many %lld us, among a few %lld us\n", (long long)(many_ns / 1000),
                (long long)(few_ns / 1000));
}

static const CU_TestInfo tests[] = {
    {"those that a majority has", test_settled},
    {"those that a silent node may have", test_presumed},
    {"very many", test_cost_of_many},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock holders", tests, argc, argv);
}
