/* floor.h - the bare floor of a cycle on SQLite: the driver's own two transactions on a connection of the
 * benchmark's, with the driver's own settings, and nothing else. */
#ifndef MORTISE_BENCH_FLOOR_H
#define MORTISE_BENCH_FLOOR_H

#include <stddef.h>

/* Watches the driver's connection while a client makes a cycle on a database in `folder`, and prepares the statements
 * that it saw on a database of the same layout. Ends the program if a cycle is not one transaction with a read and a
 * write for the acquire, and another for the release. */
void floor_open(const char *folder);
/* n times: acquire, release. A bench_case's loop; context is not used. */
void floor_cycles(void *context, size_t n);
void floor_close(void);

#endif
