/* target.c - where the servers are. libpq combines the connection's settings from the string, the environment and the
 * service file. Then it would look up the hosts' names itself, and block. So this file asks libpq for the settings
 * that it would use, lets the core look the names up, and gives libpq addresses. Knows no link. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what libpq would use ------------------------------------------------------------------------ */

static const char *option_text(const struct driver *driver, enum option option)
{
    const char *text = driver->values[option].text;
    return text != NULL && *text != '\0' ? text : NULL;
}

/* If libpq is asked to connect with a value that it refuses, it merges all sources, and stops before it uses the network. */
static PGconn *probe(struct driver *driver)
{
    const char *const keys[] = {"dbname", "channel_binding", NULL};
    const char *const values[] = {driver->values[OPTION_CONNINFO].text, "mortise", NULL};
    return PQconnectStartParams(keys, values, 1);
}

static const char *merged(const PQconninfoOption *options, const char *key)
{
    for (; options->keyword != NULL; options++)
        if (strcmp(options->keyword, key) == 0)
            return options->val != NULL ? options->val : "";
    return "";
}

static size_t list_size(const char *list)
{
    size_t count = *list != '\0';
    for (; *list != '\0'; list++)
        count += *list == ',';
    return count;
}

static bool is_socket(const char *host)
{
    return *host == '\0' || *host == '/' || *host == '@';
}

/* Copies the n-th element of a list with commas; a list with a single element holds for all. False: the element is too long. */
static bool list_item(const char *list, size_t n, char *item, size_t size)
{
    bool single = strchr(list, ',') == NULL;
    for (; n > 0 && !single && list != NULL; n--) {
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    size_t len = list != NULL ? strcspn(list, ",") : 0;
    if (len >= size)
        return false;
    memcpy(item, list != NULL ? list : "", len);
    item[len] = '\0';
    return true;
}

static bool add_host(struct driver *driver, const char *hosts, const char *addresses,
                     const char *ports, size_t n)
{
    struct host_entry *entry = &driver->remote.hosts.at[driver->remote.hosts.count++];
    bool fits = list_item(hosts, n, entry->name, sizeof(entry->name)) &&
                list_item(addresses, n, entry->address, sizeof(entry->address)) &&
                list_item(ports, n, entry->port, sizeof(entry->port));
    if (*entry->port == '\0')
        snprintf(entry->port, sizeof(entry->port), "5432");
    entry->look_up = *entry->address == '\0' && !is_socket(entry->name);
    return fits;
}

static const char *const default_keys[DEFAULTS] = {"keepalives_idle",      "keepalives_interval",
                                                   "keepalives_count",     "tcp_user_timeout",
                                                   "target_session_attrs", "gssencmode"};

/* A setting in conninfo, environment or service file overrides our default. */
static void take_defaults(struct driver *driver, const PQconninfoOption *options)
{
    static const char *const libpqs[DEFAULTS] = {"", "", "", "", "any", "prefer"};
    for (size_t i = 0; i < DEFAULTS; i++)
        driver->defaults[i] = strcmp(merged(options, default_keys[i]), libpqs[i]) == 0;
}

/* With libpq's default, `prefer`, an attacker between client and server can read and change everything. */
static void warn_of_plain_text(const struct driver *driver, const PQconninfoOption *options)
{
    const char *mode = merged(options, "sslmode");
    bool protected = (strcmp(mode, "prefer") != 0 && strcmp(mode, "allow") != 0) ||
                     strcmp(merged(options, "gssencmode"), "require") == 0;
    for (size_t i = 0; i < driver->remote.hosts.count && !protected; i++) {
        const struct host_entry *entry = &driver->remote.hosts.at[i];
        const char *host = *entry->address != '\0' ? entry->address : entry->name;
        if (is_socket(host) || host_is_local(host))
            continue;
        driver->remote.locks.host->log(
            driver->remote.locks.host, 4,
            "postgres: with sslmode = %s the connection to %.100s may be unencrypted, and "
            "the server is not verified: set sslmode=verify-full in conninfo (disable ends "
            "this warning)",
            mode, host);
        return;
    }
}

static mortise_status take_hosts(struct driver *driver, const PQconninfoOption *options,
                                 mortise_error *error)
{
    const char *hosts = merged(options, "host"), *addresses = merged(options, "hostaddr"),
               *ports = merged(options, "port");
    size_t host_count = list_size(hosts), address_count = list_size(addresses);
    size_t count = address_count > 0 ? address_count : host_count > 0 ? host_count : 1;
    take_defaults(driver, options);
    if (count > HOSTS_MAX)
        return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false, "more than %d hosts",
                           HOSTS_MAX);
    if ((host_count > 1 && address_count > 0 && host_count != address_count) ||
        (list_size(ports) > 1 && list_size(ports) != count))
        return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                           "host, hostaddr and port must name as many servers each");
    if (ports[strspn(ports, "0123456789,")] != '\0')
        return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                           "a port is no number; is there a / in a URL's password? (%%2F)");
    for (size_t i = 0; i < count; i++)
        if (!add_host(driver, hosts, addresses, ports, i))
            return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                               "a host, hostaddr or port is too long");
    warn_of_plain_text(driver, options);
    return MORTISE_OK;
}

