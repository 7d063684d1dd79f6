/* node.c - the nodes: when the driver connects to them, whether a node can be asked now, and whether its vote counts. */
#include "redlock.h"

#define SLOW_PARTS 8 /* of node_timeout */
#define BEHIND_CALLS 1000
#define LOOK_NS                                                                                    \
    (INT64_C(10) * NS_PER_MS) /* how often connections in the making are checked if nobody polls */
#define LOOK_PARTS 8
#define LOOK_MOST_NS (INT64_C(125) * NS_PER_MS)

void sort_numbers(int64_t *numbers, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        int64_t number = numbers[i];
        unsigned at = i;
        for (; at > 0 && numbers[at - 1] > number; at--)
            numbers[at] = numbers[at - 1];
        numbers[at] = number;
    }
}

/* ---- the guard after a restart ----------------------------------------------------------------------------- */

static void guard_for(struct node *node, int64_t ms)
{
    int64_t until_ns = now_of(node->driver) + ms * NS_PER_MS;
    if (until_ns > node->guarded_until_ns)
        node->guarded_until_ns = until_ns;
}

/* The server rounds its age to seconds, and its clock may have been set. So if this client knew the former process,
 * it uses its own clock, too. A server that does not report its age counts as just started. */
static void look_at_age(struct node *node)
{
    const struct driver *driver = node->driver;
    const struct link *link = &node->link;
    int64_t age_ms = link->uptime_s > 0 ? (link->uptime_s - 1) * 1000 : 0;
    bool another = node->run_id[0] != '\0' && strcmp(node->run_id, link->run_id) != 0;
    if (link->run_id[0] == '\0' || (node->run_id[0] == '\0' && age_ms < driver->max_ttl_ms))
        guard_for(node, driver->max_ttl_ms - age_ms);
    else if (another) {
        int64_t known_ms = (now_of(driver) - node->alive_ns) / NS_PER_MS; /* it is no older */
        guard_for(node, driver->max_ttl_ms - (age_ms < known_ms ? age_ms : known_ms));
    }
    memcpy(node->run_id, link->run_id, sizeof(node->run_id));
}

bool node_counts(const struct node *node, int64_t now_ns)
{
    return node->driver->persistent || now_ns >= node->guarded_until_ns;
}

/* ---- up and down ---------------------------------------------------------------------------------------------- */

/* A server has only one vote, even if it is in the list by several names. */
static void look_for_twin(struct node *node)
{
    struct driver *driver = node->driver;
    bool was_twin = node->twin;
    node->twin = false;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *other = &driver->nodes[i];
        if (other == node || other->twin || !link_is_up(&other->link) ||
            node->link.run_id[0] == '\0' || strcmp(other->link.run_id, node->link.run_id) != 0)
            continue;
        node->twin = true;
        if (!was_twin)
            driver->host->log(driver->host, 3, "%s and %s are the same server, which has one vote",
                              other->settings.endpoint.text, node->settings.endpoint.text);
    }
}

/* A node may be a twin no longer: its name may lead to another server now, or to none. */
static void look_at_twins(struct driver *driver)
{
    for (unsigned i = 0; i < driver->count; i++)
        if (driver->nodes[i].twin)
            look_for_twin(&driver->nodes[i]);
}

static void up(struct link *link, void *owner)
{
    struct node *node = owner;
    (void)link;
    look_for_twin(node);
    look_at_twins(node->driver);
    memset(node->known, 0, sizeof(node->known));
    node->fresh = false;
    look_at_age(node);
    node->driver->node_events->up(node);
}

static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct node *node = owner;
    if (link->broke)
        node->alive_ns = link->progress_ns;
    else
        node->fresh = false;
    look_at_twins(node->driver);
    node->driver->node_events->down(node, fault);
}

void node_open(struct driver *driver, struct node *node)
{
    static const struct link_callbacks callbacks = {.up = up, .down = down};
    link_init(&node->link, driver->host, &node->settings, &callbacks, node);
}

void nodes_want(struct driver *driver)
{
    int64_t now = now_of(driver);
    driver->active_ns = now;
    for (unsigned i = 0; i < driver->count; i++) {
        struct node *node = &driver->nodes[i];
        if (node->link.wanted) {
            link_look(&node->link);
            continue;
        }
        node->fresh = true;
        driver->fresh_until_ns = now + driver->node_timeout_ns;
        link_want(&node->link);
    }
}

/* ---- what can be asked ------------------------------------------------------------------------------------------ */

/* Since when an answer has been outstanding without any input. */
static int64_t silent_since_ns(const struct node *node)
{
    const struct link *link = &node->link;
    if (link->first == NULL)
        return MORTISE_NEVER;
    int64_t sent_ns = link->first->sent_ns;
    return sent_ns > link->progress_ns ? sent_ns : link->progress_ns;
}

enum node_pace node_pace_at(const struct node *node, int64_t now_ns)
{
    int64_t since_ns = silent_since_ns(node), timeout_ns = node->driver->node_timeout_ns;
    if (since_ns == MORTISE_NEVER || now_ns - since_ns < timeout_ns / SLOW_PARTS)
        return PACE_PROMPT;
    return now_ns - since_ns < timeout_ns ? PACE_SLOW : PACE_LATE;
}

