/* driver.h - what a driver or a plugin is, and what the core gives it.
 *
 * The only Mortise header a module includes (it brings mortise.h for the statuses and limits). A module
 * is a shared object that exports one symbol, `mortise_module_v1`, of the type below. It is loaded with
 * RTLD_NOW|RTLD_LOCAL, does not link to the core and calls it only through the `mortise_host` table.
 * SPDX-License-Identifier: MIT
 *
 * THE PUMP. A module is a single-threaded, non-blocking state machine. The core serialises all calls
 * into a stack of modules: start, cancel, interest, turn, watch, unwatch, and functions passed to
 * host->post, are never run at the same time, but by changing threads (whichever caller waits). None
 * of them may block: no sleep, no wait for a network, no name look-up. (An embedded database may do
 * its disk I/O.) `open` and `close` run on the application's thread and may block for a bounded time.
 * `observe` is the exception: see there.
 *
 * OPS. Everything a driver is asked is a mortise_op. Between `start` and its completion the op belongs
 * to the driver, which may use `driver_data` and `next`; it is completed exactly once, by host->complete
 * or host->fail, at any time from any of the serialised calls, `start` included. Completion only queues
 * it: the issuer's `done` runs after the module call has returned, so a module is never re-entered.
 * After completion the driver must not touch the op.
 *
 * TIMES are int64_t nanoseconds of CLOCK_BOOTTIME by host->now() (`_ns`), or durations in milliseconds
 * (`_ms`). A driver takes no other clock for anything that decides a deadline.
 *
 * RULES a driver must keep (docs/architecture.md has the whole list):
 * - `from_ns` of a success is an instant *before* the request that made or extended the claim was first
 *   sent (R1). A repeat of an acquire that only found the claim standing reports the first one's.
 * - Acquire and renew never shorten a claim that is there (R1).
 * - Renew and release act on the grant id they name and on nothing else; check and act are one atomic
 *   step in the server (R3).
 * - Every request can be sent twice: acquire under a grant id that holds already is a success with the
 *   same token; release of what is gone is LOST, of what is another's NOTOWNER (R4).
 * - A canceled acquire is completed promptly, without waiting for the server (R5): CANCELED if it is
 *   certain that nothing was left there, else INDETERMINATE: the core then releases that grant id until
 *   it is sure.
 * - Names, owners and config values never become part of a statement by pasting (R10). */
#ifndef MORTISE_DRIVER_H
#define MORTISE_DRIVER_H

#include <mortise/mortise.h>

#include <poll.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MORTISE_MODULE_MAGIC UINT32_C(0x4d525431) /* "MRT1" */
#define MORTISE_MODULE_ABI 1
#define MORTISE_GRANT_ID_SIZE 16
#define MORTISE_NOTE_MAX 256
#define MORTISE_NEVER INT64_MAX /* of an instant: never */

/* ---- Ops ------------------------------------------------------------------------------------- */

/* Random, 128 bits, fresh for each acquisition (not for each try): what a claim is named by. */
typedef struct mortise_grant_id {
    unsigned char bytes[MORTISE_GRANT_ID_SIZE];
} mortise_grant_id;

