/* migrate_sides.c - the two sides of a migration, each as an ordinary client sees it: its register, its clients, its locks.
 *
 * After a failed request a side gets no more requests, because each would take as long as the first. */
#include "migrate.h"

#include "exit_code.h"
#include "output.h"

#include <mortise/witness.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITES 10
#define PAUSE_MS 50 /* between two writes */

const char *side_text(const struct side *side, char *buffer)
{
    snprintf(buffer, SIDE_TEXT_SIZE, "`%s` [%s]", migrate_side_word(side->role), side->section);
    return buffer;
}

static void side_failed(struct side *side, mortise_status status, const mortise_error *error)
{
    side->status = status;
    side->error = *error;
}

/* A wrong config ends the command. An unreachable server is reported with the rest. The side is opened as for another process
 * (mortise_open_for_dead()), because the config's `require` and `observe` are about the whole stack, and not about one
 * side. */
static int side_open(struct side *side, const struct migrate_file *file)
{
    mortise_error error;
    char *where;

    if (asprintf(&where, "%s#%s", file->path, side->section) < 0)
        must_have(NULL);
    mortise_status status = mortise_open_for_dead(where, &side->client, &error);
    free(where);
    if (status == MORTISE_OK)
        return EXIT_DONE;
    side_failed(side, status, &error);
    if (status == MORTISE_UNREACHABLE || status == MORTISE_BACKEND)
        return EXIT_DONE;
    say_error(&error);
    return exit_code_of(status);
}

/* ---- registers --------------------------------------------------------------------------------- */

/* Reads the register of `role` from `side`. */
static mortise_status read_kept(struct side *side, enum migrate_side role,
                                struct migrate_register *reg, uint64_t *version,
                                mortise_error *error)
{
    char text[MIGRATE_RECORD_SIZE];
    size_t size = sizeof text;

    if (side->status != MORTISE_OK) {
        *error = side->error;
        return side->status;
    }
    mortise_status status =
        mortise_record_read(side->client, migrate_register_name(role), text, &size, version, error);
    if (status != MORTISE_OK)
        return status;
    if (size <= sizeof text && migrate_register_decode(role, text, size, reg))
        return MORTISE_OK;
    snprintf(error->message, sizeof error->message,
             "this version does not understand the register of `%s`", migrate_side_word(role));
    return error->status = MORTISE_BACKEND;
}

bool side_read(struct migration *migration, enum migrate_side role, struct migrate_register *reg,
               uint64_t *version, mortise_error *error)
{
    struct side *side = &migration->sides[role];
    mortise_status status = read_kept(&migration->sides[side->kept_on], role, reg, version, error);

    if (status == MORTISE_NOTSUP && side->kept_on == role) {
        side->kept_on = OTHER(role);
        status = read_kept(&migration->sides[side->kept_on], role, reg, version, error);
    }
    return status == MORTISE_OK;
}

/* Writes the register of `role` to `kept`. */
static mortise_status write_kept(struct side *kept, enum migrate_side role,
                                 const struct migrate_register *reg, bool closes, uint64_t *version,
                                 mortise_error *error)
{
    char text[MIGRATE_RECORD_SIZE];
    size_t size = migrate_register_encode(reg, text);

    for (int writes = 1;; writes++) {
        const uint64_t seen = *version;
        struct migrate_register now;
        mortise_error ignored;
        mortise_status status = mortise_record_write(kept->client, migrate_register_name(role),
                                                     text, size, version, error);
        if (status == MORTISE_OK)
            return status;
        /* the reply may have been lost, and the request repeated */
        if (read_kept(kept, role, &now, version, &ignored) != MORTISE_OK)
            return status;
        if (*version == seen)
            return status;
        if (now.phases != reg->phases || now.floor != reg->floor)
            return MORTISE_BUSY;
        if (!closes)
            return MORTISE_OK;
        /* another operator may have written it, before this operator read the other side */
        if (writes == WRITES) {
            snprintf(error->message, sizeof error->message,
                     "none of %d writes was answered with OK, although the register was written",
                     WRITES);
            return status;
        }
        poll(NULL, 0, PAUSE_MS);
    }
}

mortise_status side_write(struct migration *migration, enum migrate_side role,
                          const struct migrate_register *reg, bool closes, uint64_t *version,
                          mortise_error *error)
{
    struct side *kept = &migration->sides[migration->sides[role].kept_on];

    return write_kept(kept, role, reg, closes, version, error);
}

/* ---- another migration's ------------------------------------------------------------------------ */

/* Whether the other role's register on this side belongs to another migration. It belongs to this migration if the other side
 * keeps its register here. */
static bool keeps_other(const struct migration *migration, enum migrate_side role)
{
    return migration->sides[role].kept_on == role && migration->sides[OTHER(role)].kept_on != role;
}

bool side_read_other(struct migration *migration, enum migrate_side role, mortise_error *error)
{
    struct side *side = &migration->sides[role];

    side->other = migrate_register_absent(OTHER(role));
    side->other_version = 0;
    return !keeps_other(migration, role) ||
           read_kept(side, OTHER(role), &side->other, &side->other_version, error) == MORTISE_OK;
}

bool side_other_stays(struct migration *migration, enum migrate_side role, mortise_error *error)
{
    struct side *side = &migration->sides[role];
    struct migrate_register now;
    uint64_t version;

    error->status = MORTISE_OK;
    if (!keeps_other(migration, role))
        return true;
    return read_kept(side, OTHER(role), &now, &version, error) == MORTISE_OK &&
           version == side->other_version && (now.phases == 0 || !side->other_closed);
}

