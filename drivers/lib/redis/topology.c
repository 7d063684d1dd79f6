/* topology.c - the slot map of a Redis Cluster: looks, scouts, and what CLUSTER SLOTS says; see topology.h. */
#include "topology.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 1000
#define HEDGE_MS 150

static void scout_up(struct link *link, void *owner);
static void scout_down(struct link *link, void *owner, const struct link_fault *fault);
static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static const struct link_callbacks callbacks = {.up = scout_up, .down = scout_down};

static int64_t now_of(const struct topology *topology)
{
    return topology->host->now(topology->host);
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static void add_candidate(struct topology *topology, const struct endpoint *at, size_t room)
{
    for (size_t i = 0; i < topology->candidate_count; i++)
        if (strcmp(topology->candidates[i].text, at->text) == 0)
            return;
    if (topology->candidate_count < room)
        topology->candidates[topology->candidate_count++] = *at;
}

static void add_seeds(struct topology *topology)
{
    for (size_t i = 0; i < topology->seed_count; i++)
        add_candidate(topology, &topology->seeds[i], TOPOLOGY_CANDIDATES);
}

static const char *read_seeds(struct topology *topology, const char *list)
{
    size_t size = sizeof(topology->seeds) / sizeof(topology->seeds[0]);
    const char *problem;
    do {
        if (topology->seed_count == size)
            return "at most 16 are asked";
        if (!endpoint_next(&list, LINK_PORT, &topology->seeds[topology->seed_count], &problem))
            return problem;
        topology->seed_count++;
    } while (*list != '\0');
    return NULL;
}

struct topology *topology_open(mortise_host *host, const char *list,
                               const struct link_settings *like,
                               const struct topology_callbacks *told, void *owner,
                               const char **problem)
{
    struct topology *topology = calloc(1, sizeof(*topology));
    *problem = "out of memory";
    if (topology == NULL)
        return NULL;
    topology->host = host;
    topology->callbacks = told;
    topology->owner = owner;
    topology->due_ns = MORTISE_NEVER;
    topology->pause_ms = PAUSE_MIN_MS;
    topology->patience_ms = 2 * like->connect_timeout_ms;
    for (unsigned i = 0; i < KEY_SLOTS; i++)
        topology->slot[i] = TOPOLOGY_SERVERS;
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++) {
        struct map_scout *scout = &topology->scouts[i];
        scout->topology = topology;
        scout->settings = *like;
        scout->settings.primary = false; /* a replica may answer too */
        scout->settings.command_timeout_ms = like->connect_timeout_ms;
        link_init(&scout->link, host, &scout->settings, &callbacks, scout);
    }
    *problem = read_seeds(topology, list);
    if (*problem != NULL) {
        free(topology);
        return NULL;
    }
    add_seeds(topology);
    return topology;
}

void topology_close(struct topology *topology)
{
    if (topology == NULL)
        return;
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++)
        link_close(&topology->scouts[i].link);
    free(topology);
}

/* ---- the map ------------------------------------------------------------------------------------------ */

int topology_owner(const struct topology *topology, unsigned slot)
{
    unsigned server = topology->slot[slot];
    return server < TOPOLOGY_SERVERS ? (int)server : -1;
}

/* -1: all are in use. */
static int find_room(const struct topology *topology)
{
    if (topology->server_count < TOPOLOGY_SERVERS)
        return topology->server_count;
    for (int i = 0; i < TOPOLOGY_SERVERS; i++)
        if (topology->servers[i].slots == 0 && !topology->servers[i].kept &&
            topology->servers[i].named != topology->begun)
            return i;
    return -1;
}

int topology_index(struct topology *topology, const struct endpoint *at)
{
    int i = 0;
    while (i < topology->server_count && strcmp(topology->servers[i].at.text, at->text) != 0)
        i++;
    if (i == topology->server_count) {
        i = find_room(topology);
        if (i < 0)
            return -1;
        topology->servers[i] = (struct topology_server){.at = *at};
        topology->server_count += i == topology->server_count;
    }
    topology->servers[i].named = topology->begun;
    return i;
}

