/* cluster.c - leads each op to the node that has its slot, and on to another one if the slot has moved; cluster.h has the tables
 * of states. */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>

#define REDIRECTS_FAST 3
#define REDIRECTS_MAX 20
#define PAUSE_MIN_MS 5
#define PAUSE_MAX_MS 100
#define IDLE_NS (5000 * NS_PER_MS)  /* how long a node without slots stays connected */
#define KEEP_NS (60000 * NS_PER_MS) /* and how long it is remembered, while there is room */

static int64_t now_in(const struct cluster *cluster)
{
    return cluster->host->now(cluster->host);
}

/* ---- nodes -------------------------------------------------------------------------------------------- */

static bool has_slots(const struct driver *node)
{
    return node->cluster->topology->servers[node->server].slots > 0;
}

static void remove_node(struct cluster *cluster, struct driver *node)
{
    LL_DELETE2(cluster->nodes, node, next_node);
    cluster->node_of[node->server] = NULL;
    cluster->topology->servers[node->server].kept = false;
    cluster->node_count--;
    node_free(node);
}

/* NULL: too many nodes, or no memory. */
struct driver *cluster_node(struct cluster *cluster, int server)
{
    if (cluster->node_of[server] != NULL)
        return cluster->node_of[server];
    struct driver *node =
        cluster->node_count < CLUSTER_NODES_MAX
            ? node_new(cluster->alone, &cluster->topology->servers[server].at, server)
            : NULL;
    if (node == NULL)
        return NULL;
    node->had_slots = has_slots(node);
    cluster->node_of[server] = node;
    cluster->topology->servers[server].kept = true;
    cluster->node_count++;
    LL_PREPEND2(cluster->nodes, node, next_node);
    return node;
}

/* ---- an op without a node ------------------------------------------------------------------------------- */

/* due_ns: MORTISE_NEVER until there is a map. */
static void keep_unrouted(struct cluster *cluster, mortise_op *op, int64_t due_ns)
{
    op_set(op, OP_UNROUTED, NULL);
    data_of(op)->due_ns = due_ns;
    op_append(&cluster->unrouted, op);
}

static void fail_op(struct cluster *cluster, mortise_op *op, mortise_status status, bool retryable,
                    const char *text)
{
    op_fail_as(cluster->alone, op, status, retryable, text);
}

/* ---- to its node ------------------------------------------------------------------------------------------ */

int cluster_owner(const struct cluster *cluster, const mortise_op *op)
{
    return topology_owner(cluster->topology, key_slot(op->name, op->name_len));
}

/* Fails an op because there are too many nodes. Former nodes make room soon. */
static void fail_for_room(struct cluster *cluster, mortise_op *op)
{
    const struct topology *topology = cluster->topology;
    char text[100];
    int masters = 0;
    for (int i = 0; i < topology->server_count; i++)
        masters += topology->servers[i].slots > 0;
    if (masters > CLUSTER_NODES_MAX) {
        snprintf(text, sizeof(text), "the cluster has %d masters: more than %d are not supported",
                 masters, CLUSTER_NODES_MAX);
        fail_op(cluster, op, MORTISE_BACKEND, false, text);
    } else if (cluster->node_count >= CLUSTER_NODES_MAX)
        fail_op(cluster, op, MORTISE_UNREACHABLE, true,
                "connections to former masters of the cluster are not closed yet");
    else
        op_fail_memory(cluster->alone, op);
}

void cluster_send(struct cluster *cluster, int server, mortise_op *op)
{
    struct driver *node = cluster_node(cluster, server);
    if (node != NULL)
        dispatch_take(node, op);
    else
        fail_for_room(cluster, op);
}

void cluster_route(struct cluster *cluster, mortise_op *op)
{
    struct topology *topology = cluster->topology;
    int server = topology->known && !is_of_all(op) ? cluster_owner(cluster, op) : -1;
    if (cluster->refusal != NULL)
        fail_op(cluster, op, MORTISE_CONFIG, false, cluster->refusal);
    else if (is_of_all(op))
        gather_start(cluster, op);
    else if (server >= 0)
        cluster_send(cluster, server, op);
    else {
        keep_unrouted(cluster, op, MORTISE_NEVER);
        topology_want(topology);
    }
}

/* Sends what was given to the nodes, with one write for each. */
static void send_all(struct cluster *cluster)
{
    struct driver *node;
    LL_FOREACH2(cluster->nodes, node, next_node)
    {
        dispatch_go(node);
    }
}

