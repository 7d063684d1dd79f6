/* internal.h - the migrate plugin's own structures, and which file does what with them. protocol.h has the protocol, its
 * sections are cited by number; migration.h what the command shares.
 *
 *   module.c     the module's table and options; opens and closes an instance, descriptors and due times of both sides
 *   ask.c        a request to a side: sent in batches, answered to whoever asked
 *   presence.c   the presence on a side: taken, renewed, lost, given back (3)
 *   register.c   the registration: presences, then registers; refused, or here until D (4)
 *   meet.c       whom a client that is refused would meet: the text of the refusal
 *   claim.c      what this client has, or may have, under a grant of the core's, on either side; how it is dropped
 *   call.c       an op of the core's, from its coming to its answer
 *   acquire.c    from, then to (6, 7); its waiting in wait.c
 *   floor.c      the token that an acquire is asked with (6)
 *   lease.c      renew, release, break (7)
 *   look.c       inspect, list, ping, watch
 *
 * One way for all phases: a phase has one or two *legs*, the sides in the order in which they are taken; old and new
 * have one, both has two. An op of the core's becomes a *call*, with a request of its own per leg.
 *
 *   core ──▶ call ──▶ ask on leg 1 ──▶ ask on leg 2 ──▶ answered ──▶ core
 *
 * Everything runs inside the pump. Nothing is sent from within a loop over lists that an answer may change: answers
 * come after the module call has returned. */
#ifndef MORTISE_MIGRATE_INTERNAL_H
#define MORTISE_MIGRATE_INTERNAL_H

#include <mortise/driver.h>

#include "protocol.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define NS_PER_MS INT64_C(1000000)
#define BATCH 64
#define SIDES 2
#define SIDE_FDS 64

enum option { OPTION_FROM, OPTION_TO, OPTION_PHASE, OPTION_PRESENCE, OPTION_COUNT };

struct migrate;

/* ---- a request to a side (ask.c) ----------------------------------------------------------------- */

struct ask {
    mortise_op op; /* first */
    struct migrate *migrate;
    enum migrate_side side;
    struct ask *next_out; /* in the outbox */
    bool out;             /* with the module below, or in the outbox */
    bool boxed;           /* in the outbox */
    void (*answered)(struct ask *ask);
    void *of; /* whose it is */
};

/* Zeroed for a new request; keeps whose it is. Must not be out. */
void ask_prepare(struct ask *ask, mortise_op_kind kind);
void ask_send(struct ask *ask);
void ask_cancel(struct ask *ask); /* where it is out */
/* What waits in the outboxes goes below: at the end of each call of the core's. */
void asks_flush(struct migrate *migrate);
/* The instance ends: what was not sent is not sent any more. */
void asks_drop(struct migrate *migrate);
/* The asked thing is there, is not there; or nobody knows. */
bool ask_is_sure(const struct ask *ask);

/* ---- a side ---------------------------------------------------------------------------------------- */

struct presence {
    struct ask ask;
    char name[MORTISE_NAME_MAX + 1]; /* with the namespace */
    size_t name_len;
    mortise_grant_id grant;
    uint64_t token;
    int64_t first_sent_ns;
    bool maybe;          /* a request to take it was sent, and it was not given back for sure */
    bool had;            /* it was had, under this grant */
    bool leftover;       /* it was asked back, and that is not sure: again before another */
    bool again;          /* wanted while it was out: see presence_want */
    int64_t deadline_ns; /* D of this side; 0: none */
    int64_t renew_ns;    /* when it is renewed, or that is tried again */
    int64_t span_ms;     /* what the last answer was good for */
    unsigned failures;
};

