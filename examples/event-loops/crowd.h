/* crowd.h - a thousand locks and two clients that want them all: the part of the event loop examples that knows
 * locks and no loop. A loop waits until the descriptor of a client is readable and calls crowd_ready; beside that it has
 * a timer, and calls crowd_tick. */
#ifndef CROWD_H
#define CROWD_H

#include <stdbool.h>

enum { CROWD_CLIENTS = 2 };

/* Opens the clients and asks for everything; nothing of it waits. False: it said on stderr why not. */
bool crowd_begin(const char *where);
/* What to wait for on behalf of a client; it stays the client's. */
int crowd_fd(int client);
/* The client's descriptor is readable: runs the callbacks, here, on this thread. True: all is done, or has failed. */
bool crowd_ready(int client);
/* The loop's own timer has come, so the loop goes on: a thousand locks are passed on while they are waited for. True: as
 * above. */
bool crowd_tick(void);
/* Tells how it went; the exit code of the program. */
int crowd_end(void);

#endif
