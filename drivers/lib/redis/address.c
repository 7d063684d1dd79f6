/* address.c - the addresses of a server: those of its endpoint, or what the host resolves its name to, outside of the pump. */
#include "link.h"

#include <netdb.h>
#include <string.h>

static void add_address(struct link *link, const void *address, size_t length)
{
    if (link->address_count == LINK_ADDRESSES || length > sizeof(link->addresses[0].address))
        return;
    memcpy(&link->addresses[link->address_count].address, address, length);
    link->addresses[link->address_count++].length = (socklen_t)length;
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
    if (link->state != LINK_RESOLVING)
        return; /* that attempt has ended */
    if (!is_for_attempt(look_up)) {
        link_look_up(link); /* there may have been no room for it */
        return;
    }
    if (addresses == NULL) {
        link_fault_set(&link->last, MORTISE_UNREACHABLE, true, 0, "%s: %s", link->endpoint.text,
                       problem);
        link->ends->failed(link);
        return;
    }
    for (; addresses != NULL; addresses = addresses->ai_next)
        add_address(link, addresses->ai_addr, addresses->ai_addrlen);
    link->ends->addressed(link);
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
        if (!look_up->under_way)
            free = look_up;
        else if (is_for_attempt(look_up))
            return NULL;
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
            add_address(link, &address, length);
    }
    if (link->address_count > 0)
        link->ends->addressed(link);
    else
        look_up_name(link);
}
