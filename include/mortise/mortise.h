/* mortise.h - distributed locks: one API, the backend is a driver loaded at run time.
 *
 * The only header an application includes. SPDX-License-Identifier: MIT
 *
 * Words. A *client* is a configuration, a driver stack and a watchdog; one per process is enough.
 * A *lease* is the right to a name, from mortise_acquire() until it is released or lost. Behind it
 * stands a *grant*: what the backend gave, with a *token* (a number that is larger for every later
 * grant of the same name, to be passed along with each write: docs/fencing.md) and a *deadline* (the
 * instant on this machine's CLOCK_BOOTTIME from which this process must assume that it is gone).
 *
 * Threads. Every function may be called from any thread at any time, inside callbacks too, on the
 * same client and on the same lease; the library orders them. Exceptions stand at the function.
 *
 * Handles. mortise_client and mortise_lease are opaque handles, not addresses; a handle that was
 * closed or released is recognised and refused (CLOSED, INVALID), it is never another one's.
 *
 * Errors. Functions return a mortise_status: 0 (MORTISE_OK) or a negative code. `error` may be NULL;
 * where it is given it is filled on failure and left alone on success. Out-parameters are NULL (or 0)
 * on failure. Bad arguments return MORTISE_INVALID and do nothing.
 *
 * Times. Durations are int64_t milliseconds (`_ms`). Deadlines of leases count while the machine is
 * suspended; a wait that was under way then may end later by as long as the suspension.
 *
 * fork. After fork() a client belongs to the parent: in the child every call on it returns
 * MORTISE_FORKED, mortise_state() says LOST, and nothing touches the parent's sockets or files. */
#ifndef MORTISE_MORTISE_H
#define MORTISE_MORTISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MORTISE_VERSION_MAJOR 0
#define MORTISE_VERSION_MINOR 1
#define MORTISE_VERSION_PATCH 0

#if defined(__GNUC__) && !defined(MORTISE_API)
#define MORTISE_API __attribute__((visibility("default")))
#elif !defined(MORTISE_API)
#define MORTISE_API
#endif

/* ---- Limits ---------------------------------------------------------------------------------- */

#define MORTISE_NAME_MAX 512        /* bytes in a name, with the configured namespace before it */
#define MORTISE_OWNER_MAX 512       /* bytes in an owner */
#define MORTISE_TTL_MIN_MS 50       /* shortest ttl: below it the drift margin and a round trip eat it */
#define MORTISE_TTL_MAX_MS 86400000 /* longest ttl: 24 h; a crashed holder blocks others for so long */
#define MORTISE_RECORD_MAX 4096 /* bytes in a record */
#define MORTISE_WAIT_MAX_MS INT64_C(31536000000) /* longest finite wait: 365 days */

/* ---- Status ---------------------------------------------------------------------------------- */

/* One table makes the codes and the texts. The numbers are ABI: new ones are added at the end. */
#define MORTISE_STATUS_MAP(X)                                                                       \
    X(OK, 0, "success")                                                                             \
    X(BUSY, -1, "held by another")                                                                  \
    X(TIMEDOUT, -2, "not had in time")                                                              \
    X(CANCELED, -3, "canceled")                                                                     \
    X(LOST, -4, "the lease was lost")                                                               \
    X(NOTOWNER, -5, "held under another grant")                                                     \
    X(UNREACHABLE, -6, "the backend cannot be reached")                                             \
    X(INDETERMINATE, -7, "sent, but the reply was lost")                                            \
    X(NOTSUP, -8, "not supported by this backend")                                                  \
    X(CONFIG, -9, "the configuration is wrong")                                                     \
    X(INVALID, -10, "invalid argument")                                                             \
    X(CLOSED, -11, "the client is closed")                                                          \
    X(FORKED, -12, "the client belongs to the parent process")                                      \
    X(DEADLOCK, -13, "a callback must not wait for a lock")                                         \
    X(NOMEM, -14, "out of memory")                                                                  \
    X(BACKEND, -15, "the backend refused")                                                          \
    X(CLOSING, -16, "callbacks of the closed client are left")

typedef enum mortise_status {
#define MORTISE_STATUS_ENUM(name, code, text) MORTISE_##name = code,
    MORTISE_STATUS_MAP(MORTISE_STATUS_ENUM)
#undef MORTISE_STATUS_ENUM
} mortise_status;

