/* mortise.h - distributed locks: one API, the backend is a driver loaded at run time.
 *
 * An application includes only this header. SPDX-License-Identifier: MIT
 *
 * Words. A *client* has a configuration, a stack of modules and a watchdog; one client per process is enough.
 * A *lease* is the right to a name, from mortise_acquire() until it is released or lost. The backend gives
 * each lease a *token* and a *deadline*. The token is a number: each exclusive grant has a larger one than all grants of
 * the name before it. Pass it along with each write (docs/fencing.md). The deadline is an instant on this machine's
 * CLOCK_BOOTTIME; from then on this process must assume that the lease is lost. A *claim* is what the backend stores for
 * a lease, or for several of one process; it ends by a release, by its ttl (`zookeeper`: with its session), or when an operator
 * breaks it.
 *
 * Threads. You may call every function from any thread at any time, also inside callbacks, on the same
 * client and on the same lease. The library serialises the calls. A function's comment states exceptions.
 *
 * Handles. mortise_client and mortise_lease are opaque handles, not addresses. The library recognises a
 * handle that was closed or released and refuses it (CLOSED, INVALID). A handle's value may be reused after 2^31
 * further acquires: do not keep spent handles for hours, nor use them as keys for hours.
 *
 * Errors. Functions return a mortise_status: 0 (MORTISE_OK) or a negative code. `error` may be NULL. If it
 * is given, a failure fills it and a success does not change it. On failure, out-parameters are NULL (or 0), and a struct
 * that begins with `size` stays as it was. A call with bad arguments returns MORTISE_INVALID and does nothing.
 *
 * Structs. A struct that may grow begins with `size`: the side that owns the memory sets it to the sizeof of its build,
 * and the other side reads and writes no more than that. Fields are added at the end only. If options have a field that
 * this library does not know, and the field is not zero, the library refuses them (INVALID), because ignoring the field
 * could grant a different kind of lock. The library does not change fields of a result that it does not know. A struct
 * without `size` never changes its size or the place of a field: it has a reserve, which the library sets to zero.
 *
 * Times. Durations are int64_t milliseconds (`_ms`). Time in which the machine is suspended counts, for the deadlines of
 * leases and for waits. But a call that sleeps may notice late that its wait is over, by at most the time of the suspension.
 *
 * fork. After fork() a client belongs to the parent. In the child, every call on it returns
 * MORTISE_FORKED, mortise_state() returns LOST, and nothing touches the parent's sockets or files.
 *
 * Descriptors. A program that closes all descriptors that it does not know, as a daemon does, must do so before it opens a
 * client, or close the client first. Otherwise a driver goes on using the closed numbers, and may write to, or close, files
 * that the program has opened since under these numbers. If stdin, stdout or stderr is closed when a client is opened, the
 * library fills its number for good (reading and writing still fail), because otherwise a connection could get it, and what is
 * written to stderr would go to the server. While a client is open, do not close them: put /dev/null there with dup2(). */
#ifndef MORTISE_MORTISE_H
#define MORTISE_MORTISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MORTISE_VERSION_MAJOR 0 /* the version of these headers, not of the library that is loaded */
#define MORTISE_VERSION_MINOR 2 /* before 1.0, each minor version has an ABI of its own */
#define MORTISE_VERSION_PATCH 0 /* compatible corrections */

#if defined(__GNUC__) && !defined(MORTISE_API)
#define MORTISE_API __attribute__((visibility("default")))
#elif !defined(MORTISE_API)
#define MORTISE_API
#endif

/* ---- Limits ---------------------------------------------------------------------------------- */

#define MORTISE_NAME_MAX 512        /* bytes in a name, with the namespace before it */
#define MORTISE_OWNER_MAX 512       /* bytes in an owner */
#define MORTISE_TTL_MIN_MS 50       /* a shorter ttl leaves no time after the drift margin and one round trip */
#define MORTISE_TTL_MAX_MS 86400000 /* longest ttl: 24 h; a crashed holder blocks others for the ttl */
#define MORTISE_RECORD_MAX 4096 /* bytes in a record */
#define MORTISE_PING_SIZE 8192 /* room for each text of mortise_ping() */
#define MORTISE_WAIT_MAX_MS INT64_C(31536000000) /* longest finite wait: 365 days */

/* ---- Status ---------------------------------------------------------------------------------- */

/* Codes and texts come from one table. The numbers are ABI: new ones are added at the end. */
#define MORTISE_STATUS_MAP(X)                                                                       \
    X(OK, 0, "success")                                                                             \
    X(BUSY, -1, "held by another")                                                                  \
    X(TIMEDOUT, -2, "timed out")                                                                    \
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
    X(BACKEND, -15, "the backend refused the request")                                              \
    X(CLOSING, -16, "callbacks of the closed client still run or wait")

/* The outcome of a call. */
typedef enum mortise_status {
#define MORTISE_STATUS_ENUM(name, code, text) MORTISE_##name = code,
    MORTISE_STATUS_MAP(MORTISE_STATUS_ENUM)
#undef MORTISE_STATUS_ENUM
} mortise_status;

