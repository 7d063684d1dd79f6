/* module.c - the migrate plugin as a module: its options, the opening of the sides, and the core's calls. Each call ends
 * with sending the requests that it has collected. protocol.h says what the plugin does, internal.h which file does what. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_FROM] = {.key = "from",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_REQUIRED,
                     .help = "the section of the driver that the fleet leaves"},
    [OPTION_TO] = {.key = "to",
                   .type = MORTISE_OPTION_TEXT,
                   .flags = MORTISE_OPTION_REQUIRED,
                   .help = "the section of the driver that the fleet moves to"},
    [OPTION_PHASE] = {.key = "phase",
                      .type = MORTISE_OPTION_CHOICE,
                      .flags = MORTISE_OPTION_REQUIRED,
                      .choices = "old|both|new",
                      .help = "old: locks are on `from`; both: on `from` and `to`; new: on `to`"},
    [OPTION_PRESENCE] = {.key = "presence",
                         .type = MORTISE_OPTION_DURATION,
                         .default_text = "30s",
                         .minimum = 1000,
                         .maximum = 600000,
                         .help = "how long a client that died, or is cut off, delays a step; no lease "
                                 "lasts longer than this after the server's last answer"},
};

/* ---- opening ------------------------------------------------------------------------------------- */

static mortise_status wrong(mortise_error *error, const char *section, const char *what)
{
    snprintf(error->message, sizeof(error->message), "[%s] %s", section, what);
    return error->status = MORTISE_CONFIG;
}

static bool is_leg(const struct migrate *migrate, enum migrate_side side)
{
    return migrate_uses(migrate->phase, side);
}

/* Opens a side. The side that the phase does not use is opened only to read from it, and need not open. */
static mortise_status open_side(struct migrate *migrate, enum migrate_side which,
                                const mortise_open_args *args, mortise_error *error)
{
    struct side *side = &migrate->sides[which];
    mortise_error why = {.retryable = false};
    side->outbox_end = &side->outbox;
    side->used = is_leg(migrate, which);
    side->section = migrate->values[which == MIGRATE_FROM ? OPTION_FROM : OPTION_TO].text;
    mortise_status status = migrate->host->open_below(migrate->host, side->section, &side->below,
                                                      side->used ? error : &why);
    if (status != MORTISE_OK && side->used)
        return status;
    if (status != MORTISE_OK) {
        side->below = NULL;
        snprintf(side->why, sizeof(side->why), "%s", why.message);
        migrate->host->log(migrate->host, 6, "`%s` is not used: %s", migrate_side_word(which),
                           why.message);
    }
    side->prefix = args->name_space != NULL ? args->name_space
                   : side->below != NULL    ? side->below->default_namespace
                                            : NULL;
    if (side->prefix == NULL)
        side->prefix = "";
    side->prefix_len = strlen(side->prefix);
    if (side->prefix_len > MORTISE_NAME_MAX - MIGRATE_NAME_SIZE)
        return wrong(error, args->section, "the namespace is too long for the names of presences");
    return MORTISE_OK;
}

static mortise_status open_sides(struct migrate *migrate, const mortise_open_args *args,
                                 mortise_error *error)
{
    if (strcmp(migrate->values[OPTION_FROM].text, migrate->values[OPTION_TO].text) == 0)
        return wrong(error, args->section, "`from` and `to` are the same section");
    for (unsigned side = 0; side < SIDES; side++) {
        mortise_status status = open_side(migrate, side, args, error);
        if (status != MORTISE_OK)
            return status;
        if (is_leg(migrate, side))
            migrate->legs[migrate->leg_count++] = side;
    }
    acquire_init(migrate, args->client_id);
    return MORTISE_OK;
}

static mortise_status migrate_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    static const unsigned phases[] = {MIGRATE_OLD, MIGRATE_BOTH, MIGRATE_NEW};
    struct migrate *migrate = calloc(1, sizeof(*migrate));
    if (migrate == NULL)
        return error->status = MORTISE_NOMEM;
    migrate->host = args->host;
    migrate->values = args->values;
    migrate->phase = phases[args->values[OPTION_PHASE].number];
    migrate->presence_ms = args->values[OPTION_PRESENCE].number;
    migrate->due_ns = migrate->wait_ns = MORTISE_NEVER;
    migrate->note_len = strlen(args->note);
    migrate->note = strdup(args->note);
    mortise_status status = migrate->note == NULL ? MORTISE_NOMEM : MORTISE_OK;
    if (status == MORTISE_OK)
        status = open_sides(migrate, args, error);
    if (status == MORTISE_OK) {
        *ctx = migrate;
        return MORTISE_OK;
    }
    free(migrate->note);
    free(migrate);
    return error->status = status;
}

/* Cancels the requests that are out, because their answers must not reach freed memory. */
static void migrate_close(void *ctx)
{
    struct migrate *migrate = ctx;
    asks_drop(migrate);
    claims_end(migrate);
    for (size_t i = 0; i < SIDES; i++) {
        ask_cancel(&migrate->sides[i].presence.ask);
        ask_cancel(&migrate->sides[i].reader);
    }
    ask_cancel(&migrate->lister);
    free(migrate->note);
    free(migrate);
}

/* ---- the core's calls ---------------------------------------------------------------------------- */

static void end(struct migrate *migrate)
{
    if (--migrate->depth == 0)
        asks_flush(migrate);
}

static void migrate_start(void *ctx, mortise_op **ops, size_t n)
{
    struct migrate *migrate = ctx;
    migrate->depth++;
    dispatch_start(migrate, ops, n);
    end(migrate);
}

