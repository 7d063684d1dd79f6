/* migration.h - what the migrate plugin and the command `mortise migrate` have to agree on: the names of the registers and
 * of the presences, the text in a register, what an absent one means, the stages and the steps between them. protocol.h says
 * what it is all for. Pure functions on text and numbers: knows neither modules nor clients, and includes neither of
 * their headers.
 *
 * How the command uses it. It opens each side as an ordinary client of its own: the config's [mortise] with `driver`
 * set to what `from` or `to` of [migrate] says, and the same `namespace` (or none: each driver's own, as in the
 * plugin). No name below has a namespace: the library sets it before a name, and the plugin does so itself.
 *
 *   status    mortise_record_read() both registers (migrate_register_name), migrate_register_decode() them (size 0: absent);
 *             mortise_list(MIGRATE_PRESENCES) each side, migrate_presence_decode() the names: phase, client id; host, pid
 *             and program are in the mortise_info. Everything else that is listed is a lock of the application, but for
 *             MIGRATE_FLOOR_LOCK.
 *   plan      migrate_step_of() the two registers and the direction: NULL, nothing is left to be done. What blocks it are the
 *             presences of step->gone on the side step->closes (those, and only those).
 *   advance   in this order, whatever the registers hold (protocol.h, 5):
 *               1  read both registers, and keep their versions
 *               2  write the register of step->closes with step->closes_to, at the version read; its floor stays
 *               3  wait until none of the presences of step->gone that the first list after 2 has on that side, by name and
 *                  owner, is listed any more (step->gone 0: nobody to wait for). After every failure to list, and where
 *                  the server was restarted meanwhile, wait for one `presence` ttl more
 *               4  with step->takes_floor: acquire MIGRATE_FLOOR_LOCK on each side, keep its token (0: it has none), release
 *                  it: migrate_floor_after(the tokens, the floors of both registers)
 *               5  write the other side's register with step->opens_to, at the version read in 1, with the floor of 4, or
 *                  its own where there is none
 *             A write that answers BUSY or INDETERMINATE: read again; is it what was to be written, under the version
 *             read + 1, then 5 was done, and 2 is written again, at the version read now, until the answer is OK (the one that
 *             stands there may be another operator's); else somebody else is at it, and the step ends here. Each stop in between is safe:
 *             the next advance, in either direction, begins at 1.
 *
 * Where a register is. On its own side; but a driver without records (redlock: its READ says NOTSUP) has it on the
 * other side, under the same name (of the two names, that of *its* role). Two sides without records cannot be
 * migrated between. mortise_record_read() tells: MORTISE_NOTSUP.
 *
 * Names are by the role of a side, not by its server: the `to` of one migration may be the `from` of the next. */
#ifndef MORTISE_MIGRATION_H
#define MORTISE_MIGRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIGRATE_PREFIX ".mortise-migrate/" /* of all names that are not the application's */
#define MIGRATE_PRESENCES MIGRATE_PREFIX "presence/"
#define MIGRATE_FLOOR_LOCK MIGRATE_PREFIX "floor"
#define MIGRATE_CLIENT_ID_SIZE 33   /* 32 hex digits */
#define MIGRATE_NAME_SIZE 96        /* of a register or presence */
#define MIGRATE_RECORD_SIZE 128     /* of a register's text */
#define MIGRATE_PHASES_TEXT_SIZE 32 /* "{old, both, new}" */

enum migrate_phase { MIGRATE_OLD = 1, MIGRATE_BOTH = 2, MIGRATE_NEW = 4 };

enum migrate_side { MIGRATE_FROM = 0, MIGRATE_TO = 1 };

/* ---- phases and sides -------------------------------------------------------------------------- */

