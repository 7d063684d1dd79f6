/* hosts.h - the servers that an instance of the MySQL driver may talk to, as target.c finds them. */
#ifndef MORTISE_MYSQL_HOSTS_H
#define MORTISE_MYSQL_HOSTS_H

#include <stdbool.h>

#define HOSTS_MAX 16
#define ADDRESSES_MAX 32
#define HOST_SIZE 256

struct driver;

struct host_entry {
    struct driver *driver;
    char name[HOST_SIZE], port[8];
    bool asked; /* the look-up is under way */
};

struct address {
    const struct host_entry *entry;
    char text[64]; /* numeric; "" for a socket */
};

#endif
