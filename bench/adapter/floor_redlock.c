/* floor_redlock.c - the bare floors on five Redis servers, as an adapter (adapter.h): all are asked at once, and the
 * round is done when three have answered; or they are asked one after another (../redlock_floor.h). The address is
 * five ports of 127.0.0.1, separated by commas; "in-turn:" before them selects the latter. */
#include "../redlock_floor.h"
#include "adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct redlock_floor floor_of_five;
static bool in_turn;

static const char *open_servers(const char *where)
{
    static char version[64];
    static const char prefix[] = "in-turn:";
    struct redis_server servers[REDLOCK_NODES] = {0};
    in_turn = strncmp(where, prefix, sizeof(prefix) - 1) == 0;
    where += in_turn ? sizeof(prefix) - 1 : 0;
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

/* Runs batches: each ends with a wait for its last round, as in the loop that it consists of. */
static void cycles(const char *name, size_t count)
{
    (void)name;
    (in_turn ? redlock_floor_sequential : redlock_floor_quorum)(&floor_of_five, count);
}

int main(int argc, char **argv)
{
    return adapter_main(
        argc, argv,
        &(struct adapter){.name = "floor_redlock", .open = open_servers, .loop = cycles});
}
