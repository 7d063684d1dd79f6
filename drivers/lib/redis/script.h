/* script.h - calls of scripts; see script.c. redis.cmake makes a driver's table from its folder scripts/ when it is configured:
 * scripts.h, an enum, and scripts.inc, the rows. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_SCRIPT_H
#define MORTISE_DRIVERS_LIB_REDIS_SCRIPT_H

#include "link.h"

#define SCRIPT_CALL_SIZE (sizeof("$7\r\nEVALSHA\r\n$40\r\n\r\n") - 1 + 40)

struct link_script {
    const char *name, *call; /* call: EVALSHA and its digest, as bytes of the protocol */
    size_t length;           /* of the text */
    const char *text;
};

/* Begins the command: the keys and the other arguments follow. True: it has the text of the script. `known`: this connection has
 * sent the text before. */
bool script_call(struct link *link, const struct link_script *script, bool *known, unsigned keys,
                 unsigned arguments);

/* The same behind ASKING, where the slot is on its way: always with the text. The server that has the slot has said (ASK) that it
 * has none of these keys, and none will come into being there any more (before Redis 7.0.3 it says so if one is missing: such
 * clusters are refused). So each of them is here, or nowhere; but for a call of several keys this server wants them all to exist
 * (TRYAGAIN). */
void script_call_asking(struct link *link, const struct link_script *script, unsigned keys,
                        unsigned arguments);

#endif
