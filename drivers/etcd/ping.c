/* ping.c - ping, and what it adds about the cluster for `mortise doctor`: each finding is " | risk: …" or " | note: …" at the end of
 * the line (mortise/driver.h, MORTISE_OP_PING).
 *
 *   call     | an answer                   | refused
 *   ---------|-----------------------------|------------------------------------
 *   Txn      | the facts; then Status      | the ping fails
 *   Status   | the alarms; then MemberList | nothing is added; then MemberList
 *   Members  | findings; the ping ends     | nothing is added; the ping ends
 *
 * After a lost connection, the ping begins anew, as any query. etcd reports neither its clock nor its shortest lease. */
#include "../lib/ping.h"
#include "query.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A user may be permitted to use locks, but not to ask for this. Sets *told if there is an answer. */
static struct query *answer_if_any(struct driver *driver, struct call *call, bool *told)
{
    *told = call->end == CALL_DONE;
    if (call->end == CALL_REFUSED)
        call->end = CALL_DONE;
    return query_answer(driver, call);
}

static void add_members(const struct driver *driver, const mortise_op *op, size_t members)
{
    if (members == 1)
        ping_add(
            op,
            " | note: the cluster has one member: while it is down, locks can neither be acquired "
            "nor renewed, and if its disk is lost, so are they; run three");
    else if (members % 2 == 0 && members > 0)
        ping_add(
            op,
            " | note: the cluster has %zu voting members, and bears the failure of %zu of them, as "
            "with %zu; run an odd number",
            members, (members - 1) / 2, members - 1);
    if (members > 1 && driver->link.endpoints.count == 1)
        ping_add(op,
                 " | note: `endpoints` names one of %zu members: if that one fails, held locks are "
                 "lost, "
                 "unless it is the address of a balancer; name all members",
                 members);
}

static void members_told(struct driver *driver, struct call *call)
{
    bool told;
    struct query *query = answer_if_any(driver, call, &told);
    if (query == NULL)
        return;
    if (told)
        add_members(driver, query->op, call->answer.members);
    query_complete(driver, query, MORTISE_OK);
}

static void add_alarms(const mortise_op *op, const struct answer *answer)
{
    for (size_t i = 0; i < sizeof(answer->alarms) / sizeof(answer->alarms[0]); i++) {
        const struct bytes *alarm = &answer->alarms[i];
        if (alarm->size == 0)
            continue;
        char text[100];
        snprintf(text, sizeof(text), "%.*s", (int)(alarm->size < 99 ? alarm->size : 99),
                 (const char *)alarm->data);
        if (strstr(text, "CORRUPT") != NULL || strstr(text, "corrupt") != NULL)
            ping_add(op,
                     " | risk: the alarm CORRUPT is set: members differ in what they store, so two "
                     "holders are possible; replace the corrupt member, then disarm the alarm");
        else if (strstr(text, "NOSPACE") != NULL || strstr(text, "space") != NULL)
            ping_add(op, " | risk: the alarm NOSPACE is set: nothing is granted, and if the leader "
                         "changes, held locks are lost; compact and defragment the database, then "
                         "disarm the alarm, before you restart a member");
        else
            ping_add(
                op,
                " | risk: the alarm \"%s\" is set: locks may not be granted; look for it in the "
                "log of the members",
                text);
    }
}

static void status_told(struct driver *driver, struct call *call)
{
    bool told;
    struct query *query = answer_if_any(driver, call, &told);
    if (query == NULL)
        return;
    if (told)
        add_alarms(query->op, &call->answer);
    query_send(driver, query, query_call_to(driver, query, METHOD_MEMBERS, members_told));
}

static void pinged(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    if (query == NULL)
        return;
    snprintf(query->op->buffer, query->op->buffer_size,
             "etcd %s at %.100s, cluster %" PRIx64 ", member %" PRIx64 ", term %" PRIu64,
             driver->link.version, link_endpoint(&driver->link), call->answer.header.cluster,
             call->answer.header.member, call->answer.header.term);
    query_send(driver, query, query_call_to(driver, query, METHOD_STATUS, status_told));
}

/* The ping is a linearizable read: an answer shows that the member has a leader and a majority. */
void ping_begin(struct driver *driver, struct query *query)
{
    char text[PREFIX_MAX + 16];
    int length = snprintf(text, sizeof(text), "%s%%tokens", driver->prefix);
    struct call *call = query_call(driver, query, pinged);
    if (call != NULL)
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = bytes_of(text, (size_t)length), .keys_only = true});
    query_send(driver, query, call);
}
