/* fake_zookeeper.c - ZooKeeper in memory: see fake_zookeeper.h. It implements only what the driver uses. */
#include "fake_zookeeper.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#include <zookeeper/zookeeper.h>

struct node {
    struct node *prev, *next;
    char path[256], data[512];
    int size;
    int numbers; /* given to children */
    struct Stat stat;
};

enum kind { CREATE, DELETE, SET, GET, EXISTS, LIST, SYNC };

struct request {
    struct request *prev, *next;
    enum kind kind;
    char path[256], data[512];
    int size, mode, version;
    bool watch;
    void (*done)(void); /* of the kind's type */
    const void *argument;
};

struct watched {
    struct watched *prev, *next;
    char path[256];
    int64_t mzxid; /* of the node when it was set; 0: there was none */
    watcher_fn watcher;
    void *context;
};

struct _zhandle {
    watcher_fn watcher;
    void *context;
    watcher_fn node_watcher;
    clientid_t id;
    bool connected, expired;
    struct request *requests;
    struct watched *watches;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* zookeeper_close is called on a thread */
static struct node *nodes;
static zhandle_t *client; /* the one that is not closed */
static int64_t zxid, sessions;
static bool heard;
int fake_timeout_ms = FAKE_TIMEOUT_MS, fake_handles, fake_lists, fake_bad_lists, fake_gets;
int fake_refusals;

/* ---- nodes --------------------------------------------------------------------------------------------- */

static struct node *find(const char *path)
{
    struct node *node;
    DL_FOREACH (nodes, node)
        if (strcmp(node->path, path) == 0)
            return node;
    return NULL;
}

static struct node *parent_of(const char *path)
{
    char parent[256];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
    return find(parent);
}

static void set_data(struct node *node, const char *data, int size)
{
    memcpy(node->data, data, (size_t)size);
    node->size = size;
    node->stat.mzxid = ++zxid;
}

static int make(const char *path, const char *data, int size, int mode, int64_t owner,
                struct node **made)
{
    struct node *parent = parent_of(path), *node;
    char text[256];
    if (parent == NULL)
        return ZNONODE;
    snprintf(text, sizeof(text), "%s", path);
    if (mode == ZOO_EPHEMERAL_SEQUENTIAL)
        snprintf(text, sizeof(text), "%s%010d", path, parent->numbers++);
    if (find(text) != NULL)
        return ZNODEEXISTS;
    node = calloc(1, sizeof(*node));
    snprintf(node->path, sizeof(node->path), "%s", text);
    set_data(node, data, size);
    node->stat.czxid = zxid;
    node->stat.ephemeralOwner = owner;
    DL_APPEND(nodes, node);
    *made = node;
    return ZOK;
}

static void drop(struct node *node)
{
    DL_DELETE(nodes, node);
    free(node);
    zxid++;
}

static void end_session(int64_t owner)
{
    struct node *node, *next;
    DL_FOREACH_SAFE (nodes, node, next)
        if (owner != 0 && node->stat.ephemeralOwner == owner)
            drop(node);
}

/* Tells the client of what it watches, if it is connected. */
static void tell(void)
{
    struct watched *watch, *next;
    if (client == NULL || !client->connected)
        return;
    DL_FOREACH_SAFE (client->watches, watch, next) {
        const struct node *node = find(watch->path);
        int64_t mzxid = node == NULL ? 0 : node->stat.mzxid;
        if (mzxid == watch->mzxid)
            continue;
        DL_DELETE(client->watches, watch);
        watch->watcher(client,
                       node == NULL        ? ZOO_DELETED_EVENT
                       : watch->mzxid == 0 ? ZOO_CREATED_EVENT
                                           : ZOO_CHANGED_EVENT,
                       ZOO_CONNECTED_STATE, watch->path, watch->context);
        free(watch);
    }
}

static void list(const char *folder, struct String_vector *strings)
{
    static char *names[64];
    size_t length = strlen(folder);
    struct node *node;
    *strings = (struct String_vector){0, names};
    DL_FOREACH (nodes, node)
        if (strncmp(node->path, folder, length) == 0 && node->path[length] == '/' &&
            strchr(node->path + length + 1, '/') == NULL)
            names[strings->count++] = node->path + length + 1;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static void set_watch(const struct request *request, const struct node *node)
{
    if (!request->watch || (node == NULL && request->kind == GET))
        return;
    struct watched *watch = calloc(1, sizeof(*watch));
    snprintf(watch->path, sizeof(watch->path), "%s", request->path);
    watch->mzxid = node == NULL ? 0 : node->stat.mzxid;
    watch->watcher = client->node_watcher;
    watch->context = client->context;
    DL_APPEND(client->watches, watch);
}

static int execute(struct request *request, struct node **node)
{
    *node = find(request->path);
    if (request->kind == CREATE)
        return make(request->path, request->data, request->size, request->mode,
                    request->mode == ZOO_PERSISTENT || request->mode == ZOO_CONTAINER
                        ? 0
                        : client->id.client_id,
                    node);
    if (request->kind == SYNC)
        return ZOK;
    if (*node == NULL)
        return ZNONODE;
    if (request->kind == SET && request->version >= 0 && request->version != (*node)->stat.version)
        return ZBADVERSION;
    if (request->kind == SET) {
        set_data(*node, request->data, request->size);
        (*node)->stat.version++;
    } else if (request->kind == DELETE)
        drop(*node);
    return ZOK;
}

static void answer(struct request *request, int rc, const struct node *node)
{
    const struct Stat *stat = rc == ZOK && node != NULL ? &node->stat : NULL;
    struct String_vector strings = {0, NULL};
    switch (request->kind) {
    case CREATE:
        ((string_stat_completion_t)request->done)(rc, rc == ZOK ? node->path : NULL, stat,
                                                  request->argument);
        break;
    case DELETE:
        ((void_completion_t)request->done)(rc, request->argument);
        break;
    case SET:
    case EXISTS:
        ((stat_completion_t)request->done)(rc, stat, request->argument);
        break;
    case GET:
        ((data_completion_t)request->done)(rc, rc == ZOK ? node->data : NULL,
                                           rc == ZOK ? node->size : -1, stat, request->argument);
        break;
    case LIST:
        if (rc == ZOK)
            list(request->path, &strings);
        ((strings_completion_t)request->done)(rc, &strings, request->argument);
        break;
    case SYNC:
        ((string_completion_t)request->done)(rc, request->path, request->argument);
        break;
    }
}

static void answer_all(int rc)
{
    for (struct request *request; (request = client->requests) != NULL; free(request)) {
        DL_DELETE(client->requests, request);
        answer(request, rc, NULL);
    }
}

static int ask(zhandle_t *zh, enum kind kind, const char *path, const char *data, int size,
               void (*done)(void), const void *argument, struct request **asked)
{
    if (zh->expired)
        return ZINVALIDSTATE;
    struct request *request = calloc(1, sizeof(*request));
    request->kind = kind;
    snprintf(request->path, sizeof(request->path), "%s", path);
    memcpy(request->data, data, (size_t)size);
    request->size = size;
    request->version = -1;
    request->done = done;
    request->argument = argument;
    DL_APPEND(zh->requests, request);
    *asked = request;
    return ZOK;
}

/* ---- what the test does ---------------------------------------------------------------------------------- */

void fake_reset(bool close_is_heard)
{
    struct node *root = calloc(1, sizeof(*root));
    while (nodes != NULL)
        drop(nodes);
    DL_APPEND(nodes, root); /* its path is "" */
    zxid = 100;
    heard = close_is_heard;
    fake_timeout_ms = FAKE_TIMEOUT_MS;
}

bool fake_connect(void)
{
    pthread_mutex_lock(&lock);
    bool may = client != NULL && !client->connected && !client->expired;
    if (may) {
        client->connected = true;
        if (client->id.client_id == 0)
            client->id.client_id = ++sessions;
        client->watcher(client, ZOO_SESSION_EVENT, ZOO_CONNECTED_STATE, "", client->context);
        tell();
    }
    pthread_mutex_unlock(&lock);
    return may;
}

bool fake_step(void)
{
    struct node *node;
    pthread_mutex_lock(&lock);
    struct request *request = client != NULL && client->connected ? client->requests : NULL;
    if (request != NULL) {
        DL_DELETE(client->requests, request);
        int rc = execute(request, &node);
        tell();
        set_watch(request, rc == ZOK ? node : NULL);
        answer(request, rc, request->kind == DELETE ? NULL : node);
        free(request);
    }
    pthread_mutex_unlock(&lock);
    return request != NULL;
}

bool fake_cut(int executed)
{
    struct request *request;
    struct node *node;
    pthread_mutex_lock(&lock);
    bool may = client != NULL && client->connected;
    if (may) {
        client->connected = false;
        DL_FOREACH (client->requests, request)
            if (executed-- > 0)
                execute(request, &node);
        client->watcher(client, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, "", client->context);
        answer_all(ZCONNECTIONLOSS);
    }
    pthread_mutex_unlock(&lock);
    return may;
}

bool fake_expire(void)
{
    pthread_mutex_lock(&lock);
    bool may = client != NULL && client->id.client_id != 0 && !client->expired;
    if (may) {
        client->connected = false;
        client->expired = true;
        end_session(client->id.client_id);
        answer_all(ZSESSIONEXPIRED);
        client->watcher(client, ZOO_SESSION_EVENT, ZOO_EXPIRED_SESSION_STATE, "", client->context);
    }
    pthread_mutex_unlock(&lock);
    return may;
}

void fake_end_old_sessions(void)
{
    pthread_mutex_lock(&lock);
    struct node *node, *next;
    DL_FOREACH_SAFE (nodes, node, next)
        if (node->stat.ephemeralOwner > 0 &&
            (client == NULL || node->stat.ephemeralOwner != client->id.client_id))
            drop(node);
    tell();
    pthread_mutex_unlock(&lock);
}

const char *fake_make(const char *path)
{
    struct node *node = NULL;
    bool numbered = path[strlen(path) - 1] == '-';
    pthread_mutex_lock(&lock);
    make(path, "", 0, numbered ? ZOO_EPHEMERAL_SEQUENTIAL : ZOO_PERSISTENT, -1, &node);
    tell();
    pthread_mutex_unlock(&lock);
    return node == NULL ? NULL : node->path;
}

void fake_write(const char *path, const char *data)
{
    pthread_mutex_lock(&lock);
    struct node *node = find(path);
    if (node == NULL)
        make(path, data, (int)strlen(data), ZOO_PERSISTENT, -1, &node);
    else {
        set_data(node, data, (int)strlen(data));
        node->stat.version++;
    }
    tell();
    pthread_mutex_unlock(&lock);
}

int64_t fake_number(const char *path, int *writes)
{
    char text[32];
    pthread_mutex_lock(&lock);
    const struct node *node = find(path);
    *writes = node == NULL ? 0 : node->stat.version + 1;
    snprintf(text, sizeof(text), "%.*s", node == NULL ? 0 : node->size,
             node == NULL ? "" : node->data);
    pthread_mutex_unlock(&lock);
    return strtoll(text, NULL, 10);
}

int64_t fake_czxid(const char *folder)
{
    const struct node *node;
    DL_FOREACH (nodes, node)
        if (strncmp(node->path, folder, strlen(folder)) == 0 && client != NULL &&
            node->stat.ephemeralOwner == client->id.client_id)
            return node->stat.czxid;
    return 0;
}

bool fake_delete(const char *path)
{
    pthread_mutex_lock(&lock);
    struct node *node = find(path);
    if (node != NULL)
        drop(node);
    tell();
    pthread_mutex_unlock(&lock);
    return node != NULL;
}

bool fake_delete_first(const char *folder)
{
    struct String_vector strings;
    char path[300];
    list(folder, &strings);
    if (strings.count == 0)
        return false;
    snprintf(path, sizeof(path), "%s/%s", folder, strings.data[0]);
    return fake_delete(path);
}

int fake_contenders(const char *folder, bool *first)
{
    struct String_vector strings;
    const char *least = NULL;
    char path[300];
    pthread_mutex_lock(&lock);
    list(folder, &strings);
    for (int i = 0; i < strings.count; i++) {
        const char *number = strings.data[i] + strlen(strings.data[i]) - 10;
        if (least == NULL || strcmp(number, least + strlen(least) - 10) < 0)
            least = strings.data[i];
    }
    if (least != NULL)
        snprintf(path, sizeof(path), "%s/%s", folder, least);
    *first =
        least != NULL && client != NULL && find(path)->stat.ephemeralOwner == client->id.client_id;
    pthread_mutex_unlock(&lock);
    return strings.count;
}

bool fake_says(const char *folder, const char *end)
{
    size_t length = strlen(folder), end_len = strlen(end);
    bool says = false;
    struct node *node;
    pthread_mutex_lock(&lock);
    DL_FOREACH (nodes, node)
        says |= strncmp(node->path, folder, length) == 0 && node->stat.ephemeralOwner > 0 &&
                (size_t)node->size >= end_len &&
                memcmp(node->data + node->size - end_len, end, end_len) == 0;
    pthread_mutex_unlock(&lock);
    return says;
}

/* ---- the library's functions -------------------------------------------------------------------------------- */

zhandle_t *zookeeper_init2(const char *host, watcher_fn fn, int recv_timeout, const clientid_t *id,
                           void *context, int flags, log_callback_fn log)
{
    zhandle_t *zh = calloc(1, sizeof(*zh));
    (void)host;
    (void)recv_timeout;
    (void)id;
    (void)flags;
    (void)log;
    zh->watcher = fn;
    zh->context = context;
    pthread_mutex_lock(&lock);
    client = zh;
    fake_handles++;
    pthread_mutex_unlock(&lock);
    return zh;
}

int zookeeper_close(zhandle_t *zh)
{
    struct watched *watch, *next;
    struct request *request, *other;
    pthread_mutex_lock(&lock);
    if (client == zh)
        client = NULL;
    if (heard)
        end_session(zh->id.client_id);
    tell();
    DL_FOREACH_SAFE (zh->requests, request, other) {
        DL_DELETE(zh->requests, request);
        answer(request, ZCLOSING, NULL);
        free(request);
    }
    DL_FOREACH_SAFE (zh->watches, watch, next)
        free(watch);
    free(zh);
    pthread_mutex_unlock(&lock);
    return ZOK;
}

const clientid_t *zoo_client_id(zhandle_t *zh)
{
    return &zh->id;
}

int zoo_state(zhandle_t *zh)
{
    return zh->connected ? ZOO_CONNECTED_STATE : 0;
}

int zoo_set_servers(zhandle_t *zh, const char *hosts)
{
    (void)hosts;
    if (zh->connected)
        fake_bad_lists++;
    else
        fake_lists++;
    return ZOK;
}

int zoo_recv_timeout(zhandle_t *zh)
{
    (void)zh;
    return fake_timeout_ms;
}

typedef void any_completion(void);

int zoo_acreate2(zhandle_t *zh, const char *path, const char *value, int size,
                 const struct ACL_vector *acl, int mode, string_stat_completion_t completion,
                 const void *data)
{
    struct request *request;
    (void)acl;
    if (fake_refusals > 0) {
        fake_refusals--;
        return ZMARSHALLINGERROR;
    }
    int rc = ask(zh, CREATE, path, value, size, (any_completion *)completion, data, &request);
    if (rc == ZOK)
        request->mode = mode;
    return rc;
}

int zoo_adelete(zhandle_t *zh, const char *path, int version, void_completion_t completion,
                const void *data)
{
    struct request *request;
    (void)version;
    return ask(zh, DELETE, path, "", 0, (any_completion *)completion, data, &request);
}

int zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int size, int version,
             stat_completion_t completion, const void *data)
{
    struct request *request;
    int rc = ask(zh, SET, path, buffer, size, (any_completion *)completion, data, &request);
    if (rc == ZOK)
        request->version = version;
    return rc;
}

int zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *context,
              data_completion_t completion, const void *data)
{
    struct request *request;
    (void)context; /* the same as the handle's */
    int rc = ask(zh, GET, path, "", 0, (any_completion *)completion, data, &request);
    if (rc == ZOK && watcher != NULL) {
        fake_gets++;
        request->watch = true;
        zh->node_watcher = watcher;
    }
    return rc;
}

int zoo_awexists(zhandle_t *zh, const char *path, watcher_fn watcher, void *context,
                 stat_completion_t completion, const void *data)
{
    struct request *request;
    (void)context;
    int rc = ask(zh, EXISTS, path, "", 0, (any_completion *)completion, data, &request);
    if (rc == ZOK) {
        request->watch = true;
        zh->node_watcher = watcher;
    }
    return rc;
}

int zoo_aget_children(zhandle_t *zh, const char *path, int watch, strings_completion_t completion,
                      const void *data)
{
    struct request *request;
    (void)watch;
    return ask(zh, LIST, path, "", 0, (any_completion *)completion, data, &request);
}

int zoo_async(zhandle_t *zh, const char *path, string_completion_t completion, const void *data)
{
    struct request *request;
    return ask(zh, SYNC, path, "", 0, (any_completion *)completion, data, &request);
}