/* "old", "both", "new"; "from", "to". NULL, 0: no such one. */
const char *migrate_phase_word(unsigned phase);
unsigned migrate_phase_of(const char *word);
const char *migrate_side_word(enum migrate_side side);
/* Whether a client of that phase has locks on that side. */
bool migrate_uses(unsigned phase, enum migrate_side side);
/* A set of phases as text: "{old, both}", "{}". */
void migrate_phases_text(unsigned phases, char text[MIGRATE_PHASES_TEXT_SIZE]);

/* ---- registers --------------------------------------------------------------------------------- */

struct migrate_register {
    unsigned phases; /* that may use the side */
    uint64_t floor;  /* every token given there from then on is above it */
};

const char *migrate_register_name(enum migrate_side side);
/* Stage 1: {old, both} on `from`, {both} on `to`. */
struct migrate_register migrate_register_absent(enum migrate_side side);
/* As text, NUL-terminated; returns its length. */
size_t migrate_register_encode(const struct migrate_register *reg, char text[MIGRATE_RECORD_SIZE]);
/* size 0: an absent one. False: it is not one that this version understands; then nobody may use the side. */
bool migrate_register_decode(enum migrate_side side, const void *text, size_t size,
                             struct migrate_register *reg);

/* Whether a client of that phase may live, by the registers of the sides that it uses. */
bool migrate_allows(const struct migrate_register *reg, unsigned phase);
/* A client of phase old that can read the register of `to`: may it live? Not where new is allowed, whatever `from` has
 * forgotten. */
bool migrate_old_may_beside(const struct migrate_register *to);

/* ---- presences --------------------------------------------------------------------------------- */

/* The name of a client's presence, on each side that its phase uses; of all of a phase (a prefix, for LIST). */
void migrate_presence_name(unsigned phase, const char *client_id, char name[MIGRATE_NAME_SIZE]);
void migrate_presence_prefix(unsigned phase, char prefix[MIGRATE_NAME_SIZE]);
/* False: no name of a presence. client_id may be NULL. */
bool migrate_presence_decode(const char *name, unsigned *phase,
                             char client_id[MIGRATE_CLIENT_ID_SIZE]);

/* ---- stages and steps -------------------------------------------------------------------------- */

enum migrate_stage {
    MIGRATE_STAGE_1,         /* {old, both}  {both}       old, both */
    MIGRATE_STAGE_1_TO_2,    /* {both}       {both}       both: within a step, either way */
    MIGRATE_STAGE_2,         /* {both}       {both, new}  both, new */
    MIGRATE_STAGE_2_TO_3,    /* {both}       {new}        new: within a step, either way */
    MIGRATE_STAGE_3,         /* {}           {new}        new; `from` may go */
    MIGRATE_STAGE_UNHEARD_OF /* no step leads there: a server lost its records. Either step mends it */
};

struct migrate_step {
    const char *words; /* "1 -> 2: lets phase new in, shuts phase old out" */
    enum migrate_side
        closes;         /* whose register is written first; the other side's is written last */
    unsigned closes_to; /* what it is to hold */
    unsigned gone;      /* of which phase no presence may be on that side then; 0: not asked for */
    unsigned opens_to;  /* what the other side's is to hold */
    bool takes_floor;   /* tokens of both sides go into the register of the opened one */
    enum migrate_stage leads_to;
};

enum migrate_stage migrate_stage_of(const struct migrate_register *from,
                                    const struct migrate_register *to);
const char *migrate_stage_word(enum migrate_stage stage); /* "1", "between 1 and 2", … */
/* The step that leads forward (towards phase new) or back, from wherever the registers are: one that was begun and
 * not ended is begun again. NULL: it is at that end. */
const struct migrate_step *migrate_step_of(const struct migrate_register *from,
                                           const struct migrate_register *to, bool forward);
/* A floor above every token that either side may have given: by a day above a token of each that was just given (0: it has
 * none), and above the floors that they gave them by. */
uint64_t migrate_floor_after(const uint64_t tokens[2], const uint64_t floors[2]);
#define MIGRATE_FLOOR_LEAD_US (UINT64_C(86400) * 1000 * 1000)

#endif
