/* test_readers_walk.c - members acquire, renew, downgrade and release one row at random, shared and exclusively, with clocks
 * that were read too early: at no instant may two believe what cannot be true together. */
#include "readers_test.h"
#include "suite.h"

struct member {
    bool holds;
    mortise_mode mode;
    uint32_t permits;
    uint64_t token;
    int64_t until_us;
};

static void note_claim(struct member *one, const struct rowlease_answer *answer)
{
    one->holds = answer->status == MORTISE_OK;
    one->until_us = answer->from_us + answer->good_for_ms * 1000;
}

static void walk(struct member *all, int i, int64_t now, uint64_t *last_token)
{
    struct member *one = &all[i];
    struct rowlease_inbox inbox = inbox_of(i + 1);
    int64_t then = now - (rand() % 4 == 0 ? rand() % (2 * S) : 0); /* its clock was read then */
    bool live = one->holds && one->until_us > now;
    struct rowlease_answer answer;
    switch (rand() % 6) {
    case 0:
    case 1:
        if (live)
            return;
        one->mode = rand() % 4 == 0 ? MORTISE_EXCLUSIVE : MORTISE_SHARED;
        one->permits = one->mode == MORTISE_SHARED && rand() % 8 != 0 ? 3 : 0;
        answer = ask(1000 + i, one->mode, one->permits, 50 + rand() % 3000, then,
                     rand() % 2 ? &inbox : NULL);
        note_claim(one, &answer);
        one->token = answer.token;
        CU_ASSERT_TRUE(!one->holds || !answer.write || answer.token > *last_token);
        if (one->holds && answer.token > *last_token)
            *last_token = answer.token;
        return;
    case 2:
        if (!live)
            return;
        answer = one->mode == MORTISE_SHARED
                     ? extend(1000 + i, one->token, 50 + rand() % 3000, then)
                     : renew(1000 + i, NULL, one->token, 50 + rand() % 3000, then);
        CU_ASSERT_EQUAL(answer.status, MORTISE_OK);
        note_claim(one, &answer);
        return;
    case 3:
        answer = one->mode == MORTISE_SHARED ? leave(1000 + i, one->token, then)
                                             : release(1000 + i, NULL, one->token, then);
        CU_ASSERT_TRUE(answer.status == MORTISE_OK || !live);
        one->holds = false;
        return;
    case 4:
        if (!live || one->mode == MORTISE_SHARED)
            return;
        answer = downgrade(1000 + i, one->token, 50 + rand() % 3000, then);
        CU_ASSERT_EQUAL(answer.status, MORTISE_OK);
        note_claim(one, &answer);
        one->mode = MORTISE_SHARED;
        one->permits = 0;
        return;
    default:
        if (rand() % 2)
            rowlease_forget(&row, at(then), &inbox, 1);
        else
            rowlease_pass_over(&row, at(then), row.version);
    }
}

static void check_members(const struct member *all, int count, int64_t now)
{
    int writers = 0, readers = 0;
    uint32_t permits = 0;
    for (int i = 0; i < count; i++) {
        if (!all[i].holds || all[i].until_us <= now)
            continue;
        writers += all[i].mode == MORTISE_EXCLUSIVE;
        readers += all[i].mode == MORTISE_SHARED;
        CU_ASSERT_TRUE(all[i].mode == MORTISE_EXCLUSIVE || readers == 1 ||
                       all[i].permits == permits);
        permits = all[i].permits;
    }
    CU_ASSERT_TRUE(writers == 0 || (writers == 1 && readers == 0));
    CU_ASSERT_TRUE(permits == 0 || readers <= (int)permits);
    CU_ASSERT_TRUE(rowlease_valid(&row));
}

static void test_random_walk(void)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        struct member all[7];
        int64_t now = 100 * S;
        uint64_t last_token = 0;
        memset(all, 0, sizeof(all));
        clear();
        srand(seed);
        for (int n = 0; n < 500; n++) {
            now += rand() % (S / 4);
            walk(all, rand() % 7, now, &last_token);
            check_members(all, 7, now);
        }
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a random walk", test_random_walk},
        CU_TEST_INFO_NULL,
    };
    return suite_run("readers walk", tests);
}