/* ---- when there is a map ------------------------------------------------------------------------------------ */

static void changed(void *owner)
{
    struct cluster *cluster = owner;
    cluster->moved = true;
}

/* A look has ended. */
static void looked(void *owner, const struct link_fault *fault)
{
    struct cluster *cluster = owner;
    mortise_op *op, *next;
    char text[160];
    cluster->moved = true;
    gather_looked(cluster, cluster->topology->begun, fault);
    DL_FOREACH_SAFE2(cluster->unrouted, op, next, next)
    {
        bool waits = data_of(op)->due_ns == MORTISE_NEVER;
        if (!waits || (fault == NULL && cluster_owner(cluster, op) >= 0))
            continue;
        op_take(&cluster->unrouted, op);
        snprintf(text, sizeof(text), "%s: no node has slot %u",
                 cluster->topology->portless
                     ? "masters of the cluster have no port for connections of this kind (tls)"
                     : "the cluster is down",
                 key_slot(op->name, op->name_len));
        if (fault != NULL)
            op_fail(cluster->alone, op, fault);
        else
            fail_op(cluster, op, MORTISE_UNREACHABLE, true, text);
    }
}

/* Routes the ops whose pause is over, or for which there is a map now. */
static void route_due(struct cluster *cluster)
{
    int64_t now = now_in(cluster);
    mortise_op *op, *next;
    DL_FOREACH_SAFE2(cluster->unrouted, op, next, next)
    {
        bool waits = data_of(op)->due_ns == MORTISE_NEVER;
        bool ready = waits ? cluster->topology->known && cluster_owner(cluster, op) >= 0
                           : data_of(op)->due_ns <= now;
        if (ready)
            cluster_route(cluster, op_take(&cluster->unrouted, op));
    }
}

/* ---- redirects ------------------------------------------------------------------------------------------ */

static void pause_op(struct cluster *cluster, mortise_op *op)
{
    int64_t ms = (int64_t)PAUSE_MIN_MS << (data_of(op)->redirects / 2);
    ms = ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
    keep_unrouted(cluster, op, now_in(cluster) + ms * NS_PER_MS);
}

/* MOVED or ASK. ASK is followed each time: the map never leads to that node, and from there no ASK is followed. */
static void follow(struct driver *from, mortise_op *op, const redisReply *reply, bool asking)
{
    struct cluster *cluster = from->cluster;
    struct endpoint to;
    unsigned slot;
    bool read = topology_read_redirect(reply, &from->link.endpoint, &slot, &to);
    int server = read ? topology_index(cluster->topology, &to) : -1;
    if (server >= 0 && !asking)
        topology_moved(cluster->topology, slot, server);
    if (server < 0 || (!asking && data_of(op)->redirects > REDIRECTS_FAST)) {
        pause_op(cluster, op);
        return;
    }
    data_of(op)->asking = asking;
    cluster_send(cluster, server, op);
}

static bool redirected(struct driver *from, mortise_op *op, const redisReply *reply)
{
    struct cluster *cluster = from->cluster;
    enum link_error error = link_error_of(reply->str, reply->len);
    bool follows = error == LINK_ERROR_MOVED || error == LINK_ERROR_ASK;
    if (error == LINK_ERROR_DOWN)
        topology_want(cluster->topology);
    if (!follows && error != LINK_ERROR_TRYAGAIN && error != LINK_ERROR_SPLIT)
        return false;
    cluster->moved = true; /* to be sent at the end of the turn */
    move_out(from, op);
    /* The request named only one key (script_call_asking), so this node may have others. By the map, all keys are named. */
    bool knows_one = error == LINK_ERROR_ASK && data_of(op)->asking;
    data_of(op)->asking = false;
    if (++data_of(op)->redirects > REDIRECTS_MAX) {
        char text[480];
        snprintf(text, sizeof(text), "%s: %.100s, again and again: the slot is on its way",
                 from->link.endpoint.text, reply->str);
        fail_op(cluster, op, MORTISE_UNREACHABLE, true, text);
    } else if (follows && !knows_one)
        follow(from, op, reply, error == LINK_ERROR_ASK);
    else
        pause_op(cluster, op);
    return true;
}

static void again(struct driver *from, mortise_op *op)
{
    struct cluster *cluster = from->cluster;
    cluster->moved = true; /* to be sent at the end of the turn */
    move_out(from, op);
    data_of(op)->asking = false;
    cluster_route(cluster, op);
}

