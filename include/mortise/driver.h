/* driver.h - the interface between the core and a module (a driver or a plugin).
 *
 * A module includes only this Mortise header, which includes mortise.h for statuses and limits. A module is a
 * shared object that exports one symbol, `mortise_module_v1`, of the type below. The core loads it with
 * RTLD_NOW|RTLD_LOCAL. The module does not link to the core; it calls the core through the `mortise_host` table.
 * SPDX-License-Identifier: MIT
 *
 * THE PUMP. A module is a single-threaded, non-blocking state machine. The core serialises all calls into a stack
 * of modules: start, cancel, interest, turn, watch, unwatch, and functions passed to host->post, never run at the
 * same time. They do run on different threads, because any waiting caller may make the call. None of them may
 * block: no sleep, no wait for a network, no name look-up. (An embedded database may do its disk I/O.) `open` and
 * `close` run on the application's thread and may block for a bounded time. `observe` differs; see its comment.
 *
 * OPS. Every request to a driver is a mortise_op. From `start` until its completion the op belongs to the driver,
 * which may use `driver_data`, `next` and `previous`. The driver completes it exactly once, with host->complete or
 * host->fail, at any time, in any of the serialised calls, `start` included. Completion only queues the op: the
 * issuer's `done` runs after the module call has returned, so no completion re-enters a module. After completion the
 * driver must not touch the op. (The functions `news` and `waiting` of a plugin could re-enter the module below, but must
 * not: see their comments.)
 *
 * TIMES are int64_t nanoseconds of CLOCK_BOOTTIME from host->now() (`_ns`), or durations in milliseconds (`_ms`).
 * A driver uses no other clock for anything that decides a deadline.
 *
 * VERSIONS. The core compares the first fields of the module's table with its own build before it uses the module, and
 * refuses a module that it cannot serve (CONFIG; the message names the field).
 * - magic, abi and option_size must be equal.
 * - module_size, op_size and info_size may be smaller, but must include `close`, `emitted` and `waiters`: such a module is
 *   older than the core. Fields are added at the end only. Functions that the module does not have are NULL. Ops and infos
 *   have fields that an older driver does not know and ignores. So each new field of an op comes with a capability: the core
 *   uses the field only with a module that sets this capability, and whose op_size includes the field.
 * - A larger size is refused: the module was built for a newer Mortise.
 * - A plugin must have the op_size and info_size of the core, because it makes ops and infos for other modules.
 * Only the core makes mortise_host, mortise_open_args, mortise_event and mortise_below. They grow at the end; read a field
 * that is newer than this ABI only if `size` includes it (mortise_below has none: ask mortise_host). mortise_value
 * and mortise_option have a reserve, which is zero; they and mortise_grant_id never change their size in this ABI.
 *
 * RULES that a driver must keep (docs/architecture.md has the whole list):
 * - On success, `from_ns` is an instant *before* the request that made or extended the claim was first sent (R1). If
 *   a repeated acquire only finds the claim that the first one made, report the `from_ns` of the first one.
 * - Acquire and renew never shorten an existing claim (R1).
 * - Renew and release act only on the grant id that they name. Check and action are one atomic step in the server
 *   (R3).
 * - Every request can be sent twice (R4). An acquire under a grant id that already holds the name succeeds with the
 *   same token. A release returns LOST if the claim is gone, NOTOWNER if another grant id holds the name.
 * - The driver completes a canceled acquire promptly, without waiting for the server (R5): CANCELED if it is certain
 *   that nothing is left in the server, else INDETERMINATE. The core then releases that grant id until it is sure.
 * - Names, owners and config values are never pasted into a statement (R10). */
#ifndef MORTISE_DRIVER_H
#define MORTISE_DRIVER_H

#include <mortise/mortise.h>

#include <poll.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MORTISE_MODULE_MAGIC UINT32_C(0x4d525431) /* "MRT1" */
#define MORTISE_MODULE_ABI 2     /* of this interface: see VERSIONS */
#define MORTISE_GRANT_ID_SIZE 16 /* bytes */
#define MORTISE_NOTE_MAX 256     /* bytes in a note */
#define MORTISE_NEVER INT64_MAX /* an instant that never comes */

