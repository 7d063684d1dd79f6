/* fake_zookeeper_stubs.c - the constants of ZooKeeper's C library, and its functions that need no ensemble. */
#include <zookeeper/zookeeper.h>

const int ZOO_PERSISTENT = 0, ZOO_EPHEMERAL = 1, ZOO_EPHEMERAL_SEQUENTIAL = 3, ZOO_CONTAINER = 4;
const int ZOO_SESSION_EVENT = -1, ZOO_CREATED_EVENT = 1, ZOO_DELETED_EVENT = 2,
          ZOO_CHANGED_EVENT = 3;
const int ZOO_EXPIRED_SESSION_STATE = -112, ZOO_AUTH_FAILED_STATE = -113, ZOO_CONNECTING_STATE = 1,
          ZOO_CONNECTED_STATE = 3;
struct ACL_vector ZOO_OPEN_ACL_UNSAFE, ZOO_CREATOR_ALL_ACL;

int zoo_set_servers_resolution_delay(zhandle_t *zh, int delay_ms)
{
    (void)zh;
    (void)delay_ms;
    return ZOK;
}

int zoo_add_auth(zhandle_t *zh, const char *scheme, const char *cert, int length,
                 void_completion_t completion, const void *data)
{
    (void)zh;
    (void)scheme;
    (void)cert;
    (void)length;
    (void)completion;
    (void)data;
    return ZOK;
}

struct sockaddr *zookeeper_get_connected_host(zhandle_t *zh, struct sockaddr *address,
                                              socklen_t *length)
{
    (void)zh;
    (void)address;
    (void)length;
    return NULL;
}

const char *zerror(int rc)
{
    (void)rc;
    return "an error";
}