/* Returns the text of the table ("held by another"), or "unknown status" for an unknown code. Static. */
MORTISE_API const char *mortise_status_text(mortise_status status);
/* Returns the name of the table ("BUSY"), or "UNKNOWN" for an unknown code. Static. */
MORTISE_API const char *mortise_status_name(mortise_status status);

/* The details of a failure. The caller owns it: put it on the stack, no initialisation needed. */
typedef struct mortise_error {
    mortise_status status;
    int32_t native;      /* the backend's own code; 0 if it has none */
    bool retryable;      /* the same call may succeed later, although nothing was changed */
    uint8_t reserved[23];
    char driver[32];     /* the module that reports the failure; empty: the core */
    char message[960];   /* one line, UTF-8 or escaped: names the server, the lock and the operation */
} mortise_error;

/* ---- Client ---------------------------------------------------------------------------------- */

typedef struct mortise_client mortise_client; /* an opaque handle: mortise_open() to mortise_close() */
typedef struct mortise_lease mortise_lease;   /* an opaque handle: mortise_acquire() to mortise_release() */

/* Opens a client.
 *
 * where: one of
 * - the path of a config file ("/etc/mortise/mortise.conf"). "FILE#SECTION" opens the module of that section
 *   instead of the one that `driver` names.
 * - a URL whose scheme names the driver ("sqlite:/var/lib/app/locks.db?ttl=10s").
 * - NULL: $MORTISE_CONFIG if it is set (a path or a URL; ignored in a set-uid program), else mortise/mortise.conf in
 *   the user's config directory ($XDG_CONFIG_HOME, ~/.config), else the same in the system's config directory, else
 *   the built-in default (SQLite). The current directory is never searched.
 *
 * The call parses the config, loads and opens the modules, and checks `require`. An unreachable server is no
 * error here: the calls that need it return UNREACHABLE. The call may access the disk. The driver's timeouts bound
 * that, but the plugin `trace` waits for its file system without a bound.
 * Returns CONFIG (message: file:line: [section] key …), NOMEM, BACKEND, UNREACHABLE (`sqlite`: for example, another process
 * keeps the database locked; `witness = required`: no witness answers), NOTSUP (`witness = required` cannot work here). */
MORTISE_API mortise_status mortise_open(const char *where, mortise_client **client,
                                        mortise_error *error);

/* Closes a client, in this order:
 *
 * 1. New calls on the client return CLOSED. Callers that wait return CLOSED. Pending async acquires complete with
 *    CLOSED. Held leases are released, and their handles become invalid: on_state is not called for them.
 * 2. Releases and clean-ups that are under way finish, for up to `close_timeout` (config, default 5 s).
 * 3. The client's threads end, and its modules are closed. If a module is stuck, this takes a few seconds at most.
 * 4. Callbacks that wait run, and callbacks that run end, for up to `close_timeout` from the beginning, but at least
 *    for a second.
 *
 * OK: no callback of this client runs, and none will run. You may free what the callbacks use. Nothing is left open.
 * UNREACHABLE: as OK for callbacks, but something could not be released in time and ends with its ttl; or a call on the
 *    client has not returned (for example, a module is stuck), and what it uses stays open. The message says which.
 * CLOSING: callbacks still run or wait. Call mortise_close() again with the same handle: it waits for another
 *    `close_timeout` and again returns OK, UNREACHABLE or CLOSING. Until it returns OK or UNREACHABLE, the library
 *    keeps a little memory of the client. Several threads may close: each waits, and each gets CLOSING while callbacks
 *    may still run; then one gets OK or UNREACHABLE, and the others get CLOSED. Inside a callback, mortise_close()
 *    returns CLOSING at once if another thread has begun to close.
 * CLOSED: the client was closed before. No callback runs, except the one that makes this call, if that callback closed
 *    the client itself.
 * FORKED. INVALID: not a client.
 *
 * After mortise_fd(), callbacks run only in mortise_dispatch(), so mortise_close() runs none. If callbacks wait and no
 * other thread dispatches, it returns CLOSING at once. Then call mortise_dispatch(), which still runs the callbacks of
 * a client in this state, and close again:
 *
 *     while (mortise_close(client, NULL) == MORTISE_CLOSING && mortise_dispatch(client) >= 0)
 *         continue;
 *
 * If another thread has ended the client meanwhile, mortise_dispatch() returns CLOSED; one more close then returns CLOSED too.
 *
 * Inside a callback of the same client, mortise_close() does not wait for that callback. If no other callback waits,
 * it returns as above. Otherwise it returns CLOSING; the other callbacks run on the same thread as soon as the calling
 * callback has returned, and then the client ends by itself. */
MORTISE_API mortise_status mortise_close(mortise_client *client, mortise_error *error);

/* ---- Acquire and release --------------------------------------------------------------------- */

/* Whether you hold a lease: mortise_state(). */
typedef enum mortise_lease_state {
    MORTISE_STATE_LOST = 0,    /* you do not hold it, or it is uncertain: stop. Final. It is 0, so that zeroed
                                * memory never reads as held */
    MORTISE_STATE_SUSPECT = 1, /* you still hold it, but a renewal failed and the deadline does not move */
    MORTISE_STATE_HELD = 2     /* you hold it */
} mortise_lease_state;

