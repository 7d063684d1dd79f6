/* test_rowlease.c - the row-lease algorithm without a database: each state of a row with each op, the rules that a
 * claim is never shortened and that tokens grow, and a random walk over all of them whose every result is checked. */
#include "note.h"
#include "rowlease_test.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- unshared ---------------------------------------------------------------------------------- */

static void test_take_and_give_back(void)
{
    clear();
    struct rowlease_answer got = acquire(1, NULL, 1000, 5 * S, NULL);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_TRUE(got.write);
    CU_ASSERT_EQUAL(got.from_us, 5 * S);
    CU_ASSERT_EQUAL(got.good_for_ms, 1000);
    CU_ASSERT_EQUAL(got.token, (uint64_t)(1700000005 * S));
    CU_ASSERT_EQUAL(row.expires_us, 6 * S);
    CU_ASSERT_TRUE(rowlease_valid(&row) && rowlease_held(&row, 6 * S - 1));
    CU_ASSERT_FALSE(rowlease_held(&row, 6 * S));
    struct rowlease_answer gone = release(1, NULL, got.token, 5 * S + 1);
    CU_ASSERT_EQUAL(gone.status, MORTISE_OK);
    CU_ASSERT_FALSE(gone.wake);
    CU_ASSERT_EQUAL(row.version, (int64_t)got.token); /* kept */
    CU_ASSERT_EQUAL(row.expires_us, 0);
    CU_ASSERT_EQUAL(release(1, NULL, got.token, 5 * S + 2).status, MORTISE_LOST);
}

static void test_repeated_acquire_changes_nothing(void)
{
    clear();
    struct rowlease_answer first = acquire(1, NULL, 1000, 5 * S, NULL);
    struct rowlease_answer again = acquire(1, NULL, 1000, 5 * S + 300000, NULL);
    CU_ASSERT_EQUAL(again.status, MORTISE_OK);
    CU_ASSERT_FALSE(again.write);
    CU_ASSERT_EQUAL(again.token, first.token);
    CU_ASSERT_EQUAL(again.from_us, first.from_us);
    CU_ASSERT_EQUAL(again.good_for_ms, first.good_for_ms);
    /* after a renewal it counts from that */
    CU_ASSERT_EQUAL(renew(1, NULL, first.token, 1000, 5 * S + 500000).status, MORTISE_OK);
    again = acquire(1, NULL, 1000, 5 * S + 600000, NULL);
    CU_ASSERT_EQUAL(again.from_us + again.good_for_ms * 1000, row.expires_us);
    CU_ASSERT_EQUAL(again.from_us, 5 * S + 500000);
    /* never from an instant to come, nor longer than the claim, whatever the ttl says now */
    again = acquire(1, NULL, 10, 5 * S + 600000, NULL);
    CU_ASSERT_EQUAL(again.from_us, 5 * S + 600000);
    CU_ASSERT_TRUE(again.from_us + again.good_for_ms * 1000 <= row.expires_us);
}

