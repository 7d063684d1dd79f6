/* address.c - the addresses of a server: those of its endpoint, or what the host resolves its name to, outside of the pump. */
#include "link.h"

#include <netdb.h>
#include <string.h>

#define LATE_NS (30000 * LINK_NS_PER_MS) /* for so long a late answer counts */

static size_t add_address(struct link_address *addresses, size_t count, const void *address,
                          size_t length)
{
    if (count == LINK_ADDRESSES || length > sizeof(addresses[0].address))
        return count;
    memcpy(&addresses[count].address, address, length);
    addresses[count].length = (socklen_t)length;
    return count + 1;
}

/* ---- by name ------------------------------------------------------------------------------------------ */

static bool is_for_attempt(const struct link_look_up *look_up)
{
    return strcmp(look_up->text, look_up->link->endpoint.text) == 0;
}

static void resolved(void *ctx, void *argument, const struct addrinfo *addresses,
                     const char *problem)
{
    struct link_look_up *look_up = argument;
    struct link *link = look_up->link;
    (void)ctx;
    look_up->under_way = false;
    look_up->found_ns = link->host->now(link->host);
    for (const struct addrinfo *at = addresses; at != NULL; at = at->ai_next)
        look_up->count =
            add_address(look_up->addresses, look_up->count, at->ai_addr, at->ai_addrlen);
    if (link->state != LINK_RESOLVING)
        return; /* that attempt has ended */
    if (is_for_attempt(look_up) && look_up->count == 0) {
        link_fault_set(&link->last, MORTISE_UNREACHABLE, true, 0, "%s: %s", link->endpoint.text,
                       problem != NULL ? problem : "no address");
        link->ends->failed(link);
        return;
    }
    link_look_up(link); /* if it is for another name, there may have been no room for this one's */
}

/* A late answer serves the next attempt with the same name, once: each look-up may take longer than an attempt. Soon the name may
 * lead elsewhere. */
static void take_found(struct link *link)
{
    int64_t since_ns = link->host->now(link->host) - LATE_NS;
    for (size_t i = 0; i < LINK_LOOK_UPS; i++) {
        struct link_look_up *look_up = &link->look_ups[i];
        if (look_up->count == 0 || !is_for_attempt(look_up))
            continue;
        if (look_up->found_ns >= since_ns) {
            memcpy(link->addresses, look_up->addresses, sizeof(link->addresses));
            link->address_count = look_up->count;
        }
        look_up->count = 0;
    }
}

unsigned link_count_look_ups(const struct link *link)
{
    unsigned count = 0;
    for (size_t i = 0; i < LINK_LOOK_UPS; i++)
        count += link->look_ups[i].under_way;
    return count;
}

/* NULL: the look-up of this name is under way, and its answer serves this attempt; or there is no room for another look-up. */
static struct link_look_up *new_look_up(struct link *link)
{
    struct link_look_up *free = NULL;
    for (size_t i = 0; i < LINK_LOOK_UPS; i++) {
        struct link_look_up *look_up = &link->look_ups[i];
        if (look_up->under_way && is_for_attempt(look_up))
            return NULL;
        if (!look_up->under_way && (free == NULL || free->count > 0 || look_up->count == 0))
            free = look_up; /* rather one that has found nothing for a later attempt */
    }
    return free;
}

static void look_up_name(struct link *link)
{
    const struct endpoint *endpoint = &link->endpoint;
    struct link_look_up *look_up = new_look_up(link);
    if (look_up == NULL)
        return;
    look_up->link = link;
    look_up->under_way = true;
    look_up->count = 0;
    memcpy(look_up->text, endpoint->text, sizeof(look_up->text));
    if (link->host->resolve(link->host, endpoint->host, endpoint->port, resolved, look_up))
        return;
    look_up->under_way = false;
    link_fault_set(&link->last, MORTISE_NOMEM, true, 0, "%s: out of memory or threads",
                   endpoint->text);
    link->ends->failed(link);
}

/* ---- at once ------------------------------------------------------------------------------------------ */

/* A name may have several addresses, and each may belong to another server. */
static bool is_beside(const struct link *link)
{
    return link->beside != NULL && link_is_up(link->beside) &&
           strcmp(link->beside->endpoint.text, link->endpoint.text) == 0;
}

void link_look_up(struct link *link)
{
    struct sockaddr_storage address;
    socklen_t length = 0;
    if (is_beside(link)) {
        link->addresses[0] = link->beside->addresses[link->beside->address_at];
        link->address_count = 1;
    } else {
        length = endpoint_address(&link->endpoint, &address);
        if (length > 0)
            link->address_count = add_address(link->addresses, 0, &address, length);
        else
            take_found(link);
    }
    if (link->address_count > 0)
        link->ends->addressed(link);
    else
        look_up_name(link);
}
