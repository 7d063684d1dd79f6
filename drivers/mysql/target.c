/* target.c - where the servers are: the options as servers, and as what libmariadb needs. Knows no link. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "3306"

static const char *option_text(const struct driver *driver, enum option option)
{
    const char *text = driver->values[option].text;
    return text != NULL && *text != '\0' ? text : NULL;
}

bool target_is_socket(const struct driver *driver)
{
    return option_text(driver, OPTION_SOCKET) != NULL;
}

static mortise_status explain(const struct driver *driver, mortise_error *error, const char *what)
{
    return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false, "[%s] %s", driver->section,
                       what);
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
    struct host_entry *entry = &driver->remote.hosts.at[driver->remote.hosts.count];
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
    *entry = (struct host_entry){.look_up = true};
    memcpy(entry->name, name, name_len);
    memcpy(entry->port, port, port_len);
    driver->remote.hosts.count++;
    return true;
}

static mortise_status find_hosts(struct driver *driver, const char *text, mortise_error *error)
{
    while (*text != '\0') {
        text += strspn(text, " \t");
        size_t len = strcspn(text, ","), used = len;
        while (used > 0 && (text[used - 1] == ' ' || text[used - 1] == '\t'))
            used--;
        if (driver->remote.hosts.count == HOSTS_MAX)
            return explain(driver, error, "host: more than 16 servers");
        if (used == 0 || !add_host(driver, text, used))
            return explain(driver, error,
                           "host: host, host:port or [address]:port, with commas "
                           "between them, is expected");
        text += len + (text[len] == ',');
    }
    return MORTISE_OK;
}

/* Whoever is between client and server can read and change everything. */
static void warn_of_plain_text(const struct driver *driver)
{
    for (size_t i = 0; i < driver->remote.hosts.count && !target_is_socket(driver); i++) {
        if (driver->values[OPTION_TLS].given || host_is_local(driver->remote.hosts.at[i].name))
            continue;
        driver->remote.locks.host->log(
            driver->remote.locks.host, 4,
            "mysql: the connection to %.100s is not encrypted, and the server is not verified: say "
            "tls = yes (no ends this warning)",
            driver->remote.hosts.at[i].name);
        return;
    }
}

static mortise_status take_socket(struct driver *driver, const char *path, mortise_error *error)
{
    struct host_entry *entry = &driver->remote.hosts.at[driver->remote.hosts.count++];
    if (strlen(path) >= sizeof(entry->name))
        return explain(driver, error, "socket: the path is too long");
    memcpy(entry->name, path, strlen(path) + 1);
    return MORTISE_OK;
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
    mortise_status status =
        hosts != NULL ? find_hosts(driver, hosts, error) : take_socket(driver, socket, error);
    if (status == MORTISE_OK)
        warn_of_plain_text(driver);
    return status;
}

/* ---- connecting -------------------------------------------------------------------------------- */

void target_describe(const struct driver *driver, size_t i, struct conn_target *target)
{
    const struct address *address = &driver->remote.hosts.addresses[i];
    const char *password = option_text(driver, OPTION_PASSWORD),
               *user = option_text(driver, OPTION_USER),
               *database = driver->values[OPTION_DATABASE].text;
    bool is_socket = target_is_socket(driver);
    *target = (struct conn_target){.host = address->entry->name,
                                   .address = is_socket ? NULL : address->text,
                                   .socket = driver->values[OPTION_SOCKET].text,
                                   .port = (unsigned)strtoul(address->entry->port, NULL, 10),
                                   .user = user != NULL ? user : "",
                                   .password = password != NULL ? password : "",
                                   .database = *database == '/' ? database + 1 : database,
                                   .tls = driver->values[OPTION_TLS].number != 0,
                                   .tls_ca = option_text(driver, OPTION_TLS_CA),
                                   .tls_cert = option_text(driver, OPTION_TLS_CERT),
                                   .tls_key = option_text(driver, OPTION_TLS_KEY)};
}