/* Called when the state of a lease has changed, on the notifier thread (or in mortise_dispatch()), one callback at a
 * time per client. Changes that wait to be reported are merged: of HELD and SUSPECT only the last is reported; LOST is
 * always reported. If another thread has released the lease meanwhile, calls on it do what they do for any released lease.
 * on_state is not called after mortise_release() of that lease has returned, nor after mortise_close() has returned OK
 * or UNREACHABLE. There are three exceptions, in which an on_state of that lease may still run on another thread:
 * - The release is called inside a callback (of any client, or that of mortise_on_log()). It does not wait for on_state,
 *   because two such callbacks could wait for each other. Use mortise_on_state_runs() in that case.
 * - The on_state closes the client. The release does not wait for it, because that close waits for the release. When
 *   mortise_close() on another thread returns CLOSED, and not CLOSING, the on_state is over.
 * - The release returns INVALID or CLOSED. It waits for nothing, because an earlier release or close has ended the lease;
 *   that earlier call waits (unless it was made inside a callback). */
typedef void (*mortise_state_callback)(mortise_lease *lease, mortise_lease_state state,
                                       void *user_data);

/* owner = MORTISE_OWNER_THREAD: this thread of this client owns the lock, as with Java's reentrant locks. */
#define MORTISE_OWNER_THREAD ((const char *)"\001thread")

/* Who may hold a name together. EXCLUSIVE: one lease, or the leases of one owner. SHARED: any number of shared leases
 * (with the SQL drivers about 400; a further one gets BACKEND), or at most `permits` of them (a semaphore); an exclusive
 * lease waits until all have ended. docs/locks.md explains both. */
typedef enum mortise_mode {
    MORTISE_EXCLUSIVE = 0,
    MORTISE_SHARED = 1 /* NOTSUP if the driver is not `shared` */
} mortise_mode;

#define MORTISE_WAIT_FOREVER INT64_C(-1) /* no limit */
#define MORTISE_WAIT_DEFAULT INT64_C(-2) /* the config's `wait` */

/* How to acquire. Fill it by MORTISE_OPTIONS(). */
typedef struct mortise_options {
    size_t size;       /* sizeof(mortise_options), set by the macro, so that fields can be added later */
    int64_t wait_ms;   /* 0: try once: BUSY if it is held; the answer itself may take as long as `unreachable_timeout`.
                        * MORTISE_WAIT_FOREVER. MORTISE_WAIT_DEFAULT. Else the longest
                        * wait (TIMEDOUT), up to MORTISE_WAIT_MAX_MS */
    int64_t ttl_ms;    /* how long a crashed holder blocks others (`etcd`: a quarter longer, in whole seconds; `zookeeper`: its
                        * session); 0: the config's `ttl`. MORTISE_TTL_MIN_MS to MORTISE_TTL_MAX_MS */
    const char *owner; /* NULL: this lease alone. MORTISE_OWNER_THREAD, or a name of 1 to
                        * MORTISE_OWNER_MAX bytes: leases with the same owner share the lock, across
                        * threads and processes; NOTSUP if the driver is not `reentrant` */
    bool no_renew;     /* do not renew: the lease ends after its ttl */
    int64_t max_hold_ms; /* >0: stop renewing after this time, so that a stuck thread's lock ends */
    mortise_state_callback on_state; /* NULL: no callback; mortise_state() still works */
    void *user_data;                 /* for on_state */
    mortise_mode mode; /* MORTISE_SHARED: `owner` must be NULL, because a shared lease has no owner */
    uint32_t permits;  /* SHARED: at most this many leases hold the name at once; 0: any number. NOTSUP if the driver
                        * has no `permits`. All holders of a name must give the same number (else INVALID) */
} mortise_options;

/* MORTISE_OPTIONS(.wait_ms = 5000, .ttl_ms = 10000): a pointer to options that live as long as the
 * enclosing block. Fields that you do not name get their defaults, as if options were NULL: without wait_ms, the call
 * waits as the config's `wait` says; .wait_ms = 0 tries once. In a struct that you fill yourself, wait_ms 0 tries once too.
 * The macro works inside functions. (It sets .wait_ms twice; compilers warn about that, so it hides the warning.) */
#ifdef __GNUC__
#define MORTISE_OPTIONS(...)                                                                        \
    ((const mortise_options[1]){__extension__({                                                     \
        MORTISE_TWICE_BEGIN_                                                                        \
        (const mortise_options){                                                                    \
            .size = sizeof(mortise_options), .wait_ms = MORTISE_WAIT_DEFAULT, __VA_ARGS__};         \
        MORTISE_TWICE_END_                                                                          \
    })})
#else
#define MORTISE_OPTIONS(...)                                                                        \
    (&(const mortise_options){                                                                      \
        .size = sizeof(mortise_options), .wait_ms = MORTISE_WAIT_DEFAULT, __VA_ARGS__})
#endif
#ifdef __clang__
#define MORTISE_TWICE_BEGIN_                                                                        \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Winitializer-overrides\"")
#define MORTISE_TWICE_END_ _Pragma("clang diagnostic pop")
#else
#define MORTISE_TWICE_BEGIN_                                                                        \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"")
#define MORTISE_TWICE_END_ _Pragma("GCC diagnostic pop")
#endif

