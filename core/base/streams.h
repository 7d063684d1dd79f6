/* streams.h - the numbers of stdin, stdout and stderr. Other code uses them, whatever is there.
 *
 * If a program has closed one of them, the kernel gives its number to the next descriptor: perhaps a socket of a driver, or one that
 * a client library makes by itself. A line that is meant for stderr would then go to a server as a request. */
#ifndef MORTISE_CORE_BASE_STREAMS_H
#define MORTISE_CORE_BASE_STREAMS_H

/* In the place of each of them that is closed, puts a descriptor that can be neither read nor written. It stays there: who closes it
 * later could close what the program has put there meanwhile. Any thread. */
void streams_hold(void);

#endif