struct side {
    mortise_below *below; /* NULL: not opened (the one that the phase does not use) */
    const char *section;
    const char *prefix; /* the namespace; "" */
    size_t prefix_len;
    struct ask *outbox, **outbox_end;
    int fds[SIDE_FDS]; /* what it wanted to have polled */
    size_t fd_count;
    bool used; /* by this phase */
    struct presence presence;
    /* the register, as it was read last */
    struct ask reader;
    char register_name[MORTISE_NAME_MAX + 1];
    char text[MORTISE_RECORD_MAX];
    struct migrate_register reg;
    bool elsewhere; /* this side keeps no records: it is read on the other one */
    bool read;      /* in this registration */
    bool stale;     /* what is out was sent before the presence was there: to be read again */
};

/* ---- claims ---------------------------------------------------------------------------------------- */

/* What there is of a claim on one side. */
struct leg {
    mortise_grant_id grant; /* of its own for every try: a side may remember what was given back */
    uint64_t token;
    int64_t first_sent_ns, from_ns, good_for_ms; /* of the last answer; R1 */
    bool maybe;      /* it was asked for, and may be there, or come to be */
    bool held;       /* it was had */
    bool given_back; /* it was had, and the side said that it gave it back; perhaps not for sure */
    bool asked_back; /* a release was sent, and may be under way yet: never asked for again */
    unsigned tries;  /* so often it was had, or may have been */
};

struct claim {
    UT_hash_handle hh;      /* by grant */
    mortise_grant_id grant; /* the core's */
    struct migrate *migrate;
    struct leg legs[SIDES];
    uint64_t epoch;                /* of the registration that it hangs on */
    bool busy;                     /* a call works on it */
    bool dropped;                  /* nobody will ask for it: it is given back until that is sure */
    struct claim *next, *previous; /* of those dropped */
    int64_t until_ns;              /* it has ended by then, whatever became of it */
    int64_t again_ns;              /* dropped: when that is tried again */
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
    CALL_UNDO,   /* what there is is given back */
    CALL_OTHER,  /* a renewal, a release, a look */
};

/* What comes after an undo. */
enum call_then { THEN_FAIL, THEN_AGAIN };

struct call {
    struct migrate *migrate;
    mortise_op *upper;                            /* the core's; its driver_data[0] is the call */
    struct call *next, *previous;                 /* of all */
    struct call *next_waiting, *previous_waiting; /* to be registered; with leg 2 */
    struct claim *claim;
    struct ask asks[SIDES];
    const char *name[SIDES]; /* on each leg, with its namespace */
    size_t name_len[SIDES];
    enum call_state state;
    bool canceled;
    bool undone;      /* CALL_UNDO: the requests were sent */
    bool waits;       /* it is in `waiting` */
    bool watching;    /* leg 2 is watched */
    bool news;        /* came while leg 2 was asked */
    bool failed;      /* a release, of one of two legs */
    bool was, lost;   /* a release: it was there; it was to be there, and was not */
    int64_t ask_ns;   /* when leg 2 is asked again; 0: not */
    int64_t renew_ns; /* when leg 1 is renewed while leg 2 is waited for */
    enum call_then then;
    mortise_status status; /* the answer, where it comes later than what it says */
    int64_t hint_ms;
    uint64_t lapses;      /* migrate->lapses, when it was found to be registered */
    uint64_t floor;       /* of a second try, where the first one's was too low; else 0 */
    int64_t floored_us;   /* when the floor was computed */
    int64_t first_had_us; /* when leg 1 was had */
    bool has_error;
    /* from here on not zeroed */
    mortise_error error;
    char second_name[MORTISE_NAME_MAX + 1];
    mortise_info second_info; /* an inspect: of leg 2 */
    char lines[SIDES][112];
};

/* A name that leg 2 is watched for. */
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

/* ---- the instance ---------------------------------------------------------------------------------- */

enum registering {
    REGISTER_IDLE,
    REGISTER_TAKE,  /* (i) */
    REGISTER_READ,  /* (ii) */
    REGISTER_NAME,  /* (iii): whom would one meet? */
    REGISTER_LEAVE, /* presences are given back */
};

struct migrate {
    mortise_host *host;
    const mortise_value *values;
    char *note;
    size_t note_len;
    unsigned phase;
    int64_t presence_ms;
    struct side sides[SIDES];
    enum migrate_side legs[SIDES]; /* in the order of taking */
    size_t leg_count;

