/* claim.h - a claim: the life of one grant id, from its first request until the backend holds nothing under it, or until
 * the client leaves it to the backend to drop the claim at the end of its ttl.
 *
 * A claim is PAUSED until its waitlist asks with it, and HELD while a lease refers to it. Its memory is free again when every
 * request under its id has been answered and everything that could be released in the backend has been released there. Each
 * acquire of a claim has a new grant id, unless an earlier one may still be executed (`maybe`): then it repeats the same id.
 * A claim has two requests of its own, so that no renewal and no release can fail because memory is short: `ask` acquires
 * and renews, `end` releases. The handle of its slot is the lease; a hand-over renews the handle, and the old one is spent.
 *
 *   PAUSED    no request is out                     JOINED   a lease shares another claim
 *   ASKING    an acquire is out                     LOST     its lease was lost, and not released yet
 *   LEAVING   an acquire is out, but unwanted       ENDING   a release is out, or pauses
 *   HELD      a lease refers to it                  GONE     nothing is in the backend, or what is ends with its ttl
 *
 * state   | OK         | BUSY, LOST (a) | INDETERMINATE | no answer (b) | refused (c)       | unwanted    | timer
 * --------|------------|----------------|---------------|---------------|-------------------|-------------|---------------------
 * PAUSED  | -          | -              | -             | -             | -                 | GONE (2)    | ASKING (10)
 * ASKING  | HELD (1)   | PAUSED (2)     | PAUSED, maybe | PAUSED        | PAUSED (2)        | LEAVING     | ASKING (8)
 * LEAVING | ENDING     | GONE (2)       | ENDING        | GONE (2)      | GONE (2)          | -           | -
 * HELD    | HELD (3)   | LOST (11)      | HELD, suspect | HELD, suspect | HELD, suspect (9) | ENDING (12) | renew (13); LOST (3)
 * JOINED  | -          | -              | -             | -             | -                 | GONE        | - (7)
 * LOST    | ENDING (4) | LOST           | ENDING (4)    | LOST          | LOST              | GONE        | -
 * ENDING  | GONE (5)   | GONE (5)       | ENDING (6)    | ENDING (6)    | GONE (5)          | ENDING      | repeat (13)
 *
 * The answers are those to `ask` in PAUSED to LOST, and to `end` in ENDING.
 * (a) BUSY answers an acquire; LOST and NOTOWNER answer a renewal or a release. In another place they count as refused.
 * (b) UNREACHABLE, CANCELED, TIMEDOUT, and a BACKEND that may pass (`retryable`). For a release also NOMEM, and each other error
 *     that may pass.
 * (c) Every other status. In ASKING the head of the waitlist fails with it.
 *
 * (1) ENDING, if the answer took as long as the claim lasts: the waitlist goes on with another claim.
 * (2) ENDING, if `maybe`: the reply to an earlier request of this id was lost. That request may still be executed; or it
 *     failed, and the driver's undo of it may still arrive. The waitlist goes on with another claim. After BUSY, a try asks
 *     again with that claim, at once, only if nobody holds the name.
 * (3) An answer that extends the claim moves its deadline (but see (11)). When the deadline has passed, the timer, an answer to
 *     `ask`, or a call that releases, extends or downgrades makes the claim LOST; other calls only mark it (see below). The
 *     claim becomes ENDING instead, and keeps its lease, if the backend may keep it for longer: a renewal is out, or an earlier
 *     one may have moved the claim there at any time (`moved`), or the claim is good for less than its ttl (`span_ms`).
 * (4) A renewal that was answered with OK or INDETERMINATE after the loss may have moved the claim. If that answer comes in
 *     ENDING, while the lease has not been released, the release is repeated (`end_again`).
 * (5) GONE, if the answer is final and `end_again` is not set; else as (6). A refusal is final. Any other answer is final if
 *     the driver is `sure`, unless the claim is of a dead process and an acquire of it may still be on its way (`foreign` and
 *     `maybe`). While the lease has not been released, LOST instead of GONE.
 * (6) The release is repeated. When the ttl ends, or a close gives up, the release is over as in (5): what may be left in
 *     the backend ends with its ttl.
 * (7) A guest has no request and no timer of its own: it is LOST with its host, or at its deadline. A caller's unused claim
 *     goes from PAUSED to JOINED when the caller joins a host (join.c).
 * (8) The timer is set only while callers with owners wait behind the head. It makes one of them ask alone (waitlist.h).
 * (9) The claim is as it was, and does not become suspect, if a downgrade was refused (downgrade.c), or the driver does not
 *     take the ttl of an extension (extend.c).
 * (10) The list asks earlier if there is news of the name, or another head (waitlist.h). After a release or a downgrade in this
 *     process it asks at once, or within 100 ms if the name is watched. After a lost reply it asks at once, if that is the first
 *     failure. If there is no memory, the claim stays PAUSED.
 * (11) GONE at once, if only guests use the claim; the same holds for LOST in (3). Such a claim becomes ENDING if its last guest
 *     is lost while the claim itself is not (join.c).
 * (12) HELD with a new handle, if a local caller takes the claim over (lease.c). HELD without a lease, if guests share it
 *     (join.c).
 * (13) If a request has been out for too long, the timer cancels it instead. In HELD, the claim then becomes suspect.
 *
 * A witness makes claims of dead processes, which go from PAUSED to ENDING (client/witness.c).
 *
 * A downgrade changes no state: it is a renewal that also makes the claim shared (downgrade.c). An extension changes no state
 * either: it is one renewal of a claim that is not renewed otherwise (extend.c). The same holds for a doubt of the driver: in
 * HELD, the claim is renewed at once, or after the renewal that is out (`doubted`).
 *
 * "Unwanted": its callers left, or the next one wants something else; the lease is released; or the client closes. A claim
 * that is GONE is free again when both of its requests have been answered.
 *
 * A deadline is only extended by compare-and-swap, from a value that has not passed; the thread that first sees that it
 * has passed marks it DEADLINE_PASSED, and that is final. */
