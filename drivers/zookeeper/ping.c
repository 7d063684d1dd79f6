/* ping.c - ping, and what it adds about the ensemble for `mortise doctor`: each finding is " | risk: …" or " | note: …" at the end
 * of the line (mortise/driver.h, MORTISE_OP_PING).
 *
 *   request | an answer                                               | refused
 *   --------|---------------------------------------------------------|------------------------------
 *   sync    | the facts, session and clock; then the node of members  | the ping fails
 *   members | findings; the ping ends                                 | nothing is added; the ping ends
 *
 * After a lost connection, the ping begins anew, as any query. */
#include "../lib/ping.h"
#include "query.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* ---- the session ----------------------------------------------------------------------------------------- */

static void add_timeout(const struct driver *driver, const mortise_op *op)
{
    const int64_t asked_ms = driver->values[OPTION_SESSION_TIMEOUT].number;
    const int64_t granted_ms = driver->session->beats.proof.timeout_ns / NS_PER_MS;
    if (granted_ms < asked_ms)
        ping_add(
            op,
            " | risk: the servers grant a session of %" PRId64 " ms, not of %" PRId64
            ": a pause of that length loses all locks of a client; raise maxSessionTimeout on the "
            "servers, or set session_timeout to it",
            granted_ms, asked_ms);
    if (granted_ms > asked_ms)
        ping_add(
            op,
            " | note: the servers grant a session of %" PRId64 " ms, not of %" PRId64
            ": a crashed holder blocks others for so long; lower minSessionTimeout on the servers, "
            "or set session_timeout to it",
            granted_ms, asked_ms);
}

/* A second is exact enough for a reader who compares two logs. The servers' clock is known as soon as a beat of the
 * session was answered. */
static void add_clock(const struct driver *driver, const mortise_op *op)
{
    const struct session *session = driver->session;
    const int64_t since_ms = (now_of(driver) - session->servers_at_ns) / NS_PER_MS;
    const int64_t ahead_s = (session->servers_ms + since_ms) / 1000 - (int64_t)time(NULL);
    if (session->servers_ms != 0 && (ahead_s > 2 || ahead_s < -2))
        ping_add(
            op,
            " | note: the leader's clock is %" PRId64
            " s ahead of this host's: leases do not depend on it, but the times in logs differ; "
            "synchronise both (NTP)",
            ahead_s);
}

/* ---- the ensemble ------------------------------------------------------------------------------------------ */

/* "server.1=host:2888:3888:participant;0.0.0.0:2181" and so on. A standalone server has no such line. */
static unsigned count_voters(const char *text)
{
    unsigned voters = 0;
    while (text != NULL && *text != '\0') {
        const size_t length = strcspn(text, "\n");
        voters += strncmp(text, "server.", 7) == 0 && memmem(text, length, ":observer", 9) == NULL;
        text += length + (text[length] == '\n');
    }
    return voters > 0 ? voters : 1;
}

static void members_told(struct driver *driver, struct request *request)
{
    if (request->rc == ZNOAUTH)
        request->rc = ZNONODE;
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    const unsigned voters = request->rc == ZOK ? count_voters(request->text) : 0;
    if (voters == 1)
        ping_add(query->op,
                 " | note: the ensemble has one server: while it is down, locks can neither be "
                 "acquired nor renewed, and if its disk is lost, so are they; run three");
    else if (voters > 0 && voters % 2 == 0)
        ping_add(
            query->op,
            " | note: the ensemble has %u voting servers, and bears the failure of %u of them, as "
            "with %u; run an odd number",
            voters, (voters - 1) / 2, voters - 1);
    if (voters > 1 && driver->server_count == 1)
        ping_add(
            query->op,
            " | note: `servers` names one of %u servers: if that one fails, held locks are lost, "
            "unless the name has several addresses; name all servers",
            voters);
    query_complete(driver, query, MORTISE_OK);
}

/* ---- ping --------------------------------------------------------------------------------------------------- */

static void pinged(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    char server[256];
    if (query == NULL)
        return;
    snprintf(query->op->buffer, query->op->buffer_size,
             "ZooKeeper at %.100s, session 0x%llx, timeout %lld ms",
             fault_server(driver, server, sizeof(server)), (unsigned long long)driver->session->id,
             (long long)(driver->session->beats.proof.timeout_ns / NS_PER_MS));
    add_timeout(driver, query->op);
    add_clock(driver, query->op);
    query->step++;
    query_sent(driver, query, send_get_config(driver, query_reply(query, members_told)));
}

void ping_begin(struct driver *driver, struct query *query)
{
    query->step++;
    query_sent(driver, query, send_sync(driver, query_reply(query, pinged)));
}
