/* serve.h - the parts of `mortise serve`: a read-only page of the held locks, for people and for Prometheus.
 *
 * Two threads. One asks the backend, once an interval for all visitors together (ask.c), and makes the texts of each answer.
 * The main thread does everything else in one loop: HTTP (http.c, by libmicrohttpd with its epoll), signals, what is shown
 * (board.c). So no lock is held while a visitor is served, and a slow backend delays nobody.
 *
 * The backend has a state; only board_move() changes it:
 *
 *   STARTING  no answer yet
 *   UP        the newest listing was answered
 *   DOWN      the newest listing failed, or takes longer than OVERDUE_MS
 *
 *   event               | STARTING             UP                   DOWN
 *   --------------------|---------------------------------------------------------------
 *   a listing answered  | UP                   UP                   UP
 *   a listing failed    | DOWN, since start    DOWN, since now      DOWN, since unchanged
 *   a listing overdue   | DOWN, since start    DOWN, since it began DOWN, since unchanged
 *   NOTSUP              | the command ends     DOWN, since now      DOWN, since unchanged
 *
 * Special cases. An overdue listing is answered at last: UP, by the first row. It fails at last: the state is DOWN already, and
 * the error is shown from then on. The client is closed during a listing: the loop has ended before. The machine was suspended:
 * the listing under way is overdue at once, and the next answer repairs that.
 *
 * Each text is made once for each answer of the backend and shared by all visitors (struct MHD_Response counts its users). So a
 * visitor costs no request to the backend and no copy of the list. Every response closes its connection, and a connection
 * lives at most CONNECTION_MS: a visitor that reads or writes one byte a second cannot keep its place. */
#ifndef MORTISE_TOOLS_SERVE_H
#define MORTISE_TOOLS_SERVE_H

#include "backend_metrics.h"

#include <mortise/mortise.h>

#include <microhttpd.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OVERDUE_MS = 15000,
    CONNECTION_MS = 30000,
    CONNECTIONS = 256,
    CONNECTIONS_PER_ADDRESS = 64,
    /* an hour */
    BUCKETS = 120,
    BUCKET_MS = 30000,
};

/* ---- ask.c: the thread that asks the backend --------------------------------------------------- */

/* The result of one listing. */
struct answer {
    mortise_status status;
    mortise_error error;    /* valid unless status is OK */
    int64_t began_ns;       /* CLOCK_BOOTTIME */
    int64_t at_ms, took_ms; /* when it ended (wall clock), and how long it took */
    char *locks;            /* a JSON array; NULL unless status is OK */
    size_t locks_length;
    struct tally tally;
    uint64_t expired; /* claims that have ended without a release since the previous answer */
};
void answer_free(struct answer *answer);

struct asker;
struct asker *asker_start(mortise_client *client, const char *prefix, int64_t interval_ms);
/* Close the client first: that ends a request that is under way. */
void asker_stop(struct asker *asker);
/* Readable if there is a new answer. */
int asker_fd(const struct asker *asker);
/* Takes the newest answer; `expired` counts for all since the last call. False: there is none. */
bool asker_take(struct asker *asker, struct answer *answer);
/* Returns when the listing that is under way began (CLOCK_BOOTTIME); 0: none is under way. */
int64_t asker_asks_since_ns(struct asker *asker);

/* ---- expiry.c: claims that ended by their ttl ------------------------------------------------- */

/* The previous listing, with which the next one is compared. */
struct expiry;
struct expiry *expiry_new(void);
void expiry_free(struct expiry *expiry);
/* Takes the next listing (and its memory), in byte order. Returns how many claims of the previous listing have ended by their
 * ttl; the next listing then becomes the previous one. A claim counts if it was not renewed when that was due, its time is over,
 * and another grant or none has its name. A claim whose ttl is shorter than two intervals may end uncounted. Shared claims and
 * sessions never count. */
uint64_t expiry_next(struct expiry *expiry, mortise_info *infos, size_t count, int64_t now_ns);

/* ---- board.c: what is shown ------------------------------------------------------------------- */

enum backend_state { STARTING, UP, DOWN };

struct bucket {
    int64_t held, waiting; /* the largest numbers in any listing; -1: no answer, or unknown */
    uint64_t expired;
    bool down; /* a listing failed */
};

struct board {
    mortise_client *client;
    const char *prefix;
    int64_t interval_ms;
    enum backend_state state;
    int64_t since_ms; /* of the state, wall clock */
    char error[sizeof((mortise_error *)0)->message];
    struct answer last; /* the newest one that succeeded; locks NULL: none yet */
    uint64_t expired;   /* since the start */
    struct bucket buckets[BUCKETS];
    int64_t newest_bucket;                        /* its number (bucket_now()); 0: none */
    struct MHD_Response *json, *metrics, *health; /* as of now */
};
void board_begin(struct board *board);
/* Takes the answer's memory. */
void board_on_answer(struct board *board, struct answer *answer);
/* Call it now and then: it notices an overdue listing, which began then (0: none is under way). */
void board_on_time(struct board *board, int64_t asks_since_ns);
void board_end(struct board *board);

/* ---- http.c, access.c: visitors --------------------------------------------------------------- */

/* Who may read. */
struct access {
    bool
        check_host; /* the server listens on loopback: a page of another site might reach it under that site's name */
    char token[513]; /* "": no token is needed */
};
/* Reads the file. False: the reason was printed. */
bool access_read_token(struct access *access, const char *path, int *code);
/* 0, or the HTTP status of the refusal. */
unsigned access_check(const struct access *access, struct MHD_Connection *connection,
                      bool open_to_all);

struct http;
struct http *http_start(int listener, const struct access *access, const struct board *board);
int http_fd(const struct http *http);
/* How long poll() may wait, at most 1000 ms. */
int http_timeout_ms(const struct http *http);
void http_run(struct http *http);
void http_stop(struct http *http);
/* A response with the headers that all have. Takes the memory. */
struct MHD_Response *http_response(const char *type, char *text, size_t length);

/* ---- listen.c: where it listens --------------------------------------------------------------- */

struct listener {
    int fd;
    bool loopback;   /* reached from this host only */
    bool local;      /* a Unix socket */
    char shown[128]; /* "http://127.0.0.1:9750/" */
};
/* Opens a socket from systemd if there is one, else `where` (HOST:PORT). False: the reason was printed. */
bool listen_open(const char *where, struct listener *listener, int *code);

/* ---- the files of the page, from page/ -------------------------------------------------------- */

struct page_file {
    const char *path, *type;
    const unsigned char *bytes;
    size_t length;
};
extern const struct page_file page_files[];
extern const size_t page_file_count;

#endif
