/* floor_zookeeper.c - the bare floor on ZooKeeper, as an adapter (adapter.h): an ephemeral sequential node is created
 * and deleted, each answer waited for (../zookeeper_floor.h). Nobody looks who is first: it is no lock. The address is
 * HOST:PORT. */
#include "../common.h"
#include "../zookeeper_floor.h"
#include "adapter.h"

static const char *open_server(const char *where)
{
    zookeeper_bare = zookeeper_connect(where);
    return "libzookeeper";
}

static void turn(void *worker, const char *name, int64_t hold_us, struct instants *at)
{
    (void)worker;
    (void)name;
    (void)hold_us;
    at->asked_ns = bench_now_ns();
    zookeeper_cycles(NULL, 1);
    at->done_ns = at->granted_ns = at->releasing_ns = bench_now_ns();
}

static void close_session(void)
{
    zookeeper_close(zookeeper_bare);
}

int main(int argc, char **argv)
{
    return adapter_main(
        argc, argv,
        &(struct adapter){
            .name = "floor_zookeeper", .open = open_server, .turn = turn, .close = close_session});
}