/* Only this function changes the owner of a slot. server TOPOLOGY_SERVERS: nobody owns it. */
static bool give(struct topology *topology, unsigned slot, unsigned server)
{
    unsigned before = topology->slot[slot];
    if (before == server)
        return false;
    if (before < TOPOLOGY_SERVERS)
        topology->servers[before].slots--;
    if (server < TOPOLOGY_SERVERS)
        topology->servers[server].slots++;
    topology->slot[slot] = (uint16_t)server;
    topology->changes++;
    return true;
}

void topology_moved(struct topology *topology, unsigned slot, int server)
{
    if (give(topology, slot, (unsigned)server))
        topology->callbacks->changed(topology->owner);
    topology_want(topology);
}

/* ---- CLUSTER SLOTS ------------------------------------------------------------------------------------ */

static void add_replicas(struct topology *topology, const redisReply *range,
                         const struct endpoint *from)
{
    struct endpoint at;
    for (size_t i = 3; i < range->elements; i++)
        if (topology_read_server(range->element[i], from, &at))
            add_candidate(topology, &at, TOPOLOGY_CANDIDATES - topology->seed_count);
}

/* True: at least one slot has a new owner. */
static bool take_map(struct topology *topology, const redisReply *reply,
                     const struct endpoint *from)
{
    bool changed = false;
    uint16_t owner[KEY_SLOTS];
    struct endpoint at;
    for (unsigned i = 0; i < KEY_SLOTS; i++)
        owner[i] = TOPOLOGY_SERVERS;
    topology->candidate_count = 0;
    topology->portless = false;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *range = reply->element[i];
        topology->portless |= topology_is_portless(range->element[2]);
        int server =
            topology_read_server(range->element[2], from, &at) ? topology_index(topology, &at) : -1;
        if (server < 0)
            continue;
        add_candidate(topology, &at, TOPOLOGY_CANDIDATES - topology->seed_count);
        for (int64_t slot = range->element[0]->integer; slot <= range->element[1]->integer; slot++)
            owner[slot] = (uint16_t)server;
    }
    for (size_t i = 0; i < reply->elements; i++)
        add_replicas(topology, reply->element[i], from);
    add_seeds(topology);
    for (unsigned i = 0; i < KEY_SLOTS; i++)
        changed |= give(topology, i, owner[i]);
    topology->known = true;
    return changed;
}

/* ---- a look --------------------------------------------------------------------------------------------- */

/* NULL: all are in use. */
static struct map_scout *find_scout(struct topology *topology)
{
    struct map_scout *found = NULL;
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++) {
        struct map_scout *scout = &topology->scouts[i];
        bool closed = scout->link.state == LINK_DOWN;
        if (!scout->asks && !closed) /* of an earlier look: topology_turn() closes it */
            topology->hedge_ns = now_of(topology);
        if (!scout->asks && closed && found == NULL)
            found = scout;
    }
    return found;
}

/* The next candidate that was not asked in this look; there must be one. If the resolver is slow, numeric addresses come
 * first. */
static size_t choose(const struct topology *topology)
{
    struct sockaddr_storage address;
    size_t first = TOPOLOGY_CANDIDATES;
    unsigned look_ups = 0;
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++)
        look_ups += link_count_look_ups(&topology->scouts[i].link);
    for (size_t i = 0; i < topology->candidate_count; i++) {
        size_t which = (topology->next + i) % topology->candidate_count;
        if (topology->was_asked[which])
            continue;
        if (look_ups < TOPOLOGY_SCOUTS - 1 ||
            endpoint_address(&topology->candidates[which], &address) > 0)
            return which;
        if (first == TOPOLOGY_CANDIDATES)
            first = which;
    }
    return first;
}