/* The text of the table ("held by another"); for an unknown code "unknown status". Static. */
MORTISE_API const char *mortise_status_text(mortise_status status);
/* The name of the table ("BUSY"); for an unknown code "UNKNOWN". Static. */
MORTISE_API const char *mortise_status_name(mortise_status status);

/* The detail of a failure, owned by the caller: put it on the stack, no initialisation needed. */
typedef struct mortise_error {
    mortise_status status;
    int32_t native;      /* the backend's own code, 0 if it has none */
    bool retryable;      /* the same call may succeed later without anything being changed */
    char driver[32];     /* the module that reports it; empty: the core */
    char message[960];   /* one line, UTF-8 or escaped, naming server, lock and what was being done */
} mortise_error;

/* ---- Client ---------------------------------------------------------------------------------- */

typedef struct mortise_client mortise_client;
typedef struct mortise_lease mortise_lease;

/* Opens a client.
 *
 * where: a path of a config file ("/etc/mortise/mortise.conf"; "FILE#SECTION" opens the module of that
 * section in place of the one that `driver` names), or a URL whose scheme names the driver
 * ("sqlite:/var/lib/app/locks.db?ttl=10s"), or NULL: $MORTISE_CONFIG (path or URL; ignored in a
 * set-uid program), then mortise/mortise.conf in the user's ($XDG_CONFIG_HOME, ~/.config) and in the
 * system's config folder, then the embedded default (SQLite). Never the current folder.
 * It parses, loads the modules, opens them and checks `require`; a server that is away is no error
 * here (the calls that need it say UNREACHABLE). May touch the disk; bounded by the driver's timeouts.
 * CONFIG (message: file:line: [section] key …), NOMEM, BACKEND, UNREACHABLE. */
MORTISE_API mortise_status mortise_open(const char *where, mortise_client **client,
                                        mortise_error *error);

/* Closes a client. In this order:
 *
 * 1. New calls on the client return CLOSED. Callers that wait return CLOSED. Pending async acquires complete with
 *    CLOSED. Leases that are still held are released, and their handles are spent: no on_state is called for them.
 * 2. Releases and clean-ups under way are finished, for up to `close_timeout` (config, default 5 s).
 * 3. The client's threads end, and its modules are closed. If a module is stuck, this takes a few seconds at most.
 * 4. The callbacks that wait run, and those that run end, for up to `close_timeout` from the beginning, at least
 *    for a second.
 *
 * OK: no callback of this client runs, and none will run: what the callbacks use may be freed. Nothing is left open.
 * UNREACHABLE: no callback either, but something could not be released in time and ends with its ttl; or a call on the
 *    client has not returned (a module is stuck, say), and what it uses is left open. The message says which.
 * CLOSING: callbacks still run or wait. Call mortise_close() again with the same handle: it waits on, for another
 *    `close_timeout`, and returns OK, UNREACHABLE or CLOSING likewise. Until it returned OK or UNREACHABLE, a little
 *    memory of the client is kept. Several threads may close: each waits, and each gets CLOSING while callbacks may
 *    still run; then one gets OK or UNREACHABLE, and the others get CLOSED. Inside a callback, a close that another
 *    thread has begun returns CLOSING at once.
 * CLOSED: the client was closed before: no callback runs, except the one that makes this call and has closed the client
 *    itself. FORKED. INVALID: not a client.
 *
 * After mortise_fd() callbacks run in mortise_dispatch() only, so the close runs none itself: if callbacks wait and no
 * other thread dispatches, it returns CLOSING at once. Then call mortise_dispatch(), which still runs the
 * callbacks of a client in this state, and close again:
 *
 *     while (mortise_close(client, NULL) == MORTISE_CLOSING && mortise_dispatch(client) >= 0)
 *         continue;
 *
 * Inside a callback of the same client the close does not wait for that callback. If no other callback waits, it
 * returns as above. Otherwise it returns CLOSING, the others run on the same thread as soon as the calling callback
 * has returned, and then the client ends by itself. */
MORTISE_API mortise_status mortise_close(mortise_client *client, mortise_error *error);

/* ---- Acquire and release --------------------------------------------------------------------- */

typedef enum mortise_lease_state {
    MORTISE_STATE_HELD = 0,    /* it is yours */
    MORTISE_STATE_SUSPECT = 1, /* yours still, but a renewal failed: the deadline stands and comes nearer */
    MORTISE_STATE_LOST = 2     /* not yours any more, or not for sure: stop. Final */
} mortise_lease_state;

