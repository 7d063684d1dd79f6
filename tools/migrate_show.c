/* migrate_show.c - what `mortise migrate status` and `plan` print, for people and as JSON.
 *
 * It only prints, and decides nothing. */
#include "migrate.h"

#include "duration.h"
#include "exit_code.h"
#include "holders.h"
#include "json.h"
#include "output.h"
#include "ping.h"
#include "table.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- collecting ---------------------------------------------------------------------------------- */

/* A client, by its presence on one side or on both. */
struct present {
    const mortise_info *info;
    unsigned phase;
    char id[MIGRATE_CLIENT_ID_SIZE];
    bool on[2];
};

struct view {
    struct migration *migration;
    struct infos infos[2]; /* all names that are held on each side */
    struct present *clients;
    size_t client_count;
    char server[2][256];
    bool from_gone; /* migrate_from_is_gone() */
    int code;
};

static bool is_own(const mortise_info *info)
{
    return strncmp(info->name, MIGRATE_PREFIX, strlen(MIGRATE_PREFIX)) == 0;
}

/* A client of phase both has a presence on each side, so it is looked for among the clients of the other side: the first `others`. Both
 * sides list them in the same order, so each search goes on at *at, where the previous one has ended. */
static struct present *find_client(const struct view *view, const struct present *client,
                                   size_t others, size_t *at)
{
    for (size_t n = 0; n < others; n++) {
        struct present *other = &view->clients[(*at + n) % others];
        if (other->phase == client->phase && strcmp(other->id, client->id) == 0) {
            *at = (*at + n) % others;
            return other;
        }
    }
    return NULL;
}

static void add_client(struct view *view, const mortise_info *info, int role, size_t others,
                       size_t *at)
{
    struct present client = {.info = info};

    if (!migrate_presence_decode(info->name, &client.phase, client.id))
        return;
    struct present *known =
        client.phase == MIGRATE_BOTH ? find_client(view, &client, others, at) : NULL;
    if (known != NULL) {
        known->on[role] = true;
        return;
    }
    client.on[role] = true;
    view->clients =
        must_have(reallocarray(view->clients, view->client_count + 1, sizeof *view->clients));
    view->clients[view->client_count++] = client;
}

static int compare_clients(const void *a, const void *b)
{
    const struct present *one = a, *other = b;
    int order = (one->phase > other->phase) - (one->phase < other->phase);

    if (order == 0)
        order = strcmp(one->info->host, other->info->host);
    if (order == 0)
        order = (one->info->pid > other->info->pid) - (one->info->pid < other->info->pid);
    return order != 0 ? order : strcmp(one->id, other->id);
}

static void view_side(struct view *view, int role)
{
    struct side *side = &view->migration->sides[role];
    const size_t others = view->client_count;
    size_t at = 0;

    if (side->status == MORTISE_OK)
        side->status = ping_server(side->client, view->server[role], sizeof view->server[role],
                                   NULL, 0, &side->error);
    if (side->status == MORTISE_OK)
        side->status = side_list(side, "", &view->infos[role], &side->error);
    for (size_t i = 0; i < view->infos[role].count; i++)
        add_client(view, &view->infos[role].list[i], role, others, &at);
}

static void view_make(struct view *view, struct migration *migration)
{
    const struct side *sides = migration->sides;

    *view = (struct view){.migration = migration};
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++)
        view_side(view, role);
    view->from_gone = sides[MIGRATE_TO].status == MORTISE_OK &&
                      migrate_from_is_gone(migration, &view->infos[MIGRATE_TO]);
    for (int role = view->from_gone ? MIGRATE_TO : MIGRATE_FROM; role <= MIGRATE_TO; role++)
        if (sides[role].status != MORTISE_OK)
            view->code = exit_code_of(sides[role].status);
    if (view->client_count > 1)
        qsort(view->clients, view->client_count, sizeof *view->clients, compare_clients);
}

static void view_end(struct view *view)
{
    infos_free(&view->infos[0]);
    infos_free(&view->infos[1]);
    free(view->clients);
}

static const char *stage_of(const struct migration *migration, bool from_gone)
{
    const struct side *sides = migration->sides;

    if (from_gone)
        return migrate_stage_word(MIGRATE_STAGE_3);
    if (!sides[MIGRATE_FROM].known || !sides[MIGRATE_TO].known)
        return NULL;
    return migrate_stage_word(migrate_stage_of(&sides[MIGRATE_FROM].reg, &sides[MIGRATE_TO].reg));
}

/* ---- for people ------------------------------------------------------------------------------------ */

