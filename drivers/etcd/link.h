/* link.h - the connection to one member of the cluster: its states, and the calls that are made on it.
 *
 *   DOWN        no connection; the next attempt begins at due_ns, if one is wanted
 *   RESOLVING   the endpoint's name is being looked up
 *   CONNECTING  to one of its addresses
 *   SECURING    the TLS handshake
 *   GREETING    HTTP/2 is spoken; authenticates, and asks for the status of the member
 *   UP          calls may be made
 *
 *   event                       DOWN         RESOLVING    CONNECTING    SECURING    GREETING    UP
 *   wanted, the pause is over   RESOLVING a  -            -             -           -           -
 *   addresses are known         -            CONNECTING   -             -           -           -
 *   connected                   -            -            SECURING b    -           -           -
 *   the handshake is done       -            -            -             GREETING    -           -
 *   status: it may be used      -            -            -             -           UP          -
 *   status: it may not c        -            -            -             -           DOWN d      -
 *   the password is refused     -            -            -             -           DOWN d      DOWN d
 *   error, end, no progress     -            DOWN d       CONNECTING e  DOWN d      DOWN d      DOWN f
 *   a call is not answered      -            -            -             -           DOWN d      DOWN f
 *   GOAWAY, nonsense            -            -            -             -           DOWN d      DOWN f
 *   an answer is of another
 *     history (HISTORIES)       -            -            -             -           -           DOWN f
 *   a call fails, and does not
 *     say that it was not done  -            -            -             -           DOWN d      DOWN f
 *   old, and no call is open    -            -            -             -           -           DOWN f
 *   spent, and a call begins    -            -            -             -           -           DOWN g
 *
 *   a: the next endpoint of the list. b: GREETING without TLS. c: a learner, or older than 3.4. d: with a pause, when all
 *   endpoints have been tried. e: the next address of the endpoint; DOWN after the last one, and
 *   when the time of the attempt is over. f: without a pause if it lasted
 *   for a second. g: the same, at the next link_flush(); the call is not sent.
 *
 * There is one way to fail. Whatever goes wrong, the whole connection is given up, and every call without an answer is LOST: it
 * may be executed, now or later. Three kinds of answers are no failure of the connection: the call was done; the server says
 * that it was not done (REFUSED); the server refused the user's token (then the link asks for a new token, and sends the
 * refused calls again).
 *
 * Why the holes are closed:
 *   - The member is stopped, or its machine: there is no answer within the time of a call. Without calls nobody notices, and
 *     nobody needs to: the first call, which may be a beat, notices it.
 *   - The member is cut off from the others: every call says `hasleader`, so it fails at once, or is not answered.
 *   - A member answers slowly, for example because it checks the passwords of many clients. Once anything has come in GREETING,
 *     the attempt is not given up before a call is overdue. A call that waits for the token has its whole time from then on.
 *   - A resolver hangs: it runs on a thread of the core. After half of the time to connect, the next endpoint is tried. No
 *     other look-up of this endpoint begins before the old one has ended.
 *   - A resolver answers, but each answer takes longer than an attempt, for example because the first name server is dead: the
 *     answer is kept for the next attempt at that endpoint (LOOK-UPS).
 *   - An address of a name is silent: each address gets a share of the attempt, then the next one is tried. If an address
 *     accepts, and says nothing, the next attempt at this endpoint begins behind it.
 *   - A certificate has expired, and its file was replaced: after an attempt that failed in SECURING or GREETING (with TLS 1.3,
 *     a client is refused only there), the files are read again, at most once a second. If that fails, the log says why, once.
 *   - The server closes each connection after the greeting: `f` counts that as a failed attempt.
 *   - The request for a token is refused because there are too many requests: that says nothing of the user, and is an error
 *     like any other. Calls that wait for the token are LOST, and their owners ask again.
 *   - Several calls need a new token: there is one request for a token at a time, and calls that are refused meanwhile wait for
 *     it. If a call is refused twice because of its token, it fails.
 *   - GOAWAY while calls are on their way: they are LOST, although the server might still have answered some.
 *   - A balancer sends the calls of one connection to several members: the term of one says nothing about another. So a second
 *     member is nonsense.
 *   - A connection has numbers for 2^30 calls (grpc.h). When half of them are used up, the connection is old, and given up as
 *     soon as no call is on its way. If there always is a call, the connection is spent in the end: the calls on their way are
 *     LOST, as always.
 *   - A message without an end, or larger than GRPC_MESSAGE_MAX: nonsense.
 *
 * LOOK-UPS. Each endpoint has a look-up of its own, in one of three states. An *attempt* is one at its endpoint.
 *
 *   event                           idle            under way        found
 *   an attempt begins               under way (1)   under way (2)    found: it uses them; if they are old, as idle
 *   the answer: addresses           -               found (3)        -
 *   the answer: none                -               idle (4)         -
 *   the attempt's time is over      -               under way        idle
 *   the attempt fails, or its
 *     connection breaks             -               -                idle
 *   another endpoint is tried       idle            under way        found
 *
 *   1: if there is no thread or memory for it, the attempt fails, and it stays idle. 2: one look-up at a time. 3: if an attempt
 *   waits, it uses them. 4: if an attempt waits, it fails.
 *
 * So addresses serve one attempt, which may begin after they were found. Old ones (LATE_NS) do not count, because the name may
 * lead elsewhere by then.
 *
 * HISTORIES. A cluster that is restored from a snapshot has other data. It has another id, too, unless it has the same
 * addresses and the same cluster token: then only its revisions are smaller. If an answer that needed a majority has a smaller
 * revision than was known when its call was sent, it is of another history. Then the connection is given up, and nothing that
 * was known from the former history counts any more. Answers that a single member gives (Status, keep-alives, the list of
 * members) may be behind at any time. The client sees the cluster's id in the answer to Status, before it sends any other call.
 * If the member refuses Status, the first answer to a call shows the id. By then calls that assume the former history are on
 * their way, so that connection is given up, too. If the servers' revision is not below the one that a client knows when it
 * comes back, the client notices nothing: all that it knows was in the snapshot, or others have written as much as was lost. So
 * a held claim looks at its key after each reconnection. That shows whether the key is there, whatever the revisions are.
 *
 * LOOKS. The core polls the descriptor only while an op is outstanding. But the driver also makes calls without an op (beats,
 * moves, a connection that held leases need). So as long as an answer is expected, the link checks the socket itself, after 1
 * ms, 2 ms and so on up to 64 ms. While no answer is expected, it checks for events of watches when the core renews.
 *
 * PINGS. A Go server measures the connection: it sends a PING with nearly every request, as soon as the last PING was answered.
 * The link answers the first PING at once, and later ones only a tenth of a second after the last. That saves both sides a
 * wake-up and two system calls for each request.
 *
 * The watches have a stream of their own on the same connection (watch.h). All of it runs in the pump. */
