/* internal.h - the migrate plugin's own structures, and which file does what with them. protocol.h has the protocol, whose
 * sections are cited by number; migration.h has what the command shares.
 *
 *   module.c     the module's table and options; opens and closes an instance, descriptors and due times of both sides
 *   ask.c        a request to a side: sent in batches; the file that asked gets the answer
 *   presence.c   the presence on a side: acquired, renewed, lost, released (3)
 *   register.c   the registration: presences, then registers; then refused, or registered until D (4)
 *   meet.c       which clients are in the way of a refused one: for the text of the refusal
 *   claim.c      what this client holds, or may hold, on either side under a grant of the core; how it is dropped
 *   dispatch.c   passes each request of the core to the file that knows its kind
 *   call.c       an op of the core, from its arrival to its answer
 *   acquire.c    leg 1, then leg 2 (6, 7)
 *   wait.c       the wait for leg 2, and the renewal of leg 1 meanwhile
 *   floor.c      the floor of the token that an acquire asks for (6)
 *   lease.c      renew, release, break (7)
 *   dead.c       releases for processes that have died
 *   look.c       inspect, ping
 *   list.c       list
 *
 * All phases use the same code: a phase has one or two *legs*, which are the sides in the order in which an acquire asks them.
 * The phases old and new have one leg, and both has two. An op of the core becomes a *call*, with one request (*ask*) per leg.
 *
 *   core ──▶ call ──▶ ask on leg 1 ──▶ ask on leg 2 ──▶ answered ──▶ core
 *
 * Each file calls only files below it, in this order: dispatch; acquire with wait, lease with dead, and look with list; register
 * with meet; presence; floor, claim, call and ask. A file that must call the file above it gets a table of functions from that
 * file (presence_events, register_events, wait_events).
 *
 * Everything runs inside the pump. No loop over a list that an answer may change sends a request: answers come after the
 * module call has returned. */
#ifndef MORTISE_MIGRATE_INTERNAL_H
#define MORTISE_MIGRATE_INTERNAL_H

#include <mortise/driver.h>

#include "protocol.h"

#include <stddef.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define NS_PER_MS INT64_C(1000000)
#define BATCH 64
#define SIDES 2
#define SIDE_FDS 256 /* as many as the core polls for a client: a large cluster needs most of them */

enum option { OPTION_FROM, OPTION_TO, OPTION_PHASE, OPTION_PRESENCE, OPTION_COUNT };

struct migrate;
struct call;

/* ---- a request to a side (ask.c) ----------------------------------------------------------------- */

struct ask {
    mortise_op op; /* first */
    struct migrate *migrate;
    enum migrate_side side;
    struct ask *next_out; /* in the outbox */
    bool out;             /* with the module below, or in the outbox */
    bool boxed;           /* in the outbox */
    void (*answered)(struct ask *ask);
    void *of; /* the presence, side, claim or call that it belongs to */
};

/* Clears the request for a new use, but keeps what it belongs to. It must not be out. */
void ask_prepare(struct ask *ask, mortise_op_kind kind);
/* Returns the request of this op; NULL: another plugin made the op. */
struct ask *ask_of(mortise_op *op);
void ask_send(struct ask *ask);
void ask_cancel(struct ask *ask); /* if it is out */
/* Sends what is in the outboxes. Called at the end of each call of the core. */
void asks_flush(struct migrate *migrate);
/* The instance ends: forgets what was not sent. */
void asks_drop(struct migrate *migrate);
/* Whether the answer to a release proves what the side holds. */
bool ask_is_sure(const struct ask *ask);

/* ---- a side ---------------------------------------------------------------------------------------- */

/* What presence.c calls in the registration above it. */
struct presence_events {
    void (*answered)(struct migrate *migrate, enum migrate_side side); /* a request for the presence was answered */
    void (*given_back)(struct migrate *migrate);                       /* the presence was released, or is left over */
    void (*lost)(struct migrate *migrate); /* before its deadline: all grants are lost */
};

struct presence {
    struct ask ask;
    const struct presence_events *events;
    char name[MORTISE_NAME_MAX + 1]; /* with the namespace */
    size_t name_len;
    mortise_grant_id grant;
    uint64_t token;
    int64_t first_sent_ns;
    bool maybe;          /* the presence was asked for, and no release was sure */
    bool had;            /* this grant held the presence */
    bool leftover;       /* a release was not sure: release again before another presence is acquired */
    bool again;          /* a release was wanted while a request was out */
    bool stopped;        /* the client closes, and has no time left: send nothing more */
    int64_t deadline_ns; /* D of this side; 0: none */
    int64_t renew_ns;    /* when to renew it, or to try that again; NEVER: not before presence_want() */
    int64_t span_ms;     /* how long it was good for, by the last answer */
    unsigned failures;
};