/* Acquires `name` (1 to MORTISE_NAME_MAX bytes, compared byte by byte). If options is NULL, the config's `wait` and the
 * other defaults apply. Returns OK when the lease is held, or:
 * BUSY: another holds the lock, or others wait for it already (only if the call tries once).
 * TIMEDOUT: the wait ended. Either another holder has the lock (the message says "is held by"), or the backend had not answered
 *    for this call yet (the message says "timed out"): it is slow, or the requests of other callers of this process came first.
 * UNREACHABLE: the backend was unusable for `unreachable_timeout`; or the wait ended after a request had failed, and before
 *    another one was answered. No request was sent, or none had a lasting effect, and none is under way.
 * INDETERMINATE: you do not hold the lock, but a request may have been executed, or may still be executed. Its answer was
 *    lost, came too late for the lease, or had not come when the call ended. (The last is INDETERMINATE only for a call that
 *    tries once, or if a request had failed during the wait; otherwise it is TIMEDOUT.) The call also returns INDETERMINATE
 *    if it is unknown whether a request was sent.
 * DEADLOCK: wait_ms is not 0 inside a callback. NOMEM: out of memory, or no thread could be started.
 * BACKEND: the backend refused the request. CONFIG: the server, or what is stored there, does not fit the config.
 * NOTSUP, INVALID, CLOSED, FORKED.
 * A failed acquire leaves nothing behind in the backend: if a request may still have an effect there, the library
 * undoes it in the background. The call is not a cancellation point, and signals do not interrupt it. */
MORTISE_API mortise_status mortise_acquire(mortise_client *client, const char *name,
                                           const mortise_options *options, mortise_lease **lease,
                                           mortise_error *error);

/* Releases a lease and waits for the backend's answer. The handle is invalid afterwards, whatever the call returns.
 * OK: the lease was held until the end. If another thread of this process waits for the name, the library may hand the
 *    claim over to it: the call then returns OK at once, without asking the backend. So does the release of a shared
 *    lease if other shared leases of this process use the same claim.
 * LOST: the deadline had passed, or the backend reported that the claim was gone. Another holder may have overlapped
 *    with your last steps.
 * INDETERMINATE: a request may have been executed, or may still be executed: its reply was lost or has not arrived, or
 *    it is unknown whether the request was sent. The library repeats the release in the background until it is sure;
 *    the ttl bounds this. The call also returns INDETERMINATE if the repeat found another holder, because that holder may
 *    have acquired the lock before or after this release.
 * UNREACHABLE: the backend was unusable and has not executed the release. The library repeats it in the background too.
 * BACKEND, CONFIG: the backend refused the release. The claim ends with its ttl.
 * INVALID: not a lease, or released before (mortise_close() also releases). CLOSED, FORKED.
 * NULL is allowed: the call returns OK and does nothing. A release never fails because memory is short. */
MORTISE_API mortise_status mortise_release(mortise_lease *lease, mortise_error *error);

/* Like mortise_release(), but returns as soon as the request is on its way, so an acquire and a release together cost
 * one round trip. Later requests of this client come after it. mortise_close() waits for it. If the connection breaks,
 * the library repeats it. Inside mortise_dispatch(), the requests of callbacks go out together at the end, or a hundred
 * or so at a time.
 * OK, LOST (known without asking the backend), INVALID, CLOSED, FORKED. */
MORTISE_API mortise_status mortise_release_nowait(mortise_lease *lease, mortise_error *error);

/* Called exactly once when an async release is over, on the notifier thread or in mortise_dispatch(). `status` is what
 * mortise_release() returns in that case; unless it is OK, `error` is valid during the call, else it is NULL. */
typedef void (*mortise_release_callback)(mortise_status status, const mortise_error *error,
                                         void *user_data);

/* Like mortise_release_nowait(), but the callback always gets the outcome, also if it is known at once. If the backend does
 * not answer, the callback gets INDETERMINATE or UNREACHABLE after about `unreachable_timeout`; mortise_close() does not wait
 * for longer either.
 * OK: the handle is invalid, and the callback is called once, possibly before this call returns.
 * NOMEM: the lease is unchanged. INVALID (NULL too), CLOSED, FORKED. The callback is called after OK only. */
MORTISE_API mortise_status mortise_release_async(mortise_lease *lease,
                                                 mortise_release_callback callback,
                                                 void *user_data, mortise_error *error);