#ifndef MORTISE_ETCD_LINK_H
#define MORTISE_ETCD_LINK_H

#include "endpoints.h"
#include "grpc.h"
#include "messages.h"
#include "socket.h"

#define NS_PER_MS INT64_C(1000000)

struct driver;
struct call;

typedef void reply_handler(struct driver *driver, struct call *call);

/* Where an answer goes. */
struct reply_to {
    reply_handler *answered; /* NULL: nobody needs it */
    void *target;
    uint64_t step; /* the target's step when the call was made */
};

enum call_end {
    CALL_DONE,
    CALL_REFUSED, /* the server did not execute it, and says why */
    CALL_LOST     /* it may be executed, now or later */
};

/* One call. It lives until it is answered, exactly once, or until the link is closed. */
struct call {
    struct grpc_call grpc; /* first */
    struct call *next, *prev;
    struct link *link;
    enum method method;
    struct reply_to to; /* the handler owns nothing of it; the call is freed afterwards */
    size_t mark;
    int64_t sent_ns;
    int64_t due_ns; /* if there is no answer by then, the connection is given up */
    int64_t timeout_ns;
    int64_t known_revision; /* the link's revision when it was sent; */
    unsigned history;       /* and the history of that revision */
    unsigned token_number;  /* the number of the token that it was sent with; */
    unsigned token_tries;   /* and how many tokens were refused for it */
    bool parked;            /* waits for a new token */
    struct writer message;  /* of the answer */
    /* the answer: */
    enum call_end end;
    int code; /* enum grpc_status */
    char text[GRPC_TEXT_MAX];
    struct answer answer; /* done: points into `message` */
};

enum link_state {
    LINK_DOWN,
    LINK_RESOLVING,
    LINK_CONNECTING,
    LINK_SECURING,
    LINK_GREETING,
    LINK_UP
};

struct link_settings {
    const char *user, *password; /* NULL: none */
    int64_t connect_timeout_ms;
    int64_t timeout_ms;
    bool tls;
    struct tls_settings tls_settings;
};

struct link_events {
    void (*up)(struct driver *driver);
    /* The connection is gone, and all calls have ended as LOST. */
    void (*down)(struct driver *driver);
    /* An answer has shown this term on this connection. */
    void (*term)(struct driver *driver, uint64_t term);
    /* Knowledge of the servers' former data says nothing about their present data: see HISTORIES. The link's revision is one of
     * the present data. */
    void (*history)(struct driver *driver, bool is_other_cluster);
    /* A message of the watch stream. False: it makes no sense. */
    bool (*watch)(struct driver *driver, struct bytes message);
};

