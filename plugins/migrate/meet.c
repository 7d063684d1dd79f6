/* meet.c - which clients of another phase are in the way of a refused client: their presences, by host and pid. They are only
 * for the error message and decide nothing. So they are listed only once in a while, however often a refused client asks for a
 * lock: a server may have to read all its keys for the answer. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define KNOWN_NS (5000 * NS_PER_MS)

static void emitted(mortise_op *op, const mortise_info *info)
{
    struct ask *ask = (struct ask *)op;
    struct migrate *migrate = ask->migrate;
    size_t prefix_len = migrate->sides[ask->side].prefix_len, used = strlen(migrate->meets);
    unsigned phase;
    if (strlen(info->name) < prefix_len ||
        !migrate_presence_decode(info->name + prefix_len, &phase, NULL))
        return;
    if (migrate->meets_count++ < 3)
        snprintf(migrate->meets + used, sizeof(migrate->meets) - used, "%s%s (pid %lld, phase %s)",
                 used > 0 ? ", " : "", info->host[0] != '\0' ? info->host : "an unnamed host",
                 (long long)info->pid, migrate_phase_word(phase));
}

static void answered(struct ask *ask)
{
    struct migrate *migrate = ask->migrate;
    size_t used = strlen(migrate->meets);
    if (migrate->meets_count > 3)
        snprintf(migrate->meets + used, sizeof(migrate->meets) - used, " and %zu more",
                 migrate->meets_count - 3);
    if (ask->op.status == MORTISE_OK) /* else the list may be incomplete */
        migrate->meets_until_ns = now_of(migrate) + KNOWN_NS;
    migrate->met(migrate);
}

bool meet_is_known(struct migrate *migrate)
{
    return now_of(migrate) < migrate->meets_until_ns;
}

bool meet_ask(struct migrate *migrate, enum migrate_side which, unsigned phase,
              void (*met)(struct migrate *migrate))
{
    static const size_t size = MORTISE_NAME_MAX + 1;
    struct side *side = &migrate->sides[which];
    char prefix[MIGRATE_NAME_SIZE];
    if (side->below == NULL || migrate->lister.out)
        return false;
    migrate->lister =
        (struct ask){.migrate = migrate, .side = which, .answered = answered, .of = migrate};
    migrate->met = met;
    migrate->meets[0] = '\0';
    migrate->meets_count = 0;
    migrate_presence_prefix(phase, prefix);
    snprintf(migrate->meets_name, size, "%s%s", side->prefix, prefix);
    ask_prepare(&migrate->lister, MORTISE_OP_LIST);
    migrate->lister.op.name = migrate->meets_name;
    migrate->lister.op.name_len = strlen(migrate->meets_name);
    migrate->lister.op.emitted = emitted;
    ask_send(&migrate->lister);
    return true;
}