/* For a lease with no_renew: asks the backend to let it last for ttl_ms from now on (0: the ttl of the acquire;
 * MORTISE_TTL_MIN_MS to MORTISE_TTL_MAX_MS), and waits for the answer. It never makes a lease shorter.
 * OK: the deadline has moved. LOST: as mortise_release().
 * INDETERMINATE, UNREACHABLE: no answer in `unreachable_timeout`, or in a sixth of the time that the lease had left when it
 *    was last acquired or extended. INDETERMINATE also if the plugin `migrate`, in its phase `both`, has extended the lease on
 *    one side, and the other side refuses that ttl. You hold the lease until its deadline as before, but the backend may keep
 *    the name for you for longer. The lease becomes SUSPECT when the request fails, or when there has been no answer for that
 *    sixth: if `unreachable_timeout` is shorter, it may still be HELD when this call returns. It is SUSPECT until the backend
 *    answers that you hold it: to another call, to the library's next renewal (if it renews this claim at all), or to the
 *    check after a reconnection. You may call again. If the lease is lost at its deadline, the library releases what the
 *    backend may still keep.
 * BACKEND: the backend refused; the deadline is as before, and the lease is SUSPECT, as above. INVALID: not a lease; a lease
 *    that the library renews; a ttl that the driver does not take (`max_ttl` of redlock); or another thread extends or
 *    releases it. CLOSED, FORKED. */
MORTISE_API mortise_status mortise_extend(mortise_lease *lease, int64_t ttl_ms, mortise_error *error);

/* Makes an exclusive lease shared, in one step in the backend: no other exclusive lease comes in between. Callers that
 * wait for a shared lease get it, except those queued behind an exclusive caller. The lease keeps its token and its
 * deadline. There is no upgrade, because two shared holders that both want to upgrade would wait for each other forever.
 * OK: it is shared, without permits (or it was shared already, and is as it was). LOST: as mortise_release().
 * INDETERMINATE, UNREACHABLE: no answer in `unreachable_timeout`. You still hold the lease; the library repeats the
 *    request with the renewals, so use it as a shared lease from now on.
 * BACKEND: the backend refused; the lease is exclusive as before. NOTSUP: the driver is not `shared`.
 * INVALID: not a lease; a lease with an owner; or another thread downgrades or releases it. CLOSED, FORKED. */
MORTISE_API mortise_status mortise_downgrade(mortise_lease *lease, mortise_error *error);

#define MORTISE_MANY_MAX 256 /* names in one mortise_acquire_many() */

/* Acquires n names (1 to MORTISE_MANY_MAX), all or none, with the same options. leases: room for n; leases[i] is that of
 * names[i]; on failure all are NULL (if names is NULL or n is out of range, nothing is written). wait_ms is the limit for all
 * names together. Two calls that want some of the same names never block each other forever, because a call waits for a name
 * only while all names that it holds are smaller (byte by byte). So acquire names that belong together in one call, not one
 * after the other.
 * With no_renew or max_hold_ms, the time of a lease counts from its own grant, also while the call waits for other names. So
 * that time may be nearly over when the call returns OK: look at mortise_remaining_ms().
 * on_state is called for a lease only once the call has all of them. If a lease is already SUSPECT then, on_state may be called
 * just before the call returns.
 * Returns the statuses of mortise_acquire(). The message says which name failed, except if a lease was lost while the call
 * waited for other names. If one name was unreachable, and a request for another name may have been executed or may still be
 * executed, the call returns INDETERMINATE. INVALID: also if a name is given twice. A call that fails releases the leases that
 * it has in the background, like mortise_release_nowait(). */
MORTISE_API mortise_status mortise_acquire_many(mortise_client *client, const char *const *names,
                                                size_t n, const mortise_options *options,
                                                mortise_lease **leases, mortise_error *error);
/* Releases n leases at the same time and waits for all answers, like mortise_release() of each; NULL ones are skipped.
 * All handles are invalid afterwards. Returns OK, or the first failure in the order of the leases. */
MORTISE_API mortise_status mortise_release_many(mortise_lease *const *leases, size_t n,
                                                mortise_error *error);

/* Returns whether the on_state of a lease of this client runs, or is about to run, on another thread. Use it for a
 * lease that was released inside a callback: once it returns false, you may free what on_state uses. It also returns
 * true if the client is being closed or was closed (use the result of mortise_close() then), or was opened by the parent
 * process. */
MORTISE_API bool mortise_on_state_runs(mortise_client *client, mortise_lease *lease);

/* MORTISE_WITH(lease) { … }: runs the block if lease is not NULL, and releases the lease at the end of the block,
 * also on break, continue, return and goto. The block is itself a loop: break and continue leave only the block, not a loop
 * around it. Needs a compiler with the cleanup attribute. */
