/* link.h - one connection to one Redis server: connected by address, pipelined, non-blocking, and made again when it breaks.
 * The drivers that speak Redis build on it; it knows nothing of locks.
 *
 *   link.c       the states below, timers, reading and writing
 *   address.c    the addresses of a name
 *   replies.c    hands replies to the calls that they answer
 *   socket.c     a socket to the next address; TLS if hiredis has it
 *   handshake.c  the first requests on a new connection
 *   command.c    commands as bytes
 *   fault.c      tells error replies apart
 *   endpoint.c   "host:port", "[::1]:6379", "/path/of/socket"
 *
 * Beside it: primary.h, which of several servers is the primary; topology.h, which node of a cluster has a slot; channels.h,
 * subscriptions; keys.h, holder.h, script.h, text.h: keys, values, scripts and texts in replies.
 *
 *           wanted           where it is             addresses             connected
 *   DOWN ──────────▶ SEEKING ────────────▶ RESOLVING ─────────▶ CONNECTING ──────────▶ GREETING ──▶ UP
 *    ▲  backoff         │ nowhere              │ none, time         │ next address,      │ error,     │ EOF, error,
 *    └──────────────────┴──────────────────────┴────────────────────┴── time ────────────┴── time ────┘ no answer,
 *                                                                                                      a replica now
 * (SEEKING only if there is a callback for it: callbacks->seek.)
 *
 * Calls may be made while it is UP, and are answered in order. When it breaks, `lost` is called once for each outstanding call,
 * and says whether any byte of the call can have reached the server. Then `down` is called.
 *
 *   The reply is lost: its call gets LINK_LOST. The server may have executed the request, or may execute it later: the bytes
 *     may be in a buffer of this kernel or of the server, or on the way. So the next greeting ends the old connection in the
 *     server (CLIENT KILL ID, by the id that the server gave it) before it sends any other request. Only then, or if the server
 *     is another process by now (its run id), is the past `settled`: this server executes nothing of an older connection any
 *     more. The old connection is reset, so that this kernel discards what it has not sent yet or would send again.
 *   The server does not permit or know CLIENT KILL: the past stays unsettled, and link_settled says so.
 *   The run id is another one: another client may have the id of the old connection by now, so nobody is killed. The old
 *     process may be alive, if there are several servers or the address leads elsewhere now, and may execute what it was sent.
 *     That changes only its own data, which a primary that is not its replica never sees. So the past is settled *here*.
 *     `pasts` remembers it: if this link comes back to that very process, the old connection is ended there.
 *   The server restarts between the run id and the kill: this connection is dead too, and its greeting fails.
 *   The server is stopped (SIGSTOP): the kernel accepts the connection for it, and nothing is answered. connect_timeout ends
 *     the greeting, command_timeout ends a call; each breaks the connection.
 *   The network is cut: the same. While nothing is outstanding, TCP keepalive notices the cut. A connection for subscriptions
 *     has no calls: its owner says when an answer is outstanding (link_awaits). Such a connection is useless, however long it
 *     lasted, so the next attempt has the backoff.
 *   An answer comes that no call asked for: replies are matched by their order, so the connection is broken at once.
 *   An answer is larger than any that is asked for (16 MB, or a million elements): it is not read, and the connection is broken.
 *     Elements are counted when they are announced, so no memory is taken for a list that is too long. Bytes are counted
 *     as they come: a long text takes up to 16 MB before that.
 *   An answer nests lists deeper than any that is asked for: likewise. From hiredis 1.0 on nothing else bounds the depth, and
 *     freeing a reply takes stack for each level.
 *   Out of memory for a command: half a command must not be sent, so the connection is broken.
 *   The server closed an idle connection while nobody was reading: link_look notices it before the next call.
 *   It becomes a replica while it is UP: READONLY. No further calls are made; the outstanding ones still get their answers, and
 *     then the link leaves this server. The next attempt seeks the primary, or looks the name up again, because another server
 *     may be behind the address by now. Attempts that find a replica have the backoff.
 *   The server closes each connection soon after the greeting, without an answer: a failed attempt, with its backoff.
 *   The resolver hangs: each look-up has its own thread, and the attempt ends by connect_timeout. A numeric address needs no look-up.
 *     If the next attempt has another name, that name is looked up at the same time. An attempt with the same name waits for the
 *     look-up that is under way. A link has room for LINK_LOOK_UPS names: if all of them hang, an attempt with one more name
 *     waits until one ends.
 *   The resolver answers, but always later than connect_timeout, for example because the first name server is dead: the answer
 *     serves the next attempt with that name (LOOK-UPS).
 *   The owner frees the link while a look-up is under way: the answer would come to freed memory. So the owner may free it only
 *     when the instance is closed, because from then on no answer is delivered: see link_count_look_ups().
 *
 * LOOK-UPS. A look-up is in one of three states. An "attempt" is one with its name that is RESOLVING.
 *
 *   event                         idle            under way        found
 *   an attempt begins             under way (1)   under way (2)    idle: the attempt uses them, unless they are old (LATE_NS):
 *                                                                  then as idle
 *   the answer: addresses         -               found (3)        -
 *   the answer: none              -               idle (4)         -
 *   the attempt's time is over    -               under way        -
 *   room is needed                another's       under way        another's, if none is idle
 *
 *   1: if there is no thread or memory for it, the attempt fails, and it stays idle. 2: one look-up of a name at a time. 3: if an
 *   attempt waits, it uses them: idle. 4: if an attempt waits, it fails.
 *
 * All of it runs in the pump (driver.h). SIGPIPE never arises. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_LINK_H
#define MORTISE_DRIVERS_LIB_REDIS_LINK_H

#include <mortise/driver.h>

#include <hiredis/hiredis.h>
#include <sys/socket.h>

#define LINK_ADDRESSES 8
#define LINK_LOOK_UPS 4
#define LINK_NS_PER_MS INT64_C(1000000)
#define LINK_PORT "6379"

/* ---- where (endpoint.c) ------------------------------------------------------------------------- */