struct side {
    mortise_below *below; /* NULL: not opened (only a side that the phase does not use) */
    char why[256];        /* why it was not opened */
    const char *section;
    const char *prefix; /* the namespace; "" */
    size_t prefix_len;
    struct ask *outbox, **outbox_end;
    int fds[SIDE_FDS]; /* the descriptors that it wants to be polled */
    size_t fd_count;
    bool used; /* by this phase */
    struct presence presence;
    /* the register, as last read */
    struct ask reader;
    char register_name[MORTISE_NAME_MAX + 1];
    char text[MORTISE_RECORD_MAX];
    struct migrate_register reg;
    bool elsewhere; /* this side keeps no records: its register is on the other side */
    bool read;      /* the register was read in this registration */
    bool understood; /* and this version understands it */
    bool stale;     /* the request that is out was sent before the presence was held: read again */
};

/* ---- claims ---------------------------------------------------------------------------------------- */

/* The part of a claim on one side. */
struct leg {
    mortise_grant_id grant; /* claim_grant_of_try(); new for every try, because a side may remember a released one */
    uint64_t token;
    int64_t first_sent_ns, from_ns, good_for_ms; /* of the last answer; R1 */
    bool maybe;      /* the leg was asked for: it is held, or may be, now or later */
    bool held;       /* the leg is held */
    bool given_back; /* the leg was held, and the side answered OK to a release, perhaps without being sure */
    bool in_doubt;   /* the reply to a release was lost: if the leg is gone, that release may be the reason */
    bool lost;       /* the leg was gone when it was released, and perhaps no release of ours was the reason */
    bool
        asked_back; /* a release was sent and may still be on its way: never ask under this grant again */
    unsigned tries; /* how often the leg was held, or may have been held */
};

struct claim {
    UT_hash_handle hh;      /* by grant */
    mortise_grant_id grant; /* the core's */
    struct migrate *migrate;
    struct leg legs[SIDES];
    uint64_t epoch;                /* of the registration that the claim depends on */
    uint64_t lapses;               /* migrate->lapses at the first request; the client was registered then */
    bool busy;                     /* a call works on the claim */
    struct call *renewal;          /* the call, if it is a renewal */
    bool dropped;                  /* the core will not ask for it again: release it until that is sure */
    struct claim *next, *previous; /* in migrate->dropped */
    int64_t until_ns;              /* the claim has ended by then in any case */
    int64_t again_ns;              /* dropped: when to release it again */
    int64_t ttl_ms;
    struct ask drops[SIDES];
    size_t name_len, owner_len;
    const char *owner;
    char texts[]; /* name without its namespace, owner */
};

/* ---- calls ----------------------------------------------------------------------------------------- */

enum call_state {
    CALL_WAITS_TO_REGISTER,
    CALL_FIRST,  /* leg 1 is asked */
    CALL_SECOND, /* leg 2 is asked, or waited for */
    CALL_UNDO,   /* both legs are released */
    CALL_OTHER,  /* a renewal, a release, a look */
};

/* What follows an undo: the call fails, or begins again. */
enum call_then { THEN_FAIL, THEN_AGAIN };

/* One name from the list of `to`, kept until the list of `from` comes. */
struct listed {
    struct listed *next;
    unsigned char numbers[sizeof(mortise_info) - offsetof(mortise_info, pid)]; /* from `pid` on */
    char texts[]; /* name without its namespace, owner, host, program */
};