#ifndef MORTISE_CORE_LOCK_CLAIM_H
#define MORTISE_CORE_LOCK_CLAIM_H

#include "lock/locks.h"

#define DEADLINE_PASSED INT64_MIN

enum claim_state {
    CLAIM_PAUSED,
    CLAIM_ASKING,
    CLAIM_LEAVING,
    CLAIM_HELD,
    CLAIM_JOINED,
    CLAIM_LOST,
    CLAIM_ENDING,
    CLAIM_GONE
};

/* A request to make the claim shared goes along with each renewal until one of them is answered. */
enum downgrade {
    DOWNGRADE_NONE,
    DOWNGRADE_WANTED, /* none of these renewals can have been executed */
    DOWNGRADE_MAYBE   /* one may have been executed: the claim is of either mode in the backend */
};

/* A caller that waits for the answer to a release, a downgrade or an extension, on its stack; or an async release. */
struct release_wait {
    struct sleeper sleeper;
    mortise_status status; /* for the caller; while it waits: what it gets if it stops waiting now */
    mortise_error *error;  /* filled with detail, if there is any; may be NULL */
    bool taken; /* INDETERMINATE: a reply was lost, and a later try found that another has the lock */
    /* async release: called in place of waking the sleeper; client lock held. It waits no longer than until_ns */
    void (*told)(struct release_wait *wait);
    int64_t until_ns;
};

struct claim {
    struct slot slot;
    /* Read by any thread with a handle, under no lock; never reset as a whole. */
    mortise_client *_Atomic client;
    /* Likewise. Written with release, and read with acquire before the handle is checked again: who reads a value of a later
     * lease in this slot sees that the handle is spent. */
    _Atomic int64_t deadline_ns;
    _Atomic uint64_t token;
    _Atomic bool suspect;

    /* From here on: the lock of the client. Zero in a new claim. */
    enum claim_state state;
    bool ask_out, end_out; /* the request is in the pump, or about to go there */
    bool leased;           /* its own lease has not been released; a claim with guests may be HELD without a lease */
    bool maybe;            /* a request under its id may have been executed, and its reply was lost */
    struct locks *locks;
    struct name *name; /* NULL: not used yet */
    struct claim *next, *previous;
    struct waitlist *waitlist; /* ASKING and PAUSED: it asks for this one */
    struct timer timer;
    mortise_grant_id id;
    char *owner; /* NULL: no owner */
    uint32_t owner_len;
    uint32_t ttl_ms;
    mortise_mode mode;
    uint32_t permits;
    mortise_witness_slot *mark; /* what a witness sees of it; NULL: nothing */
    bool asked_once; /* HELD: no other request than the answered one can acquire it */
    bool foreign;    /* of a dead process: only ENDING */
    bool left;       /* the client closes, and the claim is left to its ttl */

    /* ASKING */
    int64_t first_sent_ns; /* of the first request under the id, if `maybe` */
    struct holder_room *room;