enum token_state { TOKEN_NONE, TOKEN_ASKED, TOKEN_THERE };

/* A look-up of a name. Its answer always comes, but perhaps long after the attempt that asked for it was given up: see
 * LOOK-UPS. */
struct look_up {
    struct link *link;
    bool is_under_way;
    struct address addresses[ENDPOINT_ADDRESSES];
    size_t count;        /* of addresses that no attempt has used up; 0 while it is under way */
    int64_t found_ns;    /* when they came */
    struct address last; /* the address of the last attempt or connection */
};

struct link {
    struct driver *driver;
    mortise_host *host;
    const struct link_settings *settings;
    const struct link_events *events;
    struct endpoints endpoints;
    enum link_state state;
    bool wanted;
    struct look_up look_ups[ENDPOINTS_MAX]; /* one for each endpoint */
    unsigned attempts;                      /* since it was last UP for a while */
    size_t tries;    /* how often an endpoint was given up; if there is only one, its addresses; */
    size_t round;    /* and after how many of them each has had its turn */
    int64_t due_ns;  /* DOWN: the next attempt; else: until when the attempt must be UP, or NEVER */
    int64_t up_ns;   /* since when it is, or was, UP */
    int64_t look_ns; /* when to look whether an answer has come: see LOOKS */
    int64_t look_step_ns;
    int64_t ping_ns;        /* when the next PING may be answered */
    size_t address_at;      /* which of the look-up's addresses is tried */
    int64_t address_due_ns; /* CONNECTING: when the next address is tried; NEVER: there is none */
    struct tls_context *tls;
    bool tls_is_old; /* an attempt has failed since: the files may have been replaced */
    struct socket socket;
    struct grpc grpc;
    bool unread;  /* more bytes have come than one turn reads */
    bool telling; /* inside grpc_receive or grpc_send: a break waits until afterwards */
    bool breaks;
    struct call *calls;   /* that are not answered */
    size_t open;          /* how many of them */
    int64_t calls_due_ns; /* no call is overdue earlier */
    struct grpc_call watch;
    uint64_t term;    /* of the last answer on this connection; 0: there was none */
    uint64_t member;  /* the member that answers on this connection; 0: none yet */
    uint64_t cluster; /* its id; 0: not known */
    int64_t revision; /* the largest one of an answer in this history */
    unsigned history; /* the number of this history */
    enum token_state token_state;
    unsigned token_number;
    char *token;
    char version[32];
    char trouble[300];           /* why it is not UP, or was last given up */
    char refusal[GRPC_TEXT_MAX]; /* why the user was last refused */
    bool refused;      /* the servers refuse the client, e.g. its password: since the last UP, */
    size_t refused_at; /* that endpoint did so, and has had no other trouble since */
};

void link_open(struct link *link);
void link_close(struct link *link);
/* Whether it should be UP as soon as possible. An open connection stays. */
static inline void link_want(struct link *link, bool wanted)
{
    link->wanted = wanted;
}
static inline bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP && !link->breaks;
}
/* Gives the connection up, because of what the format says. */
void link_break(struct link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, if the servers refuse this client. */
void link_refuse(struct link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Like link_break(), but may be called while a request is being sent: the link is no longer UP, and link_flush() informs
 * its users. */
void link_break_later(struct link *link, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "127.0.0.1:2379" */
static inline const char *link_endpoint(const struct link *link)
{
    return link->endpoints.all[link->endpoints.at].text;
}

/* To make a call: link_begin, then write its message (&call->grpc.out), then link_send. NULL: no memory. */
struct call *link_begin(struct link *link, enum method method, struct reply_to to);
/* False: the call was not sent, because there is no memory or no connection. It is freed and will not be answered. */
bool link_send(struct link *link, struct call *call);
/* The same for a call that must be answered sooner than other calls. */
bool link_send_within(struct link *link, struct call *call, int64_t timeout_ns);
/* Begin and end a message on the watch stream; the caller writes it between the two. */
struct writer *link_watch_begin(struct link *link, size_t *mark);
void link_watch_end(struct link *link, size_t mark);
/* Ends the stream; the next message begins another one. */
void link_watch_stop(struct link *link);

size_t link_interest(const struct link *link, struct pollfd *fds, size_t capacity, int64_t *due_ns);
void link_turn(struct link *link, const struct pollfd *ready, size_t n);
/* Reads what has come. */
void link_look(struct link *link);
/* Hands what was written to the kernel. Call it once after a batch of calls. */
void link_flush(struct link *link);
/* Before closing: waits until every call is answered, but no longer than the timeout. */
void link_settle(struct link *link, int64_t timeout_ms);

#endif
