/* ping.h - asks the server for a sign of life, and tells what is about the server from what is about its settings. */
#ifndef MORTISE_TOOLS_PING_H
#define MORTISE_TOOLS_PING_H

#include <mortise/mortise.h>

/* The answer of mortise_ping without what the driver found out about the settings: that changes while the server stays the same.
 * findings: NULL, or room for the rest, " | risk: text | note: text" or "". */
mortise_status ping_server(mortise_client *client, char *text, size_t size, char *findings,
                           size_t findings_size, mortise_error *error);

/* Removes the time that is left until the votes of a node count (redlock): it changes with every ping. */
void ping_without_time(char *text);

#endif
