/* floor_zookeeper.c - the bare floor on ZooKeeper, as an adapter (adapter.h): creates an ephemeral sequential node
 * (it represents the grant), deletes it, and waits for each answer (../zookeeper_floor.h). Or 64 creations are in flight,
 * each followed at once by its deletion and the next creation, as an adapter of a lock releases and acquires again. Nobody
 * checks which node is first, so this is not a lock. The address is HOST:PORT. */
#include "../common.h"
#include "../zookeeper_floor.h"
#include "adapter.h"

#define IN_FLIGHT 64

static const char *open_server(const char *where)
{
    zookeeper_bare = zookeeper_connect(where);
    return "libzookeeper";
}

static bool create(void *worker, const char *name, void **held)
{
    (void)worker;
    (void)name;
    (void)held;
    zookeeper_create();
    return true;
}

static void delete (void *worker, const char *name, void *held)
{
    (void)worker;
    (void)name;
    (void)held;
    zookeeper_delete();
}

/* ---- many ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t to_begin, to_end;

static void begin(void);

/* The library's thread calls this and the next function. A batch is over when all deletions are answered. */
static void on_deleted(int rc, const void *data)
{
    (void)data;
    if (rc != ZOK)
        bench_die("delete: %s", zerror(rc));
    pthread_mutex_lock(&lock);
    if (--to_end == 0)
        pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    (void)stat;
    (void)data;
    if (rc != ZOK || zoo_adelete(zookeeper_bare, path, -1, on_deleted, NULL) != ZOK)
        bench_die("create: %s", zerror(rc));
    pthread_mutex_lock(&lock);
    bool more = to_begin > 0;
    to_begin -= more;
    pthread_mutex_unlock(&lock);
    if (more)
        begin();
}

static void begin(void)
{
    if (zoo_acreate2(zookeeper_bare, zookeeper_path, zookeeper_data, zookeeper_data_length,
                     &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, on_created, NULL) != ZOK)
        bench_die("create: it is not taken");
}

static void many(const char *name, size_t count)
{
    size_t at_once = count < IN_FLIGHT ? count : IN_FLIGHT;
    (void)name;
    pthread_mutex_lock(&lock);
    to_begin = count - at_once;
    to_end = count;
    pthread_mutex_unlock(&lock);
    while (at_once-- > 0)
        begin();
    pthread_mutex_lock(&lock);
    while (to_end > 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
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
                                          .take = create,
                                          .give = delete,
                                          .many = many,
                                          .close = close_session});
}