typedef enum mortise_op_kind {
    /* in: name, grant, owner, ttl_ms, token_floor, note, flags, first_sent_ns.
     * OK: token (larger than any given before for the name and >= token_floor; the token of the hold
     * if the same owner's or the same grant's stands), from_ns, good_for_ms. If that is less than ttl_ms,
     * because the claim hangs on a session, say, then the core renews it accordingly earlier.
     * BUSY: another's. hint_ms: how long the holder's claim lasts at most if not renewed (-1 unknown),
     * and *info (if given) about the holder. With MORTISE_OP_TRY answer at once and register nowhere;
     * without it the caller waits: a driver with a queue of its own keeps the op until its turn comes
     * or it is canceled; others answer BUSY, and the core starts it again on `news` or at the hint, under
     * another grant id. */
    MORTISE_OP_ACQUIRE = 1,
    /* in: name, grant, owner, ttl_ms, token. OK: from_ns, good_for_ms. LOST: gone; NOTOWNER: another
     * holds the name (both: the grant is lost). */
    MORTISE_OP_RENEW = 2,
    /* in: name, grant, owner, token. OK: was there and is gone now. LOST: was not there. NOTOWNER: the
     * name is held under another grant, which was left alone. All three with `sure` set if no request
     * of the acquire can be executed later; else the core asks again.
     * With MORTISE_OP_BREAK: the claim is named by `token` instead of `grant`. */
    MORTISE_OP_RELEASE = 3,
    /* in: name, *info. OK: info filled, held or not. */
    MORTISE_OP_INSPECT = 4,
    /* in: name = prefix (may be empty). Calls host->emit for each held name in byte order, then OK. What
     * is told is not older than when it was started: whatever was answered before, to whomever, is in it. */
    MORTISE_OP_LIST = 5,
    /* A small named record that outlives clients, apart from the locks. in: name, buffer, buffer_size.
     * OK: record_size, record_version (>0); absent: OK with record_version 0. As LIST, it sees every write,
     * acquire and release that was answered before it was started. */
    MORTISE_OP_READ = 6,
    /* in: name, record, record_size, record_version (0: must be absent). OK: written, record_version
     * is the new one. BUSY: the version was another; nothing was written. A repeat of a write that
     * was executed is BUSY; the caller reads. */
    MORTISE_OP_WRITE = 7,
    /* A sign of life. OK: buffer holds a line of text about the server (NUL-terminated). */
    MORTISE_OP_PING = 8
} mortise_op_kind;

enum {
    MORTISE_OP_TRY = 1u << 0,    /* ACQUIRE: answer now, register nowhere, BUSY if anybody is queued */
    MORTISE_OP_REPEAT = 1u << 1, /* the same request may have been executed before (reply lost) */
    MORTISE_OP_BREAK = 1u << 2   /* RELEASE by token, for operators */
};

typedef struct mortise_op mortise_op;
struct mortise_op {
    /* what is asked: set by the issuer, valid and constant until completion */
    mortise_op_kind kind;
    uint32_t flags;
    const char *name; /* with the namespace before it; not NUL-terminated: use name_len */
    size_t name_len;
    const char *owner; /* NULL and 0: unshared */
    size_t owner_len;
    const char *note; /* who asks: "host\npid\nprogram", to be stored and told by inspect, as it is */
    size_t note_len;
    mortise_grant_id grant;
    int64_t ttl_ms;
    uint64_t token_floor; /* ACQUIRE: the token must not be below */
    mortise_info *info;   /* INSPECT, ACQUIRE when BUSY (may be NULL): for the driver to fill */
    void *buffer;         /* READ, PING */
    size_t buffer_size;
    const void *record; /* WRITE */
    size_t record_size; /* WRITE: in; READ: out */

    /* in and out */
    int64_t first_sent_ns;  /* ACQUIRE: 0 until the driver first hands the request to the transport; set by
                             * the driver then or earlier, kept by the core over repeats of the same grant
                             * id. A caller may be told that nothing was sent (UNREACHABLE) while it is 0 */
    uint64_t token;         /* RENEW, RELEASE: in; ACQUIRE: out */
    uint64_t record_version;

    /* what is answered: set by the driver before it completes the op */
    int64_t from_ns;
    int64_t good_for_ms;
    int64_t hint_ms;
    bool sure;

    mortise_status status; /* set by host->complete / host->fail */
    mortise_error *error;  /* likewise; NULL or detail, owned by the core until `done` has returned */

    /* the issuer's: called once, in the pump, no module on the stack; may start other ops */
    void (*done)(mortise_op *op);
    void *issuer;

    /* the driver's own, from start to completion; zero at start */
    mortise_op *next, *previous;
    void *driver_data[2];

    uint32_t core_state; /* the core's: do not touch */

    /* the issuer's: LIST: called for each result, in the pump, the module on the stack: it may copy and no
     * more. NULL: results are dropped */
    void (*emitted)(mortise_op *op, const mortise_info *info);
};

/* ---- The host: what the core gives a module --------------------------------------------------- */

typedef struct mortise_below mortise_below;

struct addrinfo; /* of <netdb.h> */

/* A look-up has ended, in the pump: addresses (freed when this returns), or NULL and why not (a line). */
typedef void (*mortise_resolved)(void *ctx, void *argument, const struct addrinfo *addresses,
                                 const char *problem);

