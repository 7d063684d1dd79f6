/* rowlease.h - leases in the rows of a table: the algorithm, without a database.
 *
 * A row is what the database holds about one name. The functions below take a row as it was read, an op and the time. They
 * return the answer, and change the row into the one to write. The row must then be written *by compare-and-swap*: only if it
 * is still as it was read. Otherwise it is read again. These functions know no SQL, no connection and no clock, keep nothing
 * and allocate nothing. SPDX-License-Identifier: MIT
 *
 * THE ROW
 *
 *   free      no grants, expires_us passed (0). Kept for its version, which is the last token given.
 *   reserved  no grants, expires_us to come: it was released while others waited, and is kept for the first waiter for a
 *             moment. Otherwise a process that releases and acquires in a loop would win against each waiter that it wakes.
 *   held      grants, expires_us to come. Without an owner: one grant id of 16 bytes. With one: a set of
 *             (grant id, own expiry) of that owner; expires_us is the largest of the expiries.
 *   expired   grants, expires_us passed: as good as free; the next acquire takes it.
 *
 *              acquire (absent, free, expired; reserved: first waiter only)
 *     absent ─────────────────────────────────────────────────────────────▶ held ◀─┐ renew, join,
 *        ▲        free ──────────────────────────────────────────────────▶  │ │ └───┘ leave (not last)
 *        │         ▲  ▲                                    release, break   │ │ time
 *        │ swept   │  └──── time ──── reserved ◀──────────(with waiters)────┤ ▼
 *        └─────────┴────────────────────────────────────────(without)───────┘ expired ──▶ held (another)
 *
 * The version is token and optimistic lock in one. Each new hold sets it to max(version + 1, wall clock in µs, the op's token
 * floor). Otherwise it changes only if a later lease of the same owner raises it to its own token floor (R6).
 *
 * THE HOLES, and what closes them
 *
 *   - The process stops between reading the clock and executing the statement. It then acts with a `now` that is too old.
 *     acquire: takes only what had expired by then (fewer rows than it might), and claims until now + ttl. It computes its
 *     own deadline from the same `now`. renew: extends a row that is provably still its own to max(claim, now + ttl), and
 *     takes its deadline from the same `now`. release: a claim that expired in between is released as if it had not; nobody
 *     else had it, and the holder's own clock knows. So a stop never makes a claim longer than its holder believes, and
 *     never lets two clients hold.
 *   - The reply is lost, or the process dies before it reads it. Every request names its grant id. A repeated acquire under
 *     the id that holds gets the same version and the same expiry. A repeated release gets LOST or NOTOWNER, and changes
 *     nothing.
 *   - Two clients change the row at once: the compare-and-swap of one fails, and it begins anew.
 *   - The claim expires while its holder is at work: the next holder takes the row and changes its version; the late
 *     renewal or release names the old grant and touches nothing.
 *   - A release comes between "it is held" and "I wait": both are one compare-and-swap, which fails if the row was
 *     released, and the acquire begins anew.
 *   - The releaser dies before it wakes anybody: the waiters' hint (the time left when they asked) ends.
 *   - The next holder's claim ends before that hint, because its ttl is shorter, and it dies: no waiter sleeps for longer
 *     than ROWLEASE_LOOK_MS. If all have the same ttl, the hint is never longer than one ttl.
 *   - The first waiter dies or is stopped: the releaser looks again when the reservation is over, drops it from the list
 *     and wakes the next. An acquire after the reservation drops it, too: a stopped process costs one reservation, not one
 *     with each release. When that process goes on, it finds that it was notified, asks again and is queued anew.
 *   - A waiter gives up: its inbox leaves the list; if the name was reserved for it, the next is woken.
 *   - The version reaches the end of 63 bits: the acquire is refused; the version never wraps. */
#ifndef MORTISE_ROWLEASE_ROWLEASE_H
#define MORTISE_ROWLEASE_ROWLEASE_H

#include <mortise/driver.h>

#define ROWLEASE_HOLD_SIZE                                                                         \
    (MORTISE_GRANT_ID_SIZE + 8) /* in a row with an owner: id, expiry (µs, big-endian) */
#define ROWLEASE_HOLDS_MAX 1024
#define ROWLEASE_LOOK_MS 10000 /* a waiter asks again by then, whatever its hint was */
#define ROWLEASE_INBOX_SIZE 8  /* a random number that names a waiting client */
#define ROWLEASE_WAITER_SIZE                                                                       \
    (ROWLEASE_INBOX_SIZE + 4) /* inbox; three zeros; what it waits for: */
#define ROWLEASE_WANTS_SHARED 1 /* 0: an exclusive claim, or not known (older clients write 0) */
#define ROWLEASE_WAITERS_MAX 256

/* The owner of a row that shared holders have (holders.h). It differs from every owner of an op, because those begin with
 * no zero byte. */
#define ROWLEASE_SHARED "\0shared"
#define ROWLEASE_SHARED_SIZE (sizeof(ROWLEASE_SHARED) - 1)

