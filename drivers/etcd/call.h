/* call.h - the calls of a link: what link.c asks of call.c. */
#ifndef MORTISE_ETCD_CALL_H
#define MORTISE_ETCD_CALL_H

#include "link.h"

/* Asks for a token of the user. Calls that were refused for their token wait for it. */
void calls_authenticate(struct link *link);
/* The connection is gone: tells each call that it is LOST. */
void calls_lost(struct link *link);
/* Whether a call was not answered in time. */
bool calls_are_overdue(struct link *link, int64_t now_ns);
/* When the link closes: frees the calls without telling their owners. */
void calls_free(struct link *link);

#endif