int64_t node_pace_due_ns(const struct node *node)
{
    int64_t since_ns = silent_since_ns(node), timeout_ns = node->driver->node_timeout_ns;
    if (since_ns == MORTISE_NEVER || node->pace == PACE_LATE)
        return MORTISE_NEVER;
    return since_ns + (node->pace == PACE_SLOW ? timeout_ns : timeout_ns / SLOW_PARTS);
}

/* Whether the node answers more slowly than it is asked, but is never silent. */
static bool is_behind(const struct node *node, int64_t now_ns)
{
    const struct link *link = &node->link;
    return link->outstanding > BEHIND_CALLS &&
           now_ns - link->first->sent_ns >= node->driver->node_timeout_ns;
}

bool node_is_usable(const struct node *node, int64_t now_ns)
{
    return link_is_up(&node->link) && !node->twin && node_pace_at(node, now_ns) != PACE_LATE;
}

bool node_takes_votes(const struct node *node, int64_t now_ns)
{
    return node_is_usable(node, now_ns) && !is_behind(node, now_ns);
}

unsigned nodes_usable(const struct driver *driver)
{
    int64_t now = now_of(driver);
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        n += node_is_usable(&driver->nodes[i], now);
    return n;
}

unsigned nodes_voting(const struct driver *driver)
{
    int64_t now = now_of(driver);
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        n += node_takes_votes(&driver->nodes[i], now) && node_counts(&driver->nodes[i], now);
    return n;
}

int64_t nodes_vote_in_ms(const struct driver *driver)
{
    int64_t now = now_of(driver), waits[NODES_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (node_is_usable(node, now))
            waits[n++] = node_counts(node, now) ? 0 : node->guarded_until_ns - now;
    }
    sort_numbers(waits, n);
    return n < driver->quorum ? 0 : (waits[driver->quorum - 1] + NS_PER_MS - 1) / NS_PER_MS;
}

bool nodes_are_ready(const struct driver *driver)
{
    bool fresh = false, coming = false;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        fresh |= node->fresh;
        coming |= !link_is_up(&node->link) && (node->fresh || node->link.broke);
    }
    if (!coming)
        return true;
    return nodes_usable(driver) >= driver->quorum &&
           (!fresh || now_of(driver) >= driver->fresh_until_ns);
}

const struct link_fault *nodes_refusal(const struct driver *driver, unsigned *refusing)
{
    const struct link_fault *refusal = NULL;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct link *link = &driver->nodes[i].link;
        if (link_is_up(link) || !fault_lasts(&link->last))
            continue;
        refusal = &link->last;
        *refusing |= 1u << i;
    }
    return refusal;
}

bool nodes_are_needed(const struct driver *driver, unsigned set)
{
    unsigned others = 0;
    for (unsigned i = 0; i < driver->count; i++)
        others += (set & 1u << i) == 0;
    return others < driver->quorum;
}

const char *nodes_problem(const struct driver *driver)
{
    int64_t now = now_of(driver);
    const char *problem = "";
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (!link_is_up(&node->link))
            return node->link.last.text;
        if (!node_is_usable(node, now))
            problem = "a node does not answer in time (node_timeout)";
        else if (!node_takes_votes(node, now))
            problem = "a node answers more slowly than it is asked; it is asked for no new votes "
                      "until it has caught up";
        else if (!node_counts(node, now))
            problem = "a node was started less than max_ttl ago, and may have forgotten grants; "
                      "its vote does not count yet (see node_persistent)";
    }
    return problem;
}

/* ---- the pump ------------------------------------------------------------------------------------------------------ */

static int64_t shorter(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* How long after a turn the connection is checked. One that is not made at once may lead to a host that is off, and such an
 * attempt takes its whole time, again and again. So the pause is a part of what the attempt has taken so far. The greeting is
 * short unless the server hangs, and may have several round trips, each of which would be noticed late. */
static int64_t look_ns(const struct link *link, int64_t now_ns)
{
    if (link->state != LINK_CONNECTING)
        return link->state == LINK_GREETING ? LOOK_NS : MORTISE_NEVER;
    int64_t began_ns = link->attempt_end_ns - link->settings->connect_timeout_ms * NS_PER_MS;
    int64_t pause_ns = (now_ns - began_ns) / LOOK_PARTS;
    return pause_ns < LOOK_NS ? LOOK_NS : shorter(pause_ns, LOOK_MOST_NS);
}

/* If no op is outstanding, nobody polls. So a timer checks connections in the making, and late nodes, which would
 * otherwise stay late after they have answered. */
size_t nodes_interest(const struct driver *driver, struct pollfd *fds, size_t capacity,
                      int64_t *due_ns)
{
    size_t n = 0;
    int64_t turned_ns = driver->turned_ns, pause_ns = MORTISE_NEVER;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        n += link_interest(&node->link, fds + n, capacity - n, due_ns);
        n += link_interest(&node->news, fds + n, capacity - n, due_ns);
        pause_ns = shorter(pause_ns, look_ns(&node->link, turned_ns));
        pause_ns = shorter(pause_ns, look_ns(&node->news, turned_ns));
        if (node->pace == PACE_LATE)
            pause_ns = shorter(pause_ns, LOOK_NS);
    }
    if (pause_ns != MORTISE_NEVER)
        *due_ns = shorter(*due_ns, turned_ns + pause_ns);
    return n;
}