struct call {
    struct migrate *migrate;
    mortise_op *upper;                            /* the core's op; its driver_data[0] is the call */
    struct call *next, *previous;                 /* in migrate->calls */
    struct call *next_waiting, *previous_waiting; /* in to_register, or in waiting */
    struct claim *claim;
    struct ask asks[SIDES];
    const char *name[SIDES]; /* on each side, with its namespace */
    size_t name_len[SIDES];
    enum call_state state;
    bool canceled;
    bool undone;      /* CALL_UNDO: the requests were sent */
    bool waits;       /* it is in migrate->waiting */
    bool watching;    /* leg 2 is watched */
    bool news;        /* news came while leg 2 was asked */
    bool failed;      /* a release: one of the legs failed */
    bool was, lost;   /* a release: a leg was held; a leg should have been held and was not */
    bool all_sure;    /* dead.c: all answers so far were sure */
    unsigned round;   /* dead.c: which try's grants were asked for */
    bool found[SIDES]; /* dead.c: a grant was held there */
    int64_t ask_ns;   /* when to ask leg 2 again; 0: not */
    int64_t renew_ns; /* when to renew leg 1 during the wait for leg 2 */
    enum call_then then;
    mortise_status status; /* the answer, while something must be done before it is given */
    int64_t hint_ms;
    uint64_t floor;       /* for the second try, if the floor of the first was too low; else 0 */
    int64_t floored_us;   /* when the floor was computed */
    int64_t first_had_us; /* when leg 1 was granted */
    bool has_error;
    char *lines; /* a ping: the answers of both sides */
    struct listed *list, **list_end;
    bool list_failed; /* there was no memory for a name */
    /* from here on not zeroed */
    mortise_error error;
    char second_name[MORTISE_NAME_MAX + 1];
    mortise_info second_info; /* an inspect: of leg 2 */
};

/* A name that is watched on leg 2. */
struct watch {
    UT_hash_handle hh;
    unsigned count;
    size_t name_len;
    char name[];
};

/* The floor of a name that has tokens far ahead of the clocks: floor.c. */
enum { FAR_NAMES = 64 };
struct far {
    uint64_t hash, floor;
};

/* What register.c and wait.c call in the acquire above them. */
struct register_events {
    void (*registered)(struct call *call);
};
struct wait_events {
    void (*ask_second)(struct call *call);
};

/* ---- the instance ---------------------------------------------------------------------------------- */

enum registering {
    REGISTER_IDLE,
    REGISTER_TAKE,  /* (i) */
    REGISTER_READ,  /* (ii) */
    REGISTER_NAME,  /* (iii): which clients are in the way? */
    REGISTER_LEAVE, /* presences are released */
};

struct migrate {
    mortise_host *host;
    const mortise_value *values;
    char *note;
    size_t note_len;
    unsigned phase;
    int64_t presence_ms;
    struct side sides[SIDES];
    enum migrate_side legs[SIDES]; /* in the order in which an acquire asks them */
    size_t leg_count;

    const struct register_events *register_events;
    const struct wait_events *wait_events;
    enum registering registering;
    bool here;       /* registered, until D */
    uint64_t epoch;  /* counts the presences that were lost */
    uint64_t lapses; /* counts presences that had lapsed when they were extended, or were lost */
    uint64_t lapses_before; /* lapses at the beginning of (ii) */
    int64_t grace_ns;       /* when the wait for an optional answer ends; 0: none */
    struct ask lister;
    void (*met)(struct migrate *migrate); /* called when meets and meets_count are known */
    char meets[256];                      /* the clients in the way, as text */
    char meets_name[MORTISE_NAME_MAX + 1];
    size_t meets_count;
    int64_t meets_until_ns; /* they are not asked for again before then */
    enum migrate_side refused_by;
    mortise_op *leaving; /* the op of the close */

    struct call *calls;
    struct call *to_register; /* calls that wait for the registration */
    struct call *waiting;     /* calls that ask for leg 2, or wait for it */
    int64_t wait_ns;          /* when the first of them is due */
    struct claim *claims;
    struct claim *dropped;
    void (*drop_ended)(struct migrate *migrate); /* of the close; else NULL */
    size_t claims_swept;
    struct watch *watches;
    int64_t offset_us; /* tokens: see floor.c */
    int64_t clock_us;  /* how far servers' clocks are ahead of ours, as the presences' tokens show; 0: unknown */
    struct far far[FAR_NAMES];
    uint64_t counted; /* the highest count that was seen on a side on sessions */
    bool offset_known;
    int64_t last_t_us;
    bool flush_posted;
    unsigned depth; /* how many nested calls of the core will flush at their end */
    int64_t due_ns; /* not later than the first due time, but may be earlier */
};

static inline int64_t now_of(struct migrate *migrate)
{
    return migrate->host->now(migrate->host);
}

/* Notes that something is due at at_ns. */
static inline void due_at(struct migrate *migrate, int64_t at_ns)
{
    if (at_ns < migrate->due_ns)
        migrate->due_ns = at_ns;
}