    enum registering registering;
    bool here;      /* registered, until D */
    uint64_t epoch; /* counts the presences that were lost */
    uint64_t
        lapses; /* counts the presences that had lapsed when they were extended, or were lost */
    uint64_t lapses_before; /* (ii) */
    int64_t grace_ns;       /* how long an answer is waited for that one can do without; 0: none */
    struct ask lister;
    char meets[256]; /* whom one would meet */
    char meets_name[MORTISE_NAME_MAX + 1];
    size_t meets_count;
    enum migrate_side refused_by;
    mortise_op *leaving; /* of the close */

    struct call *calls;
    struct call *to_register; /* calls that wait for the registration */
    struct call *waiting;     /* calls that ask for leg 2, or wait for it */
    int64_t wait_ns;          /* when the first of them is to be looked at */
    struct claim *claims;
    struct claim *dropped;
    size_t claims_swept;
    struct watch *watches;
    int64_t offset_us; /* tokens: see floor.c */
    int64_t clock_us;  /* how far servers' clocks are ahead of ours, by presences; 0: not known */
    struct far far[FAR_NAMES];
    uint64_t counted; /* what a side on sessions has counted to, as far as was seen */
    bool offset_known;
    int64_t last_t_us;
    bool flush_posted;
    unsigned depth; /* calls of the core's that will flush at their end */
    int64_t due_ns; /* not later than the first thing that is to be done; may be earlier */
};

static inline int64_t now_of(struct migrate *migrate)
{
    return migrate->host->now(migrate->host);
}

/* Something is to be done then. */
static inline void due_at(struct migrate *migrate, int64_t at_ns)
{
    if (at_ns < migrate->due_ns)
        migrate->due_ns = at_ns;
}

static inline enum migrate_side other_side(enum migrate_side side)
{
    return side == MIGRATE_FROM ? MIGRATE_TO : MIGRATE_FROM;
}

/* The instant from which a claim that is good for so long must be taken for gone: R1. */
static inline int64_t deadline_of(int64_t from_ns, int64_t good_for_ms)
{
    return from_ns + good_for_ms * NS_PER_MS - (good_for_ms * NS_PER_MS / 100 + 2 * NS_PER_MS);
}

/* ---- presence.c -------------------------------------------------------------------------------------- */

void presence_init(struct migrate *migrate, enum migrate_side side, const char *client_id);
/* It is there, until its deadline. */
bool presence_is_good(const struct presence *presence, int64_t now_ns);
/* Takes it, or extends one that may have lapsed, or gives back what was left over; register_presence() hears of the
 * answer. */
void presence_want(struct migrate *migrate, enum migrate_side side);
/* Renews it where that is due, or nearly: with what is sent to this side anyway. */
void presence_renew_along(struct migrate *migrate);
void presence_turn(struct migrate *migrate, int64_t now_ns);
/* register_left() hears of the answer. False: there is none. */
bool presence_give_back(struct migrate *migrate, enum migrate_side side);

/* ---- register.c -------------------------------------------------------------------------------------- */

void register_init(struct migrate *migrate);
bool registered(struct migrate *migrate);                /* now */
int64_t registered_until(const struct migrate *migrate); /* D */
/* Sees to it that the calls in to_register go on, or fail. */
void register_want(struct migrate *migrate);
void register_presence(struct migrate *migrate, enum migrate_side side);
void register_lost(struct migrate *migrate); /* a presence: all grants with it */
void register_left(struct migrate *migrate);
void register_named(struct migrate *migrate);
void register_turn(struct migrate *migrate, int64_t now_ns);
/* The client closes. */
void register_leave(struct migrate *migrate, mortise_op *op);

/* ---- meet.c ------------------------------------------------------------------------------------------ */

/* Asks who of a phase is on a side; false: it cannot be asked. register_named() hears of the answer. */
bool meet_ask(struct migrate *migrate, enum migrate_side side, unsigned phase);

