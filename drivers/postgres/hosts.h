/* hosts.h - the servers that an instance of the PostgreSQL driver may talk to, as target.c finds them. */
#ifndef MORTISE_POSTGRES_HOSTS_H
#define MORTISE_POSTGRES_HOSTS_H

#include <stdbool.h>

#define HOSTS_MAX 16
#define ADDRESSES_MAX 32

struct driver;

struct host_entry {
    struct driver *driver;
    char *name, *port;
    char *address; /* numeric, given; NULL: to be looked up, or a unix socket */
    bool look_up;
    bool asked; /* the look-up is under way */
};

/* Settings of libpq's that have other defaults here. */
enum { DEFAULT_GSSENCMODE = 5, DEFAULTS = 6 };

struct address {
    const struct host_entry *entry;
    const char *host, *port; /* of its entry */
    char text[64];           /* numeric; "" for a unix socket */
};

#endif
