/* internal.h - what the files of the sim driver share: names and claims (store.c), requests (serve.c), ops that are
 * not answered at once (flight.c, ghost.c), their outcome (script.c), the module (sim.c), the functions for tests
 * (api.c).
 *
 * One mutex guards all of it (sim_lock). Waiters of other clients are notified through host->post after the mutex was
 * released (sim_unlock), because a core may hold its own locks in that call. */
#ifndef MORTISE_TESTS_SIM_INTERNAL_H
#define MORTISE_TESTS_SIM_INTERNAL_H

#include "sim.h"

struct claim;
struct flight;

/* One client's watch of a name. */
struct watch {
    struct watch *next, *previous; /* of the instance */
    struct watch *claim_next, *claim_previous;
    struct instance *instance;
    struct claim *claim;
    bool told; /* news are due */
};

/* One opened module. */
struct instance {
    struct instance *next, *previous;
    mortise_host *host;
    uint32_t capabilities;
    int64_t latency_ns;
    bool queue, notify;
    const char *name_space; /* NULL: none */
    struct watch *watches;
    struct flight *timed;  /* ordered by due_ns */
    struct flight *parked; /* held, queued or silent */
    size_t flights;        /* in both lists; like due_ns, used only in the instance's own pump */
    int64_t due_ns;
    /* drain() is due in the instance's pump; it was posted */
    bool dirty, posted, news_all, doubt_all;
    struct instance *dirty_next;
    unsigned pokers; /* threads that are posting to it now */
};

/* ---- store.c: names and claims. sim_lock is held in all of them. ----------------------------------- */

struct grant {
    mortise_grant_id id;
    int64_t expires_ns;
};

/* A holder beside the first one. */
struct member {
    struct grant grant;
    uint64_t token;
    int64_t since_ns;
    uint8_t note;
};

/* The rarer parts of a name: an owner, further holders, waiters. */
struct extra {
    char *owner; /* NULL: none */
    size_t owner_len;
    struct member *more; /* holders beside the first: of the same owner, or shared */
    size_t more_count, more_capacity;
    uint32_t permits;  /* of shared holders; 0: any number */
    uint64_t token;    /* the largest that was given to shared holders */
    int64_t barred_ns; /* until then an exclusive waiter keeps new shared holders out */
    struct watch *watches;
    struct flight *queue;
};

/* A name that is or was held. Kept small: a benchmark holds 100,000 of them beside the core's leases. */
struct claim {
    struct claim *chain;
    struct extra *extra; /* NULL for most */
    int64_t since_ns;
    uint64_t token;
    struct grant grant;
    uint32_t hash;
    uint16_t name_len;
    uint8_t note; /* whose: an index */
    bool held, shared;
    char name[];
};

static inline size_t more_count(const struct claim *claim)
{
    return claim->extra ? claim->extra->more_count : 0;
}

struct claim *store_find(const char *name, size_t name_len);
/* Finds or adds; NULL: out of memory. */
struct claim *store_name(const char *name, size_t name_len);
struct extra *store_extra(struct claim *claim);
/* Removes what has expired, and grants the name to the queue. Returns whether it is held now. */
bool claim_refresh(struct claim *claim, int64_t now_ns);
/* When the last grant expires; when the first one does. */
int64_t claim_expires(const struct claim *claim);
int64_t claim_first_expires(const struct claim *claim);
/* The grants of a claim: find, take for the first one (a new token), add another one (of the same owner with the same
 * token, a shared one with a new token), remove one (the claim is dropped with its last). False: out of memory. */