/* ---- claim.c ----------------------------------------------------------------------------------------- */

struct claim *claim_find(struct migrate *migrate, const mortise_grant_id *grant);
struct claim *claim_make(struct migrate *migrate, const mortise_op *op); /* NULL: out of memory */
bool claim_is_clean(const struct claim *claim); /* there is nothing, and nothing will come */
void claim_forget(struct claim *claim);
void claim_leave(struct claim *claim); /* the call that worked on it ends */
/* Nobody asks for it any more: it is given back, again and again until that is sure. */
void claim_drop(struct claim *claim);
void claims_turn(struct migrate *migrate, int64_t now_ns);
void claims_end(struct migrate *migrate);
/* The request to give a leg back, not sent. */
void leg_prepare_release(struct claim *claim, enum migrate_side side, struct ask *ask,
                         const char *name, size_t name_len);
/* A release of what may be there may be under way: it is to be given back before anything else is asked. */
bool claim_is_asked_back(const struct claim *claim);
/* What the answer says: false: it may still be there. *was (may be NULL): whether it was. */
bool leg_released(struct leg *leg, const struct ask *ask, bool *was);

/* ---- acquire.c, wait.c ------------------------------------------------------------------------------- */

void acquire_start(struct call *call);
void acquire_registered(struct call *call); /* go on */
void acquire_ask_second(struct call *call);
/* Leg 1 is not there any more: all begins again, as soon as leg 2 is no more asked. */
void acquire_begin_again(struct call *call);
void acquire_answered(struct call *call, struct ask *ask);
void acquire_cancel(struct call *call);
void wait_begin(struct call *call); /* with leg 2 */
void wait_end(struct call *call);
/* It is another's: asked again on news, or then. */
void wait_busy(struct call *call, int64_t hint_ms);
/* The answer to a renewal of leg 1. False: it was lost, and all begins again. */
bool wait_renewed(struct call *call, const struct ask *ask);
void wait_news(struct migrate *migrate, const char *name, size_t name_len);
void wait_turn(struct migrate *migrate, int64_t now_ns);

/* ---- floor.c ----------------------------------------------------------------------------------------- */

uint64_t floor_first(struct call *call);
/* A presence was taken with that token. */
void floor_learn(struct migrate *migrate, enum migrate_side side, uint64_t token);
/* Leg 1 is had, and leg 2 is asked for the first time. */
void floor_first_had(struct call *call);
/* Both sides gave that one. */
void floor_given(struct call *call, uint64_t token);
/* The second side gave that one, which is above the first side's. */
void floor_too_low(struct call *call, uint64_t token);

/* ---- lease.c, look.c --------------------------------------------------------------------------------- */

void lease_renew(struct call *call);
void lease_release(struct call *call);
void lease_answered(struct call *call, struct ask *ask);
/* What all legs are good for, and D, into the core's op. */
void lease_tell(struct call *call);
void look_start(struct call *call);
void look_answered(struct call *call, struct ask *ask);

/* ---- call.c ------------------------------------------------------------------------------------------ */

void calls_start(struct migrate *migrate, mortise_op **ops, size_t n);
void call_cancel(struct migrate *migrate, mortise_op *op);
bool call_is_out(const struct call *call); /* some request of it */
void call_complete(struct call *call, mortise_status status);
void call_fail(struct call *call, mortise_status status, bool retryable, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* With a request's failure, kept for later; NULL: none. */
void call_keep_error(struct call *call, const struct ask *ask);
/* With what was kept. */
void call_fail_kept(struct call *call, mortise_status status);
/* Fills the request of a leg with what the core's op says; ask_send() is left to do. */
struct ask *call_prepare(struct call *call, enum migrate_side side, mortise_op_kind kind);
/* "`from` [redis:old]": for messages. */
const char *side_text(const struct migrate *migrate, enum migrate_side side, char *text,
                      size_t size);

#endif
