/* dead.c - the claim of another client whose process has ended (MORTISE_OP_DEAD): its nodes are deleted, long before its
 * session ends. They are found by the grant id in their names, also in the gate of a semaphore. The first look has no
 * barrier, because that is a write for which the next holder would have to wait. The second look, behind a barrier, finds
 * what the server of this connection did not know at the first one. Nodes of other grants are not touched. A create that is
 * still on its way to the servers is not seen, so the core repeats the release. */
#include "query.h"

#include <stdio.h>
#include <string.h>

static void look(struct driver *driver, struct query *query);

static void finish_if_done(struct driver *driver, struct query *query)
{
    if (query->pending > 0)
        return;
    if (query->surely) {
        query_complete(driver, query, query->deleted > 0 ? MORTISE_OK : MORTISE_LOST);
        return;
    }
    query->surely = true;
    look(driver, query);
}

static void deleted(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    query->deleted += request->rc == ZOK;
    finish_if_done(driver, query);
}

static bool is_of_grant(const char *node, const mortise_grant_id *grant)
{
    char owner[33], hex[33];
    for (size_t i = 0; i < sizeof(grant->bytes); i++)
        snprintf(hex + 2 * i, 3, "%02x", grant->bytes[i]);
    return node_owner(node, owner) && strcmp(owner, hex) == 0;
}

static void folder_of_op(const struct driver *driver, const mortise_op *op, enum part part,
                         char folder[PART_MAX])
{
    char name[FOLDER_MAX];
    folder_of_name(op->name, op->name_len, driver->root[0] == '\0', name);
    snprintf(folder, PART_MAX, "%s", name);
    folder_of_part(driver->style, part, folder);
}

static void searched(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    char folder[PART_MAX];
    if (query == NULL)
        return;
    folder_of_op(driver, query->op, (enum part)request->to.part, folder);
    for (size_t i = 0; request->rc == ZOK && i < request->children->count; i++) {
        const char *node = request->children->names[i];
        if (!is_of_grant(node, &query->op->grant))
            continue;
        query->written = true;
        if (!query_sent(driver, query,
                        send_delete(driver, folder, node, query_reply(query, deleted))))
            return;
    }
    finish_if_done(driver, query);
}

static bool search(struct driver *driver, struct query *query, enum part part)
{
    struct reply_to to = query_reply(query, searched);
    char folder[PART_MAX];
    folder_of_op(driver, query->op, part, folder);
    to.part = part;
    return query_sent(driver, query, send_list(driver, folder, to));
}

static void look(struct driver *driver, struct query *query)
{
    query->step++;
    if (query->surely && !send_barrier(driver))
        query_sent(driver, query, false);
    else if (search(driver, query, PART_LEASES) && style_has_gate(driver->style))
        search(driver, query, PART_GATE);
}

void dead_begin(struct driver *driver, struct query *query)
{
    query->deleted = 0;
    query->surely = false;
    look(driver, query);
}