static bool doubted(struct driver *driver)
{
    topology_want(driver->cluster->topology);
    return has_slots(driver);
}

static bool serves(const struct driver *driver, const char *name, size_t name_len)
{
    return topology_owner(driver->cluster->topology, key_slot(name, name_len)) == driver->server;
}

/* ---- a cluster is found ----------------------------------------------------------------------------------- */

static void discovered(struct driver *driver)
{
    struct cluster *cluster = driver->cluster;
    if (cluster->state == CLUSTER_ALONE)
        cluster->state = CLUSTER_FOUND;
}

/* Goes from FOUND to ROUTED. Without memory, it is tried again. */
static bool find_ways(struct cluster *cluster)
{
    static const struct topology_callbacks told = {.changed = changed, .looked = looked};
    struct driver *alone = cluster->alone;
    const char *problem;
    if (cluster->state == CLUSTER_ROUTED)
        return true;
    cluster->topology =
        topology_open(alone->host, cluster->list, &alone->settings, &told, cluster, &problem);
    if (cluster->topology == NULL)
        return false;
    cluster->state = CLUSTER_ROUTED;
    if (alone->transaction != NULL)
        cluster->refusal = "atomicity = watch does not work with a cluster; set atomicity = lua";
    topology_want(cluster->topology);
    return true;
}

/* Takes away the ops that wait at the first server, which turned out to be a node of a cluster. Nothing was sent there. */
static void leave_alone(struct cluster *cluster)
{
    struct driver *alone = cluster->alone;
    while (alone->waiting != NULL)
        cluster_route(cluster, op_take(&alone->waiting, alone->waiting));
    while (alone->held_back != NULL)
        cluster_route(cluster, op_take(&alone->held_back, alone->held_back));
    move_seats(alone, true);
    bool closed = alone->link.state == LINK_DOWN && alone->news.state == LINK_DOWN;
    if (!closed && alone->link.first == NULL && !alone->replicas.under_way)
        node_rest(alone);
}

/* ---- the calls of the module ------------------------------------------------------------------------------ */

static void cancel_of(struct driver *driver, mortise_op *op)
{
    cluster_cancel(driver->cluster, op);
}

struct cluster *cluster_open(struct driver *alone, const char *list, bool looks, bool sure)
{
    static const struct route_calls routes = {.discovered = discovered,
                                              .cancel = cancel_of,
                                              .redirected = redirected,
                                              .doubted = doubted,
                                              .serves = serves,
                                              .again = again,
                                              .released = move_tell};
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    if (cluster == NULL)
        return NULL;
    cluster->host = alone->host;
    cluster->list = list;
    cluster->alone = alone;
    cluster->state = sure ? CLUSTER_FOUND : CLUSTER_ALONE;
    alone->cluster = cluster;
    alone->clock = &cluster->clock;
    alone->routes = looks ? &routes : NULL;
    alone->settings.any_of_cluster = alone->settings.redirects = looks;
    return cluster;
}

void cluster_close(struct cluster *cluster)
{
    struct driver *node, *next;
    LL_FOREACH_SAFE2(cluster->nodes, node, next, next_node)
    {
        remove_node(cluster, node);
    }
    node_free(cluster->alone);
    topology_close(cluster->topology);
    free(cluster);
}

void cluster_start(struct cluster *cluster, mortise_op **ops, size_t n)
{
    if (cluster->state == CLUSTER_ALONE) {
        dispatch_start(cluster->alone, ops, n);
        return;
    }
    bool knows = find_ways(cluster);
    for (size_t i = 0; i < n; i++)
        if (knows)
            cluster_route(cluster, ops[i]);
        else
            op_fail_memory(cluster->alone, ops[i]);
    send_all(cluster);
}

