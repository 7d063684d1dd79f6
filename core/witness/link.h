/* link.h - the connection of a client to its witness: made, kept and made again in the background.
 *
 * The connection only passes the area (area.h) and shows whether a witness watches. Claims are written into the area
 * with or without a connection, so nothing waits for it. It is in one of these states; link_move() changes it:
 *
 *   OFF      no witness is wanted, or this process can have none
 *   AWAY     no connection; tries again
 *   GREETED  connected, HELLO was sent
 *   WATCHED  the witness watches this process
 *   REFUSED  the witness does not watch it, and said why; tries again after a long time
 *
 *   event                            | OFF  AWAY       GREETED       WATCHED      REFUSED
 *   ---------------------------------|---------------------------------------------------------
 *   it is time to try: connected     | -    GREETED    -             -            GREETED
 *   it is time to try: no witness,   | -    AWAY 1     -             -            AWAY 1
 *     no room, another user's        |
 *   WELCOME                          | -    -          WATCHED       WATCHED      -
 *   REFUSE                           | -    -          REFUSED 2     REFUSED 2    -
 *   end of file, an error, garbage   | -    -          AWAY 1, 2     AWAY 1, 2    -
 *   no answer for a while            | -    -          GREETED 2     -            -
 *   the descriptor is not ours       | -    -          AWAY 1        AWAY 1       -
 *     any more (the program closed it) |
 *   the client closes                | OFF  OFF        OFF, BYE 3    OFF, BYE 3   OFF
 *
 *   1: tries again after a random pause, which doubles up to a minute. If no witness was ever there, it tries only when the
 *      watchdog is awake anyway, so that a host without a witness has no wake-ups for it.
 *   2: the log gets one line, and no further one until it is WATCHED again.
 *   3: sends BYE if no slot is in use; else the witness keeps the area, and releases what was left when the process ends.
 *
 * What may go wrong:
 *   - The witness dies between HELLO and WELCOME: the client reads an end of file, and passes the area to the next witness.
 *   - The process dies there: HELLO, with its descriptors, waits in the witness's queue and is read after the death.
 *   - A fork: the child has copies of the descriptors and uses none of them (R8).
 *   - The witness hangs: connecting and sending never block, and a full queue counts as no witness.
 *   - Two threads: the caller holds the lock of the client, or is the thread that opens or closes the client.
 * A client that never acquires never connects: the first acquire connects, before its request leaves.
 *
 * Knows no claim and no lock. */
#ifndef MORTISE_CORE_WITNESS_LINK_H
#define MORTISE_CORE_WITNESS_LINK_H

#include "base/clock.h"
#include "witness/area.h"

enum link_state { LINK_OFF, LINK_AWAY, LINK_GREETED, LINK_WATCHED, LINK_REFUSED };

struct witness_link {
    enum link_state state;
    struct area *area;
    struct own_fd socket;
    bool logs;      /* lines are written to the log */
    bool met;       /* a witness was there once */
    bool told;      /* the log has the line */
    bool given;     /* the caller gave the socket, so there is no path, and no second connection */
    bool asked_for; /* the user named a path: log one line if no witness is there */
    unsigned failures; /* in a row */
    /* The last try, and the next one. NEVER: try only when the thread is awake anyway. */
    int64_t tried_ns, try_ns;
    int64_t answer_ns; /* GREETED: from then on the answer is late */
    uint64_t seed;     /* for pauses */
    char path[108];    /* of a sockaddr_un */
    /* Why the client looks for no witness. NULL: it does, or there is no client yet. */
    const char *unused;
    /* of HELLO */
    uint64_t print;
    int64_t crash_delay_ms;
    size_t text_len;
    char text[MORTISE_WITNESS_TEXT_MAX];
};

/* Where the witness of this user listens: path of 108 bytes. False: nowhere. */
bool link_default_path(char *path);

/* OFF -> AWAY: a witness is wanted. The first link_turn() tries to connect. The caller has set area, logs, path or given and
 * socket, asked_for, print, crash_delay_ms, text; the rest is zero. */
void link_begin(struct witness_link *link, uint64_t seed);
/* Connects now, and waits for an answer until until_ns. True: WATCHED; else *why says why not. */
bool link_await(struct witness_link *link, int64_t until_ns, char *why, size_t size);

/* The thread that serves the link sleeps until this descriptor (-1: none) is readable, or until link_due_ns(), and then
 * calls link_turn(). */
int link_fd(const struct witness_link *link);
int64_t link_due_ns(const struct witness_link *link);
void link_turn(struct witness_link *link, int64_t now);

/* OFF. clean: no claim was left in the area. */
void link_end(struct witness_link *link, bool clean);

#endif