struct endpoint {
    char host[256]; /* or the path of a socket */
    char port[6];   /* "": host is a path */
    char text[270]; /* for messages, and to compare endpoints */
};
/* Reads one endpoint of the comma-separated list at *list and moves *list on; `port` is the default. False: *problem says what
 * is wrong. */
bool endpoint_next(const char **list, const char *port, struct endpoint *endpoint,
                   const char **problem);
/* Makes an endpoint of a host and a port that a server has named. False: they are not valid. */
bool endpoint_set(struct endpoint *endpoint, const char *host, size_t host_len, const char *port,
                  size_t port_len);

/* Writes its address if it needs no look-up, because it is numeric or the path of a socket. Returns the length; 0: it has a
 * name. */
socklen_t endpoint_address(const struct endpoint *endpoint, struct sockaddr_storage *address);

/* ---- faults (fault.c) ----------------------------------------------------------------------------- */

/* Error replies that mean something to a caller. */
enum link_error {
    LINK_ERROR_OTHER,
    LINK_ERROR_NOSCRIPT,
    LINK_ERROR_READONLY, /* a replica */
    LINK_ERROR_LOADING,  /* reading its data */
    LINK_ERROR_BUSY,     /* in somebody's script */
    LINK_ERROR_OOM,      /* maxmemory */
    LINK_ERROR_MISCONF,  /* it cannot write to its disk, or too few replicas: it refuses writes */
    LINK_ERROR_MOVED,    /* of a cluster: another node has the slot */
    LINK_ERROR_ASK, /* another node may have the key already, because the slot is on its way there */
    LINK_ERROR_TRYAGAIN,  /* some of the keys are on their way to another node */
    LINK_ERROR_DOWN,      /* the cluster is down, or nobody has the slot */
    LINK_ERROR_CROSSSLOT, /* the keys are in several slots */
    LINK_ERROR_SPLIT,     /* a script ended half-way, because a key is at another node */
    LINK_ERROR_NOAUTH,    /* it wants a password, or another one */
    LINK_ERROR_NOPERM,    /* ACL */
    LINK_ERROR_WRONGTYPE, /* the key is something else */
    LINK_ERROR_UNKNOWN    /* it does not know this command */
};

