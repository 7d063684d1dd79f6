/* fault.c - turns the library's codes into statuses and messages that name the server, the lock and the operation. */
#include "session.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool fault_is_loss(int rc)
{
    switch (rc) {
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZSESSIONEXPIRED:
    case ZSESSIONMOVED:
    case ZCLOSING:
    case ZINVALIDSTATE:
    case ZRUNTIMEINCONSISTENCY:
        return true;
    default:
        return false;
    }
}

static const char *verb_of(const mortise_op *op)
{
    static const char *const verbs[] = {
        [MORTISE_OP_ACQUIRE] = "acquire",    [MORTISE_OP_RENEW] = "renew",
        [MORTISE_OP_RELEASE] = "release",    [MORTISE_OP_INSPECT] = "inspect",
        [MORTISE_OP_LIST] = "list",          [MORTISE_OP_READ] = "read record",
        [MORTISE_OP_WRITE] = "write record", [MORTISE_OP_PING] = "ping"};
    return (op->flags & MORTISE_OP_BREAK) != 0 ? "break" : verbs[op->kind];
}

static const char *text_of(const struct driver *driver, int rc)
{
    if (rc == ZNOAUTH && driver->auth_scheme == NULL)
        return "not authorised (the nodes have an ACL; set auth)";
    if (rc == ZNOAUTH)
        return "not authorised: the nodes belong to another user, or the password is wrong";
    if (rc == ZAUTHFAILED)
        return "the servers refused the authentication";
    if (rc == ZUNIMPLEMENTED)
        return "the servers are too old: containers need ZooKeeper 3.5.1";
    return zerror(rc);
}

/* A space and the quoted name, or "" for a ping, which has no name. */
static const char *quoted(struct driver *driver, const mortise_op *op, char *buffer)
{
    buffer[0] = '\0';
    if (op->kind == MORTISE_OP_PING)
        return buffer;
    buffer[0] = ' ';
    driver->host->quote(op->name, op->name_len, buffer + 1, QUOTED_SIZE - 1);
    return buffer;
}

const char *fault_server(const struct driver *driver, char *buffer, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (driver->session != NULL &&
        zookeeper_get_connected_host(driver->session->zh, (struct sockaddr *)&address, &length) !=
            NULL &&
        getnameinfo((struct sockaddr *)&address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(buffer, size, "%s:%s", host, port);
    else
        snprintf(buffer, size, "%s", driver->values[OPTION_SERVERS].text);
    return buffer;
}

void fault_tell(struct driver *driver, mortise_op *op, mortise_status status, int rc)
{
    char name[QUOTED_SIZE], server[NI_MAXHOST];
    bool passing = fault_is_loss(rc) || rc == ZTHROTTLEDOP;
    if (status == MORTISE_BACKEND && rc == ZSYSTEMERROR)
        status = MORTISE_NOMEM;
    driver->host->fail(driver->host, op, status, rc, passing || status != MORTISE_BACKEND,
                       "ZooKeeper %.200s: %s (%s%s)", fault_server(driver, server, sizeof(server)),
                       text_of(driver, rc), verb_of(op), quoted(driver, op, name));
}

void fault_unreachable(struct driver *driver, mortise_op *op, mortise_status status)
{
    char name[QUOTED_SIZE], server[NI_MAXHOST];
    if (driver->refused != 0) {
        fault_tell(driver, op, status == MORTISE_UNREACHABLE ? MORTISE_BACKEND : status,
                   driver->refused);
        return;
    }
    if (is_connected(driver)) {
        driver->host->fail(driver->host, op, status, ZOPERATIONTIMEOUT, true,
                           "ZooKeeper %.200s: connected, and no answer; is the ensemble slow, or "
                           "without a leader? (%s%s)",
                           fault_server(driver, server, sizeof(server)), verb_of(op),
                           quoted(driver, op, name));
        return;
    }
    driver->host->fail(driver->host, op, status, ZCONNECTIONLOSS, true,
                       "ZooKeeper %.200s: no connection; %s (%s%s)",
                       driver->values[OPTION_SERVERS].text,
                       driver->trouble[0] != '\0' ? driver->trouble : "does ZooKeeper run there?",
                       verb_of(op), quoted(driver, op, name));
}

void fault_leaving(struct driver *driver, mortise_op *op)
{
    char name[QUOTED_SIZE], server[NI_MAXHOST];
    if (!is_connected(driver) || driver->refused != 0) {
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
        return;
    }
    driver->host->fail(driver->host, op, MORTISE_INDETERMINATE, 0, true,
                       "ZooKeeper %.200s: an earlier acquire under the same grant has not ended "
                       "yet; try again (%s%s)",
                       fault_server(driver, server, sizeof(server)), verb_of(op),
                       quoted(driver, op, name));
}

void fault_permits(struct driver *driver, mortise_op *op, uint32_t permits,
                   const mortise_info *holder)
{
    char name[QUOTED_SIZE], who[MORTISE_NAME_MAX] = "another client";
    if (holder->host[0] != '\0')
        snprintf(who, sizeof(who), "%.200s (pid %" PRId64 ")", holder->host, holder->pid);
    driver->host->fail(driver->host, op, MORTISE_INVALID, 0, false,
                       "ZooKeeper: permits = %" PRIu32
                       " was asked for, but %s holds the name with permits = %" PRIu32
                       ": all callers of a name must give the same (%s%s)",
                       op->permits, who, permits, verb_of(op), quoted(driver, op, name));
}

void fault_foreign(struct driver *driver, mortise_op *op, enum node_style style, const char *folder,
                   const char *node)
{
    char name[QUOTED_SIZE], shown[QUOTED_SIZE], where[QUOTED_SIZE], server[NI_MAXHOST];
    char path[ROOT_MAX + PART_MAX], why[320];
    const char *ours = node_style_name(driver->style);
    struct contender contender;
    bool counts = node_read(node, style, &contender);
    const char *theirs = counts ? node_style_name(contender.style) : "";
    if (contender.kin == KIN_MORTISE)
        snprintf(why, sizeof(why),
                 " of a client of Mortise with node_style = %s, and this client has node_style = "
                 "%s: set the same in all clients, or use another root",
                 theirs, ours);
    else if (contender.kin == KIN_STYLE)
        snprintf(why, sizeof(why),
                 ", whose client does not count the nodes of node_style = %s: set node_style = %s "
                 "in all clients of Mortise, or use another root",
                 ours, theirs);
    else
        snprintf(why, sizeof(why),
                 ", which looks like another kind of lock. Of a semaphore of Curator or kazoo: set "
                 "node_style = curator-semaphore or kazoo-semaphore. Else use another root, or, "
                 "if it is no lock and does not belong there, delete it (deleteall in zkCli.sh)");
    driver->host->quote(node, strlen(node), shown, sizeof(shown));
    snprintf(path, sizeof(path), "%s/%s", driver->root, folder);
    driver->host->quote(path, strlen(path), where, sizeof(where));
    driver->host->fail(driver->host, op, MORTISE_CONFIG, 0, false,
                       "ZooKeeper %.100s: the folder %s has a node %s%s (%s%s)",
                       fault_server(driver, server, sizeof(server)), where, shown, why, verb_of(op),
                       quoted(driver, op, name));
}

mortise_status fault_error(mortise_error *error, mortise_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    *error = (mortise_error){.status = status, .driver = "zookeeper"};
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}
