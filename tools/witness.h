/* witness.h - the parts of `mortise witness`, which releases the claims of processes that have died. <mortise/witness.h>
 * has the protocol and what a slot means; docs/crash.md says why acting on a pidfd is certain.
 *
 * One thread serves all processes with epoll. Two things may block, so they have threads of their own: the opening of a
 * configuration, and the library's requests.
 *
 * A *peer* is one client of one process. peer_move() changes its state:
 *
 *   NEW      connected; has not said HELLO
 *   WATCHED  its pidfd is watched
 *   DEAD     its process has ended; its claims are to be released
 *   GONE     freed after this round of events
 *
 *   event                              | NEW           WATCHED                    DEAD
 *   -----------------------------------|--------------------------------------------------------
 *   HELLO, sound                       | WATCHED       its descriptors are closed -
 *   HELLO, not sound; another version  | GONE, refused its descriptors are closed -
 *   garbage                            | GONE, refused its socket is closed       -
 *   HELLO, and no room (descriptors)   | GONE, refused -                          -
 *   ASK                                | answered      answered                   -
 *   BYE                                | GONE          GONE                       -
 *   end of file                        | GONE          its socket is closed       -
 *   nothing for NEW_MS                 | GONE          -                          -
 *   the backend has opened             | -             WELCOME                    releases, if it is time
 *   the backend cannot be opened       | -             GONE, refused              GONE, a log line
 *   the pidfd: the process has ended   | -             DEAD                       -
 *   crash_delay is over                | -             -                          releases, if the backend is open
 *   all its slots were passed on       | -             -                          GONE
 *   no socket, and all claims ended*   | -             GONE                       -
 *   the witness ends                   | GONE          GONE                       GONE
 *
 *   *: The witness looks once a minute. A peer also stays if a slot was written since the last look: its process goes on
 *   acquiring, and only holds nothing at this instant. A HELD slot counts for an hour longer than it says, because zookeeper
 *   keeps the claim for the session. A slot that is ASKED and has no end, or is half written, counts forever: the process may
 *   live, wait for years, and get the lock. So if a program calls exec while it waits for a lock, or while another thread
 *   writes a slot, its peer stays until the process ends.
 *
 * What may go wrong:
 *   - The process dies before HELLO is read: HELLO, with pidfd and area, waits in the socket, and the pidfd is readable at once.
 *   - The process dies while its backend is being opened: the peer waits as DEAD.
 *   - The witness dies: its peers connect to the next one.
 *   - The peer's socket ends, for any reason: its process may live, so nothing is released.
 *   - The kernel uses the process's number again: the pidfd still refers to the dead process.
 *   - The witness is stopped for an hour: it releases after that. A release of a claim that has ended does nothing.
 *
 * A *backend* is one configuration, opened once for all peers that name it:
 *
 *   OPENING  a thread opens it, which does not wait for a connection to the server
 *   OPEN     it has a client
 *   FAILED   it could not be opened; freed when its peers are gone
 *
 * An OPEN backend is closed when it had no peer and no release for a minute. */
#ifndef MORTISE_TOOLS_WITNESS_H
#define MORTISE_TOOLS_WITNESS_H

#include <mortise/witness.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- witness_claims.c: the area of a process ------------------------------------------------------- */

/* Whether fd is an area that can be read without harm: it cannot block, and cannot become smaller. */
bool claims_are_readable(int fd);
/* The process is dead: copies the next slot from *index on whose claim has to be released. False: there is none left. */
bool claims_next(int fd, uint32_t *index, mortise_witness_slot *slot);
/* The process lives. True: if it died, there might be a claim to release; or a slot was written since the last look, so the
 * process goes on acquiring. *written is for the next look; 0 before the first. */
bool claims_may_stand(int fd, int64_t now, uint64_t *written);

/* ---- witness_hello.c: messages --------------------------------------------------------------------- */

struct hello {
    mortise_witness_message head;
    char text[MORTISE_WITNESS_TEXT_MAX + 1];
    int pidfd, area; /* -1: none */
    bool no_room;    /* descriptors were lost, because the table of descriptors is full */
};

enum heard {
    HEARD_NOTHING,
    HEARD_MESSAGE,
    HEARD_GARBAGE,
    HEARD_END
};

/* The next message. Descriptors that do not belong to a HELLO are closed; those in *hello are the caller's. */
enum heard hello_receive(int socket, struct hello *hello);
/* Never blocks. A peer that does not read gets nothing. */
void hello_answer(int socket, const mortise_witness_message *message, const char *text);
void hello_refuse(int socket, const char *why);
/* Whether its descriptors are among the last free ones, which are reserved for configurations and their connections. */
bool hello_takes_spare(const struct hello *hello);
/* Returns NULL if the pidfd refers to the process that connected, and the area can be read; else why not. */
const char *hello_problem(int socket, const struct hello *hello, pid_t *pid);

/* ---- witness_backend.c: configurations ------------------------------------------------------------- */

enum backend_state { BACKEND_OPENING, BACKEND_OPEN, BACKEND_FAILED };

struct backend {
    struct backend *next;
    enum backend_state state; /* the main thread changes it */
    bool opened;              /* its thread has set client or problem */
    unsigned peers;    /* how many refer to it */
    unsigned releases; /* how many have no answer yet */
    int64_t idle_ns;   /* since when it has had no peer and no release */
    mortise_client *client;
    uint64_t print;
    char problem[512]; /* FAILED */
    char where[];
};

/* Readable when backends have opened or failed, or releases were answered: then call backends_turn(). -1: no memory. */
int backends_begin(void);
/* The backend of a configuration, with a reference for the peer; it may be OPENING. NULL: there are too many. */
struct backend *backend_get(const char *where, uint64_t print);
void backend_put(struct backend *backend);
/* Handles what happened on other threads, and closes idle backends. True: a backend has opened or failed. */
bool backends_turn(int64_t now);
/* Ends all backends. */
void backends_end(void);

/* A *grave*: one dead process, whose releases are counted for a log line. */
struct grave;
struct grave *grave_dig(struct backend *backend, pid_t pid);
/* BUSY: too many releases are under way; try again after backends_turn(). */
mortise_status grave_release(struct grave *grave, const mortise_witness_slot *slot);
/* There are no further releases of this process. */
void grave_close(struct grave *grave);

/* ---- witness_peers.c: the processes ---------------------------------------------------------------- */

/* Serves the listening socket until the signal descriptor is readable. Returns an exit code. */
int peers_serve(int listener, int signals);

/* ---- witness_socket.c ------------------------------------------------------------------------------- */

/* The listening socket: from systemd, or made at path. -1: *code is set, and the reason was printed. */
int witness_listen(const char *path, int *code);
/* Removes what witness_listen() made, if it is still there. The socket is still open: nothing else has its inode. */
void witness_unlisten(void);

/* ---- witness_log.c ---------------------------------------------------------------------------------- */

/* Like say(), but never waits for the reader of stderr, and writes only a few lines in each second. Any thread. */
void witness_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
