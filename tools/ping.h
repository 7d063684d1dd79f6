/* ping.h - pings the server, and separates the answer into facts about the server and findings about its settings. */
#ifndef MORTISE_TOOLS_PING_H
#define MORTISE_TOOLS_PING_H

#include <mortise/mortise.h>

/* text: the answer of mortise_ping() without the findings, which may change while the server stays the same.
 * findings: NULL, or room for the findings: " | risk: text | note: text" or "". */
mortise_status ping_server(mortise_client *client, char *text, size_t size, char *findings,
                           size_t findings_size, mortise_error *error);

/* Removes from the answer the time that is left until the votes of a node count (redlock), because it changes with every
 * ping. */
void ping_without_time(char *text);

#endif