/* ---- Ops ------------------------------------------------------------------------------------- */

/* Identifies a claim: 128 random bits, new for each acquisition (not for each try). */
typedef struct mortise_grant_id {
    unsigned char bytes[MORTISE_GRANT_ID_SIZE];
} mortise_grant_id;

/* What an op asks for. */
typedef enum mortise_op_kind {
    /* in: name, grant, mode, permits, owner, ttl_ms, token_floor, note, flags, first_sent_ns.
     * OK: token, from_ns, good_for_ms. The token is larger than any earlier one for the name, and >= token_floor;
     * but if the same owner or the same grant id holds the name already, it is the token of that hold. If
     * good_for_ms is less than ttl_ms (for example, because the claim depends on a session), the core renews
     * correspondingly earlier, and releases a claim whose lease it could not renew in that time.
     * EXCLUSIVE is admitted if nobody holds the name, or only claims of the same owner do. SHARED (never with an owner) is
     * admitted if no exclusive claim holds the name, and fewer than `permits` shared ones do (0: any number); on a
     * driver that is `fair`, also only if nobody waits ahead of it. On others an exclusive caller that waits for
     * shared holders keeps new ones out for a short time, so that it gets its turn. Each shared claim has its own
     * grant, token and expiry in the backend. INVALID: shared holders have given another number of permits; say which
     * and who.
     * BUSY: another holds the name. hint_ms: after how long it may be admitted at the latest if nobody renews
     * (-1: unknown); *info, if given: the holder.
     * With MORTISE_OP_TRY the driver answers at once and registers nothing. Without it the caller waits: a driver
     * with its own queue keeps the op until its turn comes or the op is canceled, and calls host->waiting when the
     * backend has answered that it is in the queue. Other drivers answer BUSY, and the core starts the op again on `news`
     * or after hint_ms, under another grant id. */
    MORTISE_OP_ACQUIRE = 1,
    /* in: name, grant, mode, permits, owner, ttl_ms, token. OK: from_ns, good_for_ms. LOST: the claim is gone. NOTOWNER:
     * another holds the name. Both mean that the claim is lost. INVALID: the driver takes no such ttl, and has asked nothing.
     * With MORTISE_OP_DOWNGRADE the claim (exclusive, no owner, the same token) also becomes shared, without permits, in
     * one atomic step; OK too if it is shared already. Shared waiters get news; no exclusive one gets in. */
    MORTISE_OP_RENEW = 2,
    /* in: name, grant, mode, permits, owner, token. OK: the claim existed and is gone now. LOST: it did not exist. NOTOWNER: the
     * name is held under another grant id, and that claim was not changed. In all three cases set `sure` if no
     * request of the acquire can be executed later; otherwise the core asks again.
     * With MORTISE_OP_BREAK, `token` identifies the claim instead of `grant`, and it may be of either mode.
     * With MORTISE_OP_DOWNGRADE a downgrade of the claim may have been executed: it may be of either mode. */
    MORTISE_OP_RELEASE = 3,
    /* in: name, *info. OK: info is filled, whether the name is held or not. If several shared claims hold the name, info
     * describes the one with the smallest token. If `emitted` is set, the driver also calls host->emit for each
     * holder, the smallest token first. */
    MORTISE_OP_INSPECT = 4,
    /* in: name = prefix (may be empty). The driver calls host->emit for each held name in byte order, then
     * completes with OK. The list includes every change that was answered to any client before the op was
     * started. */
    MORTISE_OP_LIST = 5,
    /* Reads a small named record, which is separate from the locks and outlives clients. in: name, buffer,
     * buffer_size. OK: record_size, record_version (>0, or 0 if there is no record). Like LIST, it sees every
     * write, acquire and release that was answered before it was started. */
    MORTISE_OP_READ = 6,
    /* in: name, record, record_size, record_version (0: there must be no record). OK: written; record_version is
     * the new version. BUSY: the version was different, and nothing was written. If a write was executed, its
     * repeat is BUSY; the caller then reads the record. */
    MORTISE_OP_WRITE = 7,
    /* Checks that the server answers. OK: buffer holds a line of text about it (NUL-terminated). What weakens the promises
     * may follow in the line, each as " | risk: sentence" (a setting would prevent it) or " | note: sentence", for
     * `mortise doctor`. */
    MORTISE_OP_PING = 8
} mortise_op_kind;