static inline enum migrate_side other_side(enum migrate_side side)
{
    return side == MIGRATE_FROM ? MIGRATE_TO : MIGRATE_FROM;
}

/* Returns the instant from which a claim counts as gone (R1). */
static inline int64_t deadline_of(int64_t from_ns, int64_t good_for_ms)
{
    return from_ns + good_for_ms * NS_PER_MS - (good_for_ms * NS_PER_MS / 100 + 2 * NS_PER_MS);
}

/* ---- presence.c -------------------------------------------------------------------------------------- */

void presence_init(struct migrate *migrate, enum migrate_side side, const char *client_id,
                   const struct presence_events *events);
/* Whether it is held and its deadline has not passed. */
bool presence_is_good(const struct presence *presence, int64_t now_ns);
/* The same, and it is renewed when that is due. */
bool presence_is_kept(const struct presence *presence, int64_t now_ns);
/* Acquires the presence, extends one that may have lapsed, or releases one that is left over; then events->answered. */
void presence_want(struct migrate *migrate, enum migrate_side side);
/* Renews the presences whose renewal is nearly due, together with other requests. */
void presence_renew_along(struct migrate *migrate);
/* wanted false: presences that are due are not renewed until presence_want() is called. */
void presence_turn(struct migrate *migrate, int64_t now_ns, bool wanted);
/* Releases it; then events->given_back. False: there is nothing to release. */
bool presence_give_back(struct migrate *migrate, enum migrate_side side);
/* Cancels what is out, and sends nothing more. */
void presence_stop(struct migrate *migrate, enum migrate_side side);

/* ---- register.c -------------------------------------------------------------------------------------- */

/* Also initialises the presences of all legs. */
void register_init(struct migrate *migrate, const char *client_id,
                   const struct register_events *events);
bool registered(struct migrate *migrate);                /* now */
int64_t registered_until(const struct migrate *migrate); /* D */
/* Begins to register if necessary. Then the calls in to_register go on (events->registered) or fail. */
void register_want(struct migrate *migrate);
/* Whether the presences are to be renewed. */
bool register_wants_presences(struct migrate *migrate);
void register_turn(struct migrate *migrate, int64_t now_ns);
/* The client closes: releases the presences and what was dropped, then completes op. */
void register_leave(struct migrate *migrate, mortise_op *op);
void register_leave_now(struct migrate *migrate); /* op is canceled */

/* ---- meet.c ------------------------------------------------------------------------------------------ */

/* Whether meets has an answer that is recent enough. */
bool meet_is_known(struct migrate *migrate);
/* Asks which clients of a phase are on a side, and calls met() with the answer in meets. False: it cannot be asked. */
bool meet_ask(struct migrate *migrate, enum migrate_side side, unsigned phase,
              void (*met)(struct migrate *migrate));

/* ---- claim.c ----------------------------------------------------------------------------------------- */

/* The grant ids of the first tries follow from the core's grant id, so that another process can release them (dead.c). Those
 * of later tries are random. Two legs never have the same grant id: if the sides are one server, or have one in common (a node
 * of redlock), that server must not take one leg for the other, nor undo one with the other. */
enum { TRIES_NAMED = 3 };
void claim_grant_of_try(const struct migrate *migrate, enum migrate_side side,
                        const mortise_grant_id *core, unsigned number, mortise_grant_id *grant);
struct claim *claim_find(struct migrate *migrate, const mortise_grant_id *grant);
struct claim *claim_make(struct migrate *migrate, const mortise_op *op); /* NULL: out of memory */
bool claim_is_clean(
    const struct claim *claim); /* nothing is held, and nothing can come to be held */
void claim_forget(struct claim *claim);
/* The claim is about to be asked for, or renewed: it may last for ttl_ms from now on. */
void claim_may_last(struct claim *claim, int64_t ttl_ms);
void claim_leave(struct claim *claim); /* the call that works on it ends */
/* The core will not ask for the claim again: releases it, again and again until that is sure. */
void claim_drop(struct claim *claim);
void claims_turn(struct migrate *migrate, int64_t now_ns);
/* The client closes: releases all dropped claims once more, now, and never again; calls drop_ended() after each answer. */
void claims_leave(struct migrate *migrate, void (*drop_ended)(struct migrate *migrate));
bool claims_are_out(const struct migrate *migrate); /* releases of dropped claims are out */
void claims_cancel(struct migrate *migrate);        /* cancels those releases */
void claims_end(struct migrate *migrate);
/* Fills the request that releases a leg; does not send it. */
void leg_prepare_release(struct claim *claim, enum migrate_side side, struct ask *ask,
                         const char *name, size_t name_len);