void cluster_cancel(struct cluster *cluster, mortise_op *op)
{
    if (data_of(op)->state == OP_GATHERED)
        gather_cancel(op);
    else if (data_of(op)->state == OP_UNROUTED) {
        op_take(&cluster->unrouted, op);
        bool unsure = (op->flags & MORTISE_OP_REPEAT) != 0 || data_of(op)->placed;
        op_complete(cluster->alone, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    } else
        dispatch_cancel(op);
}

void cluster_watch(struct cluster *cluster, const char *name, size_t name_len)
{
    int owner = cluster->state == CLUSTER_ROUTED
                    ? topology_owner(cluster->topology, key_slot(name, name_len))
                    : -1;
    struct driver *node = owner >= 0 ? cluster_node(cluster, owner) : NULL;
    pubsub_watch(node != NULL ? node : cluster->alone, name, name_len);
}

void cluster_unwatch(struct cluster *cluster, const char *name, size_t name_len)
{
    struct driver *node;
    pubsub_unwatch(cluster->alone, name, name_len);
    LL_FOREACH2(cluster->nodes, node, next_node)
    {
        pubsub_unwatch(node, name, name_len);
    }
}

static int64_t due_of(const struct cluster *cluster)
{
    int64_t due_ns = MORTISE_NEVER;
    mortise_op *op;
    DL_FOREACH2(cluster->unrouted, op, next)
    {
        if (data_of(op)->due_ns < due_ns)
            due_ns = data_of(op)->due_ns;
    }
    return cluster->moved ? 0 : due_ns;
}

size_t cluster_interest(const struct cluster *cluster, struct pollfd *fds, size_t capacity,
                        int64_t *due_ns)
{
    const struct driver *node;
    size_t n = node_interest(cluster->alone, fds, capacity, due_ns);
    if (cluster->state != CLUSTER_ROUTED)
        return n;
    LL_FOREACH2(cluster->nodes, node, next_node)
    {
        n += node_interest(node, fds + n, capacity - n, due_ns);
    }
    n += topology_interest(cluster->topology, fds + n, capacity - n, due_ns);
    int64_t due = due_of(cluster);
    if (due < *due_ns)
        *due_ns = due;
    return n;
}

static bool looks(struct cluster *cluster)
{
    struct driver *node;
    bool any = failover_looks(cluster->alone);
    LL_FOREACH2(cluster->nodes, node, next_node)
    {
        any |= failover_looks(node);
    }
    return any;
}

static void turn_nodes(struct cluster *cluster, const struct pollfd *ready, size_t n)
{
    struct driver *node;
    node_turn(cluster->alone, ready, n);
    LL_FOREACH2(cluster->nodes, node, next_node)
    {
        node_turn(node, ready, n);
    }
    if (cluster->state == CLUSTER_ALONE || !find_ways(cluster))
        return;
    topology_turn(cluster->topology, ready, n);
    leave_alone(cluster);
    if (cluster->moved)
        move_all(cluster);
    route_due(cluster);
    send_all(cluster);
}

/* A node without slots is not connected again. It is closed after a while, and forgotten when it cannot matter any more. */
static void dismiss(struct driver *node, int64_t now)
{
    struct cluster *cluster = node->cluster;
    int64_t keep_ns = cluster->node_count < CLUSTER_NODES_MAX ? KEEP_NS : 0;
    if (!node_is_quiet(node)) {
        node->quiet_ns = 0;
        return;
    }
    if (node->quiet_ns == 0)
        node->quiet_ns = now;
    node_unwant(node);
    if (now - node->quiet_ns >= keep_ns && node_is_gone(node, now - node->quiet_ns)) {
        remove_node(cluster, node);
        return;
    }
    /* A waiter that asks by the map leaves the node for a moment, and comes back. */
    if (node->link.state != LINK_DOWN && now - node->quiet_ns > IDLE_NS &&
        now - node->link.progress_ns > IDLE_NS && node_is_idle(node))
        node_rest(node);
}

static void flush_nodes(struct cluster *cluster)
{
    struct driver *node, *next;
    int64_t now = cluster->nodes != NULL ? now_in(cluster) : 0;
    node_flush(cluster->alone);
    LL_FOREACH_SAFE2(cluster->nodes, node, next, next_node)
    {
        node_flush(node);
        if (has_slots(node))
            node->quiet_ns = 0;
        else
            dismiss(node, now);
    }
}

void cluster_turn(struct cluster *cluster, const struct pollfd *ready, size_t n)
{
    struct pollfd
        fds[NODE_LINKS * (CLUSTER_NODES_MAX + 1) + PRIMARY_CANDIDATES + 1 + TOPOLOGY_SCOUTS];
    int64_t due_ns = MORTISE_NEVER;
    if (looks(cluster)) {
        n = cluster_interest(cluster, fds, sizeof(fds) / sizeof(fds[0]), &due_ns);
        ready = poll(fds, (nfds_t)n, 0) > 0 ? fds : NULL;
        n = ready != NULL ? n : 0;
    }
    turn_nodes(cluster, ready, n);
    flush_nodes(cluster);
}
