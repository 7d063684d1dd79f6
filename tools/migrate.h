/* migrate.h - what the parts of `mortise migrate` share.
 *
 *   migrate.c         the command's words and options
 *   migrate_config.c  the plugin's section of a config file: read, and its phase rewritten
 *   migrate_sides.c   a client for each side: its registers, presences and locks
 *   migrate_plan.c    which step is next, and what is in its way
 *   migrate_step.c    takes a step
 *   migrate_show.c    what status and plan print
 *
 * migration.h, which the plugin shares, has the registers, the presences and the steps themselves; the plugin's protocol.h
 * says why they are safe. */
#ifndef MORTISE_TOOLS_MIGRATE_H
#define MORTISE_TOOLS_MIGRATE_H

#include "migration.h"

#include <mortise/mortise.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECTION_SIZE 64

/* ---- migrate_config.c ---- */

/* What a config file says about a migration. */
struct migrate_file {
    char *path; /* links followed */
    char *text;
    size_t size;
    char section[SECTION_SIZE], from[SECTION_SIZE], to[SECTION_SIZE], phase_word[SECTION_SIZE];
    unsigned phase;
    size_t phase_at; /* where the word is in text */
    int64_t presence_ms;
};

/* Finds and reads the config file, and in it the section of the plugin: `section`, or the one that `driver` names, or
 * the only one. On failure says why and returns its exit code. */
int migrate_file_read(struct migrate_file *file, const char *section);
void migrate_file_free(struct migrate_file *file);
/* Replaces the phase and leaves every other byte: writes a new file beside the old one, which replaces it in one step.
 * Refuses if the file was changed since it was read. */
int migrate_file_set_phase(const struct migrate_file *file, unsigned phase);

/* ---- migrate_sides.c ---- */

/* The result of a list. */
struct infos {
    mortise_info *list;
    size_t count, capacity;
};

struct side {
    enum migrate_side role;
    const char *section;
    mortise_client *client; /* NULL: could not be opened */
    mortise_status status;  /* of the first request that failed; no request follows it */
    mortise_error error;
    bool known; /* the register was read and understood */
    struct migrate_register reg;
    uint64_t version;
    enum migrate_side
        kept_on; /* the side that has the register: the other one if this one has no records */
    /* the register of the other role on this side: of another migration */
    struct migrate_register other;
    uint64_t other_version; /* 0: never written, or not known */
    bool other_closed;      /* by this step */
};

struct migration {
    struct migrate_file file;
    struct side sides[2]; /* by role */
};

#define OTHER(role) ((role) == MIGRATE_FROM ? MIGRATE_TO : MIGRATE_FROM)

/* Opens both sides and reads their registers. An unreachable side is no failure; its status says so. */
int migration_open(struct migration *migration, const char *section);
void migration_close(struct migration *migration);
/* Reads the register. False: see error. */
bool side_read(struct migration *migration, enum migrate_side role, struct migrate_register *reg,
               uint64_t *version, mortise_error *error);
/* Compares and writes. OK: written. BUSY: another operator has written it. Else it is unknown whether it is written. If the
 * register has the same text under another version, an opening is done; a closing is written again, at most ten times,
 * until it is certainly this operator's (protocol.h, 5). */
mortise_status side_write(struct migration *migration, enum migrate_side role,
                          const struct migrate_register *reg, bool closes, uint64_t *version,
                          mortise_error *error);
/* The same for the other role's register on that side, if it can be another migration's; else there is none. */
bool side_read_other(struct migration *migration, enum migrate_side role, mortise_error *error);
/* Whether that register is still as it was read, or as this step has written it. True if there is none. False: see error; if its
 * status is OK, the register was changed. */
bool side_other_stays(struct migration *migration, enum migrate_side role, mortise_error *error);
/* Writes {} to that register. */
mortise_status side_close_other(struct migration *migration, enum migrate_side role,
                                mortise_error *error);
/* Lists all names that begin with prefix. */
mortise_status side_list(struct side *side, const char *prefix, struct infos *infos,
                         mortise_error *error);
/* The presences of a set of phases. */
mortise_status side_presences(struct side *side, unsigned phases, struct infos *infos,
                              mortise_error *error);
/* Whether the name is that of a presence of phase both. */
bool is_of_both(const mortise_info *info);
/* Lists the presences that a step waits for on the side that it closes: those of the phase that must be gone, those of the phase
 * that only another migration's clients have there, and those of phase both that the other side, which is listed after it, does
 * not have. The last ones are another migration's too, or their client is coming or going, on one side before the other.
 * asked: the side to whose answer the status belongs. */
mortise_status sides_in_the_way(struct migration *migration, const struct migrate_step *step,
                                struct infos *infos, struct side **asked, mortise_error *error);
void infos_add(struct infos *infos, const mortise_info *info);
/* Whether the list has the name; *at: where. *at is 0 at first; then each search goes on where the previous one has ended, because
 * lists of a side have the same order. From the beginning, all searches would take the square of the number of clients. */
bool infos_find(const struct infos *infos, const char *name, size_t *at);
void infos_free(struct infos *infos);
/* "`from` [redis]"; returns buffer. */
#define SIDE_TEXT_SIZE (SECTION_SIZE + 16)
const char *side_text(const struct side *side, char *buffer);

/* ---- migrate_plan.c ---- */

struct plan {
    unsigned phase;                  /* the phase that the file gets */
    const struct migrate_step *step; /* the step that must come before that; NULL: none */
    struct infos waits_for;          /* the presences that the step waits for */
    bool last;                       /* nothing is left to do in this direction */
    bool from_gone;                  /* migrate_from_is_gone() */
    char trouble[1024];              /* why the plan cannot be carried out; empty if it can */
    int code;                        /* the exit code for `trouble` */
};
/* Reads what the registers allow, and asks one side for presences. Reads the registers of another migration too. */
void plan_make(struct migration *migration, bool forward, struct plan *plan);
void plan_end(struct plan *plan);
/* The end of "nothing is left to be done": whether `from` may be shut down. */
const char *migrate_from_may_go(const struct migration *migration);
/* The register of `from` cannot be read, but no client needs it: `to` admits only phase new, and on_to has no presence of phase
 * both (there may be some while the last step waits). */
bool migrate_from_is_gone(const struct migration *migration, const struct infos *on_to);
/* Whether both registers allow clients of that phase. */
bool phase_is_allowed(const struct migrate_register *from, const struct migrate_register *to,
                      unsigned phase);
/* "host, pid 123, program" of a presence; returns buffer. */
#define WHO_SIZE 512
const char *who_text(const mortise_info *info, char *buffer);
/* Whether it is the presence of another migration's client: of another phase than `gone`. */
bool is_foreign(const mortise_info *presence, unsigned gone);
bool any_foreign(const struct infos *presences, unsigned gone);
/* "2 clients of phase old and 1 client of another migration"; returns buffer. */
#define CLIENTS_SIZE 128
const char *clients_text(const struct infos *presences, unsigned gone, char *buffer);
/* What follows who_text(): "", or ", of another migration". */
const char *whence_text(const mortise_info *presence, unsigned gone);

/* ---- migrate_step.c ---- */

/* Takes the step of the plan. Waits at most wait_ms (or MORTISE_WAIT_FOREVER) until the clients of the phase that is shut
 * out are gone. */
int step_take(struct migration *migration, const struct plan *plan, int64_t wait_ms);

/* ---- migrate_show.c ---- */

int show_status(struct migration *migration, bool as_json);
int show_plan(struct migration *migration, const struct plan *plan, bool forward, bool as_json);

#endif