    /* HELD */
    uint32_t span_ms;      /* how long the claim is good for from the last answer on: the ttl, or less */
    bool renew;            /* until hold_until_ns */
    bool ends;             /* the lease ends with its ttl, although the claim is renewed until then */
    bool doubted;          /* the driver doubts the claim: renew it after the renewal that is out */
    bool extends;          /* the renewal that is out extends the claim; else it only asks whether the claim exists */
    bool answers_doubt;    /* the renewal that is out was sent because of a doubt */
    uint16_t failures;     /* of renewals, in a row */
    bool moved;            /* one of them may have been executed, so the backend may keep the claim beyond its deadline */
    enum downgrade downgrade;
    struct release_wait *downgrader; /* NULL: nobody waits for it */
    uint32_t first_ttl_ms; /* of the acquire; extensions may make ttl_ms larger */
    int64_t extend_ms;     /* mortise_extend(): the ttl that the next renewal asks for; 0: none */
    uint32_t unextended_ms; /* ttl_ms without that call */
    bool extending;        /* the renewal that is out asks for the ttl of mortise_extend() */
    struct release_wait *extender; /* NULL: nobody waits for it */
    uint32_t handovers;    /* and joins, up to handover_max */
    struct claim *guests;  /* JOINED claims that share this one */
    int64_t granted_ns;    /* by the backend */
    int64_t renewed_ns;    /* the deadline counts from then */
    int64_t hold_until_ns; /* no renewal after this; NEVER */
    uint64_t number;       /* of the lease, for observers */
    struct notice change, loss; /* HELD or SUSPECT; LOST */

    /* JOINED */
    struct claim *host; /* HELD; the list of its guests: */
    struct claim *next_guest, *previous_guest;

    /* ENDING */
    struct release_wait *wait; /* NULL: nobody waits */
    int64_t ends_ns;           /* the claim has ended by itself by then */
    unsigned attempts;
    bool end_again;  /* once more after the release that is out: a late renewal came in between */
    bool maybe_done; /* a former release may have been executed: if the claim is absent, it is not lost */

    struct task ask, end; /* the last members: not cleared */
};

extern struct slab claim_slab;

/* ---- claim.c: what all states need ---- */

/* PAUSED and not used yet; NULL: no memory. */
struct claim *claim_new_locked(struct locks *locks, const char *owner, size_t owner_len);
/* PAUSED and not `maybe`: the claim is free again. */
void claim_discard_locked(struct claim *claim);
/* Enters the claim at its name, before its first request. */
void claim_use_locked(struct claim *claim, struct name *name);
/* The only function that changes the state. To GONE: frees the claim, now or with the last answer. */
void claim_go_locked(struct claim *claim, enum claim_state state);
/* An answer came: `ask_out` or `end_out` was cleared. Frees the claim if it is GONE. */
void claim_answered_locked(struct claim *claim);
/* The handle of the lease is spent, and no callback of it waits. */
void claim_spend_lease_locked(struct claim *claim);
/* *who (NULL: nobody) gets its answer and waits no more; its memory may be gone afterwards. If detail is NULL, the error that
 * was filled before stays. */
void claim_tell_locked(struct claim *claim, struct release_wait **who, mortise_status status,
                       const mortise_error *detail);
/* Fills what all requests of a claim have in common. */
void claim_fill_op(const struct claim *claim, struct task *task, mortise_op_kind kind,
                   void (*done)(mortise_op *op));

/* ---- mark.c: what a witness sees of the claim: the table in <mortise/witness.h> ---- */

/* Before the first request under a new grant id leaves. */
void claim_mark_asking_locked(struct claim *claim);
/* The state has changed. */
void claim_mark_state_locked(struct claim *claim);
/* A renewal, an extension or a downgrade is about to leave. */
void claim_mark_renewal_locked(struct claim *claim, int64_t now);
/* The claim is free again. */
void claim_unmark_locked(struct claim *claim);

/* ---- held.c: deadline, renewal, loss ---- */

/* ASKING -> HELD by this answer, and the lease is the waiter's. False: the answer came after the deadline that
 * it proves. */
