/* test_readers.c - shared holders and permits in the row-lease algorithm, without a database: who is admitted, each
 * holder's own end, the bar of an exclusive waiter, places that are kept, downgrade, what older clients see. */
#include "holders.h"
#include "readers_test.h"
#include "suite.h"

/* What a client of version 0.1 does with the row: whether it takes it for sensible, and for held by another owner. */
static bool taken_for_older_clients(int64_t now)
{
    return row.exists && row.version >= 0 && row.owner_len > 0 &&
           row.owner_len <= MORTISE_OWNER_MAX && row.owner[0] == '\0' && row.grants_len > 0 &&
           row.grants_len % 24 == 0 && row.grants_len <= 24576 && row.expires_us > now;
}

/* ---- holders -------------------------------------------------------------------------------------- */

static void test_readers_and_writers(void)
{
    clear();
    struct rowlease_answer first = share(1, 0, 1000, 5 * S, NULL);
    struct rowlease_answer second = share(2, 0, 3000, 5 * S + 1, NULL);
    CU_ASSERT_TRUE(first.status == MORTISE_OK && first.write && first.good_for_ms == 1000);
    CU_ASSERT_TRUE(second.status == MORTISE_OK && second.good_for_ms == 3000);
    CU_ASSERT_TRUE(second.token > first.token);
    CU_ASSERT_TRUE(rowlease_valid(&row) && rowlease_shared(&row));
    CU_ASSERT_TRUE(taken_for_older_clients(5 * S + 1));
    CU_ASSERT_EQUAL(info_at(5 * S + 1).holders, 2);
    CU_ASSERT_EQUAL(info_at(5 * S + 1).mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(info_at(5 * S + 1).token, first.token);
    struct rowlease_answer writer = acquire(3, NULL, 1000, 5 * S + 2, NULL);
    CU_ASSERT_EQUAL(writer.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(3, "ann", 1000, 5 * S + 2, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(leave(1, first.token, 5 * S + 3).status, MORTISE_OK);
    CU_ASSERT_EQUAL(leave(1, first.token, 5 * S + 4).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(acquire(3, NULL, 1000, 5 * S + 5, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(leave(2, second.token, 5 * S + 6).status, MORTISE_OK);
    CU_ASSERT_EQUAL(leave(2, second.token, 5 * S + 7).status, MORTISE_LOST);
    CU_ASSERT_FALSE(rowlease_held(&row, 5 * S + 7)); /* the bar is left: see below */
    writer = acquire(3, NULL, 1000, 5 * S + 8, NULL);
    CU_ASSERT_TRUE(writer.status == MORTISE_OK && writer.token > second.token);
    CU_ASSERT_EQUAL(share(1, 0, 1000, 5 * S + 9, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(extend(3, writer.token, 1000, 5 * S + 9).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(leave(3, writer.token, 5 * S + 9).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(3, NULL, writer.token, 5 * S + 9).status, MORTISE_OK);
}

static void test_own_end(void)
{
    clear();
    uint64_t dead = share(1, 0, 2000, 5 * S, NULL).token;
    uint64_t alive = share(2, 0, 1000, 5 * S, NULL).token;
    CU_ASSERT_EQUAL(extend(2, alive, 1000, 5 * S + 500000).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.expires_us, 7 * S);
    CU_ASSERT_EQUAL(leave(2, alive, 6 * S).status, MORTISE_OK);
    struct rowlease_row before = row;
    CU_ASSERT_EQUAL(acquire(3, NULL, 1000, 7 * S - 1, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(3, NULL, 1000, 7 * S, NULL).status, MORTISE_OK);
    CU_ASSERT_EQUAL(extend(1, dead, 1000, 7 * S).status, MORTISE_NOTOWNER);
    row = before; /* the last to expire is not revived by another's renewal */
    CU_ASSERT_EQUAL(share(4, 0, 60000, 6 * S, NULL).status, MORTISE_OK);
    CU_ASSERT_EQUAL(extend(1, dead, 1000, 7 * S).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(info_at(7 * S).holders, 1);
    CU_ASSERT_EQUAL(share(1, 0, 1000, 8 * S, NULL).status, MORTISE_OK); /* it begins anew */
    CU_ASSERT_EQUAL(info_at(8 * S).holders, 2);
}

static void test_repeats(void)
{
    clear();
    uint64_t earlier = share(9, 0, 1000, 5 * S, NULL).token;
    struct rowlease_answer first = share(1, 0, 1000, 5 * S + 1, NULL);
    struct rowlease_answer again = share(1, 0, 1000, 5 * S + 300000, NULL);
    CU_ASSERT_TRUE(again.status == MORTISE_OK && !again.write);
    CU_ASSERT_TRUE(again.token == first.token && again.from_us == first.from_us);
    CU_ASSERT_EQUAL(share(9, 0, 1000, 5 * S + 300000, NULL).token, earlier);
    CU_ASSERT_EQUAL(extend(1, first.token, 10, 5 * S + 2).status, MORTISE_OK); /* never shortens */
    CU_ASSERT_EQUAL(share(1, 0, 1000, 5 * S + 3, NULL).from_us, first.from_us);
    CU_ASSERT_EQUAL(extend(1, first.token + 1, 1000, 5 * S + 3).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(leave(1, 0, 5 * S + 4).status, MORTISE_OK); /* its token never came */
}

static void test_permits(void)
{
    clear();
    uint64_t first = share(1, 2, 1000, 5 * S, NULL).token;
    CU_ASSERT_EQUAL(share(2, 2, 3000, 5 * S, NULL).status, MORTISE_OK);
    struct rowlease_answer third = share(3, 2, 1000, 5 * S, NULL);
    CU_ASSERT_EQUAL(third.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(third.hint_ms, 1000); /* of the first that expires */
    CU_ASSERT_EQUAL(share(1, 2, 1000, 5 * S, NULL).status, MORTISE_OK);
    static const uint32_t others[] = {0, 1, 3};
    for (size_t i = 0; i < 3; i++) {
        struct rowlease_answer other = share(3, others[i], 1000, 5 * S, NULL);
        CU_ASSERT_TRUE(other.status == MORTISE_INVALID && !other.write && other.trouble != NULL);
    }
    CU_ASSERT_EQUAL(info_at(5 * S).permits, 2);
    CU_ASSERT_EQUAL(leave(1, first, 5 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(share(3, 2, 1000, 5 * S, NULL).status, MORTISE_OK);
    CU_ASSERT_EQUAL(share(4, 2, 1000, 6 * S - 1, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(share(4, 2, 1000, 6 * S, NULL).status,
                    MORTISE_OK); /* a dead one's comes back */
    CU_ASSERT_EQUAL(share(5, 7, 1000, 9 * S, NULL).status, MORTISE_OK); /* nobody holds it now */
}

static void test_many(void)
{
    int held = 0;
    clear();
    while (share(held + 1, 0, 1000, 5 * S, NULL).status == MORTISE_OK)
        held++;
    CU_ASSERT_TRUE(held >= 400 && rowlease_valid(&row) && taken_for_older_clients(5 * S));
    CU_ASSERT_EQUAL(share(held + 1, 0, 1000, 5 * S, NULL).status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL(info_at(5 * S).holders, (uint32_t)held);
    CU_ASSERT_EQUAL(extend(held, 0, 5000, 5 * S).status, MORTISE_OK);
    struct rowlease_row full = row; /* when all but one have expired, there is room again */
    CU_ASSERT_EQUAL(share(held + 1, 0, 1000, 7 * S, NULL).status, MORTISE_OK);
    CU_ASSERT_EQUAL(info_at(7 * S).holders, 2);
    row = full;
    for (int i = held; i > 0; i--)
        CU_ASSERT_EQUAL(leave(i, 0, 5 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.grants_len, 0);
}

/* A writer that is in no list looks from time to time: readers do not take the name as soon as the last one has left. */
static void test_bar_without_holders(void)
{
    clear();
    uint64_t token = share(1, 0, 60000, 5 * S, NULL).token;
    acquire(2, NULL, 1000, 5 * S, NULL);
    struct rowlease_answer got = leave(1, token, 6 * S);
    CU_ASSERT_TRUE(got.status == MORTISE_OK && !got.wake);
    CU_ASSERT_TRUE(rowlease_valid(&row) && !rowlease_held(&row, 6 * S));
    CU_ASSERT_TRUE(taken_for_older_clients(7 * S - 1));
    CU_ASSERT_FALSE(info_at(6 * S).held);
    CU_ASSERT_EQUAL(leave(1, token, 6 * S).status, MORTISE_LOST);
    CU_ASSERT_EQUAL(extend(1, token, 1000, 6 * S).status, MORTISE_LOST);
    CU_ASSERT_EQUAL(break_it(token, 6 * S).status, MORTISE_LOST);
    got = share(3, 0, 60000, 6 * S, NULL);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && got.hint_ms == 1000);
    struct rowlease_row barred = row;
    CU_ASSERT_EQUAL(acquire(2, NULL, 1000, 6 * S, NULL).status, MORTISE_OK);
    row = barred;
    CU_ASSERT_EQUAL(acquire(2, "ann", 1000, 6 * S, NULL).status, MORTISE_OK);
    row = barred;
    CU_ASSERT_EQUAL(share(3, 7, 60000, 7 * S, NULL).status, MORTISE_OK);
}

/* A writer that read the last reader sets the bar anew when that one has left: the row expires before it. */
static void test_bar_behind_holders(void)
{
    clear();
    uint64_t token = share(1, 0, 60000, 5 * S, NULL).token;
    acquire(2, NULL, 1000, 5 * S, NULL);
    CU_ASSERT_EQUAL(leave(1, token, 6 * S).status, MORTISE_OK);
    struct holders head = holders_head(&row);
    head.barred_us = 8 * S;
    holders_set_head(&row, &head);
    CU_ASSERT_TRUE(rowlease_valid(&row) && row.expires_us == 7 * S);
    for (int64_t now = 6 * S; now < 8 * S; now += 250000) {
        struct rowlease_answer got = share(3, 0, 60000, now, NULL);
        CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
        CU_ASSERT_EQUAL(got.hint_ms, (8 * S - now) / 1000);
    }
    CU_ASSERT_EQUAL(share(3, 0, 60000, 8 * S, NULL).status, MORTISE_OK);
}

/* The last reader died: until the bar ends, the writer that set it has time to look. */
static void test_bar_behind_the_dead(void)
{
    struct rowlease_inbox reader = inbox_of(8);
    clear();
    share(1, 0, 1000, 5 * S, NULL);
    acquire(2, NULL, 1000, 5 * S + 500000, NULL);
    struct rowlease_answer got = share(3, 0, 60000, 6 * S + 1, NULL);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && !got.write);
    CU_ASSERT_EQUAL(got.hint_ms, 1500);
    got = share(3, 0, 60000, 6 * S + 1, &reader);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && got.write && got.registered);
    CU_ASSERT_TRUE(rowlease_valid(&row) && !rowlease_held(&row, 6 * S + 1));
    CU_ASSERT_TRUE(taken_for_older_clients(7 * S + 499999));
    struct rowlease_row barred = row;
    CU_ASSERT_EQUAL(acquire(2, NULL, 1000, 6 * S + 500000, NULL).status, MORTISE_OK);
    row = barred;
    CU_ASSERT_EQUAL(share(3, 0, 60000, 7 * S + 499999, &reader).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(share(3, 0, 60000, 7 * S + 500000, &reader).status, MORTISE_OK);
}

static void test_inspect_all(void)
{
    mortise_info info;
    uint64_t tokens[3];
    size_t at_byte = 0;
    clear();
    for (int i = 0; i < 3; i++)
        tokens[i] = share(i + 1, 5, 1000 * (i + 1), 5 * S, NULL).token;
    for (int i = 1; i < 3; i++) { /* the first is over */
        CU_ASSERT_TRUE(rowlease_inspect_next(&row, 6 * S, &at_byte, &info));
        CU_ASSERT_EQUAL(info.token, tokens[i]);
        CU_ASSERT_EQUAL(info.remaining_ms, 1000 * i);
        CU_ASSERT_EQUAL(info.owner[1], '1' + i);
        CU_ASSERT_STRING_EQUAL(info.program, "program");
        CU_ASSERT_TRUE(info.pid == 1 && info.holders == 2 && info.permits == 5);
    }
    CU_ASSERT_FALSE(rowlease_inspect_next(&row, 6 * S, &at_byte, &info));
    CU_ASSERT_EQUAL(break_it(tokens[0], 6 * S).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(break_it(tokens[2], 6 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(info_at(6 * S).token, tokens[1]);
    CU_ASSERT_EQUAL(break_it(tokens[1], 6 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(break_it(tokens[1], 6 * S).status, MORTISE_LOST);
    clear();
    acquire(1, NULL, 1000, 5 * S, NULL);
    at_byte = 0;
    CU_ASSERT_TRUE(rowlease_inspect_next(&row, 5 * S, &at_byte, &info));
    CU_ASSERT_TRUE(info.mode == MORTISE_EXCLUSIVE && info.holders == 1);
    CU_ASSERT_FALSE(rowlease_inspect_next(&row, 5 * S, &at_byte, &info));
}

static void test_planted(void)
{
    clear();
    share(1, 0, 1000, 5 * S, NULL);
    share(2, 0, 1000, 5 * S, NULL);
    struct rowlease_row good = row;
    row.grants[0] = 'X';
    CU_ASSERT_FALSE(rowlease_valid(&row));
    row = good;
    row.grants_len -= ROWLEASE_HOLD_SIZE;
    CU_ASSERT_FALSE(rowlease_valid(&row));
    row = good;
    row.version--;
    CU_ASSERT_FALSE(rowlease_valid(&row));
    row = good;
    row.grants[ROWLEASE_HOLD_SIZE + 40] = 0xff; /* the length of a note */
    CU_ASSERT_FALSE(rowlease_valid(&row));
    for (size_t i = 0; i < good.grants_len;
         i++) { /* whatever it says: no byte outside is touched */
        row = good;
        row.grants[i] ^= 0xff;
        if (rowlease_valid(&row))
            info_at(5 * S);
    }
}

/* Somebody wrote that it is held since before all times. */
static void test_planted_start(void)
{
    clear();
    acquire(1, NULL, 1000, 5 * S, NULL);
    row.acquired_us = INT64_MIN;
    CU_ASSERT_EQUAL(info_at(5 * S).held_ms, INT64_MAX / 1000 + 5000);
    clear();
    share(1, 0, 1000, 5 * S, NULL);
    memset(row.grants + ROWLEASE_HOLD_SIZE + 32, 0, 8);
    row.grants[ROWLEASE_HOLD_SIZE + 32] = 0x80;
    CU_ASSERT_TRUE(rowlease_valid(&row));
    CU_ASSERT_EQUAL(info_at(5 * S).held_ms, INT64_MAX / 1000 + 5000);
}

/* ---- the bar -------------------------------------------------------------------------------------- */

static void test_bar(void)
{
    struct rowlease_inbox writer = inbox_of(7), reader = inbox_of(8);
    clear();
    uint64_t token = share(1, 0, 60000, 5 * S, NULL).token;
    mortise_op once = op_of(MORTISE_OP_ACQUIRE, 2, NULL, 1000);
    once.flags = MORTISE_OP_TRY;
    struct rowlease_answer got = rowlease_acquire(&row, &once, at(5 * S), &writer);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && !got.write && got.hint_ms == 60000);
    got = acquire(2, NULL, 1000, 5 * S, &writer);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && got.write && got.bars && got.registered);
    CU_ASSERT_TRUE(got.hint_ms <= 1000);
    CU_ASSERT_FALSE(acquire(2, NULL, 1000, 5 * S + 1, &writer).write); /* it is in force */
    got = share(3, 0, 1000, 5 * S + 2, &reader);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && got.hint_ms > 1900 && got.hint_ms <= 2000);
    CU_ASSERT_EQUAL(extend(1, token, 60000, 5 * S + 3).status, MORTISE_OK);
    CU_ASSERT_TRUE(acquire(2, NULL, 1000, 6 * S, &writer).write); /* again, before it ends */
    CU_ASSERT_EQUAL(share(3, 0, 1000, 8 * S - 1, &reader).status, MORTISE_BUSY);
    struct rowlease_row barred = row;
    CU_ASSERT_EQUAL(share(3, 0, 1000, 8 * S, &reader).status, MORTISE_OK); /* the writer is gone */
    row = barred;
    got = leave(1, token, 6 * S + 1); /* kept for the first waiter, which is the writer */
    CU_ASSERT_TRUE(got.wake && got.kept && got.places == 0);
    CU_ASSERT_EQUAL(share(3, 0, 1000, 6 * S + 2, &reader).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(2, NULL, 1000, 6 * S + 2, &writer).status, MORTISE_OK);
    release(2, NULL, 0, 6 * S + 3);
    CU_ASSERT_EQUAL(share(3, 0, 1000, 6 * S + 4, &reader).status, MORTISE_OK); /* no bar is left */
    CU_ASSERT_EQUAL(share(4, 0, 1000, 6 * S + 4, NULL).status, MORTISE_OK);
    clear();
    acquire(1, NULL, 1000, 5 * S, NULL);
    CU_ASSERT_FALSE(acquire(2, NULL, 1000, 5 * S, NULL).bars); /* behind a writer: none */
}

/* ---- waiters --------------------------------------------------------------------------------------- */

static void test_several_places_come_back(void)
{
    struct rowlease_inbox waiters[4];
    struct rowlease_inbox woken[4];
    clear();
    for (int i = 0; i < 3; i++)
        share(1 + i, 3, 60000, 5 * S, NULL);
    for (int i = 0; i < 4; i++) {
        waiters[i] = inbox_of(10 + i);
        CU_ASSERT_TRUE(share(10 + i, 3, 60000, 5 * S, &waiters[i]).registered);
    }
    leave(1, 0, 5 * S);
    struct rowlease_answer got = leave(2, 0, 5 * S + 1);
    CU_ASSERT_TRUE(got.wake && got.kept);
    CU_ASSERT_EQUAL(got.places, 2);
    CU_ASSERT_EQUAL(rowlease_shared_waiters(row.waiters, row.waiters_len, got.places, woken, 4), 2);
    CU_ASSERT_EQUAL(memcmp(woken, waiters, 2 * sizeof(*woken)), 0);
    /* a caller that never waits does not overtake them */
    CU_ASSERT_EQUAL(share(20, 3, 60000, 5 * S + 2, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(share(12, 3, 60000, 5 * S + 2, &waiters[2]).status, MORTISE_BUSY);
    got = share(11, 3, 60000, 5 * S + 2, &waiters[1]);
    CU_ASSERT_TRUE(got.status == MORTISE_OK && got.wake);
    CU_ASSERT_EQUAL(got.places, 1);
    CU_ASSERT_EQUAL(share(10, 3, 60000, 5 * S + 3, &waiters[0]).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.waiters_len, 2 * ROWLEASE_WAITER_SIZE);
    leave(10, 0, 5 * S + 3); /* as many places as waiters: none for others */
    leave(11, 0, 5 * S + 3);
    struct rowlease_row two = row;
    CU_ASSERT_EQUAL(share(20, 3, 60000, 5 * S + 3, NULL).status, MORTISE_BUSY);
    rowlease_forget(&row, at(5 * S + 3), &waiters[2], 1);
    CU_ASSERT_EQUAL(share(20, 3, 60000, 5 * S + 3, NULL).status, MORTISE_OK); /* one to spare */
    row = two;
    CU_ASSERT_EQUAL(share(10, 3, 60000, 5 * S + 3, &waiters[2]).status, MORTISE_OK);
    CU_ASSERT_EQUAL(share(11, 3, 60000, 5 * S + 3, &waiters[3]).status, MORTISE_OK);
    share(12, 3, 60000, 5 * S + 3, &waiters[2]);
    share(13, 3, 60000, 5 * S + 3, &waiters[3]);
    /* the next is late: it loses its place to the one behind it */
    got = leave(3, 0, 5 * S + 4);
    CU_ASSERT_EQUAL(got.places, 1);
    int64_t version = row.version;
    CU_ASSERT_FALSE(rowlease_pass_over(&row, at(5 * S + 4 + RESERVE - 1), version).write);
    CU_ASSERT_FALSE(rowlease_pass_over(&row, at(5 * S + 4 + RESERVE), version + 1).write);
    got = rowlease_pass_over(&row, at(5 * S + 4 + RESERVE), version);
    CU_ASSERT_TRUE(got.write && got.wake && got.places == 1);
    CU_ASSERT_EQUAL(memcmp(row.waiters, &waiters[3], sizeof(waiters[3])), 0);
    /* the next gives up: nobody else waits */
    got = rowlease_forget(&row, at(5 * S + 5 + RESERVE), &waiters[3], 1);
    CU_ASSERT_TRUE(got.write && !got.wake);
}

static void test_readers_behind_a_writer(void)
{
    struct rowlease_inbox writer = inbox_of(7),
                          reader[3] = {inbox_of(8), inbox_of(9), inbox_of(10)};
    clear();
    uint64_t token = acquire(1, NULL, 60000, 5 * S, NULL).token;
    acquire(2, NULL, 60000, 5 * S, &writer);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_TRUE(share(3 + i, 0, 60000, 5 * S, &reader[i]).registered);
    struct rowlease_row held = row;
    /* released: the first waiter is the writer */
    CU_ASSERT_EQUAL(release(1, NULL, token, 6 * S).places, 0);
    CU_ASSERT_EQUAL(acquire(2, NULL, 60000, 6 * S, &writer).status, MORTISE_OK);
    release(2, NULL, 0, 6 * S);
    struct rowlease_answer got = share(3, 0, 60000, 6 * S, &reader[0]);
    CU_ASSERT_TRUE(got.status == MORTISE_OK && got.wake && got.places >= 2); /* the other two */
    /* downgraded: readers get in, the writer does not */
    row = held;
    got = downgrade(1, token, 60000, 6 * S);
    struct rowlease_inbox woken[4];
    CU_ASSERT_TRUE(got.status == MORTISE_OK && got.wake);
    CU_ASSERT_EQUAL(rowlease_shared_waiters(row.waiters, row.waiters_len, got.places, woken, 4), 3);
    CU_ASSERT_EQUAL(memcmp(woken, reader, sizeof(reader)), 0);
    CU_ASSERT_EQUAL(share(4, 0, 60000, 6 * S, &reader[1]).status, MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(2, NULL, 60000, 6 * S, &writer).status, MORTISE_BUSY);
}

/* A reader that is told nothing looks later than the writer. */
static void test_open_after_a_downgrade(void)
{
    struct rowlease_inbox writer = inbox_of(7);
    clear();
    uint64_t token = acquire(1, NULL, 60000, 5 * S, NULL).token;
    CU_ASSERT_EQUAL(downgrade(1, token, 60000, 6 * S).status, MORTISE_OK);
    struct rowlease_answer got = acquire(2, NULL, 1000, 6 * S + 300000, &writer);
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && !got.bars && got.registered);
    CU_ASSERT_EQUAL(got.hint_ms, 1700);
    CU_ASSERT_EQUAL(share(3, 0, 60000, 7 * S + 600000, NULL).status, MORTISE_OK);
    CU_ASSERT_FALSE(acquire(2, NULL, 1000, 8 * S - 1, NULL).bars);
    got = acquire(2, NULL, 1000, 8 * S, NULL); /* then it is the writer's turn */
    CU_ASSERT_TRUE(got.status == MORTISE_BUSY && got.bars);
    CU_ASSERT_EQUAL(share(4, 0, 60000, 8 * S, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(downgrade(1, token, 60000, 8 * S).status, MORTISE_OK); /* repeated: as it is */
    CU_ASSERT_EQUAL(share(4, 0, 60000, 8 * S + 1, NULL).status, MORTISE_BUSY);
}

static void test_downgrade(void)
{
    clear();
    CU_ASSERT_EQUAL(downgrade(1, 1, 1000, 5 * S).status, MORTISE_LOST);
    uint64_t token = acquire(1, NULL, 60000, 5 * S, NULL).token;
    CU_ASSERT_EQUAL(downgrade(2, token, 1000, 5 * S).status, MORTISE_NOTOWNER);
    struct rowlease_row exclusive = row;
    CU_ASSERT_EQUAL(downgrade(1, token, 1000, 6 * S).status, MORTISE_OK);
    CU_ASSERT_TRUE(rowlease_valid(&row) && rowlease_shared(&row));
    CU_ASSERT_EQUAL(row.expires_us, 65 * S); /* not shortened */
    CU_ASSERT_EQUAL(info_at(6 * S).token, token);
    CU_ASSERT_EQUAL(info_at(6 * S).held_ms, 1000);
    CU_ASSERT_STRING_EQUAL(info_at(6 * S).program, "program");
    CU_ASSERT_EQUAL(downgrade(1, token, 60000, 7 * S).status, MORTISE_OK); /* repeated */
    CU_ASSERT_EQUAL(row.expires_us, 67 * S);
    CU_ASSERT_EQUAL(extend(1, token, 60000, 8 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(renew(1, NULL, token, 60000, 8 * S).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(1, NULL, token, 8 * S).status, MORTISE_NOTOWNER);
    mortise_op op = op_of(MORTISE_OP_RELEASE, 1, NULL, 0); /* whichever it is */
    op.flags = MORTISE_OP_DOWNGRADE;
    op.token = token;
    CU_ASSERT_EQUAL(rowlease_release(&row, &op, at(8 * S)).status, MORTISE_OK);
    row = exclusive;
    CU_ASSERT_EQUAL(rowlease_release(&row, &op, at(8 * S)).status, MORTISE_OK);
    CU_ASSERT_EQUAL(rowlease_release(&row, &op, at(8 * S)).status, MORTISE_LOST);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"readers and writers", test_readers_and_writers},
        {"each has its own end", test_own_end},
        {"repeats", test_repeats},
        {"permits", test_permits},
        {"as many as there is room for", test_many},
        {"a bar without holders", test_bar_without_holders},
        {"a bar that outlives its row", test_bar_behind_holders},
        {"a bar that outlives its readers", test_bar_behind_the_dead},
        {"inspect and break", test_inspect_all},
        {"bytes that make no sense", test_planted},
        {"a start before all times", test_planted_start},
        {"the bar of a writer", test_bar},
        {"several places come back", test_several_places_come_back},
        {"readers behind a writer", test_readers_behind_a_writer},
        {"open after a downgrade", test_open_after_a_downgrade},
        {"downgrade", test_downgrade},
        CU_TEST_INFO_NULL,
    };
    return suite_run("readers", tests);
}
