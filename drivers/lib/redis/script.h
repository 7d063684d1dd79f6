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

/* Begins the command; the caller appends the keys and the other arguments. True: the command has the text of the script.
 * `known`: this connection has sent the text before. */
bool script_call(struct link *link, const struct link_script *script, bool *known, unsigned keys,
                 unsigned arguments);

/* The same after ASKING, while the slot is on its way to this server; always with the text. The server that has the slot has
 * said (ASK) that it has none of these keys, and no new one comes into being there. (Before Redis 7.0.3 it says so even if only
 * one is missing, so such clusters are refused.) So each key is here or nowhere. But for a call with several keys, this server
 * wants all of them to exist (TRYAGAIN). */
void script_call_asking(struct link *link, const struct link_script *script, unsigned keys,
                        unsigned arguments);

#endif