static void migrate_cancel(void *ctx, mortise_op *op)
{
    struct migrate *migrate = ctx;
    migrate->depth++;
    dispatch_cancel(migrate, op);
    end(migrate);
}

static size_t interest_of(struct side *side, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    if (side->below == NULL)
        return 0;
    int64_t side_ns = MORTISE_NEVER;
    capacity = capacity < SIDE_FDS ? capacity : SIDE_FDS;
    side->fd_count = side->below->module->interest(side->below->ctx, fds, capacity, &side_ns);
    for (size_t i = 0; i < side->fd_count; i++)
        side->fds[i] = fds[i].fd;
    *due_ns = side_ns < *due_ns ? side_ns : *due_ns;
    return side->fd_count;
}

/* Remembers the descriptors of each side, so that `turn` knows to which side a descriptor belongs. Nothing else changes. */
static size_t migrate_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    struct migrate *migrate = ctx;
    size_t n = interest_of(&migrate->sides[MIGRATE_FROM], fds, capacity, due_ns);
    n += interest_of(&migrate->sides[MIGRATE_TO], fds + n, capacity - n, due_ns);
    if (migrate->due_ns < *due_ns)
        *due_ns = migrate->due_ns;
    if (migrate->sides[MIGRATE_FROM].outbox != NULL || migrate->sides[MIGRATE_TO].outbox != NULL)
        *due_ns = INT64_MIN; /* the posting of the flush has failed */
    return n;
}

static void turn_side(struct side *side, const struct pollfd *ready, size_t n)
{
    struct pollfd own[SIDE_FDS];
    size_t count = 0;
    if (side->below == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < side->fd_count && count < SIDE_FDS; j++)
            if (side->fds[j] == ready[i].fd) {
                own[count++] = ready[i];
                break;
            }
    side->below->module->turn(side->below->ctx, own, count);
}

static void migrate_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct migrate *migrate = ctx;
    int64_t now_ns = now_of(migrate);
    migrate->depth++;
    turn_side(&migrate->sides[MIGRATE_FROM], ready, n);
    turn_side(&migrate->sides[MIGRATE_TO], ready, n);
    if (now_ns >= migrate->due_ns) {
        migrate->due_ns = MORTISE_NEVER;
        presence_turn(migrate, now_ns, register_wants_presences(migrate));
        register_turn(migrate, now_ns);
        wait_turn(migrate, now_ns);
        claims_turn(migrate, now_ns);
    }
    end(migrate);
}

/* ---- who watches --------------------------------------------------------------------------------- */

static void migrate_watch(void *ctx, const char *name, size_t name_len)
{
    struct migrate *migrate = ctx;
    mortise_below *below = migrate->sides[migrate->legs[0]].below;
    if (below->module->watch != NULL)
        below->module->watch(below->ctx, name, name_len);
}

static void migrate_unwatch(void *ctx, const char *name, size_t name_len)
{
    struct migrate *migrate = ctx;
    mortise_below *below = migrate->sides[migrate->legs[0]].below;
    if (below->module->unwatch != NULL)
        below->module->unwatch(below->ctx, name, name_len);
}

/* It is unknown from which side the news comes, so both the core and wait.c look the name up. This is called inside a call
 * of a module below, so nothing may be sent to it from here. */
static void migrate_news(void *ctx, const char *name, size_t name_len)
{
    struct migrate *migrate = ctx;
    if (migrate->leg_count == 2)
        wait_news(migrate, name, name_len);
    migrate->host->news(migrate->host, name, name_len);
}

static void migrate_waiting(void *ctx, mortise_op *op)
{
    dispatch_waiting(ctx, op);
}

static void migrate_leave(void *ctx, mortise_op *op)
{
    struct migrate *migrate = ctx;
    migrate->depth++;
    register_leave(migrate, op);
    end(migrate);
}

/* ---- what it is ---------------------------------------------------------------------------------- */

static uint32_t migrate_capabilities(void *ctx)
{
    const struct migrate *migrate = ctx;
    uint32_t all = UINT32_MAX, any = 0;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        uint32_t side = migrate->sides[migrate->legs[i]].below->capabilities;
        all &= side;
        any |= side;
    }
    if (migrate->leg_count == 2)
        all &= ~(uint32_t)MORTISE_CAP_FAIR; /* a caller that begins again has lost its place */
    return all | (any & MORTISE_CAP_SESSION);
}

static const char *migrate_namespace(void *ctx)
{
    const struct migrate *migrate = ctx;
    return migrate->sides[migrate->legs[0]].below->default_namespace;
}

#define ALL_CAPABILITIES                                                                           \
    (MORTISE_CAP_LEASE | MORTISE_CAP_SESSION | MORTISE_CAP_FENCING | MORTISE_CAP_FAIR |            \
     MORTISE_CAP_NOTIFY | MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_REENTRANT |         \
     MORTISE_CAP_QUORUM | MORTISE_CAP_DURABLE)

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_PLUGIN,
    .capabilities = ALL_CAPABILITIES,
    .name = "migrate",
    .version = MORTISE_VERSION_TEXT,
    .summary = "moves a running fleet from one driver to another",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = migrate_open,
    .start = migrate_start,
    .cancel = migrate_cancel,
    .interest = migrate_interest,
    .turn = migrate_turn,
    .close = migrate_close,
    .capabilities_of = migrate_capabilities,
    .namespace_of = migrate_namespace,
    .watch = migrate_watch,
    .unwatch = migrate_unwatch,
    .news = migrate_news,
    .leave = migrate_leave,
    .waiting = migrate_waiting,
};
