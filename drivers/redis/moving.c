/* moving.c - some slots have new owners: ops that wait at a node for such a slot go to its new owner. Requests that were
 * sent get their own answers. */
#include "cluster.h"

#include "seats.h"

/* The op leaves its seat, but may still have a place in the server's queue. */
void move_out(struct driver *node, mortise_op *op)
{
    bool placed = seat_is_placed(op);
    seat_leave(node, op);
    data_of(op)->placed = placed;
}

static bool is_elsewhere(const struct driver *node, const mortise_op *op)
{
    int owner = is_of_all(op) || data_of(op)->asking ? -1 : cluster_owner(node->cluster, op);
    return owner >= 0 && (!node->in_cluster || owner != node->server);
}

/* ASK led the op to this node, and now the slot has arrived. So the op uses the node as it uses any owner, without ASKING,
 * and leaves it when the slot does. */
static void settle(const struct driver *node, mortise_op *op)
{
    if (data_of(op)->asking && node->in_cluster && cluster_owner(node->cluster, op) == node->server)
        data_of(op)->asking = false;
}

static void move_list(struct driver *node, mortise_op **list)
{
    mortise_op *op, *next;
    DL_FOREACH_SAFE2(*list, op, next, next)
    {
        settle(node, op);
        if (is_elsewhere(node, op))
            cluster_route(node->cluster, op_take(list, op));
    }
}

void move_seats(struct driver *node, bool all)
{
    struct seat *seat, *next;
    HASH_ITER (hh, node->seated, seat, next) {
        mortise_op *op = seat->op;
        if (data_of(op)->state != OP_SEATED)
            continue;
        settle(node, op);
        if (!all && !is_elsewhere(node, op))
            continue;
        move_out(node, op);
        cluster_route(node->cluster, op);
    }
}

void move_tell(struct driver *node, const mortise_op *op)
{
    int owner = cluster_owner(node->cluster, op);
    struct driver *to = owner >= 0 ? node->cluster->node_of[owner] : NULL;
    if (to != NULL && to != node)
        pubsub_tell(to, op);
}

static void move_watches(struct driver *node)
{
    struct cluster *cluster = node->cluster;
    struct channel *channel = node->watched, *next;
    for (; channel != NULL; channel = next) {
        next = channel->hh.next;
        int owner = topology_owner(cluster->topology, key_slot(channel->name, channel->name_len));
        struct driver *to = owner >= 0 ? cluster_node(cluster, owner) : NULL;
        if (to == node)
            pubsub_stay(node, channel);
        if (to == NULL || to == node)
            continue;
        pubsub_watch(to, channel->name, channel->name_len);
        pubsub_leave(node, channel);
    }
}

static void move_node(struct driver *node)
{
    move_list(node, &node->waiting);
    move_list(node, &node->held_back);
    move_seats(node, false);
    move_watches(node);
}

/* All slots of the node are elsewhere now. That may be a failover, so every lease is renewed there at once. */
static void look_for_failover(struct driver *node)
{
    bool has_slots = node->cluster->topology->servers[node->server].slots > 0;
    if (node->had_slots && !has_slots)
        node->host->doubt(node->host, NULL, 0);
    node->had_slots = has_slots;
}

/* Ops that wait go to the nodes that have their slots now. */
void move_all(struct cluster *cluster)
{
    struct driver *node, *next;
    cluster->moved = false;
    LL_FOREACH2(cluster->nodes, node, next_node)
    {
        failover_compare(node);
        look_for_failover(node);
    }
    move_node(cluster->alone);
    LL_FOREACH_SAFE2(cluster->nodes, node, next, next_node)
    {
        move_node(node);
    }
}