enum {
    MORTISE_OP_TRY = 1u << 0,    /* ACQUIRE: answer now, register nothing; BUSY if any caller is queued */
    MORTISE_OP_REPEAT = 1u << 1, /* the same request may have been executed already (its reply was lost) */
    MORTISE_OP_BREAK = 1u << 2,  /* RELEASE: by token, for operators */
    MORTISE_OP_DOWNGRADE = 1u << 3, /* RENEW: exclusive becomes shared; RELEASE: a downgrade may have been executed */
    MORTISE_OP_DEAD = 1u << 4, /* RELEASE: of a claim that another client asked for or held, whose process has ended. Look
                               * in the server for the claim and for its place in a queue; `sure` is about this client's
                               * requests only. A driver that keeps all it needs in the server can ignore the flag */
    MORTISE_OP_NEXT = 1u << 5, /* ACQUIRE: this client holds the name, exclusively, and this is its next caller. A driver may
                               * keep the op for a few milliseconds, to send it together with the RELEASE */
    MORTISE_OP_AGAIN = 1u << 6 /* ACQUIRE: the process's queue for this name has been answered BUSY since it last got the
                               * name; a repeat may have the flag too. If the server does not notify the driver when a name
                               * becomes free, the driver may keep the op until its next look is due. It must not keep
                               * an op without the flag, because the caller of such an op has asked for nothing yet */
};

typedef struct mortise_op mortise_op;
/* One request to a driver: see OPS. */
struct mortise_op {
    /* the request: set by the issuer, valid and constant until completion */
    mortise_op_kind kind;
    uint32_t flags;
    const char *name; /* prefixed with the namespace; not NUL-terminated: use name_len */
    size_t name_len;
    const char *owner; /* NULL and 0: no owner */
    size_t owner_len;
    const char *note; /* the caller: "host\npid\nprogram"; store it unchanged, INSPECT returns it */
    size_t note_len;
    mortise_grant_id grant;
    int64_t ttl_ms;
    uint64_t token_floor; /* ACQUIRE: the smallest token allowed */
    mortise_info *info;   /* the driver fills it: INSPECT; ACQUIRE if BUSY (may be NULL) */
    void *buffer;         /* READ, PING */
    size_t buffer_size;
    const void *record; /* WRITE */
    size_t record_size; /* WRITE: in; READ: out */

    /* in and out */
    int64_t first_sent_ns;  /* ACQUIRE: the driver sets it no later than it first hands the request to the
                             * transport; the core keeps it over repeats of the same grant id. While it is
                             * 0, the core may report that nothing was sent (UNREACHABLE) */
    uint64_t token;         /* RENEW, RELEASE: in; ACQUIRE: out */
    uint64_t record_version;

    /* the answer: set by the driver before it completes the op */
    int64_t from_ns;
    int64_t good_for_ms;
    int64_t hint_ms;
    bool sure;

    mortise_status status; /* set by host->complete and host->fail */
    mortise_error *error;  /* likewise: NULL or details; the core owns it until `done` has returned */

    /* the issuer's callback: called once, in the pump, while no module call is active; it may start other ops */
    void (*done)(mortise_op *op);
    void *issuer;

    /* for the driver, from start to completion; zero at start */
    mortise_op *next, *previous;
    void *driver_data[2];

    uint32_t core_state; /* belongs to the core: do not touch */

    /* the issuer's callback of a LIST, or of an INSPECT that wants all holders: called for each result, in the pump,
     * inside the module's call, so it may only copy. NULL: results are dropped */
    void (*emitted)(mortise_op *op, const mortise_info *info);

    mortise_mode mode; /* of the claim. A module that was built without it is not `shared` */
    uint32_t permits;  /* SHARED: at most this many holders; 0: any number */
};

/* ---- The host: functions of the core for a module --------------------------------------------- */

typedef struct mortise_below mortise_below;

struct addrinfo; /* of <netdb.h> */

