/* witness.h - how a client and a *witness* work together. A witness is a process that releases the claims of other
 * processes of its host when they have died. docs/crash.md explains why that is safe. SPDX-License-Identifier: MIT
 *
 * An application does not need this header: the library talks to `mortise witness` by itself. It is for programs that
 * are witnesses, and for their tests.
 *
 * THE AREA. The client makes a memfd, seals it against shrinking (F_SEAL_SHRINK) and maps it. It begins with a struct
 * mortise_witness_area; slots follow. Each claim of the client has one slot while the backend may hold something of it.
 * The client writes slots under its own lock and never waits for the witness. The witness reads the area with pread() into a
 * copy, and checks the copy. So no page of the client is mapped in the witness. It releases only what it reads after the
 * process has died: what it reads of a live process may be an instant old, or half written.
 *
 * A slot is in one of these states. Only the client changes it; each change except WRITING is one store of one word.
 *
 *   state    | meaning                                                       | what the witness does when the process is dead
 *   ---------|---------------------------------------------------------------|------------------------------------------------
 *   FREE     | the backend holds nothing                                     | nothing
 *   WRITING  | the fields are being written, for a request that has not left | nothing
 *   ASKED    | a request may have been executed, or may be executed yet      | releases again and again, until the ttl is over***
 *   HELD     | granted, and no request can be executed that acquires it      | releases until it has one answer
 *
 *   event (core/lock/claim.h has the states of a claim)              | FREE     WRITING  ASKED    HELD
 *   -----------------------------------------------------------------|----------------------------------
 *   the claim is about to ask, under a new grant id                  | WRITING  -        WRITING* -
 *   the fields are written; the request may leave from here on       | -        ASKED    -        -
 *   it asks again under the same grant id (the reply was lost)       | -        -        ASKED    -
 *   the answer is "not granted", and nothing of the id can be there  | -        -        FREE     -
 *   granted, and it was asked for once                               | -        -        HELD     -
 *   granted, and an earlier reply was lost                           | -        -        ASKED    -
 *   renewed, handed over, made shared, suspect, lost, being released | -        -        ASKED    HELD
 *   GONE: the release is sure or refused**, or its ttl has passed    | -        -        FREE     FREE
 *   the client closes and leaves the claim to its ttl****            | -        -        ASKED    HELD
 *
 *   *: only if nothing of the former id can be in the backend.
 *   **: a repeat would be refused in the same way. If the claim is still in the backend, it ends with its ttl.
 *   ***: or the witness has closed its own client of that configuration (docs/crash.md says when).
 *   ****: `ends_ns` has an instant from then on.
 *
 * The critical moments, step by step. If the process dies
 *   - in WRITING: no request of the new id has left, and nothing of the former id is in the backend. The sequence number
 *     is odd, so the witness does not use a half-written slot.
 *   - after ASKED was written, before the request leaves: the releases find nothing.
 *   - with a request on its way: it may be executed after a release that found nothing. So the witness repeats the release
 *     until the ttl is over, counted from the first release. A request that is executed even later makes a claim that ends
 *     with its own ttl, as without a witness.
 *   - between the grant and HELD: as in ASKED, at the cost of some needless requests.
 *   - with a renewal on its way: a renewal of a grant that is gone does nothing (R3).
 *   - with its own release on its way: the witness's release finds nothing.
 *   - after GONE: the client stores FREE when nothing is left that a release could remove, so no release is needed.
 * A release names the grant id, 128 random bits that are never used twice. So a witness that is late, is started twice,
 * or was stopped for an hour cannot release a successor's claim.
 *
 * THE CONNECTION is a SEQPACKET Unix socket, one for each client. A message is one struct mortise_witness_message,
 * followed by text. All processes of a host have one byte order.
 *
 *   HELLO    client   the process and its area, as two descriptors (SCM_RIGHTS): a pidfd that the client opened of
 *                     itself, then the area. Text: the configuration
 *   WELCOME  witness  the process is watched
 *   REFUSE   witness  the process is not watched; text: why. The witness closes the connection
 *   BYE      client   the area has no claim any more, and will get none: the witness forgets it
 *   ASK      anybody  is the process `pid` watched?
 *   TELL     witness  the answer: pid, and the number of its areas
 *
 * The witness acts only on the pidfd. The end of the connection means nothing: a process may close all descriptors, and a
 * child of a fork may keep them open. */
#ifndef MORTISE_WITNESS_H
#define MORTISE_WITNESS_H

#include <mortise/mortise.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MORTISE_WITNESS_MAGIC UINT32_C(0x4d525457) /* "MRTW" */
#define MORTISE_WITNESS_VERSION 1     /* of the area and the messages */
#define MORTISE_WITNESS_GRANT_SIZE 16 /* bytes */
#define MORTISE_WITNESS_SLOTS_MAX 65536 /* in one area; claims beyond that are not witnessed */
#define MORTISE_WITNESS_TEXT_MAX 4096   /* bytes behind a message */

/* ---- The area ----------------------------------------------------------------------------------- */

/* The state of a slot: see the table. WRITING is an odd sequence number. */
typedef enum mortise_witness_state {
    MORTISE_WITNESS_FREE = 0, /* a new area is zero */
    MORTISE_WITNESS_ASKED = 1,
    MORTISE_WITNESS_HELD = 2
} mortise_witness_state;

/* 64 bytes, at the beginning of the area. */
typedef struct mortise_witness_area {
    uint32_t magic, version;
    uint32_t slot_size; /* sizeof(mortise_witness_slot) */
    uint32_t used;      /* the slot with this index, and all after it, were never written */
    uint32_t reserved[12];
} mortise_witness_area;

