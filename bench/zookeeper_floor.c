/* zookeeper_floor.c - the bare requests, with a wait for each answer; see zookeeper_floor.h. */
#include "zookeeper_floor.h"

#include "common.h"

#include <stdio.h>

zhandle_t *zookeeper_bare;

/* ---- an answer that is waited for --------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned answers;
static char made[256];
static int64_t made_zxid;

void zookeeper_answer(void)
{
    pthread_mutex_lock(&lock);
    answers++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

void zookeeper_await(unsigned count)
{
    pthread_mutex_lock(&lock);
    while (answers < count)
        pthread_cond_wait(&changed, &lock);
    answers = 0;
    pthread_mutex_unlock(&lock);
}

static void on_made(int rc, const char *path, const struct Stat *stat, const void *data)
{
    (void)data;
    if (rc != ZOK)
        bench_die("create: %s", zerror(rc));
    snprintf(made, sizeof(made), "%s", path);
    made_zxid = stat->czxid;
    zookeeper_answer();
}

void zookeeper_on_void(int rc, const void *data)
{
    (void)data;
    if (rc != ZOK)
        bench_die("delete: %s", zerror(rc));
    zookeeper_answer();
}

static void on_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    (void)zh;
    (void)state;
    (void)path;
    (void)context;
    if (type == ZOO_DELETED_EVENT)
        zookeeper_answer();
}

/* ---- bare ---------------------------------------------------------------------------------------- */

const char zookeeper_data[] = "mortise/1 0\nhost\n12345\nzookeeper";
const int zookeeper_data_length = sizeof(zookeeper_data) - 1;
const char zookeeper_path[] = "/bench/bare/_c_00000000-0000-0000-0000-000000000000-lock-";

void zookeeper_create(void)
{
    zoo_acreate2(zookeeper_bare, zookeeper_path, zookeeper_data, zookeeper_data_length,
                 &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, on_made, NULL);
    zookeeper_await(1);
}

void zookeeper_delete(void)
{
    zoo_adelete(zookeeper_bare, made, -1, zookeeper_on_void, NULL);
    zookeeper_await(1);
}

void zookeeper_cycles(void *context, size_t n)
{
    (void)context;
    while (n-- > 0) {
        zookeeper_create();
        zookeeper_delete();
    }
}

const char *zookeeper_made(void)
{
    return made;
}

int64_t zookeeper_made_zxid(void)
{
    return made_zxid;
}

/* ---- a session ---- */

static void be_quiet(const char *message)
{
    (void)message;
}

zhandle_t *zookeeper_connect(const char *server)
{
    zhandle_t *zh =
        zookeeper_init2(server, on_event, 30000, NULL, NULL, ZOO_NO_LOG_CLIENTENV, be_quiet);
    if (zh == NULL ||
        zoo_create(zh, "/bench", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) < ZAPIERROR - 50)
        bench_die("no server at %s", server);
    zoo_create(zh, "/bench/bare", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    return zh;
}