mortise_status side_close_other(struct migration *migration, enum migrate_side role,
                                mortise_error *error)
{
    struct side *side = &migration->sides[role];
    const struct migrate_register closed = {.phases = 0, .floor = side->other.floor};
    mortise_status status = MORTISE_OK;

    if (keeps_other(migration, role)) {
        status = write_kept(side, OTHER(role), &closed, true, &side->other_version, error);
        side->other_closed = status == MORTISE_OK;
    }
    return status;
}

static void look_at_register(struct migration *migration, enum migrate_side role)
{
    struct side *side = &migration->sides[role];
    mortise_error error;

    side->known = side_read(migration, role, &side->reg, &side->version, &error);
    if (!side->known && migration->sides[side->kept_on].status == MORTISE_OK)
        side_failed(&migration->sides[side->kept_on], error.status, &error);
}

/* ---- what is held ------------------------------------------------------------------------------- */

void infos_add(struct infos *infos, const mortise_info *info)
{
    if (infos->count == infos->capacity) {
        infos->capacity = infos->capacity ? infos->capacity * 2 : 16;
        infos->list = must_have(reallocarray(infos->list, infos->capacity, sizeof *infos->list));
    }
    infos->list[infos->count++] = *info;
}

static bool keep_info(const mortise_info *info, void *user_data)
{
    infos_add(user_data, info);
    return true;
}

static mortise_status list_more(struct side *side, const char *prefix, struct infos *infos,
                                mortise_error *error)
{
    if (side->client == NULL) {
        *error = side->error;
        return side->status;
    }
    return mortise_list(side->client, prefix, keep_info, infos, error);
}

mortise_status side_list(struct side *side, const char *prefix, struct infos *infos,
                         mortise_error *error)
{
    *infos = (struct infos){0};
    return list_more(side, prefix, infos, error);
}

mortise_status side_presences(struct side *side, unsigned phases, struct infos *infos,
                              mortise_error *error)
{
    char prefix[MIGRATE_NAME_SIZE];
    mortise_status status = MORTISE_OK;

    *infos = (struct infos){0};
    for (unsigned phase = MIGRATE_OLD; phase <= MIGRATE_NEW && status == MORTISE_OK; phase *= 2) {
        if ((phases & phase) == 0)
            continue;
        migrate_presence_prefix(phase, prefix);
        status = list_more(side, prefix, infos, error);
    }
    return status;
}

bool is_of_both(const mortise_info *info)
{
    unsigned phase;

    return migrate_presence_decode(info->name, &phase, NULL) && phase == MIGRATE_BOTH;
}

bool infos_find(const struct infos *infos, const char *name, size_t *at)
{
    for (size_t n = 0; n < infos->count; n++) {
        const size_t i = (*at + n) % infos->count;
        if (strcmp(infos->list[i].name, name) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* Removes the presences of phase both whose client is on the other side too. */
static void leave_out(struct infos *infos, const struct infos *other_side)
{
    size_t left = 0, at = 0;

    for (size_t i = 0; i < infos->count; i++) {
        if (!is_of_both(&infos->list[i]) || !infos_find(other_side, infos->list[i].name, &at))
            infos->list[left++] = infos->list[i];
    }
    infos->count = left;
}

mortise_status sides_in_the_way(struct migration *migration, const struct migrate_step *step,
                                struct infos *infos, struct side **asked, mortise_error *error)
{
    const unsigned phases = step->gone | step->foreign | (step->foreign != 0 ? MIGRATE_BOTH : 0);
    struct infos other_side;
    bool any = false;

    *asked = &migration->sides[step->closes];
    mortise_status status = side_presences(*asked, phases, infos, error);
    for (size_t i = 0; step->foreign != 0 && i < infos->count && !any; i++)
        any = is_of_both(&infos->list[i]);
    if (status != MORTISE_OK || !any)
        return status;
    *asked = &migration->sides[OTHER(step->closes)];
    status = side_presences(*asked, MIGRATE_BOTH, &other_side, error);
    if (status == MORTISE_OK)
        leave_out(infos, &other_side);
    infos_free(&other_side);
    return status;
}

void infos_free(struct infos *infos)
{
    free(infos->list);
    *infos = (struct infos){0};
}

/* ---- both --------------------------------------------------------------------------------------- */

static int sides_open(struct migration *migration)
{
    int code = EXIT_DONE;

    for (int role = MIGRATE_FROM; role <= MIGRATE_TO && code == EXIT_DONE; role++)
        code = side_open(&migration->sides[role], &migration->file);
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO && code == EXIT_DONE; role++)
        look_at_register(migration, (enum migrate_side)role);
    return code;
}

int migration_open(struct migration *migration, const char *section)
{
    *migration = (struct migration){0};
    int code = migrate_file_read(&migration->file, section);

    if (code == EXIT_DONE) {
        struct side *sides = migration->sides;
        sides[MIGRATE_FROM] = (struct side){
            .role = MIGRATE_FROM, .section = migration->file.from, .kept_on = MIGRATE_FROM};
        sides[MIGRATE_TO] =
            (struct side){.role = MIGRATE_TO, .section = migration->file.to, .kept_on = MIGRATE_TO};
        code = sides_open(migration);
    }
    if (code != EXIT_DONE)
        migration_close(migration);
    return code;
}

void migration_close(struct migration *migration)
{
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++) {
        if (migration->sides[role].client != NULL)
            mortise_close(migration->sides[role].client, NULL);
    }
    migrate_file_free(&migration->file);
}
