/* readers.c - see readers.h. */
#include "readers.h"

#include "holders.h"
#include "row.h"
#include "waiters.h"

#define BAR_US INT64_C(2000000)
#define BAR_LEFT_US INT64_C(1500000) /* a bar with less time left is set anew */
#define BAR_LOOK_MS 1000             /* so the caller that set it asks again in time */
#define OPEN_US INT64_C(2000000)     /* a polling waiter looks at least every 1.6 s */

/* ---- places ------------------------------------------------------------------------------------ */

static uint32_t free_places(const struct rowlease_row *row, int64_t now_us)
{
    uint32_t permits = holders_head(row).permits, live = holders_count(row, now_us).live;
    return permits == 0 ? UINT32_MAX : live < permits ? permits - live : 0;
}

void readers_wake(struct rowlease_row *row, struct rowlease_time time,
                  struct rowlease_answer *answer)
{
    uint32_t places = free_places(row, time.now_us);
    if (places == 0 || waiters_shared(row) == 0)
        return;
    struct holders head = holders_head(row);
    if (head.permits > 0) {
        head.kept_us = time.now_us + time.reserve_us;
        holders_set_head(row, &head);
    }
    answer->wake = answer->kept = true;
    answer->places = places;
}

/* Whether a freed place is kept for other waiters. */
static bool is_kept(const struct rowlease_row *row, int64_t now_us, uint32_t places,
                    const struct rowlease_inbox *inbox)
{
    struct holders head = holders_head(row);
    return head.permits > 0 && head.kept_us > now_us && waiters_shared(row) >= places &&
           !waiter_is_shared(row, inbox, places);
}

/* Whether readers that waited for a downgrade still have time to come. */
static bool is_open(const struct holders *head, int64_t now_us)
{
    return head->permits == 0 && head->kept_us > now_us;
}

bool readers_barred(const struct rowlease_row *row, int64_t now_us)
{
    return rowlease_shared(row) && holders_head(row).barred_us > now_us;
}

/* ---- acquire ----------------------------------------------------------------------------------- */

static struct holder holder_of(const struct rowlease_row *row, const mortise_op *op,
                               int64_t expires_us)
{
    return (struct holder){.grant = op->grant,
                           .expires_us = expires_us,
                           .since_us = row->acquired_us,
                           .token = row->version};
}

void readers_begin(struct rowlease_row *row, const mortise_op *op, struct rowlease_time time)
{
    struct holder holder = holder_of(row, op, time.now_us + rowlease_ttl_us(op));
    row_set_note(row, op);
    holder.note = (const unsigned char *)row->note;
    holder.note_len = row->note_len;
    holders_begin(row, op->permits);
    holders_add(row, &holder); /* there is room for one */
}

static struct rowlease_answer add(struct rowlease_row *row, const mortise_op *op,
                                  struct rowlease_time time, const struct rowlease_inbox *inbox)
{
    int64_t version, expires_us = time.now_us + rowlease_ttl_us(op);
    if (!rowlease_next_version(row, op->token_floor, time.wall_us, &version))
        return answer_refused("the tokens of this name are used up");
    holders_settle(row, time.now_us);
    row->version = version;
    struct holder holder = holder_of(row, op, expires_us);
    holder.since_us = time.now_us;
    holder.note = (const unsigned char *)op->note;
    holder.note_len = op->note_len;
    if (!holders_add(row, &holder))
        return answer_refused("too many hold it");
    holders_settle(row, time.now_us);
    if (inbox != NULL)
        waiter_remove(row, inbox);
    struct rowlease_answer answer = answer_granted(row, time.now_us, expires_us, true);
    answer.left = true;
    readers_wake(row, time, &answer);
    return answer;
}

struct rowlease_answer readers_admit(struct rowlease_row *row, const mortise_op *op,
                                     struct rowlease_time time, const struct rowlease_inbox *inbox)
{
    struct holders head = holders_head(row);
    struct holder mine;
    if (holders_find(row, &op->grant, &mine) && mine.expires_us > time.now_us) {
        struct rowlease_answer answer = answer_standing(row, op, mine.expires_us, time.now_us);
        answer.token = (uint64_t)mine.token;
        return answer;
    }
    if (head.permits != op->permits)
        return (struct rowlease_answer){.status = MORTISE_INVALID,
                                        .trouble = "its holders gave another number of permits: "
                                                   "all callers of a name must give the same"};
    if (head.barred_us > time.now_us)
        return answer_busy(row, op, time, head.barred_us, inbox);
    uint32_t places = free_places(row, time.now_us);
    if (places == 0)
        return answer_busy(row, op, time, holders_count(row, time.now_us).first_expiry_us, inbox);
    if (is_kept(row, time.now_us, places, inbox))
        return answer_busy(row, op, time, head.kept_us, inbox);
    return add(row, op, time, inbox);
}

