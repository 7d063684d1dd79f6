/* call.h - the calls of a link: what link.c asks of call.c. */
#ifndef MORTISE_ETCD_CALL_H
#define MORTISE_ETCD_CALL_H

#include "link.h"

/* Asks for a token of the user. Calls that were refused for their token wait for it. */
void calls_authenticate(struct link *link);
/* The connection is gone: tells each call that it is LOST. */
void calls_lost(struct link *link);
/* Whether one of them is not answered in time. */
bool calls_are_overdue(struct link *link, int64_t now_ns);
/* At the end: they are told nothing. */
void calls_free(struct link *link);

#endif
