/* target.c - where the servers are: the option `host` or `socket`, and the addresses, which the host looks up. Knows no
 * link. */
#include "driver.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "3306"

static const char *option_text(const struct driver *driver, enum option option)
{
    const char *text = driver->values[option].text;
    return text != NULL && *text != '\0' ? text : NULL;
}

static mortise_status explain(const struct driver *driver, mortise_error *error, const char *what)
{
    return fault_error(error, MORTISE_CONFIG, 0, false, "[%s] %s", driver->section, what);
}

/* ---- hosts ------------------------------------------------------------------------------------- */

static bool is_port(const char *text, size_t len)
{
    return len > 0 && len < 6 && strspn(text, "0123456789") >= len && strtol(text, NULL, 10) > 0 &&
           strtol(text, NULL, 10) < 65536;
}

/* "db1", "db1:3307", "[::1]:3307", or an IPv6 address alone. */
static bool add_host(struct driver *driver, const char *text, size_t len)
{
    struct host_entry *entry = &driver->hosts[driver->host_count];
    const char *name = text, *port = PORT, *colon = memchr(text, ':', len);
    size_t name_len = len, port_len = strlen(PORT);
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
    *entry = (struct host_entry){.driver = driver};
    memcpy(entry->name, name, name_len);
    memcpy(entry->port, port, port_len);
    driver->host_count++;
    return true;
}

static mortise_status find_hosts(struct driver *driver, const char *text, mortise_error *error)
{
    while (*text != '\0') {
        text += strspn(text, " \t");
        size_t len = strcspn(text, ","), used = len;
        while (used > 0 && (text[used - 1] == ' ' || text[used - 1] == '\t'))
            used--;
        if (driver->host_count == HOSTS_MAX)
            return explain(driver, error, "host: more than 16 servers");
        if (used == 0 || !add_host(driver, text, used))
            return explain(driver, error,
                           "host: host, host:port or [address]:port, with commas "
                           "between them, is expected");
        text += len + (text[len] == ',');
    }
    return MORTISE_OK;
}

static bool is_local(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* Whoever is between client and server can read and change everything. */
static void warn_of_plain_text(const struct driver *driver)
{
    for (size_t i = 0; i < driver->host_count; i++) {
        if (driver->values[OPTION_TLS].given || is_local(driver->hosts[i].name))
            continue;
        driver->locks.host->log(
            driver->locks.host, 4,
            "mysql: the connection to %.100s is not encrypted, and the server is not verified: say "
            "tls = yes (no ends this warning)",
            driver->hosts[i].name);
        return;
    }
}

mortise_status target_find(struct driver *driver, mortise_error *error)
{
    const char *hosts = option_text(driver, OPTION_HOST),
               *socket = option_text(driver, OPTION_SOCKET),
               *database = option_text(driver, OPTION_DATABASE);
    bool tls = driver->values[OPTION_TLS].number != 0;
    if (database != NULL && *database == '/')
        database++;
    if (database == NULL || *database == '\0')
        return explain(driver, error, "database: the name of the database with the tables");
    if ((hosts != NULL) == (socket != NULL))
        return explain(driver, error, "say either host or socket");
    if (socket != NULL && tls)
        return explain(driver, error, "tls: not through a socket");
    if ((option_text(driver, OPTION_TLS_CERT) == NULL) !=
        (option_text(driver, OPTION_TLS_KEY) == NULL))
        return explain(driver, error, "tls_cert and tls_key need each other");
    mortise_status status = hosts != NULL ? find_hosts(driver, hosts, error) : MORTISE_OK;
    if (status == MORTISE_OK)
        warn_of_plain_text(driver);
    return status;
}

/* ---- addresses --------------------------------------------------------------------------------- */

/* Keeps the order of the hosts, in whatever order their addresses are found. */
static void add_address(struct driver *driver, const struct host_entry *entry, const char *text)
{
    if (driver->address_count == ADDRESSES_MAX)
        return;
    struct address *address = &driver->addresses[driver->address_count++];
    for (; address > driver->addresses && address[-1].entry > entry; address--)
        *address = address[-1];
    address->entry = entry;
    snprintf(address->text, sizeof(address->text), "%s", text);
}

static void resolved(void *ctx, void *argument, const struct addrinfo *found, const char *problem)
{
    struct driver *driver = ctx;
    struct host_entry *entry = argument;
    char text[64];
    entry->asked = false;
    driver->asked_count--;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next)
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ==
            0)
            add_address(driver, entry, text);
    if (found == NULL)
        snprintf(driver->resolve_trouble, sizeof(driver->resolve_trouble), "host \"%.60s\": %s",
                 entry->name, problem);
    if (driver->asked_count == 0)
        driver->resolved(driver);
}

static void ask(struct driver *driver, struct host_entry *entry)
{
    driver->asked_count++;
    entry->asked = true;
    if (driver->locks.host->resolve(driver->locks.host, entry->name, entry->port, resolved, entry))
        return;
    entry->asked = false;
    driver->asked_count--;
    snprintf(driver->resolve_trouble, sizeof(driver->resolve_trouble), "out of memory");
}

bool target_resolve(struct driver *driver)
{
    if (driver->asked_count > 0) /* for the other link */
        return false;
    driver->address_count = 0;
    driver->resolve_trouble[0] = '\0';
    if (driver->host_count == 0)
        add_address(driver, &driver->hosts[0], "");
    for (size_t i = 0; i < driver->host_count; i++)
        ask(driver, &driver->hosts[i]);
    return driver->asked_count == 0;
}

/* ---- connecting -------------------------------------------------------------------------------- */

void target_describe(const struct driver *driver, size_t i, struct conn_target *target)
{
    const struct address *address = &driver->addresses[i];
    const char *password = option_text(driver, OPTION_PASSWORD),
               *user = option_text(driver, OPTION_USER),
               *database = driver->values[OPTION_DATABASE].text;
    bool is_socket = driver->host_count == 0;
    int tls_ms = (int)driver->values[OPTION_CONNECT_TIMEOUT].number / 3;
    *target = (struct conn_target){.host = address->entry->name,
                                   .address = is_socket ? NULL : address->text,
                                   .socket = driver->values[OPTION_SOCKET].text,
                                   .port = (unsigned)strtoul(address->entry->port, NULL, 10),
                                   .user = user != NULL ? user : "",
                                   .password = password != NULL ? password : "",
                                   .database = *database == '/' ? database + 1 : database,
                                   .tls = driver->values[OPTION_TLS].number != 0,
                                   .tls_ms = tls_ms,
                                   .tls_ca = option_text(driver, OPTION_TLS_CA),
                                   .tls_cert = option_text(driver, OPTION_TLS_CERT),
                                   .tls_key = option_text(driver, OPTION_TLS_KEY)};
}