/* One per opened module. Functions may be called only from the pump, unless said otherwise. */
typedef struct mortise_host mortise_host;
struct mortise_host {
    uint32_t size; /* sizeof(mortise_host) of the core that made it */

    /* The instant now. Any thread. */
    int64_t (*now)(mortise_host *host);
    /* Completes an op. Completing one that is not outstanding is logged and ignored. */
    void (*complete)(mortise_host *host, mortise_op *op, mortise_status status);
    /* Completes it with a failure and detail: native code, whether a retry may help, one line that
     * names the server, the lock and what was being done (escape foreign bytes: see `quote`). */
    void (*fail)(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...) __attribute__((format(printf, 6, 7)));
    /* LIST: one result, its name as in op->name; copied. */
    void (*emit)(mortise_host *host, mortise_op *op, const mortise_info *info);
    /* `name` (as in op->name), which is being watched, was released or may be free: its head is
     * started again. Spurious news are harmless; missing ones cost the waiters a ttl. */
    void (*news)(mortise_host *host, const char *name, size_t name_len);
    /* The same for all watched names (after a reconnection, say). */
    void (*news_all)(mortise_host *host);
    /* Any thread, the library's own too: run(ctx of the module, argument) soon, in the pump. */
    void (*post)(mortise_host *host, void (*run)(void *ctx, void *argument), void *argument);
    /* Must be called before a descriptor that was named in `interest` is closed. */
    void (*closing)(mortise_host *host, int fd);
    /* Logs one line (to stderr, or nowhere: `log` in the config). Any thread. It never waits for the reader of
     * stderr: a thread of the library's writes the lines, and drops and counts those that do not fit into its
     * buffer. Levels as syslog: 3 error, 4 warning, 6 info, 7 debug. Never secrets. */
    void (*log)(mortise_host *host, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Fills size random bytes. */
    void (*random)(mortise_host *host, void *bytes, size_t size);
    /* Writes name as one printable line, quoted, foreign bytes as \xNN, cut to fit; returns buffer. */
    const char *(*quote)(const char *name, size_t name_len, char *buffer, size_t size);

    /* Plugins: loads and opens the module of a config section ("redis", "redis:old") below this one.
     * Only inside `open`. The lower module's news go to this module's `news` slot. The core closes it
     * after this module's close. */
    mortise_status (*open_below)(mortise_host *host, const char *section,
                                 mortise_below **below, mortise_error *error);

    /* Looks up a host name or numeric address, and a port number (stream sockets), on a thread of the
     * core's, for a resolver may block for minutes. `resolved` is called once, unless the module is
     * closed before. False: out of memory or threads; it will not be called. */
    bool (*resolve)(mortise_host *host, const char *node, const char *port,
                    mortise_resolved resolved, void *argument);
    /* What is held of `name` (as in op->name) may have been lost, or be in danger, or be well again: the
     * core renews it at once and not when that is due, and so is told (one that is to end is asked for what is
     * left of it). Harmless if nothing is the matter.
     * name NULL: all that is held (the server is another one, say). */
    void (*doubt)(mortise_host *host, const char *name, size_t name_len);
};

/* A module opened below another. A plugin issues ops of its own to it (zeroed; `done` set). */
struct mortise_below {
    const struct mortise_module *module;
    void *ctx;
    uint32_t capabilities;
    const char *default_namespace; /* of this instance; NULL: none */
};

/* ---- The schema ------------------------------------------------------------------------------- */

typedef enum mortise_option_type {
    MORTISE_OPTION_TEXT = 1,
    MORTISE_OPTION_INT = 2,      /* decimal; minimum, maximum */
    MORTISE_OPTION_BOOL = 3,     /* yes, no, on, off, true, false, 1, 0; number is 0 or 1 */
    MORTISE_OPTION_DURATION = 4, /* "500ms", "30s", "2m", "1h", "1d"; number, minimum, maximum in ms */
    MORTISE_OPTION_CHOICE = 5    /* one of `choices` ("a|b|c"); number is its index. Those behind "||", where the
                                  * empty one has an index too, are accepted and not shown: a URL's schemes */
} mortise_option_type;

enum {
    MORTISE_OPTION_SECRET = 1u << 0,   /* never shown; KEY_file (a path) is accepted beside it */
    MORTISE_OPTION_REQUIRED = 1u << 1, /* no default: a missing one is an error */
    /* Which part of a URL sets it. scheme://user:password@authority/path?key=value */
    MORTISE_OPTION_URL_SCHEME = 1u << 8,
    MORTISE_OPTION_URL_USER = 1u << 9,
    MORTISE_OPTION_URL_PASSWORD = 1u << 10,
    MORTISE_OPTION_URL_AUTHORITY = 1u << 11, /* "a:1,b:2", without user and password */
    MORTISE_OPTION_URL_PATH = 1u << 12,      /* all of it if there is no authority; TEXT keeps the
                                              * leading '/', other types do not ("/3" is 3) */
    MORTISE_OPTION_URL_WHOLE = 1u << 13      /* the URL less the query keys that Mortise knows */
};

typedef struct mortise_option {
    const char *key;
    mortise_option_type type;
    uint32_t flags;
    const char *default_text; /* NULL: none; parsed as a value in a file would be */
    int64_t minimum, maximum; /* INT, DURATION; both 0: no limits */
    const char *choices;      /* CHOICE; DURATION: words allowed beside it ("forever"), number is -1 */
    const char *help;         /* one line */
} mortise_option;

/* A parsed value, one per schema row, in the schema's order. Lives as long as the module. */
typedef struct mortise_value {
    bool given;       /* by the config, not the default */
    const char *text; /* NULL if neither given nor defaulted */
    int64_t number;
} mortise_value;

/* ---- Events (observe) -------------------------------------------------------------------------- */

#define MORTISE_EVENT_MAP(X)                                                                        \
    X(ASKED, 0, "asked")              /* a caller wants the name */                                  \
    X(QUEUED, 1, "queued")            /* it has to wait */                                           \
    X(GRANTED, 2, "granted")          /* the backend gave it: token, deadline */                     \
    X(HANDED_OVER, 3, "handed-over")  /* passed on within the process; same grant and token */       \
    X(RENEWED, 4, "renewed")          /* deadline is the new one */                                  \
    X(SUSPECT, 5, "suspect")                                                                        \
    X(LOST, 6, "lost")                                                                              \
    X(RELEASED, 7, "released")        /* given back by its holder, before the backend is told */     \
    X(FAILED, 8, "failed")            /* the caller went away without: status */

typedef enum mortise_event_kind {
#define MORTISE_EVENT_ENUM(name, number, word) MORTISE_EVENT_##name = number,
    MORTISE_EVENT_MAP(MORTISE_EVENT_ENUM)
#undef MORTISE_EVENT_ENUM
} mortise_event_kind;

typedef struct mortise_event {
    uint32_t size;
    mortise_event_kind kind;
    int64_t at_ns;
    const char *name; /* with the namespace */
    size_t name_len;
    const char *owner; /* NULL: unshared */
    size_t owner_len;
    mortise_grant_id grant; /* zero before there is one */
    uint64_t lease;         /* names one lease of one client, from GRANTED / HANDED_OVER on */
    uint64_t caller;        /* names one acquire call of one client, from ASKED to GRANTED or FAILED */
    uint64_t token;
    int64_t deadline_ns;
    mortise_status status;
} mortise_event;

/* ---- The module -------------------------------------------------------------------------------- */

typedef enum mortise_module_kind {
    MORTISE_KIND_DRIVER = 1,  /* the end of a stack */
    MORTISE_KIND_PLUGIN = 2,  /* opens others below */
    MORTISE_KIND_OBSERVER = 3 /* takes no ops: only open, observe, close */
} mortise_module_kind;

/* What `open` gets. Valid during the call only, except `host` and `values` (till close). */
typedef struct mortise_open_args {
    uint32_t size;
    mortise_host *host;
    const mortise_value *values; /* option_count of them */
    const char *section;         /* "redis:old" */
    const char *client_id;       /* 32 hex digits, fresh for each client */
    const char *note;            /* as in ops */
    const char *name_space;      /* what the config says; NULL: nothing, and names have that of the
                                  * module at the top before them (default_namespace, namespace_of) */
    /* observers, which are opened last (size tells whether they are there): */
    const char *top;             /* the section of the module at the top of the stack */
    const char *names_begin;     /* what all names of this client begin with; may be empty */
} mortise_open_args;

typedef struct mortise_module {
    /* the handshake: checked field by field before anything else is looked at */
    uint32_t magic;       /* MORTISE_MODULE_MAGIC */
    uint32_t abi;         /* MORTISE_MODULE_ABI */
    uint32_t module_size; /* sizeof(mortise_module) as the module was built; tables grow at the end */
    uint32_t op_size;     /* sizeof(mortise_op), likewise */
    uint32_t option_size; /* sizeof(mortise_option), likewise */

    uint32_t kind;            /* mortise_module_kind */
    uint32_t capabilities;    /* what it can promise at best */
    const char *name;         /* as the file is called: NAME.so */
    const char *version;
    const char *summary;      /* one line */
    const char *default_namespace; /* NULL: none. Used when the config says nothing */
    const mortise_option *options;
    size_t option_count;

    /* Opens an instance: *ctx. May block for a bounded time. On failure fills *error (never NULL), has
     * freed everything, and close is not called. */
    mortise_status (*open)(const mortise_open_args *args, void **ctx, mortise_error *error);
    /* Takes n ops; keeps or completes each. n > 1: they came together, batch them if that helps. */
    void (*start)(void *ctx, mortise_op **ops, size_t n);
    /* The issuer has lost interest in an op that was started and not completed: complete it promptly
     * (CANCELED or INDETERMINATE, see R5 above; OK if it just became so). */
    void (*cancel)(void *ctx, mortise_op *op);
    /* Which descriptors to poll and when to be turned at the latest. Fills at most `capacity` entries
     * (fd, events) and returns how many; *due_ns is MORTISE_NEVER at the call, to be lowered to an
     * instant. Called after every other call, with a lock of the core held: it must be quick, change
     * nothing, and take no lock under which host->post may be called. */
    size_t (*interest)(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns);
    /* Some of the descriptors are ready (revents set), or n is 0 and the instant has come, or neither. */
    void (*turn)(void *ctx, const struct pollfd *ready, size_t n);
    /* Ends the instance. Every op has been completed or canceled before. Bounded; frees everything. */
    void (*close)(void *ctx);

    /* optional: NULL if there is nothing to say */
    /* The capabilities of this instance, if its config takes some away. Any thread. */
    uint32_t (*capabilities_of)(void *ctx);
    /* A caller begins / ends to wait for `name`: call host->news when it is released. `watch` must be
     * followed by one news once it is in force (a release before that would be missed), unless the
     * registration was part of an acquire that was BUSY. Balanced; once per name. */
    void (*watch)(void *ctx, const char *name, size_t name_len);
    void (*unwatch)(void *ctx, const char *name, size_t name_len);
    /* Plugins: news from a module below. */
    void (*news)(void *ctx, const char *name, size_t name_len);
    /* Every event of the client, in their order. Called from any thread, one call at a time, with core
     * locks held: under a microsecond, no blocking, no call back into the core but host->now. */
    void (*observe)(void *ctx, const mortise_event *event);
    /* The statements that `mortise schema` prints; static text. */
    const char *(*schema)(void);
    /* Plugins: instead of default_namespace, that of the module below, say, so that clients with and
     * without the plugin mean the same lock by a name. NULL: none. Lives as long as the instance. */
    const char *(*namespace_of)(void *ctx);
    /* Plugins: the client closes, all leases have been given back, and nothing will be asked any more. Gives back
     * what the module itself has in the backend, and then completes op: OK, or why something was left. It may be
     * canceled as any op. A plugin without an end of its own hands it on to the module below, if that has this. */
    void (*leave)(void *ctx, mortise_op *op);
} mortise_module;

#define MORTISE_MODULE_HEAD                                                                         \
    .magic = MORTISE_MODULE_MAGIC, .abi = MORTISE_MODULE_ABI, .module_size = sizeof(mortise_module),    \
    .op_size = sizeof(mortise_op), .option_size = sizeof(mortise_option)

/* extern so that a module's definition is checked against it. */
MORTISE_API extern const mortise_module mortise_module_v1;
#define MORTISE_MODULE_SYMBOL "mortise_module_v1"

#ifdef __cplusplus
}
#endif
#endif