/* Checked here, because libpq quotes text that it cannot parse, and that may be a piece of a password (R10). */
static mortise_status check_text(const char *text, mortise_error *error)
{
    char *why = NULL, line[256];
    const char *rest = strncmp(text, "postgres", 8) == 0 ? strstr(text, "://") : NULL;
    rest = rest != NULL ? strchr(rest + 3, '/') : NULL;
    if (rest != NULL && memchr(rest, '@', strcspn(rest, "?")) != NULL)
        return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                           "conninfo: an @ behind a /; is there a / in the password? (%%2F)");
    if (strchr(text, '=') == NULL && strstr(text, "://") == NULL)
        return MORTISE_OK; /* the name of a database, or nothing */
    PQconninfoOption *options = PQconninfoParse(text, &why);
    fault_line(why != NULL ? why : "out of memory", line, sizeof(line));
    PQfreemem(why);
    if (options == NULL)
        return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                           "conninfo: %.*s… (the rest may hold a password, and is not shown)",
                           (int)strcspn(line, "\""), line);
    PQconninfoFree(options);
    return MORTISE_OK;
}

mortise_status target_find(struct driver *driver, mortise_error *error)
{
    char line[256];
    mortise_status status = check_text(driver->values[OPTION_CONNINFO].text, error);
    if (status != MORTISE_OK)
        return status;
    PGconn *conn = probe(driver);
    PQconninfoOption *options = conn != NULL ? PQconninfo(conn) : NULL;
    if (options == NULL)
        status = fault_error(error, DRIVER_NAME, MORTISE_NOMEM, 0, true, "out of memory");
    else if (strcmp(merged(options, "channel_binding"), "mortise") != 0) {
        fault_line(PQerrorMessage(conn), line, sizeof(line)); /* for example: no such service */
        status = fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false, "%s", line);
    } else
        status = take_hosts(driver, options, error);
    PQconninfoFree(options);
    PQfinish(conn);
    return status;
}

/* ---- connecting -------------------------------------------------------------------------------- */

/* Lists of the same length, made from the addresses that were found. */
struct lists {
    char hosts[ADDRESSES_MAX * 256], addresses[ADDRESSES_MAX * 64], ports[ADDRESSES_MAX * 8];
};

static bool append(char *list, size_t size, const char *item, bool first)
{
    size_t used = strlen(list);
    int n = snprintf(list + used, size - used, "%s%s", first ? "" : ",", item);
    return n >= 0 && (size_t)n < size - used;
}

static bool make_lists(const struct driver *driver, const struct addresses *addresses,
                       struct lists *lists)
{
    bool fits = true;
    lists->hosts[0] = lists->addresses[0] = lists->ports[0] = '\0';
    for (size_t i = 0; i < addresses->count; i++) {
        size_t at = (driver->first_address + i) % addresses->count;
        const struct address *address = &addresses->at[at];
        fits = append(lists->hosts, sizeof(lists->hosts), address->entry->name, i == 0) && fits;
        fits = append(lists->addresses, sizeof(lists->addresses), address->text, i == 0) && fits;
        fits = append(lists->ports, sizeof(lists->ports), address->entry->port, i == 0) && fits;
    }
    return fits;
}

/* libpq itself waits without end for a silent address. */
bool target_pass_by(struct driver *driver, const struct addresses *addresses, const PGconn *conn)
{
    const char *host = PQhost(conn), *text = PQhostaddr(conn), *port = PQport(conn);
    if (addresses->count < 2 || host == NULL || text == NULL || port == NULL)
        return false;
    for (size_t i = 0; i < addresses->count; i++) {
        const struct address *address = &addresses->at[i];
        if (strcmp(address->text, text) != 0 || strcmp(address->entry->port, port) != 0 ||
            strcmp(address->entry->name, host) != 0)
            continue;
        driver->first_address = (i + 1) % addresses->count;
        return true;
    }
    return false;
}

struct settings {
    const char *keys[DEFAULTS + 8], *values[DEFAULTS + 8];
    size_t count;
};

static void set(struct settings *settings, const char *key, const char *value)
{
    settings->keys[settings->count] = key;
    settings->values[settings->count++] = value;
}

/* The kernel must notice a silent network. Kerberos is off, because it would look up names, and block. Of several
 * hosts, the driver wants the one that accepts writes. */
static void set_defaults(struct settings *settings, const struct driver *driver, bool one,
                         const char *timeout_ms)
{
    const char *const ours[DEFAULTS] = {"10",     "3", "3", timeout_ms, one ? "any" : "primary",
                                        "disable"};
    for (size_t i = 0; i < DEFAULTS; i++)
        if (driver->defaults[i])
            set(settings, default_keys[i], ours[i]);
    set(settings, "fallback_application_name", "mortise");
}

/* Later settings override earlier ones. */
PGconn *target_connect(struct driver *driver, const struct addresses *addresses)
{
    struct settings settings = {.count = 0};
    struct lists *lists = malloc(sizeof(*lists));
    const char *password = option_text(driver, OPTION_PASSWORD);
    char timeout_ms[24];
    if (lists == NULL || !make_lists(driver, addresses, lists)) {
        free(lists);
        return NULL;
    }
    snprintf(timeout_ms, sizeof(timeout_ms), "%lld", (long long)driver->remote.command_ms);
    set_defaults(&settings, driver, addresses->count <= 1, timeout_ms);
    set(&settings, "dbname", driver->values[OPTION_CONNINFO].text);
    if (driver->defaults[DEFAULT_GSSENCMODE])
        set(&settings, "gssencmode", "disable"); /* the setting may be "prefer" */
    set(&settings, "host", lists->hosts);
    set(&settings, "hostaddr", lists->addresses);
    set(&settings, "port", lists->ports);
    if (password != NULL)
        set(&settings, "password", password);
    set(&settings, NULL, NULL);
    PGconn *conn = PQconnectStartParams(settings.keys, settings.values, 1);
    free(lists);
    return conn;
}
