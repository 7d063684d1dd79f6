/* hosts.c - the servers and their addresses. The core looks them up, because client libraries would block. Knows no link.
 *
 * The look-up of a name is in one of three states. An attempt begins with hosts_resolve(), and uses what was found until
 * hosts_take().
 *
 *   event                   idle        asked        found
 *   an attempt begins       asked (1)   asked (2)    found; if that is old (LATE_NS), as idle
 *   the answer: addresses   -           found        -
 *   the answer: none        -           idle         -
 *   an attempt takes them   idle        asked (3)    idle
 *   an attempt is over
 *     before it takes any   idle        asked        found (4)
 *
 *   1: what was found earlier does not count any more. If there is no thread or memory for the look-up, it stays idle.
 *   2: one look-up of a name at a time: its answer serves this attempt, too.
 *   3: a name whose answer is slow counts as a silent host. link.c decides how long an attempt waits for it.
 *   4: the answer serves the next attempt, because each look-up may take longer than an attempt, for example if the first name
 *      server is dead. An old one does not, because the name may lead elsewhere by then. */
#include "remote.h"

#include "../../host_text.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LATE_NS (30000 * NS_PER_MS)

/* ---- the list ----------------------------------------------------------------------------------- */

static bool is_port(const char *text, size_t len)
{
    return len > 0 && len < 6 && strspn(text, "0123456789") >= len && strtol(text, NULL, 10) > 0 &&
           strtol(text, NULL, 10) < 65536;
}

/* "db1", "db1:3307", "[::1]:3307", or an IPv6 address alone. */
static bool read_host(struct host_entry *entry, const char *text, size_t len, const char *port)
{
    const char *name = text, *colon = memchr(text, ':', len);
    size_t name_len = len, port_len = strlen(port);
    if (*text == '[') {
        const char *end = memchr(text, ']', len);
        if (end == NULL)
            return false;
        name = text + 1;
        name_len = (size_t)(end - name);
        colon = end + 1 < text + len ? end + 1 : NULL;
    } else if (colon != NULL && memchr(colon + 1, ':', len - (size_t)(colon + 1 - text)) != NULL) {
        colon = NULL;
    } else if (colon != NULL) {
        name_len = (size_t)(colon - text);
    }
    if (colon != NULL) {
        port = colon + 1;
        port_len = (size_t)(text + len - port);
        if (*colon != ':')
            return false;
    }
    if (name_len == 0 || name_len >= HOST_SIZE || !is_port(port, port_len))
        return false;
    *entry = (struct host_entry){.look_up = true};
    memcpy(entry->name, name, name_len);
    memcpy(entry->port, port, port_len);
    return host_text_ok(entry->name);
}

const char *hosts_read(struct hosts *hosts, const char *list, const char *port)
{
    while (*list != '\0') {
        list += strspn(list, " \t");
        size_t len = strcspn(list, ","), used = len;
        while (used > 0 && (list[used - 1] == ' ' || list[used - 1] == '\t'))
            used--;
        if (hosts->count == HOSTS_MAX)
            return "host: more than 16 servers";
        if (used == 0 || !read_host(&hosts->at[hosts->count], list, used, port))
            return "host: host, host:port or [address]:port, with commas between them, is expected";
        hosts->count++;
        list += len + (list[len] == ',');
    }
    return NULL;
}

/* "127.example.com" is a name, and may be anywhere. */
static bool is_loopback(const char *name)
{
    return strncmp(name, "127.", 4) == 0 && name[strspn(name, "0123456789.")] == '\0';
}

bool host_is_local(const char *name)
{
    return strcmp(name, "localhost") == 0 || is_loopback(name) || strcmp(name, "::1") == 0;
}

/* ---- addresses ---------------------------------------------------------------------------------- */

/* Keeps the order of the hosts, although their addresses may be found in any order. */
static void add_address(struct hosts *hosts, const struct host_entry *entry, const char *text)
{
    struct addresses *found = &hosts->found;
    if (found->count == ADDRESSES_MAX)
        return;
    struct address *address = &found->at[found->count++];
    for (; address > found->at && address[-1].entry > entry; address--)
        *address = address[-1];
    address->entry = entry;
    snprintf(address->text, sizeof(address->text), "%s", text);
}

static void drop_addresses(struct addresses *found, const struct host_entry *entry)
{
    size_t count = found->count;
    found->count = 0;
    for (size_t i = 0; i < count; i++)
        if (found->at[i].entry != entry)
            found->at[found->count++] = found->at[i];
}

void hosts_found(struct remote *remote, void *argument, const struct addrinfo *found,
                 const char *problem)
{
    struct hosts *hosts = &remote->hosts;
    struct host_entry *entry = argument;
    char text[64];
    entry->asked = false;
    hosts->asked_count--;
    entry->found_ns = found != NULL ? remote_now(remote) : 0;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next)
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ==
            0)
            add_address(hosts, entry, text);
    if (found == NULL)
        snprintf(hosts->trouble, sizeof(hosts->trouble), "host \"%.60s\": %s", entry->name,
                 problem);
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
    snprintf(remote->hosts.trouble, sizeof(remote->hosts.trouble), "out of memory or threads");
}

void hosts_resolve(struct remote *remote, mortise_resolved resolved)
{
    struct hosts *hosts = &remote->hosts;
    int64_t now_ns = remote_now(remote);
    hosts->trouble[0] = '\0';
    for (struct host_entry *entry = hosts->at; entry < hosts->at + hosts->count; entry++) {
        if (entry->asked || (entry->found_ns != 0 && now_ns - entry->found_ns <= LATE_NS))
            continue;
        drop_addresses(&hosts->found, entry);
        if (entry->look_up)
            ask(remote, entry, resolved);
        else
            add_address(hosts, entry, entry->address);
    }
}

void hosts_take(struct hosts *hosts, struct addresses *addresses)
{
    *addresses = hosts->found;
    for (size_t i = 0; i < hosts->count; i++)
        hosts->at[i].found_ns = 0;
}
