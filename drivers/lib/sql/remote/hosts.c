/* hosts.c - the servers, and their addresses, which the core looks up: client libraries would block. Knows no link. */
#include "remote.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Keeps the order of the hosts, in whatever order their addresses are found. */
static void add_address(struct hosts *hosts, const struct host_entry *entry, const char *text)
{
    if (hosts->address_count == ADDRESSES_MAX)
        return;
    struct address *address = &hosts->addresses[hosts->address_count++];
    for (; address > hosts->addresses && address[-1].entry > entry; address--)
        *address = address[-1];
    address->entry = entry;
    snprintf(address->text, sizeof(address->text), "%s", text);
}

bool hosts_found(struct remote *remote, void *argument, const struct addrinfo *found,
                 const char *problem)
{
    struct hosts *hosts = &remote->hosts;
    struct host_entry *entry = argument;
    char text[64];
    entry->asked = false;
    hosts->asked_count--;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next)
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ==
            0)
            add_address(hosts, entry, text);
    if (found == NULL)
        snprintf(hosts->trouble, sizeof(hosts->trouble), "host \"%.60s\": %s", entry->name,
                 problem);
    return hosts->asked_count == 0;
}

static void ask(struct remote *remote, struct host_entry *entry, mortise_resolved resolved)
{
    mortise_host *host = remote->locks.host;
    remote->hosts.asked_count++;
    entry->asked = true;
    if (host->resolve(host, entry->name, entry->port, resolved, entry))
        return;
    entry->asked = false;
    remote->hosts.asked_count--;
    snprintf(remote->hosts.trouble, sizeof(remote->hosts.trouble), "out of memory");
}

bool hosts_resolve(struct remote *remote, mortise_resolved resolved)
{
    struct hosts *hosts = &remote->hosts;
    if (hosts->asked_count > 0) /* for the other link */
        return false;
    hosts->address_count = 0;
    hosts->trouble[0] = '\0';
    for (size_t i = 0; i < hosts->count; i++)
        if (hosts->at[i].look_up)
            ask(remote, &hosts->at[i], resolved);
        else
            add_address(hosts, &hosts->at[i], hosts->at[i].address);
    return hosts->asked_count == 0;
}

bool host_is_local(const char *name)
{
    return strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 ||
           strcmp(name, "::1") == 0;
}
