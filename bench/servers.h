/* servers.h - private servers of a benchmark, started by tests/servers.sh. An error ends the program. If a server is not
 * installed, the exit code is 77. */
#ifndef MORTISE_BENCH_SERVERS_H
#define MORTISE_BENCH_SERVERS_H

#include <stddef.h>

/* Servers of one kind in one folder. */
struct bench_servers {
    const char *kind; /* of servers.sh: "etcd" */
    char folder[512];
};

/* Makes a folder of that name, and starts a server there with these KEYs. It ends with the program, however the program ends.
 * Copies the first value with this name: "PORT=". */
void bench_servers_begin(struct bench_servers *servers, const char *kind, const char *name,
                         const char *keys, const char *value_name, char *value, size_t size);
void bench_servers_end(const struct bench_servers *servers);

#endif