struct link_fault {
    mortise_status status; /* UNREACHABLE: nothing was done; BACKEND: refused */
    bool retryable;
    enum link_error error;
    int native;     /* errno, or 0 */
    char text[300]; /* "127.0.0.1:6379: connection refused" */
};

struct link;
/* Makes a fault of an error reply. The connection stays open. */
void link_fault_reply(const struct link *link, const redisReply *reply, struct link_fault *fault);
enum link_error link_error_of(const char *text, size_t length);

/* ---- calls ---------------------------------------------------------------------------------------- */

enum link_loss {
    LINK_LOST,    /* sent, at least in part; no complete answer came */
    LINK_NOT_SENT /* not a byte was sent */
};

/* One or more commands that are sent together. The caller's own structure begins with it, and must exist until
 * `replied` has been called for the last reply, or `lost` has been called. Both may make further calls. */
struct link_call {
    struct link_call *next;
    unsigned expected, got; /* replies */
    uint64_t begins_at;     /* in the stream of this connection */
    int64_t sent_ns;        /* before it was handed to the transport */
    /* Gets each reply in turn; index counts from 0. The reply is freed afterwards. */
    void (*replied)(struct link_call *call, unsigned index, redisReply *reply);
    void (*lost)(struct link_call *call, enum link_loss loss, const struct link_fault *fault);
};

struct link_callbacks {
    void (*up)(struct link *link, void *owner);
    /* An attempt has failed, or the connection broke (link->broke). A connection that had lasted is made again at once.
     * link_close does not call it. */
    void (*down)(struct link *link, void *owner, const struct link_fault *fault);
    /* If set, this is a connection for subscriptions: no calls are made, and every reply is pushed. */
    void (*push)(struct link *link, void *owner, redisReply *reply);
    /* If set, it is called before each attempt to ask where the server is. The owner answers, at once or later, by
     * link_found, with settings->endpoint as it is then, or by link_not_found. */
    void (*seek)(struct link *link, void *owner);
};

struct link_settings {
    struct endpoint endpoint;
    const char *username, *password; /* NULL: none */
    int64_t database;
    bool tls;
    const char *tls_ca, *tls_cert, *tls_key; /* NULL: the system's, none */
    int64_t connect_timeout_ms, command_timeout_ms;
    bool primary; /* refuse a server that is no primary, and leave one that becomes a replica */
    bool role_optional; /* take a server that does not permit or know ROLE for a primary */
    bool
        any_of_cluster; /* so does every node of a cluster: the owner sees that it is `clustered` */
    bool
        redirects; /* the owner follows a cluster's redirects: a node before Redis 7.0.3 is refused */
    char client_name[64];
};

enum link_state {
    LINK_DOWN,
    LINK_SEEKING,
    LINK_RESOLVING,
    LINK_CONNECTING,
    LINK_GREETING,
    LINK_UP
};

struct link_bytes {
    char *data;
    size_t length, capacity, done; /* done: already written */
    bool failed;                   /* out of memory: the bytes are not complete */
};

#define LINK_RUN_ID_SIZE 41
#define LINK_PASTS 64 /* the oldest is dropped: its process is most likely gone */

/* A connection that broke. Requests may still be in its buffers. */
struct link_past {
    char run_id[LINK_RUN_ID_SIZE]; /* of the process that it was connected to */
    int64_t id;                    /* there; 0: it cannot be ended */
};

struct link_address {
    struct sockaddr_storage address;
    socklen_t length;
};

/* A look-up of a name, whose answer will come, or has come: see LOOK-UPS. */
struct link_look_up {
    struct link *link;
    bool under_way;
    char text[sizeof(((struct endpoint *)0)->text)]; /* of the endpoint that has the name */
    struct link_address addresses[LINK_ADDRESSES];   /* that no attempt has used yet */
    size_t count;                                    /* 0 while it is under way */
    int64_t found_ns;                                /* when they came */
};

struct link {
    mortise_host *host;
    const struct link_settings *settings;
    const struct link_callbacks *callbacks;
    const struct link_ends *ends;
    void *owner;
    const struct link
        *beside; /* if that one is UP, connect to its address instead of resolving the name */

