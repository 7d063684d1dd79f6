/* crowd.h - a thousand locks and two clients that want them all: the part of the event loop examples that knows
 * locks, but no loop. The loop calls crowd_ready when the descriptor of a client is readable, and crowd_tick from a
 * timer. */
#ifndef CROWD_H
#define CROWD_H

#include <stdbool.h>

enum { CROWD_CLIENTS = 2 };

/* Opens the clients and starts all acquires, without blocking. False: it failed, and stderr says why. */
bool crowd_begin(const char *where);
/* The descriptor to poll for a client. It belongs to the client. */
int crowd_fd(int client);
/* Call it when the client's descriptor is readable. Runs the callbacks on this thread. True: everything is done, or has
 * failed. */
bool crowd_ready(int client);
/* Call it from the loop's timer. Releases the thousand locks that the second client waits for. True: as above. */
bool crowd_tick(void);
/* Prints the outcome. Returns the exit code of the program. */
int crowd_end(void);

#endif