/* Called in the pump when a look-up has ended: addresses (freed when the function returns), or NULL and the reason. */
typedef void (*mortise_resolved)(void *ctx, void *argument, const struct addrinfo *addresses,
                                 const char *problem);

/* One per opened module. Call the functions only from the pump, unless their comment says otherwise. */
typedef struct mortise_host mortise_host;
struct mortise_host {
    uint32_t size; /* sizeof(mortise_host) of the core that made it */

    /* Returns the current instant. Any thread. */
    int64_t (*now)(mortise_host *host);
    /* Completes an op. If the op is not outstanding, the core logs that and ignores the call. */
    void (*complete)(mortise_host *host, mortise_op *op, mortise_status status);
    /* Completes an op with a failure and details: the native code, whether a retry may help, and one line that
     * names the server, the lock and the operation (escape foreign bytes with `quote`). */
    void (*fail)(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...) __attribute__((format(printf, 6, 7)));
    /* LIST, INSPECT: reports one result, with its name as in op->name. The core copies it. */
    void (*emit)(mortise_host *host, mortise_op *op, const mortise_info *info);
    /* Reports that the watched `name` (as in op->name) was released or may be free. The core starts the acquire of
     * its first waiter again. Spurious news does no harm; missing news costs the waiters a ttl. */
    void (*news)(mortise_host *host, const char *name, size_t name_len);
    /* The same for all watched names, for example after a reconnection. From a module below a plugin it goes to the core
     * alone, and not to the plugin's `news`. */
    void (*news_all)(mortise_host *host);
    /* Calls run(ctx of the module, argument) soon, in the pump. Any thread, including threads of a client library. If there is
     * no memory for it, the call is lost, and only the log says so. So if an event must not be missed, also look for it in
     * `turn`, by an instant that `interest` returns in *due_ns. */
    void (*post)(mortise_host *host, void (*run)(void *ctx, void *argument), void *argument);
    /* Call it before you close a descriptor that `interest` has returned. */
    void (*closing)(mortise_host *host, int fd);
    /* Logs one line (to stderr, or nowhere: `log` in the config). Any thread. It never waits for the reader of
     * stderr: a thread of the library writes the lines. If its buffer is full, lines are dropped and counted. Levels
     * are those of syslog: 3 error, 4 warning, 6 info. Lines above level 6 (debug) are not written. Never log secrets. */
    void (*log)(mortise_host *host, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* Fills `bytes` with size random bytes. */
    void (*random)(mortise_host *host, void *bytes, size_t size);
    /* Writes name as one printable line, quoted, foreign bytes as \xNN, truncated to fit. Returns buffer. */
    const char *(*quote)(const char *name, size_t name_len, char *buffer, size_t size);

    /* Plugins: loads and opens the module of a config section ("redis", "redis:old") below this module. Only inside
     * `open`. News of the lower module goes to this module's `news` function. A doubt of the lower module goes to the core.
     * The core takes it for a doubt of all claims, because the lower module may use names that the core does not know. It
     * renews all claims through this module, so answer a RENEW by what the modules below say, never from memory. The core
     * renews only its own claims, not those that this module made for itself. The core closes the lower module after
     * this module's close. */
    mortise_status (*open_below)(mortise_host *host, const char *section,
                                 mortise_below **below, mortise_error *error);

    /* Looks up a host name or numeric address, and a port number (stream sockets), on a thread of the core, because
     * a resolver may block for minutes. `resolved` is called once, in a later call of the pump, unless the module is closed
     * first. False: out of memory or threads; `resolved` will not be called. Each look-up has a thread of its own until the
     * resolver answers, and nothing bounds the number of threads: while a look-up of a name runs, do not start another. */
    bool (*resolve)(mortise_host *host, const char *node, const char *port,
                    mortise_resolved resolved, void *argument);
    /* Reports that the state of the claim on `name` (as in op->name) may have changed: it may be lost, in danger, or
     * safe again. The core renews it now, without waiting until the renewal is due, to find out. (If the claim is
     * to end, the core sends its release instead.) Does no harm if nothing has changed.
     * name NULL: all claims, for example because the server is a different one. From a module below a plugin every
     * doubt is taken for one of all claims. Doubts within one call of such a module are merged into one, but doubts in
     * different calls are not: gather the doubts of claims that are not known to be lost. */
    void (*doubt)(mortise_host *host, const char *name, size_t name_len);
    /* Reports that the backend has answered this acquire, which the module keeps: it has to wait for its turn. An op that waits
     * may not be completed for hours; without the report, that time would be taken for a part of an outage that began with the
     * failures of the tries before it (`unreachable_timeout`), and the wait would not be counted. Call it for each such
     * answer, however many there are for an op; but only for an answer, not because a connection is there. A driver that
     * answers BUSY need not call it. If the core's op waits for an op that a plugin made, the plugin calls it for the core's
     * op (`waiting` below). A core that accepts a module whose table has `waiting` has this function too. */
    void (*waiting)(mortise_host *host, mortise_op *op);
};

/* A module opened below another one. A plugin issues its own ops to it (zeroed, with `done` set). */
struct mortise_below {
    const struct mortise_module *module;
    void *ctx;
    uint32_t capabilities;
    const char *default_namespace; /* of this instance; NULL: none */
};

/* ---- The schema ------------------------------------------------------------------------------- */

/* How a value is parsed. */
typedef enum mortise_option_type {
    MORTISE_OPTION_TEXT = 1,
    MORTISE_OPTION_INT = 2,      /* decimal; minimum, maximum */
    MORTISE_OPTION_BOOL = 3,     /* yes, no, on, off, true, false, 1, 0; number is 0 or 1 */
    MORTISE_OPTION_DURATION = 4, /* "500ms", "30s", "2m", "1h", "1d"; number, minimum, maximum in ms */
    MORTISE_OPTION_CHOICE = 5    /* one of `choices` ("a|b|c"); number is its index. Choices after "||" are accepted
                                  * but not shown, such as URL schemes; the empty one between has an index too */
} mortise_option_type;

enum {
    MORTISE_OPTION_SECRET = 1u << 0,   /* never shown; KEY_file (a path) is accepted too */
    MORTISE_OPTION_REQUIRED = 1u << 1, /* no default: a missing value is an error */
    /* The part of a URL that sets the option: scheme://user:password@authority/path?key=value */
    MORTISE_OPTION_URL_SCHEME = 1u << 8, /* a file sets it by another name of the module than its own ("driver =
                                          * rediss"), if the option can have that value */
    MORTISE_OPTION_URL_USER = 1u << 9,
    MORTISE_OPTION_URL_PASSWORD = 1u << 10,
    MORTISE_OPTION_URL_AUTHORITY = 1u << 11, /* "a:1,b:2", without user and password */
    MORTISE_OPTION_URL_PATH = 1u << 12,      /* everything after the scheme if there is no authority; TEXT
                                              * keeps the leading '/', other types do not ("/3" is 3) */
    MORTISE_OPTION_URL_WHOLE = 1u << 13      /* the URL without the query keys that Mortise knows */
};

/* One config key of a module. */
typedef struct mortise_option {
    const char *key;
    mortise_option_type type;
    uint32_t flags;
    const char *default_text; /* NULL: none; parsed like a value in a file */
    int64_t minimum, maximum; /* INT, DURATION; both 0: no limits */
    const char *choices;      /* CHOICE; DURATION: words that are also allowed ("forever"): number is -1 */
    const char *help;         /* one line */
    const void *reserved[2];
} mortise_option;

/* A parsed value: one per schema row, in the schema's order. Lives as long as the module. */
typedef struct mortise_value {
    bool given;       /* true: from the config; false: the default */
    const char *text; /* NULL: not given, and no default */
    int64_t number;
    int64_t reserved;
} mortise_value;

/* ---- Events (observe) -------------------------------------------------------------------------- */

#define MORTISE_EVENT_MAP(X)                                                                        \
    X(ASKED, 0, "asked")              /* a caller wants the name */                                  \
    X(QUEUED, 1, "queued")            /* the caller has to wait */                                   \
    X(GRANTED, 2, "granted")          /* the backend granted it: token, deadline */                  \
    X(HANDED_OVER, 3, "handed-over")  /* passed on within the process; same grant id and token */    \
    X(RENEWED, 4, "renewed")          /* deadline_ns is the new deadline */                          \
    X(SUSPECT, 5, "suspect")                                                                        \
    X(LOST, 6, "lost")                                                                              \
    X(RELEASED, 7, "released")        /* by its holder; the backend is not asked yet */              \
    X(FAILED, 8, "failed")            /* the caller did not get the lock: status */                  \
    X(DOWNGRADED, 9, "downgraded")    /* used as a shared lease from now on; the backend is not asked yet */ \
    X(JOINED, 10, "joined")           /* shares a claim of its process: same grant id and token */

/* What happened to a lease or a caller. */
typedef enum mortise_event_kind {
#define MORTISE_EVENT_ENUM(name, number, word) MORTISE_EVENT_##name = number,
    MORTISE_EVENT_MAP(MORTISE_EVENT_ENUM)
#undef MORTISE_EVENT_ENUM
} mortise_event_kind;

/* One event, for `observe`. Valid during the call. */
typedef struct mortise_event {
    uint32_t size;
    mortise_event_kind kind;
    int64_t at_ns;
    const char *name; /* prefixed with the namespace */
    size_t name_len;
    const char *owner; /* NULL: no owner */
    size_t owner_len;
    mortise_grant_id grant; /* zero until there is one */
    uint64_t lease;         /* identifies one lease of one client, from GRANTED, HANDED_OVER or JOINED on */
    uint64_t caller;        /* identifies one acquire call of one client, from ASKED to one of these three or FAILED */
    uint64_t token;
    int64_t deadline_ns;
    mortise_status status;
    mortise_mode mode; /* of the claim, or of what the caller asks for; `size` says whether these two exist */
    uint32_t permits;
} mortise_event;

/* ---- The module -------------------------------------------------------------------------------- */

/* The place of a module in a stack. */
typedef enum mortise_module_kind {
    MORTISE_KIND_DRIVER = 1,  /* the bottom of a stack */
    MORTISE_KIND_PLUGIN = 2,  /* opens other modules below itself */
    MORTISE_KIND_OBSERVER = 3 /* gets no ops: only open, observe, close */
} mortise_module_kind;

/* The arguments of `open`. Valid only during the call, except `host` and `values` (until close). */
typedef struct mortise_open_args {
    uint32_t size;
    mortise_host *host;
    const mortise_value *values; /* option_count of them */
    const char *section;         /* "redis:old" */
    const char *client_id;       /* 32 hex digits, new for each client */
    const char *note;            /* as in mortise_op */
    const char *name_space;      /* the namespace in the config; NULL: none is given, so names have the
                                  * prefix of the top module (default_namespace, namespace_of) */
    /* for observers, which are opened last (`size` says whether these fields exist): */
    const char *top;             /* the section of the top module of the stack */
    const char *names_begin;     /* the prefix of all names of this client; may be empty */
} mortise_open_args;

/* The table that a module exports. */
typedef struct mortise_module {
    /* the handshake: the core checks these fields before it reads anything else */
    uint32_t magic;       /* MORTISE_MODULE_MAGIC */
    uint32_t abi;         /* MORTISE_MODULE_ABI */
    uint32_t module_size; /* sizeof(mortise_module) in the module's build; tables grow at the end */
    uint32_t op_size;     /* likewise, sizeof(mortise_op) */
    uint32_t option_size; /* likewise, sizeof(mortise_option) */
    uint32_t info_size;   /* likewise, sizeof(mortise_info) */

    uint32_t kind;            /* mortise_module_kind */
    uint32_t capabilities;    /* the most that it can promise */
    const char *name;         /* the file is NAME.so */
    const char *version;
    const char *summary;      /* one line */
    const char *default_namespace; /* used if the config gives none; NULL: none */
    const mortise_option *options;
    size_t option_count;

    /* Opens an instance: *ctx. May block for a bounded time. On failure it fills *error (`error` is never NULL) and
     * frees everything; the core does not call close. */
    mortise_status (*open)(const mortise_open_args *args, void **ctx, mortise_error *error);
    /* Takes n ops; keeps or completes each. If n > 1, they came together: batch them if that helps. */
    void (*start)(void *ctx, mortise_op **ops, size_t n);
    /* The issuer no longer wants the result of an op that was started and not completed. Complete it promptly:
     * CANCELED or INDETERMINATE (see R5 above), or OK if it has just succeeded. */
    void (*cancel)(void *ctx, mortise_op *op);
    /* Reports which descriptors to poll, and by when to call `turn` at the latest. Fills at most `capacity` entries
     * (fd, events), each descriptor once, with all its events, and returns their number. *due_ns is MORTISE_NEVER at the
     * call; lower it if needed. The core calls it before it polls, after one or several rounds of the other calls, with a lock
     * of the core held: it must be quick, change nothing, and take no lock under which host->post may be called. */
    size_t (*interest)(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns);
    /* Some descriptors are ready (revents is set), or n is 0 and due_ns has come, or neither. */
    void (*turn)(void *ctx, const struct pollfd *ready, size_t n);
    /* Ends the instance and frees everything, in bounded time. Every op was completed or canceled before. */
    void (*close)(void *ctx);

    /* optional functions: NULL if not needed */
    /* Returns the capabilities of this instance, if its config removes some. Any thread. */
    uint32_t (*capabilities_of)(void *ctx);
    /* A caller begins (ends) to wait for `name`: between the two, call host->news when the name is released. Once the
     * watch is in force, call host->news once, because a release before that would be missed. That call is not needed if
     * an acquire that returned BUSY has registered the watch. Calls are balanced, one watch per name at a time. But if the
     * caller has left after such a BUSY, there may be neither a watch nor an unwatch: what the acquire has registered must
     * end by itself. */
    void (*watch)(void *ctx, const char *name, size_t name_len);
    void (*unwatch)(void *ctx, const char *name, size_t name_len);
    /* Plugins: a module below has news of this name. `news`, like `waiting`, is called inside a call of that module, so do not
     * call any function of that module: no start, no cancel. Remember the work instead, and lower *due_ns in `interest`, so
     * that `turn` does it. host->news, host->complete and host->waiting may be called. */
    void (*news)(void *ctx, const char *name, size_t name_len);
    /* Gets every event of the client, in order. Called on any thread, one call at a time, with locks of the core
     * held: return within a microsecond, do not block, and call no function of the core but host->now. */
    void (*observe)(void *ctx, const mortise_event *event);
    /* Returns the statements that `mortise schema` prints; static text. */
    const char *(*schema)(void);
    /* Plugins: returns a namespace that replaces default_namespace, for example that of the module below, so that a
     * name means the same lock with and without the plugin. NULL: none. Lives as long as the instance. */
    const char *(*namespace_of)(void *ctx);
    /* Plugins: the client closes, all leases have been released, and no further op will be started. Releases what the
     * plugin itself holds in the backend, then completes op: OK, or why something is left. Like any op, it may be
     * canceled. A plugin that holds nothing passes the op on to the module below, if that module has this function. */
    void (*leave)(void *ctx, mortise_op *op);
    /* Plugins: a module below has called host->waiting for an op that is not the core's. If this plugin made the op (op->done
     * says so), it calls host->waiting for the op from above that depends on it, if there is one. If another plugin made the
     * op, this plugin calls host->waiting for the same op. Called inside a call of the module below: see `news`. */
    void (*waiting)(void *ctx, mortise_op *op);
} mortise_module;

/* The first fields of a module's table: `.kind` and the others follow. A module in C++ needs C++20, which has designated
 * initialisers; the fields then stand in the order of the struct. */
#define MORTISE_MODULE_HEAD                                                                         \
    .magic = MORTISE_MODULE_MAGIC, .abi = MORTISE_MODULE_ABI, .module_size = sizeof(mortise_module),    \
    .op_size = sizeof(mortise_op), .option_size = sizeof(mortise_option),                              \
    .info_size = sizeof(mortise_info)

/* extern, so that the compiler checks a module's definition against it. */
MORTISE_API extern const mortise_module mortise_module_v1;
#define MORTISE_MODULE_SYMBOL "mortise_module_v1" /* the symbol that the core looks up */

#ifdef __cplusplus
}
#endif
#endif