/* Called when the state of a lease has changed, on the notifier thread (or in mortise_dispatch()), one callback at a
 * time per client. Changes that wait to be reported are merged: the last of HELD and SUSPECT counts, and LOST is always
 * reported. Another thread may have released the lease by then: calls on it say so.
 * It is not called any more once mortise_release() of that lease, or mortise_close() with OK or UNREACHABLE, has
 * returned. One exception: a release inside a callback (of any client) does not wait for an on_state of that lease
 * which already runs on another thread, because two such callbacks could wait for each other: ask
 * mortise_on_state_runs() then. */
typedef void (*mortise_state_callback)(mortise_lease *lease, mortise_lease_state state,
                                       void *user_data);

/* owner = MORTISE_OWNER_THREAD: this client and this thread, the reentrancy of Java's locks. */
#define MORTISE_OWNER_THREAD ((const char *)"\001thread")

#define MORTISE_WAIT_FOREVER INT64_C(-1)
#define MORTISE_WAIT_DEFAULT INT64_C(-2) /* the config's `wait` */

typedef struct mortise_options {
    size_t size;       /* sizeof(mortise_options), set by the macro: how fields are added later */
    int64_t wait_ms;   /* 0: try once (BUSY); MORTISE_WAIT_FOREVER; MORTISE_WAIT_DEFAULT; else how
                        * long to wait at most (TIMEDOUT), to MORTISE_WAIT_MAX_MS */
    int64_t ttl_ms;    /* how long the grant outlives a holder that died; 0: the config's `ttl`;
                        * MORTISE_TTL_MIN_MS to MORTISE_TTL_MAX_MS */
    const char *owner; /* NULL: this lease alone. MORTISE_OWNER_THREAD, or a name of 1 to
                        * MORTISE_OWNER_MAX bytes: leases with the same owner share the lock, over
                        * threads and processes; NOTSUP where the driver is not `reentrant` */
    bool no_renew;     /* the lease just ends after its ttl */
    int64_t max_hold_ms; /* >0: renewed for so long at most, so that a dead thread's lock ends */
    mortise_state_callback on_state; /* NULL: nobody is told; mortise_state() knows anyway */
    void *user_data;                 /* for on_state */
} mortise_options;

/* MORTISE_OPTIONS(.wait_ms = 5000, .ttl_ms = 10000): a pointer to options that lives as long as the
 * enclosing block. What is not named is zero: no wait_ms means try once. */
#define MORTISE_OPTIONS(...) (&(const mortise_options){.size = sizeof(mortise_options), __VA_ARGS__})

/* Acquires `name` (1 to MORTISE_NAME_MAX bytes, compared byte by byte). options NULL: wait as the
 * config's `wait` says, everything else default. Returns when it is held, or failed:
 * BUSY (try only), TIMEDOUT, UNREACHABLE (the backend could not be used for `unreachable_timeout`, or for the whole wait:
 * no request was sent, or none had an effect that lasts; none is under way), INDETERMINATE (a request may have been
 * executed, or may be yet: its reply was lost, or is missing when the time is over, or came when the claim had ended; also
 * if it is not known whether one was sent), NOTSUP, INVALID, CLOSED, FORKED, DEADLOCK (wait_ms other than 0
 * inside a callback), NOMEM (out of memory, or no thread could be started), BACKEND (the backend refused).
 * Whatever fails leaves nothing behind in the backend: what a request may still do there is undone in the background.
 * Not a cancellation point; not interrupted by signals. */
MORTISE_API mortise_status mortise_acquire(mortise_client *client, const char *name,
                                           const mortise_options *options, mortise_lease **lease,
                                           mortise_error *error);

/* Releases a lease and waits for the backend's answer. The handle is spent whatever is returned.
 * OK: the lease was held to the end. If another thread of this process waits for the name, the lease may be handed
 *    over to it: then OK is returned at once, and the backend is not asked.
 * LOST: the deadline had passed, or the backend said that the claim was gone. Another holder may have overlapped with
 *    what was done last.
 * INDETERMINATE: a request may have been executed, or may be yet: its reply was lost or is missing, or it is not known
 *    whether it was sent. The release is repeated in the background until it is sure; the ttl bounds it. Also if the
 *    repeat found another holder: it may have come after our release, or before.
 * UNREACHABLE: the backend could not be used, and has not executed the release. It is repeated in the background likewise.
 * BACKEND: the backend refused the release. What is left ends with its ttl.
 * INVALID: not a lease, or released before (mortise_close() releases too). CLOSED, FORKED. NULL is OK and does
 * nothing. A release does not fail for want of memory. */