#define MORTISE_WITH(lease) MORTISE_WITH_(lease, __COUNTER__)
#define MORTISE_WITH_(lease, n) MORTISE_WITH__(lease, n)
#define MORTISE_WITH__(lease, n)                                                                    \
    for (mortise_lease * mortise_with_##n __attribute__((cleanup(mortise_release_scope))) = (lease),   \
                         *mortise_once_##n = mortise_with_##n;                                      \
         mortise_once_##n != NULL; mortise_once_##n = NULL)
/* For MORTISE_WITH: releases *lease, which may be NULL. */
MORTISE_API void mortise_release_scope(mortise_lease **lease);

/* ---- A lease --------------------------------------------------------------------------------- */

/* Compares the deadline with the clock: no lock, no system call, no I/O. Returns LOST from the deadline on, whether
 * or not the watchdog has run, and LOST for a handle that was released. Check it before each irreversible step, and
 * pass the token along with the step. */
MORTISE_API mortise_lease_state mortise_state(mortise_lease *lease);
/* Returns the milliseconds until the current deadline, or 0 if the lease is lost. As cheap as mortise_state(). */
MORTISE_API int64_t mortise_remaining_ms(mortise_lease *lease);
/* Returns the fencing token (>0), or 0 if the driver has no `fencing` or the handle was released. Leases of the same
 * owner that are held together have the same token. If a lease is handed over within the process, the next caller's lease
 * has its token. So has a shared lease that joins another one of the client, also one that mortise_downgrade() made
 * shared. */
MORTISE_API uint64_t mortise_token(mortise_lease *lease);
/* Writes the owner: the given one, or the grant id (32 hex digits) if none was given. Writes at most size bytes,
 * including the NUL. Returns the length without the NUL, even if it did not fit (like snprintf); 0 if the handle was
 * released. */
MORTISE_API size_t mortise_owner(mortise_lease *lease, char *buffer, size_t size);
/* Writes the name that was acquired, without the namespace, in the same way. Names have up to MORTISE_NAME_MAX bytes. */
MORTISE_API size_t mortise_name(mortise_lease *lease, char *buffer, size_t size);

/* ---- Asynchronous use ------------------------------------------------------------------------ */

/* Called exactly once when an async acquire completes, on the notifier thread or in mortise_dispatch(). If status is
 * OK, you own the lease from now on. Otherwise lease is NULL and `error` is valid during the call. */
typedef void (*mortise_acquire_callback)(mortise_status status, mortise_lease *lease,
                                         const mortise_error *error, void *user_data);

/* Identifies one pending async acquire. Never 0; a client never uses a value twice. */
typedef uint64_t mortise_request;

/* Starts an acquire and returns without waiting for a server; with `sqlite` it reads and writes the file itself, and may wait
 * for the disk. After OK the callback is called once, possibly before this call returns;
 * *request (may be NULL) is for mortise_cancel(). After any other status the callback is not called: INVALID, NOTSUP, NOMEM,
 * CLOSED, FORKED. */
MORTISE_API mortise_status mortise_acquire_async(mortise_client *client, const char *name,
                                                 const mortise_options *options,
                                                 mortise_acquire_callback callback, void *user_data,
                                                 mortise_request *request, mortise_error *error);

/* Cancels a pending async acquire. Its callback is called with CANCELED, unless the outcome was decided before: then it
 * gets that outcome, and you must release a lease as usual. OK. INVALID: unknown, or already decided. CLOSED,
 * FORKED. */
MORTISE_API mortise_status mortise_cancel(mortise_client *client, mortise_request request);

/* For event loops. From the first call on, callbacks begin only in mortise_dispatch(), not on a thread of the library. The call
 * does not wait for a callback that already runs on such a thread, so call it before the first acquire. Returns a descriptor
 * that polls readable when mortise_dispatch() has something to do; it may be polled edge-triggered, too, if mortise_dispatch()
 * is called at each edge. The client owns it; never read from it.
 * On failure returns -1. Sets *status (may be NULL) to OK, CLOSED, FORKED, NOMEM or INVALID (not a client). Leases are
 * renewed even if the program does not call mortise_dispatch(). */
MORTISE_API int mortise_fd(mortise_client *client, mortise_status *status);
/* Does all work that is ready, without waiting for a server (with `sqlite` that work may wait for the disk), and runs callbacks
 * on this thread: at least those that were due at the call, unless another thread runs one. Callbacks of a client run one at
 * a time, so in that case this call returns without running the others: the other thread runs those that were due when it
 * began, and the descriptor stays readable while any are left. This call does not wait for a thread that is inside the driver
 * either: work that is ready for the driver then waits, and does not make the descriptor readable until that thread has left
 * the driver.
 * Returns the number of callbacks that ran, or a negative status: CLOSED, FORKED, DEADLOCK (inside a callback),
 * INVALID (before mortise_fd()). While the client is being closed, and after mortise_close() has returned CLOSING, it
 * runs the remaining callbacks. */
MORTISE_API int mortise_dispatch(mortise_client *client);

/* ---- Inspecting ------------------------------------------------------------------------------ */

/* What the backend knows about a name. Text is truncated to fit and always NUL-terminated. */
typedef struct mortise_info {
    size_t size;                      /* sizeof(mortise_info), set by the caller */
    bool held;                        /* if false, all other fields except name and waiters are 0 or empty */
    char name[MORTISE_NAME_MAX + 1];  /* without the namespace */
    char owner[MORTISE_OWNER_MAX + 1]; /* see mortise_owner() */
    char host[65];                    /* of the holder; empty if unknown (not a Mortise client) */
    char program[33];                 /* of the holder */
    int64_t pid;                      /* of the holder; 0 if unknown */
    int64_t held_ms;                  /* how long it has been held; -1 if unknown */
    int64_t remaining_ms;             /* how long it lasts if it is not renewed; -1 if unknown (session) */
    uint64_t token;                   /* 0 if the driver has none, or if unknown */
    uint32_t leases;                  /* of this owner, if the driver counts them; else 1 */
    int32_t waiters;                  /* waiting clients; -1 if unknown */
    mortise_mode mode;                /* of the holders */
    uint32_t permits;                 /* as the shared holders gave it; 0: any number */
    uint32_t holders;                 /* one, or several shared ones; shared leases of one client may be one holder */
} mortise_info;

/* Asks the backend about one name. OK: see info->held. If several shared leases hold the name, info describes the one with
 * the smallest token. NOTSUP, UNREACHABLE, … */
MORTISE_API mortise_status mortise_inspect(mortise_client *client, const char *name,
                                           mortise_info *info, mortise_error *error);

/* Called for each result; false ends the list early. `info` is valid during the call. */
typedef bool (*mortise_list_callback)(const mortise_info *info, void *user_data);
/* Calls `each` on this thread for every held name that begins with prefix (NULL or "": all names), in byte
 * order, after the answer is complete. Stops early if `each` returns false. */
MORTISE_API mortise_status mortise_list(mortise_client *client, const char *prefix,
                                        mortise_list_callback each, void *user_data,
                                        mortise_error *error);

/* Calls `each` on this thread for every lease that holds the name, in the order of their tokens, after the answer is
 * complete. Stops early if `each` returns false. */
MORTISE_API mortise_status mortise_holders(mortise_client *client, const char *name,
                                           mortise_list_callback each, void *user_data,
                                           mortise_error *error);

/* For operators: ends the claim of another holder if it has this token. Its lease becomes LOST at its next renewal or
 * at its deadline. OK. NOTOWNER: the name is held under another token, so the holder has changed. LOST: nobody holds
 * the name. INDETERMINATE: no answer came within `unreachable_timeout`, or the answer was lost. The claim may have ended, or
 * may still end: mortise_inspect() shows it. UNREACHABLE: nothing was done. NOTSUP. */
MORTISE_API mortise_status mortise_break(mortise_client *client, const char *name, uint64_t token,
                                         mortise_error *error);

/* Checks that the backend answers. OK: text is one line about the backend (name, version, address). Findings follow in the
 * same line, each after " | risk: " or " | note: ": those of the driver about the backend's settings, and those of the
 * library about the config file. Text that does not fit into size bytes, including the NUL, is cut off: pass
 * MORTISE_PING_SIZE bytes. With size 0 text may be NULL. */
MORTISE_API mortise_status mortise_ping(mortise_client *client, char *text, size_t size,
                                        mortise_error *error);

/* For tools. A record is a few bytes under a name in the backend, separate from the lock of the same name. It outlives
 * all clients and lasts as long as the backend's data. Use it for a fact that clients must agree upon, such as the
 * phase of a migration.
 *
 * Reads at most *size bytes into buffer. OK: *size is the record's whole length (if it is more than you gave, the
 * record was truncated) and *version its version (>0). If there is no such record, both are 0. NOTSUP, UNREACHABLE, … */
MORTISE_API mortise_status mortise_record_read(mortise_client *client, const char *name,
                                               void *buffer, size_t *size, uint64_t *version,
                                               mortise_error *error);
/* Writes size bytes if the record's version is still *version (0: if there is no record). OK: written; *version is the
 * new version. BUSY: the version is different; nothing was written. INDETERMINATE, UNREACHABLE: it may have been
 * written: read it. */
MORTISE_API mortise_status mortise_record_write(mortise_client *client, const char *name,
                                                const void *record, size_t size,
                                                uint64_t *version, mortise_error *error);

/* What a stack of modules can promise. docs/promises.md defines each word. */
#define MORTISE_CAPABILITY_MAP(X)                                                                   \
    X(LEASE, 0, "lease", "expires by its ttl when the holder is gone")                              \
    X(SESSION, 1, "session", "lives with a session of the client")                                  \
    X(FENCING, 2, "fencing", "tokens that grow with every grant")                                   \
    X(FAIR, 3, "fair", "first come, first served between processes")                                \
    X(NOTIFY, 4, "notify", "waiters are notified of a release; nobody polls")                           \
    X(INSPECT, 5, "inspect", "reports who holds a name")                                            \
    X(LIST, 6, "list", "lists the held names")                                                      \
    X(REENTRANT, 7, "reentrant", "owners share a lock, counted in the backend")                     \
    X(QUORUM, 8, "quorum", "survives the loss of a minority of servers")                            \
    X(DURABLE, 9, "durable", "grants survive a restart of the server")                              \
    X(SHARED, 10, "shared", "shared leases hold a name together")                                   \
    X(PERMITS, 11, "permits", "at most a given number of shared leases hold a name")

/* Bits of mortise_capabilities(). */
typedef enum mortise_capability {
#define MORTISE_CAPABILITY_ENUM(name, bit, word, help) MORTISE_CAP_##name = 1 << bit,
    MORTISE_CAPABILITY_MAP(MORTISE_CAPABILITY_ENUM)
#undef MORTISE_CAPABILITY_ENUM
} mortise_capability;

/* One module of the client's stack; the top is first. Text lives as long as the client. */
typedef struct mortise_module_info {
    size_t size;              /* sizeof(mortise_module_info), set by the caller */
    const char *name;         /* "sqlite" */
    const char *section;      /* its config section: "sqlite", "redis:old" */
    const char *version;      /* the module's own */
    const char *summary;      /* one line */
    const char *path;         /* the file it was loaded from */
    const char *kind;         /* "driver", "plugin" or "observer" */
    uint32_t abi;             /* of the driver interface that it was built for */
    uint32_t capabilities;    /* mortise_capability bits, as opened with this config */
} mortise_module_info;

/* Returns the capabilities of the whole stack, or 0 if the client was closed. */
MORTISE_API uint32_t mortise_capabilities(mortise_client *client);
/* Fills info for the module at index. Returns false if there is none. */
MORTISE_API bool mortise_module_at(mortise_client *client, size_t index, mortise_module_info *info);
/* Returns what MORTISE_WAIT_DEFAULT means for this client, in ms: 0, or MORTISE_WAIT_FOREVER, or the longest wait. Returns
 * MORTISE_WAIT_DEFAULT if the client was closed. */
MORTISE_API int64_t mortise_default_wait_ms(mortise_client *client);
/* Returns where the configuration came from: a path, a URL without secrets, or "built-in defaults".
 * The text lives as long as the client. NULL if the client was closed. */
MORTISE_API const char *mortise_config_source(mortise_client *client);

/* Counters since mortise_open(). Each is exact, but they are not all read at the same instant. mortise_acquire_many() counts
 * as one acquire for each name, and again each time that it tries the same name again. */
typedef struct mortise_stats {
    size_t size;              /* sizeof(mortise_stats), set by the caller */
    uint64_t acquires;        /* acquires that succeeded */
    uint64_t waits;           /* of these, the ones that waited behind others, as far as the core knows */
    uint64_t wait_ns;         /* the sum of their waiting times */
    uint64_t failures;        /* acquires that failed after they had asked for the name; not those that were refused at
                               * once, for example because of their options, or as a DEADLOCK */
    uint64_t handovers;       /* leases passed on within the process */
    uint64_t releases;
    uint64_t renewals;        /* answered with success */
    uint64_t renewal_failures;
    uint64_t losses;          /* leases that became LOST */
    uint64_t requests;        /* operations passed to the driver */
    uint64_t held;            /* leases held now */
    uint64_t waiting;         /* callers waiting now */
    uint64_t joins;           /* shared leases that joined a claim of the process, without a request */
} mortise_stats;
/* Fills stats. Set stats->size before. Returns OK, INVALID, CLOSED or FORKED. */
MORTISE_API mortise_status mortise_stats_get(mortise_client *client, mortise_stats *stats);

/* ---- Modules on this machine, without a client ----------------------------------------------- */

/* One config key of a module's schema. Text lives during the callback. */
typedef struct mortise_option_info {
    const char *key, *type, *range, *default_text, *help;
    bool secret;
    uint8_t reserved[7];
    const void *reserved_too[2];
} mortise_option_info;

/* Called for each module; false ends the list early. If a file cannot be loaded, `problem` says why and info->path names
 * it. `options` has option_count rows. */
typedef bool (*mortise_module_callback)(const mortise_module_info *info,
                                        const mortise_option_info *options, size_t option_count,
                                        const char *problem, void *user_data);
/* Calls `each` for every module in the module path of the config at `where` (see mortise_open(); NULL: the default
 * search). The core's own section comes first, with info->name "mortise" and kind "core". */
MORTISE_API mortise_status mortise_modules(const char *where, mortise_module_callback each,
                                           void *user_data, mortise_error *error);

/* Called with each piece of a text: `length` bytes, without a NUL, valid during the call. */
typedef void (*mortise_text_callback)(const char *text, size_t length, void *user_data);
/* Passes to `write`, in pieces, the statements that create a module's table ("mortise schema postgres"). `where` is that of
 * mortise_open(). NOTSUP if the module has none. */
MORTISE_API mortise_status mortise_schema(const char *where, const char *module,
                                          mortise_text_callback write, void *user_data,
                                          mortise_error *error);

/* ---- The log --------------------------------------------------------------------------------- */

/* Called with each log line of the library and its modules: one printable line without a newline, valid during the call.
 * Levels are those of syslog: 3 error, 4 warning, 6 info. */
typedef void (*mortise_log_callback)(int level, const char *line, void *user_data);

/* From now on `callback` gets the log lines of all clients of this process; NULL: they go to stderr again. A client with
 * `log = none` in its config logs nothing.
 * Threads: the callback runs on a thread of the library that only writes log lines, one call at a time, with no lock held.
 * It may call every function of the library. While it blocks, lines wait; lines that do not fit into the buffer (64 KiB)
 * are dropped and counted. When mortise_on_log() returns, the previous callback does not run and will not be called again, so
 * do not call mortise_on_log() under a mutex that the previous callback takes. (Inside that callback it does not wait.)
 * mortise_close() waits up to 200 ms for the last lines, and the exit of the program up to 1 s; inside that callback they do
 * not wait either. A child after fork keeps the callback. */
MORTISE_API void mortise_on_log(mortise_log_callback callback, void *user_data);

/* Returns the version of the loaded library: "0.2.0". */
MORTISE_API const char *mortise_version(void);

#ifdef __cplusplus
}
#endif
#endif