static void print_sides(const struct view *view)
{
    static const char *const heads[] = {"WHAT", "SIDE", "SECTION", "ADMITS", "FLOOR", "SERVER"};
    struct table table;

    table_begin(&table, heads, 6);
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++) {
        const struct side *side = &view->migration->sides[role];
        char phases[MIGRATE_PHASES_TEXT_SIZE], floor[DURATION_SIZE], server[2048];
        migrate_phases_text(side->reg.phases, phases);
        snprintf(floor, sizeof floor, "%" PRIu64, side->reg.floor);
        printable(side->status == MORTISE_OK ? view->server[role] : side->error.message, server,
                  sizeof server);
        table_row(&table, (const char *[]){"side", migrate_side_word(side->role), side->section,
                                           side->known ? phases : "unknown",
                                           side->known ? floor : "-", server});
    }
    table_print(&table);
    table_end(&table);
}

static const char *since(const mortise_info *info, char *buffer)
{
    char duration[DURATION_SIZE];

    if (info->held_ms < 0)
        return "-";
    snprintf(buffer, DURATION_SIZE + 8, "%s ago", format_duration(info->held_ms, duration));
    return buffer;
}

static void print_clients(const struct view *view)
{
    static const char *const heads[] = {"WHAT", "PHASE", "HOST", "PID", "PROGRAM", "SINCE", "ON"};
    struct table table;

    table_begin(&table, heads, 7);
    for (size_t i = 0; i < view->client_count; i++) {
        const struct present *client = &view->clients[i];
        const mortise_info *info = client->info;
        char host[4 * sizeof info->host], program[4 * sizeof info->program], pid[DURATION_SIZE],
            ago[DURATION_SIZE + 8];
        snprintf(pid, sizeof pid, "%" PRId64, info->pid);
        table_row(&table,
                  (const char *[]){
                      "client",
                      migrate_phase_word(client->phase),
                      info->host[0] ? printable(info->host, host, sizeof host) : "-",
                      info->pid > 0 ? pid : "-",
                      info->program[0] ? printable(info->program, program, sizeof program) : "-",
                      since(info, ago),
                      client->on[0] && client->on[1] ? "from, to"
                      : client->on[0]                ? "from"
                                                     : "to",
                  });
    }
    if (table.rows > 0)
        table_print(&table);
    table_end(&table);
}

static void print_locks(const struct view *view)
{
    static const char *const heads[] = {"WHAT", "SIDE", "NAME", "HOLDER", "SINCE", "TOKEN"};
    struct table table;

    table_begin(&table, heads, 6);
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++) {
        for (size_t i = 0; i < view->infos[role].count; i++) {
            const mortise_info *info = &view->infos[role].list[i];
            char name[QUOTED_SIZE], who[WHO_SIZE], ago[DURATION_SIZE + 8], token[DURATION_SIZE];
            if (is_own(info))
                continue;
            snprintf(token, sizeof token, "%" PRIu64, info->token);
            table_row(&table, (const char *[]){"lock", migrate_side_word((enum migrate_side)role),
                                               printable(info->name, name, sizeof name),
                                               who_text(info, who), since(info, ago), token});
        }
    }
    if (table.rows > 0)
        table_print(&table);
    table_end(&table);
}

static void print_head(const struct migration *migration, bool from_gone)
{
    const char *stage = stage_of(migration, from_gone);
    char path[QUOTED_SIZE];

    printf("%s: [%s] phase = %s; stage of the fleet: %s\n",
           printable(migration->file.path, path, sizeof path), migration->file.section,
           migration->file.phase_word, stage != NULL ? stage : "unknown");
    if (from_gone)
        printf("`from` cannot be read, and no client needs it: `to` admits only phase new\n");
}

/* ---- JSON -------------------------------------------------------------------------------------------- */

static void json_phases(struct json *json, unsigned phases)
{
    for (unsigned phase = MIGRATE_OLD; phase <= MIGRATE_NEW; phase *= 2)
        json_bool(json, migrate_phase_word(phase), (phases & phase) != 0);
}

static void json_head(struct json *json, const struct migration *migration, bool from_gone)
{
    const char *stage = stage_of(migration, from_gone);

    json_text(json, "file", migration->file.path);
    json_text(json, "section", migration->file.section);
    json_text(json, "phase", migration->file.phase_word);
    if (stage != NULL)
        json_text(json, "stage", stage);
    else
        json_null(json, "stage");
}

static void json_side(struct json *json, const struct view *view, int role)
{
    const struct side *side = &view->migration->sides[role];

    json_open(json, '{');
    json_text(json, "side", migrate_side_word(side->role));
    json_text(json, "section", side->section);
    if (side->known) {
        json_key(json, "admits");
        json_open(json, '{');
        json_phases(json, side->reg.phases);
        json_close(json, '}');
        json_uint(json, "floor", side->reg.floor);
        json_uint(json, "version", side->version);
    }
    if (side->status == MORTISE_OK)
        json_text(json, "server", view->server[role]);
    else
        json_text(json, "problem", side->error.message);
    json_close(json, '}');
}

static void json_who(struct json *json, const mortise_info *info)
{
    json_text(json, "host", info->host);
    json_int(json, "pid", info->pid);
    json_text(json, "program", info->program);
    json_int(json, "held_ms", info->held_ms);
    json_int(json, "remaining_ms", info->remaining_ms);
}