static void test_held_by_another(void)
{
    clear();
    uint64_t token = acquire(1, NULL, 1000, 5 * S, NULL).token;
    struct rowlease_answer busy = acquire(2, NULL, 1000, 5 * S + 1, NULL);
    CU_ASSERT_EQUAL(busy.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(busy.hint_ms, 1000);
    CU_ASSERT_FALSE(busy.write);
    CU_ASSERT_EQUAL(renew(2, NULL, token, 1000, 5 * S + 2).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(2, NULL, token, 5 * S + 2).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(renew(1, NULL, token + 1, 1000, 5 * S + 2).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(1, NULL, token + 1, 5 * S + 2).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(release(1, "x", token, 5 * S + 2).status, MORTISE_NOTOWNER);
    CU_ASSERT_TRUE(rowlease_held(&row, 5 * S + 2));
    CU_ASSERT_EQUAL(release(1, NULL, 0, 5 * S + 2).status, MORTISE_OK); /* its token never came */
}

static void test_expired(void)
{
    clear();
    uint64_t token = acquire(1, NULL, 1000, 5 * S, NULL).token;
    CU_ASSERT_EQUAL(renew(1, NULL, token, 1000, 6 * S).status, MORTISE_LOST);
    CU_ASSERT_EQUAL(release(1, NULL, token, 6 * S).status, MORTISE_LOST);
    struct rowlease_answer next = acquire(2, NULL, 1000, 6 * S, NULL);
    CU_ASSERT_EQUAL(next.status, MORTISE_OK);
    CU_ASSERT_TRUE(next.token > token);
    CU_ASSERT_EQUAL(renew(1, NULL, token, 1000, 6 * S + 1).status, MORTISE_NOTOWNER);
}

static void test_renewal_never_shortens(void)
{
    clear();
    uint64_t token = acquire(1, NULL, 10000, 5 * S, NULL).token;
    struct rowlease_answer renewed = renew(1, NULL, token, 1000, 6 * S);
    CU_ASSERT_EQUAL(renewed.status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.expires_us, 15 * S);
    CU_ASSERT_EQUAL(renewed.from_us + renewed.good_for_ms * 1000, 15 * S);
    renewed = renew(1, NULL, token, 10000, 7 * S);
    CU_ASSERT_EQUAL(row.expires_us, 17 * S);
    CU_ASSERT_EQUAL(row.version, (int64_t)token);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

static void test_tokens(void)
{
    int64_t version;
    clear();
    CU_ASSERT_TRUE(rowlease_next_version(&row, 0, -5, &version));
    CU_ASSERT_EQUAL(version, 1);
    row.exists = true;
    row.version = 100;
    CU_ASSERT_TRUE(rowlease_next_version(&row, 0, 50, &version)); /* the wall clock went back */
    CU_ASSERT_EQUAL(version, 101);
    CU_ASSERT_TRUE(rowlease_next_version(&row, 0, 100, &version)); /* twice in a microsecond */
    CU_ASSERT_EQUAL(version, 101);
    CU_ASSERT_TRUE(rowlease_next_version(&row, 500, 50, &version));
    CU_ASSERT_EQUAL(version, 500);
    CU_ASSERT_FALSE(rowlease_next_version(&row, UINT64_MAX, 50, &version));
    row.version = INT64_MAX - 1;
    CU_ASSERT_TRUE(rowlease_next_version(&row, 0, 50, &version));
    CU_ASSERT_EQUAL(version, INT64_MAX);
    row.version = INT64_MAX;
    CU_ASSERT_FALSE(rowlease_next_version(&row, 0, 50, &version));
    struct rowlease_answer refused = acquire(1, NULL, 1000, S, NULL);
    CU_ASSERT_EQUAL(refused.status, MORTISE_BACKEND);
    CU_ASSERT_FALSE(refused.write);
    CU_ASSERT_PTR_NOT_NULL(refused.trouble);
}

/* ---- shared ------------------------------------------------------------------------------------ */

static void test_owners_share(void)
{
    clear();
    struct rowlease_answer first = acquire(1, "ann", 10000, 5 * S, NULL);
    struct rowlease_answer second = acquire(2, "ann", 1000, 6 * S, NULL);
    CU_ASSERT_EQUAL(second.status, MORTISE_OK);
    CU_ASSERT_EQUAL(second.token, first.token);
    CU_ASSERT_EQUAL(second.good_for_ms, 1000);
    CU_ASSERT_EQUAL(row.expires_us, 15 * S); /* the first one's is not shortened */
    CU_ASSERT_EQUAL(acquire(3, "bob", 1000, 6 * S, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(3, NULL, 1000, 6 * S, NULL).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(2, "ann", 1000, 6 * S + 1, NULL).from_us, 6 * S);
    CU_ASSERT_EQUAL(row.grants_len, 2 * ROWLEASE_HOLD_SIZE);

    /* the second one's own end, while the hold goes on */
    CU_ASSERT_EQUAL(renew(2, "ann", second.token, 1000, 7 * S).status, MORTISE_NOTOWNER);
    struct rowlease_answer again = acquire(2, "ann", 1000, 7 * S, NULL);
    CU_ASSERT_TRUE(again.write && again.from_us == 7 * S);
    CU_ASSERT_EQUAL(release(1, "ann", first.token, 7 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.expires_us, 8 * S);
    CU_ASSERT_EQUAL(release(1, "ann", first.token, 7 * S).status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(renew(2, "ann", again.token, 1000, 7 * S + 1).status, MORTISE_OK);
    CU_ASSERT_EQUAL(release(2, "ann", again.token, 7 * S + 2).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.grants_len, 0);
    CU_ASSERT_FALSE(row.owned);
    CU_ASSERT_EQUAL(release(2, "ann", again.token, 7 * S + 3).status, MORTISE_LOST);
}

static void test_last_live_grant_leaves(void)
{
    clear();
    uint64_t token = acquire(1, "ann", 1000, 5 * S, NULL).token;
    acquire(2, "ann", 10000, 5 * S, NULL);
    /* the first has run out without a word: the second one's release is the last */
    CU_ASSERT_EQUAL(release(2, "ann", token, 7 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.grants_len, 0);
}

static void test_join_raises_to_floor(void)
{
    clear();
    struct rowlease_answer first = acquire(1, "ann", 1000, 5 * S, NULL);
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 2, "ann", 1000);
    op.token_floor = first.token + 7;
    struct rowlease_answer second = rowlease_acquire(&row, &op, at(5 * S), NULL);
    CU_ASSERT_EQUAL(second.token, first.token + 7);
    CU_ASSERT_EQUAL(renew(1, "ann", first.token, 1000, 5 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(release(1, "ann", first.token, 5 * S).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.version, (int64_t)first.token + 7);
}

static void test_too_many_holds(void)
{
    clear();
    for (int i = 0; i < ROWLEASE_HOLDS_MAX; i++)
        CU_ASSERT_EQUAL(acquire(i, "ann", 1000 + i, 5 * S, NULL).status, MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(-1, "ann", 1000, 5 * S, NULL).status, MORTISE_BACKEND);
    /* as some run out, there is room again */
    CU_ASSERT_EQUAL(acquire(-1, "ann", 1000, 6 * S + 100000, NULL).status, MORTISE_OK);
    CU_ASSERT_TRUE(rowlease_valid(&row));
    mortise_info info;
    rowlease_inspect(&row, 6 * S + 100000, &info);
    CU_ASSERT_EQUAL(info.leases, ROWLEASE_HOLDS_MAX - 101 + 1);
}

/* ---- break, waiting ----------------------------------------------------------------------------- */

static void test_break(void)
{
    for (int shared = 0; shared < 2; shared++) {
        clear();
        uint64_t token = acquire(1, shared ? "ann" : NULL, 1000, 5 * S, NULL).token;
        mortise_op op = op_of(MORTISE_OP_RELEASE, 9, NULL, 0);
        op.flags = MORTISE_OP_BREAK;
        op.token = token + 1;
        CU_ASSERT_EQUAL(rowlease_release(&row, &op, at(5 * S)).status, MORTISE_NOTOWNER);
        op.token = token;
        CU_ASSERT_EQUAL(rowlease_release(&row, &op, at(5 * S)).status, MORTISE_OK);
        CU_ASSERT_FALSE(rowlease_held(&row, 5 * S));
        CU_ASSERT_EQUAL(rowlease_release(&row, &op, at(5 * S)).status, MORTISE_LOST);
    }
}

static void test_first_waiter_comes_first(void)
{
    struct rowlease_inbox ann = inbox_of(1), bob = inbox_of(2);
    clear();
    uint64_t token = acquire(1, NULL, 1000, 5 * S, NULL).token;
    CU_ASSERT_TRUE(acquire(2, NULL, 1000, 5 * S, &ann).registered);
    CU_ASSERT_TRUE(acquire(3, NULL, 1000, 5 * S, &bob).registered);
    CU_ASSERT_FALSE(acquire(3, NULL, 1000, 5 * S, &bob).write); /* once only */
    mortise_op once = op_of(MORTISE_OP_ACQUIRE, 4, NULL, 1000);
    struct rowlease_inbox cid = inbox_of(3);
    once.flags = MORTISE_OP_TRY;
    CU_ASSERT_FALSE(rowlease_acquire(&row, &once, at(5 * S), &cid).registered);

    struct rowlease_answer gone = release(1, NULL, token, 5 * S);
    CU_ASSERT_TRUE(gone.wake);
    CU_ASSERT_EQUAL(row.expires_us, 5 * S + RESERVE);
    CU_ASSERT_FALSE(rowlease_held(&row, 5 * S));
    struct rowlease_answer early = acquire(1, NULL, 1000, 5 * S, NULL); /* the one that released */
    CU_ASSERT_EQUAL(early.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(early.hint_ms, RESERVE / 1000);
    CU_ASSERT_EQUAL(acquire(3, NULL, 1000, 5 * S, &bob).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(3, "x", 1000, 5 * S, &bob).status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(acquire(2, NULL, 1000, 5 * S, &ann).status, MORTISE_OK);
    CU_ASSERT_EQUAL(row.waiters_len, ROWLEASE_WAITER_SIZE);
    CU_ASSERT_EQUAL(memcmp(row.waiters, &bob, sizeof(bob)), 0);
}

static void test_lapsed_reservation(void)
{
    struct rowlease_inbox ann = inbox_of(1), bob = inbox_of(2);
    clear();
    int64_t version = (int64_t)acquire(1, NULL, 1000, 5 * S, NULL).token;
    acquire(2, NULL, 1000, 5 * S, &ann);
    acquire(3, NULL, 1000, 5 * S, &bob);
    release(1, NULL, 0, 5 * S);
    CU_ASSERT_FALSE(rowlease_pass_over(&row, at(5 * S + RESERVE - 1), version).write);
    CU_ASSERT_FALSE(rowlease_pass_over(&row, at(5 * S + RESERVE), version + 1).write);
    struct rowlease_answer next = rowlease_pass_over(&row, at(5 * S + RESERVE), version);
    CU_ASSERT_TRUE(next.write && next.wake);
    CU_ASSERT_EQUAL(memcmp(row.waiters, &bob, sizeof(bob)), 0);
    CU_ASSERT_EQUAL(row.expires_us, 5 * S + 2 * RESERVE);
    next = rowlease_pass_over(&row, at(5 * S + 2 * RESERVE), version);
    CU_ASSERT_TRUE(next.write);
    CU_ASSERT_FALSE(next.wake);
    CU_ASSERT_EQUAL(row.waiters_len, 0);
    CU_ASSERT_EQUAL(acquire(9, NULL, 1000, 5 * S + 2 * RESERVE, NULL).status, MORTISE_OK);
}

/* Whoever takes a name after its reservation lapsed leaves the late one behind, who is told so. */
static void test_late_waiter_is_passed_over(void)
{
    struct rowlease_inbox ann = inbox_of(1), bob = inbox_of(2);
    struct rowlease_row kept, late;
    clear();
    acquire(1, NULL, 1000, 5 * S, NULL);
    acquire(2, NULL, 1000, 5 * S, &ann);
    acquire(3, NULL, 1000, 5 * S, &bob);
    late = row; /* it runs out: that is not the waiter's fault */
    CU_ASSERT_FALSE(acquire(9, NULL, 1000, 6 * S, NULL).passed);
    row = late;
    release(1, NULL, 0, 5 * S);
    kept = row;
    struct rowlease_answer got = acquire(9, NULL, 1000, 5 * S + RESERVE, NULL);
    CU_ASSERT_TRUE(got.passed && memcmp(&got.passed_over, &ann, sizeof(ann)) == 0);
    CU_ASSERT_EQUAL(row.waiters_len, ROWLEASE_WAITER_SIZE);
    row = kept;
    CU_ASSERT_FALSE(acquire(2, NULL, 1000, 5 * S + RESERVE, &ann).passed);
    row = kept; /* nothing is reserved here: it has some time all the same */
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, 9, NULL, 1000);
    struct rowlease_time none = at(5 * S + RESERVE + 19999);
    none.reserve_us = 0;
    CU_ASSERT_FALSE(rowlease_acquire(&row, &op, none, NULL).passed);
    row = kept;
    none.now_us++;
    CU_ASSERT_TRUE(rowlease_acquire(&row, &op, none, NULL).passed);
}

static void test_waiter_gives_up(void)
{
    struct rowlease_inbox ann = inbox_of(1), bob = inbox_of(2);
    clear();
    acquire(1, NULL, 1000, 5 * S, NULL);
    acquire(2, NULL, 1000, 5 * S, &ann);
    acquire(3, NULL, 1000, 5 * S, &bob);
    struct rowlease_row held = row;
    struct rowlease_answer gone = rowlease_forget(&row, at(5 * S), &ann, 1);
    CU_ASSERT_TRUE(gone.write);
    CU_ASSERT_FALSE(gone.wake); /* it is held */
    row = held;
    release(1, NULL, 0, 5 * S);
    gone = rowlease_forget(&row, at(5 * S + 1), &bob, 1); /* not the first: it stays reserved */
    CU_ASSERT_TRUE(gone.write && !gone.wake && row.expires_us == 5 * S + RESERVE);
    row = held;
    release(1, NULL, 0, 5 * S);
    gone = rowlease_forget(&row, at(5 * S + 1), &ann, 1);
    CU_ASSERT_TRUE(gone.write && gone.wake && row.expires_us == 5 * S + 1 + RESERVE);
    CU_ASSERT_FALSE(rowlease_forget(&row, at(5 * S + 1), &ann, 1).write);
    gone = rowlease_forget(&row, at(5 * S + 1), &bob, 1);
    CU_ASSERT_TRUE(gone.write && !gone.wake && row.expires_us == 0);
}

/* Nobody is woken by a claim that was taken: who waits asks again within ROWLEASE_LOOK_MS. */
static void test_waiters_keep_their_places(void)
{
    struct rowlease_inbox ann = inbox_of(1), bob = inbox_of(2);
    clear();
    acquire(1, NULL, 60000, 5 * S, NULL);
    acquire(2, NULL, 60000, 5 * S, &ann);
    acquire(3, NULL, 60000, 5 * S, &bob);
    release(1, NULL, 0, 6 * S);
    struct rowlease_answer got = acquire(2, NULL, 2000, 6 * S, &ann);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    CU_ASSERT_FALSE(got.wake || got.kept);
    struct rowlease_answer busy = acquire(3, NULL, 60000, 6 * S, &bob);
    CU_ASSERT_TRUE(busy.registered && !busy.write); /* its place says nothing that could change */
    CU_ASSERT_EQUAL(row.waiters_len, ROWLEASE_WAITER_SIZE);
    CU_ASSERT_FALSE(rowlease_forget(&row, at(6 * S), &bob, 1).wake);
}

static void test_register(void)
{
    struct rowlease_inbox ann = inbox_of(1);
    clear();
    CU_ASSERT_FALSE(rowlease_register(&row, at(5 * S), &ann).registered); /* nothing to wait for */
    acquire(1, NULL, 1000, 5 * S, NULL);
    CU_ASSERT_TRUE(rowlease_register(&row, at(5 * S), &ann).registered);
    CU_ASSERT_FALSE(rowlease_register(&row, at(5 * S), &ann).write);
    clear();
    acquire(1, NULL, 1000, 5 * S, NULL);
    CU_ASSERT_FALSE(rowlease_register(&row, at(6 * S), &ann).registered); /* ran out */
    for (int i = 0; i < ROWLEASE_WAITERS_MAX; i++) {
        struct rowlease_inbox inbox = inbox_of(100 + i);
        CU_ASSERT_TRUE(rowlease_register(&row, at(5 * S), &inbox).registered);
    }
    CU_ASSERT_FALSE(rowlease_register(&row, at(5 * S), &ann).registered); /* full */
    CU_ASSERT_FALSE(acquire(2, NULL, 1000, 5 * S, &ann).registered);
}

/* ---- looking in -------------------------------------------------------------------------------- */

static void test_inspect(void)
{
    mortise_info info;
    clear();
    rowlease_inspect(&row, 5 * S, &info);
    CU_ASSERT_FALSE(info.held);
    uint64_t token = acquire(0x0201, NULL, 1000, 5 * S, NULL).token;
    rowlease_inspect(&row, 5 * S + 400000, &info);
    CU_ASSERT_TRUE(info.held);
    CU_ASSERT_STRING_EQUAL(info.owner, "01020000000000000000000000000000");
    CU_ASSERT_STRING_EQUAL(info.host, "host");
    CU_ASSERT_STRING_EQUAL(info.program, "program");
    CU_ASSERT_EQUAL(info.pid, 1);
    CU_ASSERT_EQUAL(info.held_ms, 400);
    CU_ASSERT_EQUAL(info.remaining_ms, 600);
    CU_ASSERT_EQUAL(info.token, token);
    rowlease_inspect(&row, 6 * S, &info);
    CU_ASSERT_FALSE(info.held);
    CU_ASSERT_EQUAL(info.token, 0);
}

/* Two processes under one owner: who is named holds it, or nobody is named. */
static void test_note_of_owner(void)
{
    mortise_info info;
    clear();
    uint64_t token = acquire(1, "ann", 10000, 5 * S, NULL).token;
    mortise_op second = op_of(MORTISE_OP_ACQUIRE, 2, "ann", 10000);
    second.note = "elsewhere\n2\nprogram";
    second.note_len = strlen(second.note);
    CU_ASSERT_EQUAL(rowlease_acquire(&row, &second, at(6 * S), NULL).status, MORTISE_OK);
    rowlease_inspect(&row, 6 * S, &info);
    CU_ASSERT_EQUAL(info.pid, 2);
    CU_ASSERT(info.leases == 2 && info.holders == 1);
    second.kind = MORTISE_OP_RELEASE;
    second.token = token;
    CU_ASSERT_EQUAL(rowlease_release(&row, &second, at(7 * S)).status, MORTISE_OK);
    rowlease_inspect(&row, 7 * S, &info);
    CU_ASSERT(info.held && info.pid == 0 && info.host[0] == '\0');
    CU_ASSERT_EQUAL(renew(1, "ann", token, 10000, 8 * S).status, MORTISE_OK);
    rowlease_inspect(&row, 8 * S, &info);
    CU_ASSERT(info.pid == 1 && strcmp(info.host, "host") == 0);

    /* it joins again, and ends without a release: its hold runs out, or a witness releases it */
    for (int witnessed = 0; witnessed < 2; witnessed++) {
        int64_t now_us = (10 + 3 * witnessed) * S;
        second.kind = MORTISE_OP_ACQUIRE;
        second.ttl_ms = 1000;
        CU_ASSERT_EQUAL(rowlease_acquire(&row, &second, at(now_us), NULL).status, MORTISE_OK);
        mortise_op witness = op_of(MORTISE_OP_RELEASE, 2, "ann", 0);
        witness.flags = MORTISE_OP_DEAD;
        witness.token = token;
        witness.note = "host\n3\nmortise";
        witness.note_len = strlen(witness.note);
        if (witnessed) {
            CU_ASSERT_EQUAL(rowlease_release(&row, &witness, at(now_us)).status, MORTISE_OK);
            rowlease_inspect(&row, now_us, &info);
            CU_ASSERT(info.held && info.pid == 0);
        }
        CU_ASSERT_EQUAL(renew(1, "ann", token, 10000, now_us + 2 * S).status, MORTISE_OK);
        rowlease_inspect(&row, now_us + 2 * S, &info);
        CU_ASSERT(info.pid == 1 && info.leases == 1);
    }
}

static void note_is(const char *note, const char *host, int64_t pid, const char *program)
{
    mortise_info info;
    memset(&info, 'x', sizeof(info));
    note_read(note, strlen(note), &info);
    CU_ASSERT_STRING_EQUAL(info.host, host);
    CU_ASSERT_STRING_EQUAL(info.program, program);
    CU_ASSERT_EQUAL(info.pid, pid);
}

static void test_notes(void)
{
    note_is("", "", 0, "");
    note_is("web3\n4711\nnightly", "web3", 4711, "nightly");
    note_is("web3", "web3", 0, "");
    note_is("\n\n\n\n", "", 0, "");
    note_is("web3\n-1\nnightly\nmore", "web3", 0, "nightly");
    note_is("web3\n99999999999\n", "web3", 0, "");
    note_is("web3\n12x\n1234567890123456789012345678901234567890", "web3", 0,
            "12345678901234567890123456789012");
    mortise_info info;
    note_read(NULL, 0, &info);
    CU_ASSERT_STRING_EQUAL(info.host, "");
}

static void test_senseless_rows(void)
{
    clear();
    acquire(1, NULL, 1000, S, NULL);
    struct rowlease_row wrong[4] = {row, row, row, row};
    wrong[0].grants_len = 15;
    wrong[1].owned = true;
    wrong[2].waiters_len = 8;
    wrong[3].version = -1;
    for (int i = 0; i < 4; i++)
        CU_ASSERT_FALSE(rowlease_valid(&wrong[i]));
}

/* ---- a random walk ------------------------------------------------------------------------------- */

/* At no instant may two believe that they hold, unless they have the owner in common. */
static void test_random_walk(void)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct believer all[5];
        int64_t now = 100 * S;
        uint64_t last_token = 0;
        memset(all, 0, sizeof(all));
        clear();
        srand(seed);
        for (int n = 0; n < 400; n++) {
            step(all, rand() % 5, now, &last_token);
            CU_ASSERT_TRUE_FATAL(rowlease_valid(&row));
            for (int a = 0; a < 5; a++)
                for (int b = 0; b < a; b++)
                    if (all[a].holds && all[b].holds && all[a].until_us > now &&
                        all[b].until_us > now)
                        CU_ASSERT_TRUE_FATAL(all[a].owner != NULL && all[a].owner == all[b].owner);
            now += rand() % 3 == 0 ? rand() % S : rand() % 1000;
        }
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"take and give back", test_take_and_give_back},
        {"a repeated acquire changes nothing", test_repeated_acquire_changes_nothing},
        {"held by another", test_held_by_another},
        {"expired", test_expired},
        {"a renewal never shortens", test_renewal_never_shortens},
        {"tokens grow and never wrap", test_tokens},
        {"owners share", test_owners_share},
        {"the last live grant leaves", test_last_live_grant_leaves},
        {"a join raises the hold to its floor", test_join_raises_to_floor},
        {"too many holds", test_too_many_holds},
        {"break", test_break},
        {"the first waiter comes first", test_first_waiter_comes_first},
        {"a reservation lapses", test_lapsed_reservation},
        {"a late waiter is passed over", test_late_waiter_is_passed_over},
        {"a waiter gives up", test_waiter_gives_up},
        {"waiters keep their places", test_waiters_keep_their_places},
        {"register", test_register},
        {"inspect", test_inspect},
        {"note of an owner", test_note_of_owner},
        {"notes", test_notes},
        {"rows that make no sense", test_senseless_rows},
        {"a random walk", test_random_walk},
        CU_TEST_INFO_NULL,
    };
    return suite_run("rowlease", tests);
}