struct rowlease_answer readers_wait(struct rowlease_row *row, const mortise_op *op,
                                    struct rowlease_time time, const struct rowlease_inbox *inbox)
{
    int64_t end_us = holders_head(row).barred_us;
    struct rowlease_answer answer = answer_busy(row, op, time, end_us, inbox);
    if (answer.write) {
        holders_settle(row, time.now_us);
        row->expires_us = end_us;
    }
    return answer;
}

struct rowlease_answer readers_bar(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, const struct rowlease_inbox *inbox)
{
    struct holders head = holders_head(row);
    bool tries = (op->flags & MORTISE_OP_TRY) != 0, open = !tries && is_open(&head, time.now_us);
    int64_t until_us = open && head.kept_us < row->expires_us ? head.kept_us : row->expires_us;
    struct rowlease_answer answer = answer_busy(row, op, time, until_us, inbox);
    if (tries || open)
        return answer;
    if (head.barred_us < time.now_us + BAR_LEFT_US) {
        head.barred_us = time.now_us + BAR_US;
        holders_set_head(row, &head);
        answer.write = true;
    }
    answer.bars = answer.write;
    if (answer.hint_ms > BAR_LOOK_MS)
        answer.hint_ms = BAR_LOOK_MS;
    return answer;
}

/* ---- renew, downgrade, release --------------------------------------------------------------------- */

/* Finds the holder that the op names, if its time is not over. */
static bool find_mine(const struct rowlease_row *row, const mortise_op *op, int64_t now_us,
                      struct holder *holder)
{
    bool by_token = op->kind == MORTISE_OP_RELEASE && (op->flags & MORTISE_OP_BREAK) != 0;
    bool found = by_token ? holders_find_token(row, op->token, holder)
                          : holders_find(row, &op->grant, holder);
    return found && holder->expires_us > now_us &&
           (op->token == 0 || op->token == (uint64_t)holder->token);
}

struct rowlease_answer readers_renew(struct rowlease_row *row, const mortise_op *op,
                                     struct rowlease_time time)
{
    struct holder mine;
    if (!find_mine(row, op, time.now_us, &mine))
        return answer_not_mine(row, time.now_us);
    int64_t expires_us = time.now_us + rowlease_ttl_us(op);
    if (expires_us < mine.expires_us)
        expires_us = mine.expires_us;
    holders_extend(row, &op->grant, expires_us);
    holders_settle(row, time.now_us);
    return answer_granted(row, time.now_us, expires_us, true);
}

struct rowlease_answer readers_downgrade(struct rowlease_row *row, const mortise_op *op,
                                         struct rowlease_time time, int64_t expires_us)
{
    struct holder holder = holder_of(row, op, expires_us);
    holder.note = (const unsigned char *)row->note;
    holder.note_len = row->note_len;
    holders_begin(row, 0);
    holders_set_head(row, &(struct holders){.kept_us = time.now_us + OPEN_US});
    holders_add(row, &holder);
    holders_settle(row, time.now_us);
    struct rowlease_answer answer = answer_granted(row, time.now_us, expires_us, true);
    readers_wake(row, time, &answer);
    return answer;
}

struct rowlease_answer readers_release(struct rowlease_row *row, const mortise_op *op,
                                       struct rowlease_time time)
{
    struct rowlease_answer answer = {.status = MORTISE_OK, .write = true};
    struct holder mine;
    if (!find_mine(row, op, time.now_us, &mine))
        return answer_not_mine(row, time.now_us);
    uint32_t permits = holders_head(row).permits;
    holders_remove(row, &mine.grant);
    holders_settle(row, time.now_us);
    if (holders_empty(row) && row->waiters_len == 0 && readers_barred(row, time.now_us)) {
        row->expires_us = holders_head(row).barred_us;
    } else if (holders_empty(row)) {
        row_set_free(row, time);
        answer.wake = answer.kept = row->waiters_len > 0;
    } else if (permits > 0) { /* without permits, nobody waits for a place */
        readers_wake(row, time, &answer);
    }
    return answer;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

/* While a bar is in force, a woken waiter cannot get in, so waiters keep their places in the list. */
struct rowlease_answer readers_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                         int64_t version)
{
    struct rowlease_answer answer = {.status = MORTISE_OK};
    struct holders head = holders_head(row);
    bool kept = head.permits > 0 && head.kept_us > time.now_us;
    if (row->version != version || kept || head.barred_us > time.now_us ||
        free_places(row, time.now_us) == 0 || waiters_shared(row) == 0)
        return answer;
    waiter_remove_shared(row);
    answer.write = true;
    readers_wake(row, time, &answer);
    return answer;
}
