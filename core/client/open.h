/* open.h - how a client is opened: by an application, or for a witness. open.c and witness.c. */
#ifndef MORTISE_CORE_OPEN_H
#define MORTISE_CORE_OPEN_H

#include <mortise/mortise.h>

struct client;

enum open_witness {
    WITNESS_OF_CONFIG,
    WITNESS_GIVEN, /* at the other end of `socket` */
    WITNESS_NONE /* the client works for dead processes, or for an operator: no witness, no observers, no `require` */
};

struct open_how {
    enum open_witness witness;
    int socket; /* WITNESS_GIVEN */
};

mortise_status client_open(const char *where, const struct open_how *how, mortise_client **handle,
                           mortise_error *error);
/* After the stack is open: begins to use the witness that the config, or the caller, wants. On failure nothing is
 * left of it. */
mortise_status witness_begin(struct client *client, const struct open_how *how,
                             mortise_error *error);
/* The client does not open: closes what the caller gave. */
void witness_refuse(const struct open_how *how);

#endif
