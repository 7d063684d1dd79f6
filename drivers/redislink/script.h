/* script.h - scripts in the server; see script.c. The table of a driver's is made of its folder scripts/ when it is
 * configured (scripts.cmake): scripts.h, an enum, and scripts.inc, the rows. */
#ifndef MORTISE_DRIVERS_REDISLINK_SCRIPT_H
#define MORTISE_DRIVERS_REDISLINK_SCRIPT_H

#include "link.h"

struct link_script {
    const char *name, *digest;
    size_t length;
    const char *text;
};

/* Begins the command: the keys and the other arguments follow. True: by its text. `known`: by the server, as far as
 * this connection has told it. */
bool script_call(struct link *link, const struct link_script *script, bool *known, unsigned keys,
                 unsigned arguments);

#endif