static void json_client(struct json *json, const struct present *client)
{
    json_open(json, '{');
    json_text(json, "phase", migrate_phase_word(client->phase));
    json_text(json, "id", client->id);
    json_who(json, client->info);
    json_bool(json, "from", client->on[0]);
    json_bool(json, "to", client->on[1]);
    json_close(json, '}');
}

static void json_locks(struct json *json, const struct view *view)
{
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++) {
        for (size_t i = 0; i < view->infos[role].count; i++) {
            if (is_own(&view->infos[role].list[i]))
                continue;
            json_open(json, '{');
            json_text(json, "side", migrate_side_word((enum migrate_side)role));
            holders_json(json, &view->infos[role].list[i]);
            json_close(json, '}');
        }
    }
}

static void print_json(const struct view *view)
{
    struct json json = {.out = stdout};

    json_open(&json, '{');
    json_head(&json, view->migration, view->from_gone);
    json_key(&json, "sides");
    json_open(&json, '[');
    json_side(&json, view, MIGRATE_FROM);
    json_side(&json, view, MIGRATE_TO);
    json_close(&json, ']');
    json_key(&json, "clients");
    json_open(&json, '[');
    for (size_t i = 0; i < view->client_count; i++)
        json_client(&json, &view->clients[i]);
    json_close(&json, ']');
    json_key(&json, "locks");
    json_open(&json, '[');
    json_locks(&json, view);
    json_close(&json, ']');
    json_close(&json, '}');
    putchar('\n');
}

/* ---- status and plan ------------------------------------------------------------------------------------ */

int show_status(struct migration *migration, bool as_json)
{
    struct view view;

    view_make(&view, migration);
    if (as_json) {
        print_json(&view);
    } else {
        print_head(migration, view.from_gone);
        print_sides(&view);
        print_clients(&view);
        print_locks(&view);
    }
    view_end(&view);
    return finish_output(view.code);
}

static bool may_be_done(const struct plan *plan)
{
    return plan->code == EXIT_DONE && !plan->last && plan->waits_for.count == 0;
}

static void json_plan(const struct migration *migration, const struct plan *plan)
{
    struct json json = {.out = stdout};

    json_open(&json, '{');
    json_head(&json, migration, plan->from_gone);
    json_text(&json, "next_phase", migrate_phase_word(plan->phase));
    if (plan->step != NULL)
        json_text(&json, "step", plan->step->words);
    else
        json_null(&json, "step");
    json_bool(&json, "last", plan->last);
    json_bool(&json, "safe", may_be_done(plan));
    if (plan->code != EXIT_DONE)
        json_text(&json, "problem", plan->trouble);
    json_key(&json, "waits_for");
    json_open(&json, '[');
    for (size_t i = 0; i < plan->waits_for.count; i++) {
        json_open(&json, '{');
        json_who(&json, &plan->waits_for.list[i]);
        json_bool(&json, "other_migration", is_foreign(&plan->waits_for.list[i], plan->step->gone));
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    putchar('\n');
}

/* The lines that the config must have. */
static void print_lines(const struct migration *migration, const struct plan *plan)
{
    if (plan->phase == migration->file.phase)
        printf("The file stays as it is.\n");
    else
        printf("Then change the file, and restart the clients one by one:\n\n    [%s]\n    phase = "
               "%s\n\n",
               migration->file.section, migrate_phase_word(plan->phase));
}

static void print_plan(const struct migration *migration, const struct plan *plan, bool forward)
{
    char who[WHO_SIZE], clients[CLIENTS_SIZE];

    print_head(migration, plan->from_gone);
    if (plan->code != EXIT_DONE) {
        printf("Not now: %s\n", plan->trouble);
        return;
    }
    if (plan->last) {
        printf("Nothing is left to do%s.\n", forward ? migrate_from_may_go(migration) : "");
        return;
    }
    if (plan->step != NULL)
        printf("Step %s.\n", plan->step->words);
    else
        printf("The registers already admit phase %s.\n", migrate_phase_word(plan->phase));
    print_lines(migration, plan);
    if (plan->waits_for.count == 0) {
        printf("Safe now: yes; run `mortise migrate advance%s`.\n", forward ? "" : " --back");
        return;
    }
    printf("Safe now: no; it waits for %s:\n",
           clients_text(&plan->waits_for, plan->step->gone, clients));
    for (size_t i = 0; i < plan->waits_for.count; i++)
        printf("    %s%s\n", who_text(&plan->waits_for.list[i], who),
               whence_text(&plan->waits_for.list[i], plan->step->gone));
}

int show_plan(struct migration *migration, const struct plan *plan, bool forward, bool as_json)
{
    if (as_json)
        json_plan(migration, plan);
    else
        print_plan(migration, plan, forward);
    if (plan->code != EXIT_DONE || plan->last)
        return finish_output(plan->code != EXIT_DONE ? plan->code : EXIT_NOTHING_DONE);
    return finish_output(may_be_done(plan) ? EXIT_DONE : EXIT_NOT_HAD);
}
