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

static void cycle(void *worker, const char *name)
{
    (void)worker;
    (void)name;
    zookeeper_cycles(NULL, 1);
}

static void close_session(void)
{
    zookeeper_close(zookeeper_bare);
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "floor_zookeeper",
                                          .open = open_server,
                                          .cycle = cycle,
                                          .close = close_session});
}
