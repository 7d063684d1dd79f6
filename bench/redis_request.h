/* redis_request.h - what the Redis driver sends for one cycle, byte by byte: read from the wire, so that a floor that
 * sends the same does what the driver does today. */
#ifndef MORTISE_BENCH_REDIS_REQUEST_H
#define MORTISE_BENCH_REDIS_REQUEST_H

#include "redis_server.h"

#include <stddef.h>

#define REDIS_REQUEST_MAX 2048
#define REDIS_NAME_FORMAT "floor/%02u" /* of the locks: the same length for each */
#define REDIS_NAMES_MAX 100

struct redis_request {
    char bytes[REDIS_REQUEST_MAX];
    size_t length;
};

struct redis_cycle {
    struct redis_request acquire, release;
};

/* Records a cycle of a client that has made one on that server before. Ends the program if it is not one command for
 * the acquire and one for the release. */
void redis_request_record(const struct redis_server *server, struct redis_cycle *cycle);
/* The same requests for another name, under another grant. */
struct redis_cycle redis_request_for(const struct redis_cycle *cycle, unsigned number);

#endif
