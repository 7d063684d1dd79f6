/* fault.c - turns the servers' errors, and their silence, into statuses and messages that name the server, the lock and
 * the operation. */
#include "driver.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NO_SPACE "database space exceeded"

static const char *verb_of(const mortise_op *op)
{
    static const char *const verbs[] = {
        [MORTISE_OP_ACQUIRE] = "acquire",    [MORTISE_OP_RENEW] = "renew",
        [MORTISE_OP_RELEASE] = "release",    [MORTISE_OP_INSPECT] = "inspect",
        [MORTISE_OP_LIST] = "list",          [MORTISE_OP_READ] = "read record",
        [MORTISE_OP_WRITE] = "write record", [MORTISE_OP_PING] = "ping"};
    return (op->flags & MORTISE_OP_BREAK) != 0 ? "break" : verbs[op->kind];
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

static const char *advice_of(const struct driver *driver, const char *text, int code)
{
    if (strstr(text, NO_SPACE) != NULL)
        return ": the no-space alarm is set; compact and defragment the database, then disarm the "
               "alarm";
    if (strstr(text, "user name is empty") != NULL)
        return ": the servers have authentication enabled; set user and password";
    if (strstr(text, "invalid user ID or password") != NULL)
        return ": check user and password";
    if (code == GRPC_PERMISSION_DENIED && driver->settings.user != NULL)
        return ": the user needs the right readwrite on the prefix";
    return "";
}

static void refuse(struct driver *driver, mortise_op *op, mortise_status status, int code,
                   bool may_help, const char *text)
{
    char name[QUOTED_SIZE];
    driver->host->fail(driver->host, op, status, code, may_help, "etcd %.200s: %s%s (%s%s)",
                       link_endpoint(&driver->link), text, advice_of(driver, text, code),
                       verb_of(op), quoted(driver, op, name));
}

void fault_refused(struct driver *driver, mortise_op *op, mortise_status status,
                   const struct call *call)
{
    bool passes = call->code == GRPC_RESOURCE_EXHAUSTED;
    refuse(driver, op, status, call->code, passes || status != MORTISE_BACKEND, call->text);
}

void fault_no_space(struct driver *driver, mortise_op *op)
{
    refuse(driver, op, MORTISE_BACKEND, GRPC_RESOURCE_EXHAUSTED, false,
           "etcdserver: mvcc: " NO_SPACE);
}

/* If a server refuses the next connection, that says nothing about a request that was sent before, which stays in doubt. */
void fault_unreachable(struct driver *driver, mortise_op *op, mortise_status status)
{
    char name[QUOTED_SIZE];
    const struct link *link = &driver->link;
    if (is_connected(driver)) { /* what was in the way before that is over */
        driver->host->fail(driver->host, op, status, 0, true,
                           "etcd %.200s: the servers have not confirmed it yet (%s%s)",
                           link_endpoint(link), verb_of(op), quoted(driver, op, name));
        return;
    }
    bool is_refused = link->refused && link->state != LINK_UP;
    bool is_final = is_refused && status == MORTISE_UNREACHABLE;
    driver->host->fail(driver->host, op, is_final ? MORTISE_BACKEND : status, 0, !is_final,
                       "etcd %.200s: %s%s%s%s (%s%s)", driver->values[OPTION_ENDPOINTS].text,
                       is_refused ? "refused" : "no connection",
                       link->trouble[0] != '\0' ? "; " : "", link->trouble,
                       advice_of(driver, link->trouble, 0), verb_of(op), quoted(driver, op, name));
}

void fault_leaving(struct driver *driver, mortise_op *op)
{
    char name[QUOTED_SIZE];
    if (!is_connected(driver)) {
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
        return;
    }
    driver->host->fail(driver->host, op, MORTISE_INDETERMINATE, 0, true,
                       "etcd %.200s: an earlier acquire under the same grant has not ended yet; "
                       "try again (%s%s)",
                       link_endpoint(&driver->link), verb_of(op), quoted(driver, op, name));
}

void fault_memory(struct driver *driver, mortise_op *op, mortise_status status)
{
    char name[QUOTED_SIZE];
    driver->host->fail(driver->host, op, status, 0, true, "etcd: out of memory (%s%s)", verb_of(op),
                       quoted(driver, op, name));
}

void fault_stored(struct driver *driver, mortise_op *op, const char *what)
{
    char name[QUOTED_SIZE];
    driver->host->fail(driver->host, op, MORTISE_BACKEND, 0, false, "etcd %.200s: %s (%s%s)",
                       link_endpoint(&driver->link), what, verb_of(op), quoted(driver, op, name));
}

void fault_permits(struct driver *driver, mortise_op *op, uint32_t permits,
                   const mortise_info *holder)
{
    char name[QUOTED_SIZE], who[MORTISE_NAME_MAX] = "another client";
    if (holder->host[0] != '\0')
        snprintf(who, sizeof(who), "%.200s (pid %" PRId64 ")", holder->host, holder->pid);
    driver->host->fail(driver->host, op, MORTISE_INVALID, 0, false,
                       "etcd: permits = %" PRIu32
                       " was asked for, but %s holds the name with permits = %" PRIu32
                       ": all callers of a name must give the same (%s%s)",
                       op->permits, who, permits, verb_of(op), quoted(driver, op, name));
}

mortise_status fault_error(mortise_error *error, mortise_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    *error = (mortise_error){.status = status, .driver = "etcd"};
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

bool fault_is_no_lease(const struct call *call)
{
    return call->end == CALL_REFUSED && call->code == GRPC_NOT_FOUND &&
           strstr(call->text, "lease not found") != NULL;
}

bool fault_is_doubtful(const struct call *call)
{
    return call->end == CALL_REFUSED && call->code == GRPC_RESOURCE_EXHAUSTED;
}

bool fault_is_no_space(const struct call *call)
{
    return fault_is_doubtful(call) && strstr(call->text, NO_SPACE) != NULL;
}

/* ---- patience ----------------------------------------------------------------------------------------------
 *
 * PATIENCE. An op is *away* while no server answers it. A connection alone is no answer: a member without a majority still
 * answers Status, and one whose disk hangs answers reads. So the time is counted for each op:
 *
 *   event                                                not away           away
 *   it begins, with a connection                         not away           -
 *   it begins, without one                               away from now on   -
 *   UP: Status is answered                               -                  -
 *   its claim is QUEUED, and a look shows that others
 *     block it                                           -                  not away
 *   its claim is QUEUED, and any other answer comes      -                  - c
 *   a call of its claim is answered, done or refused     -                  not away
 *   the session for which its claim is IDLE is joined    -                  not away
 *   any other call is answered: of another claim, a
 *     beat, a join behind a lost acquire                 -                  -
 *   the connection is lost                               away from now on   - a
 *   connect_timeout has passed, no connection            -                  it fails b
 *
 *   a: a call without an answer ends with the connection; at the second loss, no answer has come in between. b: if each
 *   endpoint was tried since. While there is a connection, no op fails: its call is answered within `timeout`, or this
 *   connection is lost, too. So servers that answer each call in time, however slowly, never make an op fail. c: a look is only
 *   a read. A claim that is the first goes on with a write, or needs a proof. These may be lost each time, and then the claim
 *   is QUEUED again, and looks.
 *
 * A claim that waits for its turn is not away, because a look was answered and told it to wait. After a loss it looks again,
 * and is away until the look is answered. A query is away from its first loss to its end, because a list that begins anew would
 * be answered in part each time. */

static void look_by(struct driver *driver, int64_t at_ns)
{
    if (at_ns < driver->away_due_ns)
        driver->away_due_ns = at_ns;
}

static int64_t until_ns(const struct driver *driver, const struct patience *patience)
{
    return patience->away_ns + driver->settings.connect_timeout_ms * NS_PER_MS;
}

void patience_lost(struct driver *driver, struct patience *patience)
{
    if (patience->away_ns != 0)
        return;
    *patience = (struct patience){.away_ns = now_of(driver), .tries = driver->link.tries};
    look_by(driver, until_ns(driver, patience));
}

void patience_begin(struct driver *driver, struct patience *patience)
{
    *patience = (struct patience){0};
    if (!is_connected(driver))
        patience_lost(driver, patience);
}

/* If it is not over, the driver checks again when it will be, and whenever another endpoint was given up. */
bool patience_is_over(struct driver *driver, const struct patience *patience)
{
    if (patience->away_ns == 0 || is_connected(driver))
        return false;
    if (now_of(driver) >= until_ns(driver, patience))
        return driver->link.tries - patience->tries >= driver->link.round;
    look_by(driver, until_ns(driver, patience));
    return false;
}