MORTISE_API mortise_status mortise_release(mortise_lease *lease, mortise_error *error);

/* The same, but returns once the request is on its way: a cycle costs one round trip. What this
 * client asks next comes after it; mortise_close() waits for it; a broken connection repeats it.
 * Inside mortise_dispatch() the requests of all callbacks that run go out together at its end.
 * OK, LOST (known before asking), INVALID, CLOSED, FORKED. */
MORTISE_API mortise_status mortise_release_nowait(mortise_lease *lease, mortise_error *error);

/* Whether the on_state of a lease of this client is about to run, or runs, on another thread. For a lease that was
 * released inside a callback: once this has returned false, what its on_state uses may be freed. True as well if the client
 * is being closed (mortise_close() tells then) or was opened by the parent process. */
MORTISE_API bool mortise_on_state_runs(mortise_client *client, mortise_lease *lease);

/* MORTISE_WITH(lease) { … }: runs the block if lease is not NULL and releases it at the scope's end,
 * also on break, continue, return and goto (with compilers that know the cleanup attribute). */
#define MORTISE_WITH(lease) MORTISE_WITH_(lease, __COUNTER__)
#define MORTISE_WITH_(lease, n) MORTISE_WITH__(lease, n)
#define MORTISE_WITH__(lease, n)                                                                    \
    for (mortise_lease * mortise_with_##n __attribute__((cleanup(mortise_release_scope))) = (lease),   \
                         *mortise_once_##n = mortise_with_##n;                                      \
         mortise_once_##n != NULL; mortise_once_##n = NULL)
MORTISE_API void mortise_release_scope(mortise_lease **lease);

/* ---- A lease --------------------------------------------------------------------------------- */

/* A clock compare on this thread: no lock, no system call, no I/O. LOST from the deadline on, whether
 * or not the watchdog has run; LOST for a handle that is spent. Check it before each irreversible
 * step, and pass the token along with the step. */
MORTISE_API mortise_lease_state mortise_state(mortise_lease *lease);
/* Milliseconds to the deadline as it stands; 0 when lost. Same cost. */
MORTISE_API int64_t mortise_remaining_ms(mortise_lease *lease);
/* The fencing token, >0; 0 where the driver has none (no `fencing`) or the handle is spent. Leases
 * that share a hold (same owner) or were handed over within the process have the token in common. */
MORTISE_API uint64_t mortise_token(mortise_lease *lease);
/* The owner: the given one, or for an unnamed owner 32 hex digits, the grant id. Writes at most size
 * bytes with the NUL, returns the length it needs without it (as snprintf); 0 for a spent handle. */
MORTISE_API size_t mortise_owner(mortise_lease *lease, char *buffer, size_t size);

/* ---- Asynchronous use ------------------------------------------------------------------------ */

/* Completion of an async acquire, called exactly once, on the notifier thread or in
 * mortise_dispatch(): status OK with the lease (yours from now on), or a failure with lease NULL and
 * `error` (valid during the call). */
typedef void (*mortise_acquire_callback)(mortise_status status, mortise_lease *lease,
                                         const mortise_error *error, void *user_data);

/* Names one pending async acquire; never 0, never used twice by a client. */
typedef uint64_t mortise_request;

/* Starts an acquire and returns at once. On OK the callback will come, possibly before this returns;
 * *request (may be NULL) is for mortise_cancel(). INVALID, CLOSED, FORKED, NOMEM: no callback. */
MORTISE_API mortise_status mortise_acquire_async(mortise_client *client, const char *name,
                                                 const mortise_options *options,
                                                 mortise_acquire_callback callback, void *user_data,
                                                 mortise_request *request, mortise_error *error);

/* Cancels a pending async acquire: its callback comes with CANCELED, unless its outcome was decided
 * before (then with that; a lease must be released). OK; INVALID: unknown or already decided. */
MORTISE_API mortise_status mortise_cancel(mortise_client *client, mortise_request request);

/* From the first call on, callbacks run in mortise_dispatch() instead of on a thread of the
 * library's; returns a descriptor (owned by the client, never read it) that polls readable when
 * mortise_dispatch() has something to do. -1: CLOSED, FORKED, NOMEM (in *status, may be NULL).
 * Renewals do not depend on the program calling dispatch. */
MORTISE_API int mortise_fd(mortise_client *client, mortise_status *status);
/* Does what is ready without waiting and runs callbacks on this thread: at least those that were due
 * when it was called. Returns how many ran, or a negative status (CLOSED, FORKED, DEADLOCK inside a
 * callback, INVALID before mortise_fd()). While the client is being closed, and after a close that returned
 * CLOSING, it runs the callbacks that are left. */
MORTISE_API int mortise_dispatch(mortise_client *client);

/* ---- Looking in ------------------------------------------------------------------------------ */

/* What the backend knows of a name. Text is cut to fit, always terminated. */
typedef struct mortise_info {
    size_t size;                      /* sizeof(mortise_info), set by the caller */
    bool held;                        /* the rest but name and waiters is 0 or empty if not */
    char name[MORTISE_NAME_MAX + 1];  /* without the namespace */
    char owner[MORTISE_OWNER_MAX + 1]; /* as mortise_owner() */
    char host[65];                    /* of the holder; empty if unknown (another kind of client) */
    char program[33];                 /* of the holder */
    int64_t pid;                      /* of the holder; 0 if unknown */
    int64_t held_ms;                  /* since when, in milliseconds ago; -1 if unknown */
    int64_t remaining_ms;             /* until when, if it is not renewed; -1 if unknown (session) */
    uint64_t token;                   /* 0 if the driver has none */
    uint32_t leases;                  /* of this owner, where they are counted; else 1 */
    int32_t waiters;                  /* waiting clients; -1 if unknown */
} mortise_info;

/* Asks the backend about one name. OK (info->held tells); NOTSUP, UNREACHABLE, … */
MORTISE_API mortise_status mortise_inspect(mortise_client *client, const char *name,
                                           mortise_info *info, mortise_error *error);

/* Calls `each` on this thread for every held name that begins with prefix (NULL or "": all), in byte
 * order, after the answer is complete; stops early when it returns false. */
typedef bool (*mortise_list_callback)(const mortise_info *info, void *user_data);
MORTISE_API mortise_status mortise_list(mortise_client *client, const char *prefix,
                                        mortise_list_callback each, void *user_data,
                                        mortise_error *error);

/* For operators: ends another's grant, the very one with this token, and no other. Its holder is told
 * LOST at its next renewal or deadline. OK; NOTOWNER: the name is held under another token (it
 * changed hands); LOST: nobody holds it; NOTSUP. */
MORTISE_API mortise_status mortise_break(mortise_client *client, const char *name, uint64_t token,
                                         mortise_error *error);

/* Asks the backend for a sign of life: OK and one line of text about it (name, version, address). */
MORTISE_API mortise_status mortise_ping(mortise_client *client, char *text, size_t size,
                                        mortise_error *error);

/* For tools: a record is a few bytes under a name in the backend, beside the locks (a lock of the same name is
 * another thing), that outlives all clients; for what has to be agreed upon once, as the phase of a migration.
 * It lasts as long as the backend's data do.
 *
 * Reads into buffer at most *size bytes. OK: *size is the record's whole length (more than was given: it was cut),
 * *version its version, >0; no such record: both 0. NOTSUP, UNREACHABLE, … */
MORTISE_API mortise_status mortise_record_read(mortise_client *client, const char *name,
                                               void *buffer, size_t *size, uint64_t *version,
                                               mortise_error *error);
/* Writes size bytes if the record's version is *version still (0: if there is none). OK: written, *version is the
 * new one. BUSY: the version is another, nothing was written. INDETERMINATE, UNREACHABLE: perhaps written: read it. */
MORTISE_API mortise_status mortise_record_write(mortise_client *client, const char *name,
                                                const void *record, size_t size,
                                                uint64_t *version, mortise_error *error);

/* What a stack can promise; docs/promises.md says it in full. */
#define MORTISE_CAPABILITY_MAP(X)                                                                   \
    X(LEASE, 0, "lease", "expires by its ttl when the holder is gone")                              \
    X(SESSION, 1, "session", "lives with a session of the client")                                  \
    X(FENCING, 2, "fencing", "tokens that grow with every grant")                                   \
    X(FAIR, 3, "fair", "first come, first served between processes")                                \
    X(NOTIFY, 4, "notify", "waiters are told of a release; nobody polls")                           \
    X(INSPECT, 5, "inspect", "tells who holds a name")                                              \
    X(LIST, 6, "list", "lists the held names")                                                      \
    X(REENTRANT, 7, "reentrant", "owners share a lock, counted in the backend")                     \
    X(QUORUM, 8, "quorum", "survives the loss of a minority of servers")                            \
    X(DURABLE, 9, "durable", "grants survive a restart of the server")

typedef enum mortise_capability {
#define MORTISE_CAPABILITY_ENUM(name, bit, word, help) MORTISE_CAP_##name = 1 << bit,
    MORTISE_CAPABILITY_MAP(MORTISE_CAPABILITY_ENUM)
#undef MORTISE_CAPABILITY_ENUM
} mortise_capability;

/* One module of the client's stack, the top first. Text lives as long as the client. */
typedef struct mortise_module_info {
    size_t size;              /* sizeof(mortise_module_info), set by the caller */
    const char *name;         /* "sqlite" */
    const char *section;      /* its config section: "sqlite", "redis:old" */
    const char *version;      /* the module's own */
    const char *summary;      /* one line */
    const char *path;         /* the file it was loaded from */
    const char *kind;         /* "driver", "plugin" or "observer" */
    uint32_t abi;             /* of the driver interface it was built for */
    uint32_t capabilities;    /* mortise_capability bits, as opened with this config */
} mortise_module_info;

/* The capabilities of the whole stack (the top's); 0 for a spent handle. */
MORTISE_API uint32_t mortise_capabilities(mortise_client *client);
/* Fills info for the index-th module; false when there is none. */
MORTISE_API bool mortise_module_at(mortise_client *client, size_t index, mortise_module_info *info);
/* Where the configuration came from: a path, a URL without secrets, or "built-in defaults".
 * Lives as long as the client; NULL for a spent handle. */
MORTISE_API const char *mortise_config_source(mortise_client *client);

/* Counters since mortise_open(); each is exact, together they are not one instant. */
typedef struct mortise_stats {
    size_t size;              /* sizeof(mortise_stats), set by the caller */
    uint64_t acquires;        /* leases given */
    uint64_t waits;           /* of them, those that waited behind others, as far as the core knows */
    uint64_t wait_ns;         /* time that those waited, together */
    uint64_t failures;        /* acquires that failed, of whatever cause */
    uint64_t handovers;       /* leases passed on within the process */
    uint64_t releases;
    uint64_t renewals;        /* answered with success */
    uint64_t renewal_failures;
    uint64_t losses;          /* leases that became LOST */
    uint64_t requests;        /* operations given to the driver */
    uint64_t held;            /* leases held now */
    uint64_t waiting;         /* callers waiting now */
} mortise_stats;
MORTISE_API mortise_status mortise_stats_get(mortise_client *client, mortise_stats *stats);

/* ---- Modules on this machine, without a client ----------------------------------------------- */

/* One config key of a module's schema. Text lives during the callback. */
typedef struct mortise_option_info {
    const char *key, *type, *range, *default_text, *help;
    bool secret;
} mortise_option_info;

/* Calls `each` for every module found in the module path of `where`'s config (as mortise_open; NULL:
 * the default search), the core's own section first with info->name "mortise" and kind "core".
 * A file that cannot be loaded comes with `problem` saying why and info->path. Stops when it returns
 * false. `options` has option_count rows. */
typedef bool (*mortise_module_callback)(const mortise_module_info *info,
                                        const mortise_option_info *options, size_t option_count,
                                        const char *problem, void *user_data);
MORTISE_API mortise_status mortise_modules(const char *where, mortise_module_callback each,
                                           void *user_data, mortise_error *error);

/* The statements that make a module's table or the like ("mortise schema postgres"), written to
 * `write` in pieces. NOTSUP if it has none. */
typedef void (*mortise_text_callback)(const char *text, size_t length, void *user_data);
MORTISE_API mortise_status mortise_schema(const char *where, const char *module,
                                          mortise_text_callback write, void *user_data,
                                          mortise_error *error);

/* "0.1.0", of the library that is loaded. */
MORTISE_API const char *mortise_version(void);

#ifdef __cplusplus
}
#endif
#endif
