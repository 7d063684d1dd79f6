/* news_nodes.h - pubsub.c alone, without servers: five nodes that do not exist, whose messages a test makes, and a clock that it
 * sets. What pubsub.c calls of the driver and of links is here, too. */
#ifndef MORTISE_TESTS_REDLOCK_NEWS_NODES_H
#define MORTISE_TESTS_REDLOCK_NEWS_NODES_H

#include "redlock.h"

#include <expect.h>

#define NODES 5
#define MS(n) ((n)*NS_PER_MS)
#define TRIP_NS MS(1)

extern const char name[sizeof "mortise:news"]; /* which is watched */
extern int64_t now_ns;
extern unsigned news; /* how often the core was notified */
extern unsigned news_all, logged;
extern unsigned usable; /* nodes */
extern struct driver driver;
extern const struct link_callbacks *links;

/* The nodes are connected, and nothing is watched. */
void begin(void);
/* A name that is watched on all nodes, and nothing to be told of. */
void begin_watching(void);

void connect_node(unsigned i);
void break_node(unsigned i);
/* The node sends {kind, channel, text}; of a (un)subscription the text is a number. */
void push(unsigned i, const char *kind, const char *text);
void confirm(unsigned i);
/* For a reason that may pass. */
void refuse_to_subscribe(unsigned i);
void announce(unsigned i, const char *mark);

void watch(void);
void unwatch(void);
/* The driver is turned: how often the core was notified by it. */
unsigned turned(void);

#endif