    enum link_state state;
    struct endpoint endpoint; /* of this attempt */
    bool wanted;              /* should be UP as soon as possible */
    bool closed;
    struct link_look_up look_ups[LINK_LOOK_UPS];
    int64_t due_ns;         /* when to connect again, or to give this address or attempt up */
    int64_t attempt_end_ns; /* of this attempt */
    int64_t progress_ns;    /* when something was last read */
    int64_t awaited_ns;     /* since when an answer to a subscription is awaited; 0: none */
    int64_t up_ns;          /* since when it is, or was, UP */
    bool useful;            /* it has answered something beyond the greeting */
    bool broke;             /* it was UP, and no attempt since has failed */
    unsigned failures;      /* attempts, since it was last UP for a while */

    struct link_address addresses[LINK_ADDRESSES];
    size_t address_count, address_at;
    struct link_fault last; /* why it is not UP */

    int fd;                /* -1 */
    redisContext *context; /* wraps fd: reader and TLS */
    bool blocked;          /* the kernel did not take all bytes: POLLOUT */
    redisReplyObjectFunctions functions,
        plain;           /* the reader's, with our bounds; and hiredis's own */
    size_t elements;     /* announced by the reply that is being read, in all its arrays */
    size_t reply_bytes;  /* read since the last whole reply */
    const char *refusal; /* which bound the reply exceeds; or NULL */
    void *tls_context;   /* an SSL_CTX, or NULL: made by the next attempt with TLS */
    void *tls;           /* an SSL, or NULL */
    const char *tls_reason; /* of the first call that failed, as OpenSSL says it; or NULL */
    bool tls_pending;    /* TLS has something to write still */
    bool reading;        /* replies are being handed over: a break waits until afterwards: */
    bool breaks;
    bool rejected; /* it is useless, however long it lasted */
    bool demoted;  /* it is a replica by now: to be left when all is answered */
    struct link_fault why;
    struct link_bytes out;
    uint64_t written; /* bytes of this connection's stream */
    struct link_call *first, **last_call;
    unsigned outstanding; /* how many calls these are */
    unsigned put; /* commands since the last call began or ended */

    /* the greeting: handshake.c */
    struct link_call greeting;
    unsigned char steps[8];
    bool greeting_failed;
    struct link_fault greeting_fault;
    int64_t id; /* of this connection in the server; 0 unknown */
    char run_id[LINK_RUN_ID_SIZE];
    char version[16];
    int64_t uptime_s;  /* of the server, when this connection was made; -1 unknown */
    bool role_told;    /* it answers ROLE */
    bool is_replica;   /* the last greeting said so */
    bool clustered;    /* it says that it is a node of a cluster */
    uint64_t clock_us; /* the answer to TIME (settings->primary); 0 unknown */
    int64_t clock_ns;  /* when that answer came */
    struct link_past pasts[LINK_PASTS]; /* the oldest first; one for each process */
    unsigned past_count;
    bool blind; /* there is a past of an unknown process */
    bool settled;
};

void link_init(struct link *link, mortise_host *host, const struct link_settings *settings,
               const struct link_callbacks *callbacks, void *owner);
/* Frees everything. Calls `lost` for each outstanding call; does not call `down`. */
void link_close(struct link *link);

/* The link should be UP: begins an attempt, now or after the backoff. */
void link_want(struct link *link);
/* The connection need not be made again when it breaks. An open one stays. */
void link_unwant(struct link *link);
static inline bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP && !link->breaks && !link->demoted;
}
/* It is on its way up. */
bool link_is_connecting(const struct link *link);
/* The owner's answers to callbacks->seek. They do nothing if the link is not seeking. */
void link_found(struct link *link);
void link_not_found(struct link *link, const struct link_fault *fault);
/* The server is elsewhere: breaks the connection or the attempt, and begins anew without a pause. */
void link_leave(struct link *link, const char *why);
/* Closes the connection and tells nobody; only if no outstanding call changes anything. The link may be wanted again later. */
void link_rest(struct link *link);
/* If the server has closed an idle connection, breaks it now, while nothing is outstanding; otherwise the next call would
 * break it. Cheap unless the connection was idle for a while. */
void link_look(struct link *link);
/* The number of look-ups under way, including those of attempts that have ended. The link must not be freed while there is
 * one. */
