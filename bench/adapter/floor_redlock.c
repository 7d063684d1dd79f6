/* floor_redlock.c - the bare floor on five Redis servers, as an adapter (adapter.h): all asked at once, done when
 * three have answered (../redlock_floor.h). The address is five ports of 127.0.0.1, by commas. */
#include "../redlock_floor.h"
#include "adapter.h"

#include <stdio.h>
#include <stdlib.h>

static struct redlock_floor floor_of_five;

static const char *open_servers(const char *where)
{
    static char version[64];
    struct redis_server servers[REDLOCK_NODES] = {0};
    for (int i = 0; i < REDLOCK_NODES; i++) {
        char *end;
        servers[i].port = (int)strtol(where, &end, 10);
        if (*end != (i + 1 < REDLOCK_NODES ? ',' : '\0'))
            bench_die("five ports are expected, by commas");
        where = end + 1;
    }
    redlock_floor_open(&floor_of_five, servers);
    snprintf(version, sizeof(version), "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR,
             HIREDIS_PATCH);
    return version;
}

/* In batches: each ends with a round that is waited for, as the loop that it is made of does. */
static void cycles(const char *name, size_t count)
{
    (void)name;
    redlock_floor_quorum(&floor_of_five, count);
}

int main(int argc, char **argv)
{
    return adapter_main(
        argc, argv,
        &(struct adapter){.name = "floor_redlock", .open = open_servers, .loop = cycles});
}