static void ask_next(struct topology *topology)
{
    topology->hedge_ns = MORTISE_NEVER;
    if (topology->asked >= topology->candidate_count)
        return;
    struct map_scout *scout = find_scout(topology);
    if (scout == NULL)
        return;
    link_rest(&scout->link); /* no backoff: it is another server */
    size_t which = choose(topology);
    topology->asked++;
    topology->was_asked[which] = true;
    scout->settings.endpoint = topology->candidates[which];
    scout->asks = true;
    topology->hedge_ns = now_of(topology) + HEDGE_MS * LINK_NS_PER_MS;
    link_want(&scout->link);
}

static bool anybody_asks(const struct topology *topology)
{
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++)
        if (topology->scouts[i].asks)
            return true;
    return false;
}

/* Only this function changes the state. */
static void set_state(struct topology *topology, enum topology_state state)
{
    int64_t now = now_of(topology);
    topology->state = state;
    topology->due_ns = state == TOPOLOGY_PAUSES  ? topology->rests_until_ns
                       : state == TOPOLOGY_LOOKS ? now + topology->patience_ms * LINK_NS_PER_MS
                                                 : MORTISE_NEVER;
    if (state != TOPOLOGY_LOOKS)
        return;
    topology->again = false;
    topology->begun++;
    topology->asked = 0;
    memset(topology->was_asked, 0, sizeof(topology->was_asked));
    link_fault_set(&topology->fault, MORTISE_UNREACHABLE, true, 0,
                   "no server of the cluster answered in time");
    ask_next(topology);
}

void topology_want(struct topology *topology)
{
    if (topology->state == TOPOLOGY_LOOKS)
        topology->again = true;
    if (topology->state != TOPOLOGY_RESTS)
        return;
    bool rested = now_of(topology) >= topology->rests_until_ns;
    set_state(topology, rested ? TOPOLOGY_LOOKS : TOPOLOGY_PAUSES);
}

uint64_t topology_read(struct topology *topology)
{
    uint64_t number = topology->begun + 1;
    topology->hurry_for = number;
    if (topology->state == TOPOLOGY_LOOKS)
        topology->again = true;
    else
        set_state(topology, TOPOLOGY_LOOKS);
    return number;
}

static void end_look(struct topology *topology, bool useful)
{
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++) {
        topology->scouts[i].asks = false;
        link_unwant(&topology->scouts[i].link);
    }
    int64_t longer = 2 * topology->pause_ms;
    topology->pause_ms = useful ? PAUSE_MIN_MS : longer < PAUSE_MAX_MS ? longer : PAUSE_MAX_MS;
    topology->rests_until_ns = now_of(topology);
    if (topology->hurry_for <= topology->begun)
        topology->rests_until_ns += topology->pause_ms * LINK_NS_PER_MS;
    topology->next++; /* another server begins next time */
    set_state(topology, topology->again ? TOPOLOGY_PAUSES : TOPOLOGY_RESTS);
}

static void fail_look(struct topology *topology)
{
    struct link_fault fault = topology->fault;
    topology->epoch = 0;
    topology->next += topology->asked > 0 ? topology->asked - 1 : 0; /* these were asked already */
    end_look(topology, false);
    topology->callbacks->looked(topology->owner, &fault);
}

static void scout_failed(struct map_scout *scout, const struct link_fault *fault)
{
    struct topology *topology = scout->topology;
    if (!scout->asks)
        return;
    scout->asks = false;
    link_unwant(&scout->link);
    topology->fault = *fault;
    if (topology->asked < topology->candidate_count)
        topology->hedge_ns = now_of(topology); /* topology_turn() asks it, or ends the look */
    else if (!anybody_asks(topology))
        topology->due_ns = now_of(topology);
}

/* ---- a scout -------------------------------------------------------------------------------------------- */

static struct map_scout *scout_of(struct link_call *call)
{
    return (struct map_scout *)(void *)((char *)call - offsetof(struct map_scout, call));
}