/* A release of what may be held may still be on its way: release it until that is sure, before asking for anything else. */
bool claim_is_asked_back(const struct claim *claim);
/* Notes what the answer to a release says. False: the leg may still be held. *was (may be NULL): whether it was held. */
bool leg_released(struct leg *leg, const struct ask *ask, bool *was);

/* ---- acquire.c, wait.c ------------------------------------------------------------------------------- */

/* Also initialises the registration below it. */
void acquire_init(struct migrate *migrate, const char *client_id);
void acquire_start(struct call *call);
void acquire_answered(struct call *call, struct ask *ask);
void acquire_cancel(struct call *call);
/* A side has answered that a leg waits for its turn. */
void acquire_waiting(struct call *call);
void wait_begin(struct call *call); /* with leg 2 */
void wait_end(struct call *call);
/* Another client holds leg 2: asks again on news, or after hint_ms. */
void wait_busy(struct call *call, int64_t hint_ms);
/* The answer to a renewal of leg 1. False: it was lost, and the acquire must begin again. */
bool wait_renewed(struct call *call, const struct ask *ask);
void wait_news(struct migrate *migrate, const char *name, size_t name_len);
void wait_turn(struct migrate *migrate, int64_t now_ns);

/* ---- floor.c ----------------------------------------------------------------------------------------- */

uint64_t floor_first(struct call *call);
/* A presence was acquired with that token. */
void floor_learn(struct migrate *migrate, enum migrate_side side, uint64_t token);
/* Leg 1 is granted, and leg 2 is asked for the first time. */
void floor_first_had(struct call *call);
/* Both sides gave that token. */
void floor_given(struct call *call, uint64_t token);
/* The second side gave that token, which is above the first side's. */
void floor_too_low(struct call *call, uint64_t token);

/* ---- lease.c, dead.c, look.c, list.c --------------------------------------------------------------------------- */

void lease_renew(struct call *call);
void lease_release(struct call *call);
void lease_answered(struct call *call, struct ask *ask);
void dead_release(struct call *call);
void dead_answered(struct call *call, const struct ask *ask);
/* Writes to the core's op how long the grant is good: the shortest of all legs and D. */
void lease_tell(struct call *call);
void look_start(struct call *call);
void look_answered(struct call *call, struct ask *ask);
void list_start(struct call *call);
void list_answered(struct call *call, const struct ask *ask);

/* ---- dispatch.c -------------------------------------------------------------------------------------- */

void dispatch_start(struct migrate *migrate, mortise_op **ops, size_t n);
void dispatch_cancel(struct migrate *migrate, mortise_op *op);
/* A side has answered that an op waits for its turn. */
void dispatch_waiting(struct migrate *migrate, mortise_op *op);

/* ---- call.c ------------------------------------------------------------------------------------------ */

/* A call for the core's op; `answered` gets the answers to its requests. NULL: out of memory. */
struct call *call_make(struct migrate *migrate, mortise_op *upper,
                       void (*answered)(struct ask *ask));
/* Makes the name on the second leg: the same name in that side's namespace. False: it is too long there. */
bool call_name_second(struct call *call);
bool call_is_out(const struct call *call); /* a request of it is out */
void call_complete(struct call *call, mortise_status status);
void call_fail(struct call *call, mortise_status status, bool retryable, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Keeps a request's error for call_fail_kept(); NULL: none. */
void call_keep_error(struct call *call, const struct ask *ask);
/* A release: one side has failed. A failure that the core repeats goes before a final one: otherwise a refusal of one side would
 * end the release on the other side, which was only unreachable. INDETERMINATE goes before all others. */
void call_keep_failure(struct call *call, const struct ask *ask);
/* Whether the core repeats a request that has failed as the kept failure says. */
bool call_failure_may_pass(const struct call *call);
/* Fails with the error that was kept, if there is one. */
void call_fail_kept(struct call *call, mortise_status status);
/* Fills the request of a leg with what the core's op says; does not send it. */
struct ask *call_prepare(struct call *call, enum migrate_side side, mortise_op_kind kind);
/* "`from` [redis:old]": for messages. */
const char *side_text(const struct migrate *migrate, enum migrate_side side, char *text,
                      size_t size);

#endif