struct grant *claim_grant(struct claim *claim, const mortise_grant_id *id);
bool claim_take(struct claim *claim, const mortise_op *op, int64_t now_ns);
bool claim_add(struct claim *claim, const mortise_op *op, int64_t now_ns);
uint64_t claim_token(const struct claim *claim, const struct grant *grant);
/* The grant of that token, or NULL. */
struct grant *claim_of_token(struct claim *claim, uint64_t token);
/* The holder at `index`, in the order of the tokens if it is 0. */
struct member claim_member(const struct claim *claim, size_t index);
uint32_t claim_permits(const struct claim *claim);
bool claim_barred(const struct claim *claim, int64_t now_ns);
void claim_remove(struct claim *claim, struct grant *grant);
bool claim_same_owner(const struct claim *claim, const mortise_op *op);
void claim_drop(struct claim *claim);
/* The name became free, or a holder left: the queue's head gets it if it can, or the watchers are notified. */
void claim_freed(struct claim *claim, int64_t now_ns);
bool claim_seize(struct claim *claim, int64_t expires_ns, int64_t now_ns);
void store_each(void (*visit)(struct claim *claim, void *argument), void *argument);
void store_tokens_from(uint64_t token);
/* Counts tokens for each name separately, and not below the time in microseconds, until the reset. */
void store_tokens_by_clock(void);
void store_reset(void);
/* The text of a note; empty if unknown. */
const char *store_note(uint8_t note);
size_t store_count(void);

/* ---- serve.c. sim_lock is held. ---------------------------------------------------------------- */

/* Returns whether the present holders admit this acquire; waiters are not considered. */
bool serve_admits(const struct claim *claim, const mortise_op *op);
/* Executes the op at once. For an acquire, *claim is the name, so that the caller can queue. A ghost is an op whose
 * results nobody reads. */
mortise_status serve(struct instance *instance, mortise_op *op, int64_t now_ns, int64_t sent_ns,
                     bool ghost, struct claim **claim);
/* The same for the head of the queue; its waiting time counts from now. */
mortise_status serve_from_queue(struct instance *instance, mortise_op *op, int64_t now_ns,
                                struct claim *claim);
extern char serve_problem[256]; /* what is wrong with a request that was refused as INVALID */
void serve_reset(void);

/* ---- flight.c: ops under way. sim_lock is held in all of them. ----------------- */

void flight_start(struct instance *instance, mortise_op *op, int64_t now_ns);
void flight_cancel(mortise_op *op, int64_t now_ns);
/* Completes what is due, what was let go and what the queue has granted. */
void flight_turn(struct instance *instance, int64_t now_ns);
int64_t flight_due(struct instance *instance);
/* Grants the name to the head of the queue. Returns whether there was one. */
bool flight_grant_head(struct claim *claim, int64_t now_ns);
size_t flight_queue_length(const struct claim *claim);
/* Whether a request under this grant may still be executed. */
bool flight_may_come(const mortise_grant_id *grant);
size_t flight_outstanding(const struct instance *instance);
void flight_forget(struct instance *instance);
void flight_reset(void);
uint64_t flight_count(int kind);
uint64_t flight_held(int rule);
void flight_let_go(int rule);
void flight_lose_grants(void);

/* ---- ghost.c. sim_lock is held. ------------------------------------------------------------------ */

void ghost_add(const struct instance *instance, const mortise_op *op, int rule, bool held,
               int64_t due_ns);
void ghosts_arrive(int64_t now_ns);
bool ghost_under(const mortise_grant_id *grant);
uint64_t ghost_held(int rule);
void ghost_let_go(int rule);
size_t ghost_count(void);
void ghosts_reset(void);

/* ---- script.c. sim_lock is held. ---------------------------------------------------------------- */

int script_add(const sim_rule *rule);
bool script_exists(void);
/* Returns the outcome for this op, and counts a hit; NULL: no rule. Valid until the mutex is released. */
const sim_rule *script_match(const mortise_op *op, int *number);
void script_end(int number);
uint64_t script_hits(int number);
/* Until the CLOCK_MONOTONIC instant. */
bool script_wait_hits(int number, uint64_t n, int64_t deadline_ns);
void script_reset(void);

/* ---- sim.c ------------------------------------------------------------------------------------ */

extern struct instance *sim_instances;
extern bool sim_deaf; /* news get lost; sim_lock */
void sim_lock(void);
/* `self`, if any, has been drained by the caller; all other dirty instances are woken. */
void sim_unlock(struct instance *self);
/* Waits for `condition` of flight.c with the mutex, until the CLOCK_MONOTONIC instant. */
bool sim_wait_until(int64_t deadline_ns);
void sim_changed(void);
void sim_dirty(struct instance *instance);
/* Returns an instant for actions that no client started: the first instance's clock, 0 if none is open. */
int64_t sim_any_now(void);

#endif