static void scout_up(struct link *link, void *owner)
{
    struct map_scout *scout = owner;
    scout->call.replied = replied;
    scout->call.lost = lost;
    scout->epoch = 0;
    link_call_begin(link, &scout->call);
    link_command(link, 2);
    link_text(link, "CLUSTER");
    link_text(link, "INFO");
    link_command(link, 2);
    link_text(link, "CLUSTER");
    link_text(link, "SLOTS");
    link_call_end(link, &scout->call, 2);
}

static void refuse_why(struct map_scout *scout, const char *why)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0, "%s: %s", scout->link.endpoint.text, why);
    scout_failed(scout, &fault);
}

static void refuse(struct map_scout *scout, const redisReply *reply)
{
    struct link_fault fault;
    if (reply->type != REDIS_REPLY_ERROR) {
        refuse_why(scout, "its cluster has no slots yet (CLUSTER SLOTS)");
        return;
    }
    link_fault_reply(&scout->link, reply, &fault);
    scout_failed(scout, &fault);
}

/* The user may not be permitted to ask. */
static void read_epoch(struct map_scout *scout, const redisReply *reply)
{
    char text[24] = "";
    if (reply->type == REDIS_REPLY_STRING)
        link_info(reply, "cluster_current_epoch:", text, sizeof(text));
    scout->epoch = text_digits(text, strlen(text));
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct map_scout *scout = scout_of(call);
    struct topology *topology = scout->topology;
    if (!scout->asks)
        return;
    if (index == 0) {
        read_epoch(scout, reply);
        return;
    }
    if (!topology_is_map(reply)) {
        refuse(scout, reply);
        return;
    }
    if (scout->epoch != 0 && scout->epoch < topology->epoch) {
        refuse_why(scout, "it is cut off from the other nodes of the cluster");
        return;
    }
    if (scout->epoch != 0)
        topology->epoch = scout->epoch;
    bool changed = take_map(topology, reply, &scout->link.endpoint);
    end_look(topology, changed);
    if (changed)
        topology->callbacks->changed(topology->owner);
    topology->callbacks->looked(topology->owner, NULL);
}

/* `down` follows. */
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    (void)call;
    (void)loss;
    (void)fault;
}

static void scout_down(struct link *link, void *owner, const struct link_fault *fault)
{
    link_unwant(link);
    scout_failed(owner, fault);
}

/* ---- the pump ------------------------------------------------------------------------------------------- */

size_t topology_interest(const struct topology *topology, struct pollfd *fds, size_t capacity,
                         int64_t *due_ns)
{
    size_t n = 0;
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++)
        if (topology->scouts[i].link.state != LINK_DOWN || topology->scouts[i].asks)
            n += link_interest(&topology->scouts[i].link, fds + n, capacity - n, due_ns);
    if (topology->due_ns < *due_ns)
        *due_ns = topology->due_ns;
    if (topology->state == TOPOLOGY_LOOKS && topology->hedge_ns < *due_ns)
        *due_ns = topology->hedge_ns;
    return n;
}

void topology_turn(struct topology *topology, const struct pollfd *ready, size_t n)
{
    for (size_t i = 0; i < TOPOLOGY_SCOUTS; i++) {
        struct map_scout *scout = &topology->scouts[i];
        if (scout->link.state == LINK_DOWN && !scout->asks)
            continue;
        link_turn(&scout->link, ready, n);
        link_flush(&scout->link);
        if (!scout->asks && scout->link.state != LINK_DOWN)
            link_rest(&scout->link);
    }
    if (topology->state == TOPOLOGY_RESTS)
        return;
    int64_t now = now_of(topology);
    if (topology->state == TOPOLOGY_PAUSES && now >= topology->due_ns)
        set_state(topology, TOPOLOGY_LOOKS);
    else if (topology->state == TOPOLOGY_LOOKS && now >= topology->due_ns)
        fail_look(topology);
    else if (topology->state == TOPOLOGY_LOOKS && now >= topology->hedge_ns)
        ask_next(topology);
}