unsigned link_count_look_ups(const struct link *link);
/* The server that it is connected to cannot execute any request of an earlier connection any more. */
bool link_settled(const struct link *link);
/* Breaks it: as if the server had closed it. */
void link_break(struct link *link, const struct link_fault *fault);
/* The same, but it counts as a failed attempt, so the next one has the backoff. */
void link_reject(struct link *link, const struct link_fault *fault);

/* For the module's functions `interest` and `turn`. */
size_t link_interest(const struct link *link, struct pollfd *fds, size_t capacity, int64_t *due_ns);
void link_turn(struct link *link, const struct pollfd *ready, size_t n);
/* Hands the commands to the kernel. Call it once after a batch of calls. */
void link_flush(struct link *link);

/* ---- commands (command.c) --------------------------------------------------------------------------- */

/* The commands of a call: link_call_begin, then for each command link_command and its arguments (as many
 * as it said), then link_call_end. Only while UP (or inside handshake.c). */
void link_call_begin(struct link *link, struct link_call *call);
void link_command(struct link *link, unsigned arguments);
void link_argument(struct link *link, const void *data, size_t length);
struct link_part {
    const void *data;
    size_t length;
};
/* Bytes of the protocol as they are, for arguments that are always the same. */
void link_raw(struct link *link, const char *data, size_t length);
/* One argument in pieces. */
void link_parts(struct link *link, const struct link_part *parts, unsigned count);
void link_text(struct link *link, const char *text);
void link_number(struct link *link, int64_t number);
void link_call_end(struct link *link, struct link_call *call, unsigned replies);
/* Instead of a call's commands: copies the bytes of the last call on another link, if they would be the same. False: these
 * bytes are gone, or there is no memory; nothing was written. */
bool link_copy(struct link *link, const struct link *from, const struct link_call *call);
/* A push connection has no calls: commands are just sent. The owner says whether answers to them are still to come. If
 * none comes within command_timeout, the connection is broken as by link_reject. */
void link_awaits(struct link *link, bool answers);

void link_bytes_free(struct link_bytes *bytes);

/* ---- inside (address.c, socket.c, handshake.c) ------------------------------------------------------------------ */

/* What follows when a part of an attempt has ended. link.c hands down this table, because the parts do not know link.c. */
struct link_ends {
    void (*addressed)(struct link *link); /* `addresses` are known */
    void (*failed)(struct link *link);    /* `last` says why */
    /* The greeting has ended. NULL: the link is UP; else the attempt has failed. */
    void (*greeted)(struct link *link, const struct link_fault *fault);
};
/* address.c: finds out the addresses of the endpoint; then `addressed` or `failed` is called. */
void link_look_up(struct link *link);
/* Connects to the address at address_at: the descriptor, or -1 with errno. */
int link_socket(const struct link *link);
/* Wraps fd; begins TLS. False: fault. */
bool link_wrap(struct link *link, struct link_fault *fault);
void link_unwrap(struct link *link);
/* Closing will reset the connection, so that the kernel sends nothing more of what was written. */
void link_discard(const struct link *link);
/* Bytes written, 0 if the kernel takes none now, -1 with errno. */
ssize_t link_write(struct link *link);
/* Reads into the reader: REDIS_OK, or an error in context. */
int link_read(struct link *link);
/* replies.c: hands over all whole replies that the reader has. If that breaks the link, `breaks` and `why` say so. */
void link_tell_replies(struct link *link);
/* Why TLS failed, or NULL if it did not. */
const char *link_tls_reason(const struct link *link);
/* Frees what the connections of the link share. */
void link_free_tls(struct link *link);
const char *link_tls_problem(const struct link_settings *settings);
void link_greet(struct link *link);
/* handshake.c: the connection was UP, and broke; requests may still be in its buffers. */
void link_remember(struct link *link);
/* The value of "key:" in the text of INFO. */
void link_info(const redisReply *reply, const char *key, char *to, size_t size);
/* The same, for a value that is a number. -1: the server does not report it. */
int64_t link_info_number(const redisReply *reply, const char *key);
void link_fault_set(struct link_fault *fault, mortise_status status, bool retryable, int native,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
