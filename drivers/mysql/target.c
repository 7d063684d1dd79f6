/* target.c - where the servers are: turns the options into servers, and into libmariadb's arguments. Knows no link. */
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

/* Without TLS, an attacker between client and server can read and change everything. */
static void warn_of_plain_text(const struct driver *driver)
{
    for (size_t i = 0; i < driver->remote.hosts.count && !target_is_socket(driver); i++) {
        if (driver->values[OPTION_TLS].given || host_is_local(driver->remote.hosts.at[i].name))
            continue;
        driver->remote.locks.host->log(
            driver->remote.locks.host, 4,
            "mysql: the connection to %.100s is not encrypted, and the server is not verified, so "
            "another server could answer, and learn the password: set tls = yes (no ends this "
            "warning)",
            driver->remote.hosts.at[i].name);
        return;
    }
}

/* Returns what is wrong with the path, or NULL. */
static const char *take_socket(struct hosts *hosts, const char *path)
{
    struct host_entry *entry = &hosts->at[hosts->count++];
    snprintf(entry->name, sizeof(entry->name), "%s", path);
    return strlen(path) < sizeof(entry->name) ? NULL : "socket: the path is too long";
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
        return explain(driver, error,
                       "database is missing: set the name of the database with the tables");
    if ((hosts != NULL) == (socket != NULL))
        return explain(driver, error, "say either host or socket");
    if (socket != NULL && tls)
        return explain(driver, error, "tls: not through a socket");
    if ((option_text(driver, OPTION_TLS_CERT) == NULL) !=
        (option_text(driver, OPTION_TLS_KEY) == NULL))
        return explain(driver, error, "tls_cert and tls_key need each other");
    if (tls && option_text(driver, OPTION_TLS_CA) == NULL && !conn_finds_certificates())
        return explain(driver, error,
                       "tls_ca is missing: without OpenSSL in libmariadb the driver does not find "
                       "the system's trusted certificates");
    struct hosts *to = &driver->remote.hosts;
    const char *wrong = socket != NULL ? take_socket(to, socket) : hosts_read(to, hosts, PORT);
    if (wrong != NULL)
        return explain(driver, error, wrong);
    warn_of_plain_text(driver);
    return MORTISE_OK;
}

/* ---- connecting -------------------------------------------------------------------------------- */

void target_describe(const struct driver *driver, const struct address *address,
                     struct conn_target *target)
{
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