enum {
    MORTISE_WITNESS_SHARED = 1u << 0,  /* the claim is shared */
    MORTISE_WITNESS_EITHER = 1u << 1   /* a downgrade was asked for: the claim may be of either mode */
};

/* One claim of the client. */
typedef struct mortise_witness_slot {
    uint32_t sequence; /* odd: WRITING */
    uint32_t state;    /* mortise_witness_state */
    uint32_t flags;
    uint32_t permits;
    int64_t ttl_ms;
    int64_t ends_ns; /* CLOCK_BOOTTIME: twice the ttl after the last renewal; INT64_MAX: no such instant. After it, an ASKED
                      * claim is not released. The backend may keep a claim for longer (`zookeeper`: for the session). If a
                      * close leaves a claim that was never granted, it sets ends_ns too: to twice the ttl and an hour (the
                      * longest session) after that instant */
    unsigned char grant[MORTISE_WITNESS_GRANT_SIZE];
    uint32_t name_len, owner_len;
    char name[MORTISE_NAME_MAX];   /* with the namespace */
    char owner[MORTISE_OWNER_MAX]; /* owner_len 0: no owner */
    uint64_t reserved;
} mortise_witness_slot;

/* ---- Messages ----------------------------------------------------------------------------------- */

/* The kinds of messages: see THE CONNECTION. */
typedef enum mortise_witness_kind {
    MORTISE_WITNESS_HELLO = 1,
    MORTISE_WITNESS_WELCOME = 2,
    MORTISE_WITNESS_REFUSE = 3,
    MORTISE_WITNESS_BYE = 4,
    MORTISE_WITNESS_ASK = 5,
    MORTISE_WITNESS_TELL = 6
} mortise_witness_kind;

/* The first three fields are the same in all versions. A witness answers another version with REFUSE. */
typedef struct mortise_witness_message {
    uint32_t magic;
    uint16_t version, kind;
    int32_t pid;              /* ASK, TELL: in the witness's pid namespace */
    uint32_t count;           /* TELL */
    uint64_t print;           /* HELLO: mortise_config_print() */
    int64_t crash_delay_ms;   /* HELLO: from the death to the release; 0 to MORTISE_TTL_MAX_MS */
    uint32_t text_len;        /* the text that follows; without a NUL */
    uint32_t reserved;
} mortise_witness_message;

/* ---- Functions ---------------------------------------------------------------------------------- */

/* As mortise_open(), but the witness of this client is at the other end of `socket`, a connected SEQPACKET socket, whatever
 * other witness the config names. The client has no witness if the config says `witness = off`, or if the config, or a secret
 * that it names, came out of a pipe: the witness could not read that again. The client owns the socket from now on, also if
 * the call fails. */
MORTISE_API mortise_status mortise_open_witnessed(const char *where, int socket, mortise_client **client,
                                                  mortise_error *error);
/* Opens the configuration of a process that may die, for mortise_release_dead(). Like mortise_open(), but the client has no
 * observers and no witness of its own, and `require` is ignored, because it says what that process needs. */
MORTISE_API mortise_status mortise_open_for_dead(const char *where, mortise_client **client, mortise_error *error);

/* Writes the path of the socket at which this client looks for its witness, and returns its length without the NUL. If the
 * client looks for no witness, returns 0 and writes the reason ("witness = off"), or "" if the client was closed. Writes at
 * most size bytes, including the NUL. */
MORTISE_API size_t mortise_witness_path(mortise_client *client, char *buffer, size_t size);
/* The same for the path that the configuration names for a witness, also if this client cannot use a witness (a URL with a
 * password): a witness there may watch other processes. Returns 0 and writes "" if the configuration says `witness = off`,
 * or the client was opened by one of the functions above. */
MORTISE_API size_t mortise_witness_configured(mortise_client *client, char *buffer, size_t size);
/* Returns a number that is the same for two clients with the same configuration, environment variables included. If the
 * numbers differ, the witness knows that it has read another configuration than the client, although the file has the same
 * name. 0: the client was closed. */
MORTISE_API uint64_t mortise_config_print(mortise_client *client);

/* Returns whether the backend may hold the name for this client without a lease: because of a request that was given up and
 * has not been answered or undone yet, or because of a lease whose release is not over. So a program can tell a claim that it
 * left behind from the lock of another process with the same host and pid (in another container): call this before you ask
 * the backend. If the backend refused an undo or a release for good (for example, because the right to write was taken away),
 * the result is true for every name until the ttl of that claim is over. Returns false if the client was closed, the process
 * was forked, or `name` is not a valid name. */
MORTISE_API bool mortise_has_remains(mortise_client *client, const char *name);

/* Releases a claim of a dead process: asks the backend to drop the grant id, and repeats that until it is sure, or until
 * the ttl is over, counted from this call. Never call it for a process that may be alive.
 * slot: a copy, in the state ASKED or HELD; `sequence` and `ends_ns` are not looked at.
 * The callback gets OK if the backend had the claim, LOST or NOTOWNER if it has nothing of it, or why the release is not
 * certain (UNREACHABLE, …; then the library goes on). It is called once, on the notifier thread or in
 * mortise_dispatch(), with the first answer, or when the ttl is over.
 * OK: the callback will be called. BUSY: many thousand releases are under way; try again later. INVALID: a field of the slot
 * is out of range. NOMEM, CLOSED, FORKED. */
MORTISE_API mortise_status mortise_release_dead(mortise_client *client, const mortise_witness_slot *slot,
                                                mortise_release_callback callback, void *user_data,
                                                mortise_error *error);

#ifdef __cplusplus
}
#endif
#endif