bool claim_hold_locked(struct claim *claim, struct waiter *waiter, const mortise_op *op);
/* The lease is the waiter's from here on. No notice of a former one is queued. */
void claim_adopt_locked(struct claim *claim, struct waiter *waiter, int64_t now);
/* The lease passes to this waiter: its settings, its callback, a handle of its own. */
void claim_pass_on_locked(struct claim *claim, struct waiter *waiter);
/* The deadline as it is at `now`; DEADLINE_PASSED is final. Any thread, no lock. */
int64_t claim_deadline(struct claim *claim, int64_t now);
/* False: the old deadline passed first, and the new one means nothing. Never shortens. */
bool claim_extend_deadline(struct claim *claim, int64_t deadline_ns);
/* HELD -> LOST or ENDING, JOINED -> LOST, if the deadline has passed. A host that only this guest used is ended. */
void claim_check_deadline_locked(struct claim *claim, int64_t now);
/* HELD: renews, or finds the deadline passed. */
void claim_held_timer_locked(struct claim *claim, int64_t now);
/* The first renewal of its period is due at its timer: not a retry, and not the deadline. */
bool claim_is_renewal(struct claim *claim);
/* The driver doubts this name: renews each held claim of it. */
void claims_doubt_locked(struct name *name, int64_t now);
/* The same for a name, or for all names (NULL). Inside the pump. */
void claims_doubt(struct locks *locks, const char *name, size_t length);
/* How far the server's clock and ours may drift apart during a ttl: 1 % of it and 2 ms (R1). */
int64_t drift_margin_ns(int64_t ttl_ms);

/* Renews now. No request of the claim is out. */
void claim_renew_locked(struct claim *claim, int64_t now);

/* ---- join.c ---- */

/* The claim is HELD, and this caller may use it too without a request: it is far from its deadline, and it is what the
 * caller wants. False while the claim is being checked or renewed: until the answer is there, a server that failed over or
 * came back empty may have granted the name to somebody else, and the new holder would begin with a lost claim. */
bool claim_may_be_shared(struct claim *claim, const struct waiter *waiter, int64_t now);
/* The waiter gets a lease on the claim of `host`, if it may; its spare claim becomes JOINED. */
bool claim_join_locked(struct claim *host, struct waiter *waiter, int64_t now);
/* The guest leaves its host, which is returned; its state is changed by the caller. */
struct claim *claim_leave_locked(struct claim *guest);
void guest_lost_locked(struct claim *guest);
/* What happened to the host happens to its guests. */
void guests_lost_locked(struct claim *host);
void guests_suspect_locked(struct claim *host, mortise_status status);
void guests_renewed_locked(struct claim *host);

/* ---- downgrade.c ---- */

/* The caller stops waiting and returns wait->status. */
void claim_downgrade_detach_locked(struct claim *claim);
/* A renewal with MORTISE_OP_DOWNGRADE was answered with OK (the first function), or has failed (the second). True: the
 * downgrade was refused, and the claim is as it was. */
void claim_downgraded_locked(struct claim *claim);
bool claim_downgrade_failed_locked(struct claim *claim, const mortise_op *op);
/* The lease ends: the caller that waits learns it. */
void claim_downgrade_over_locked(struct claim *claim, mortise_status status);

/* ---- extend.c ---- */

/* The claim is HELD, is not renewed, and no other call extends it: asks for ttl_ms from now on. */
void claim_extend_locked(struct claim *claim, int64_t ttl_ms, struct release_wait *wait);
/* The caller stops waiting and returns wait->status. */
void claim_extend_detach_locked(struct claim *claim);
/* A renewal was answered with OK. If it asked for an extension, the caller learns it. */
void claim_extended_locked(struct claim *claim, const mortise_op *op);
/* A renewal has failed. True: it asked for an extension whose ttl the driver does not take, so the driver has asked the server
 * nothing, and the claim is as it was before the call. */
bool claim_extend_failed_locked(struct claim *claim, const mortise_op *op);
/* The lease ends: the caller that waits learns it. */
void claim_extend_over_locked(struct claim *claim, mortise_status status);

/* ---- ending.c: releases ---- */

/* -> ENDING: releases the claim in the backend, until that is sure or the claim has ended by itself in ttl_ms. */
void claim_end_locked(struct claim *claim, int64_t now);
/* The caller waits for the answer, from before the request is started. */
void claim_attend_locked(struct claim *claim, struct release_wait *wait);
/* The caller stops waiting: the release goes on in the background. */
void claim_detach_locked(struct claim *claim);
/* ENDING: repeats the release, or stops waiting for its answer. */
void claim_ending_timer_locked(struct claim *claim);
/* The client closes: releases that pause are repeated now. */
void claims_hurry_locked(struct locks *locks);
/* The client closes, and has waited long enough: gives up the releases that are left. */
void claims_abandon_locked(struct locks *locks);

#endif
