/* floor_etcd.c - the bare floor on etcd, as an adapter (adapter.h): a transaction puts a key (the grant), and a
 * request deletes it (../etcd_floor.h). Each thread has a connection, and waits for each answer. No client checks that it is
 * the first in the queue, so this is not a lock. The address is HOST:PORT. */
#include "../common.h"
#include "../etcd_floor.h"
#include "adapter.h"

#include <stdio.h>
#include <unistd.h>

#define LEASE_S 3600

static const char *address;

static struct own {
    struct etcd_bare *bare;
    char key[64];
} owns[256];

static const char *open_server(const char *where)
{
    address = where;
    return "nghttp2";
}

static void *open_worker(unsigned number)
{
    struct own *own = &owns[number];
    own->bare = etcd_connect(address);
    etcd_grant(own->bare, LEASE_S);
    snprintf(own->key, sizeof(own->key), "bench/bare-%d-%u/00000000000000000000000000000000",
             (int)getpid(), number);
    return own;
}

static bool put(void *worker, const char *name, void **held)
{
    const struct own *own = worker;
    (void)name;
    (void)held;
    etcd_put(own->bare, own->key);
    return true;
}

static void delete (void *worker, const char *name, void *held)
{
    const struct own *own = worker;
    (void)name;
    (void)held;
    etcd_delete(own->bare, own->key);
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "floor_etcd",
                                          .open = open_server,
                                          .worker = open_worker,
                                          .take = put,
                                          .give = delete});
}