struct rowlease_inbox {
    unsigned char bytes[ROWLEASE_INBOX_SIZE];
};

/* One row, as read or as to be written. Lengths of 0 are NULL in the database. */
struct rowlease_row {
    bool exists;
    bool owned; /* the owner is not null: leases of one owner, or (rowlease_shared) shared holders */
    int64_t version;
    int64_t acquired_us, expires_us; /* on the clock of struct rowlease_time */
    size_t owner_len, grants_len, waiters_len, note_len;
    char owner[MORTISE_OWNER_MAX];
    char note[MORTISE_NOTE_MAX];
    unsigned char grants[ROWLEASE_HOLDS_MAX * ROWLEASE_HOLD_SIZE];
    unsigned char waiters[ROWLEASE_WAITERS_MAX * ROWLEASE_WAITER_SIZE];
};

struct rowlease_time {
    int64_t now_us;     /* the clock that all clients of the database agree on */
    int64_t wall_us;    /* wall time, for tokens only */
    int64_t reserve_us; /* how long a reservation lasts */
};

struct rowlease_answer {
    mortise_status status; /* BACKEND: `trouble` says why */
    const char *trouble;
    bool write;  /* the row was changed: the answer is valid once it is written */
    bool wake;   /* then notify the first of row.waiters; */
    uint32_t places; /* or, if not 0, so many of those that wait for a shared claim */
    bool kept;   /* the name, or a place, is reserved for it: check when that is over */
    bool bars;   /* the change is a bar against new shared holders, and perhaps a place in the list */
    bool passed; /* acquire: `passed_over` was too late and lost its place; notify it */
    struct rowlease_inbox passed_over;
    bool registered; /* BUSY, register: the inbox is in the list */
    bool left;       /* acquire: the inbox is not in the list any more */
    uint64_t token;
    int64_t from_us;     /* the claim's time counts from here… */
    int64_t good_for_ms; /* …for so long */
    int64_t hint_ms;     /* BUSY: the holder's claim ends then if it is not renewed */
};

/* Whether shared holders have the row (holders.h), live or expired. */
bool rowlease_shared(const struct rowlease_row *row);

/* The first inboxes of a list of waiters; returns how many there are in all. */
size_t rowlease_waiters(const unsigned char *list, size_t len, struct rowlease_inbox *inboxes,
                        size_t max);

/* The first inboxes that wait for a shared claim; returns how many were found, at most `most`. */
size_t rowlease_shared_waiters(const unsigned char *list, size_t len, size_t most,
                               struct rowlease_inbox *inboxes, size_t max);

/* Whether the sizes that were read fit together. If not, the row is refused. */
bool rowlease_valid(const struct rowlease_row *row);
void rowlease_copy(struct rowlease_row *to, const struct rowlease_row *from);
bool rowlease_held(const struct rowlease_row *row, int64_t now_us);

/* The version of a new hold; false: no version is left. */
bool rowlease_next_version(const struct rowlease_row *row, uint64_t token_floor, int64_t wall_us,
                           int64_t *version);

/* The ops. If answer.write is set, the function has changed *row into the one to write; otherwise *row is as before.
 * inbox NULL: this client cannot wait. */
struct rowlease_answer rowlease_acquire(struct rowlease_row *row, const mortise_op *op,
                                        struct rowlease_time time,
                                        const struct rowlease_inbox *inbox);
struct rowlease_answer rowlease_renew(struct rowlease_row *row, const mortise_op *op,
                                      struct rowlease_time time);
struct rowlease_answer rowlease_release(struct rowlease_row *row, const mortise_op *op,
                                        struct rowlease_time time);
/* Waits for a name that is held, or reserved for another client. OK in any case; `registered` says whether it waits. */
struct rowlease_answer rowlease_register(struct rowlease_row *row, struct rowlease_time time,
                                         const struct rowlease_inbox *inbox);
/* Takes waiters off the list, because they are gone or wait no more. If the name was reserved for one of them, wakes the
 * next. */
struct rowlease_answer rowlease_forget(struct rowlease_row *row, struct rowlease_time time,
                                       const struct rowlease_inbox *inboxes, size_t count);
/* If the reservation made with the release of `version` is over and the name is still free, the first waiter loses its place,
 * and the next is woken. */
struct rowlease_answer rowlease_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                          int64_t version);

/* What inspect and list report about a row, except for the name; they describe the holder with the smallest token. */
void rowlease_inspect(const struct rowlease_row *row, int64_t now_us, mortise_info *info);
/* The same for each holder in turn; begin with *at = 0. False: there is no further holder. */
bool rowlease_inspect_next(const struct rowlease_row *row, int64_t now_us, size_t *at,
                           mortise_info *info);

/* Microseconds and milliseconds of an op, rounded so that a claim never looks longer than it is. */
static inline int64_t rowlease_ttl_us(const mortise_op *op)
{
    return op->ttl_ms * 1000;
}

#endif
