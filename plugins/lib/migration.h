/* migration.h - what the migrate plugin and the command `mortise migrate` must agree on: the names of the registers and the
 * presences, the text in a register, what an absent register means, the stages, and the steps between them. The plugin's
 * protocol.h says what they are for. All functions are pure functions of text and numbers: this library knows neither
 * modules nor clients, and includes neither of their headers.
 *
 * How the command uses it. It opens each side as an ordinary client: the config's [mortise] with `driver` set to what `from`
 * or `to` of [migrate] says, and the same `namespace` (if there is none, each driver's own, as in the plugin). The names
 * below have no namespace: the library of the client adds it, and the plugin adds it itself.
 *
 *   status    Reads both registers with mortise_record_read(migrate_register_name()) and decodes them (size 0: absent). Lists
 *             MIGRATE_PRESENCES on each side and decodes the names: phase and client id; host, pid and program are in the
 *             mortise_info. Every other listed name is a lock of the application, except MIGRATE_FLOOR_LOCK.
 *   plan      migrate_step_of() the two registers and the direction. NULL means that nothing is left to be done. Only the
 *             presences of step->gone and step->foreign on the side step->closes block the step; and if step->foreign is not 0,
 *             those of phase both that the other side, listed after it, does not have. If step->opens_to is not 0, reads
 *             the other role's register on each side too, after the side's own: migrate_other_is_in_the_way().
 *   advance   Always in this order, whatever the registers hold (protocol.h, 5):
 *               1  Read both registers and keep their versions.
 *               2  Write step->closes_to to the register of step->closes, at the version read; keep its floor. Then, if
 *                  step->foreign is not 0 and the other role's register of that side was ever written: write {} to it, at the
 *                  version read; keep its floor. If it was not, but the lists of 3 find another migration's presences, write
 *                  it then, and begin 3 anew.
 *               3  List the presences that block the step, as plan does. Wait until none of those found by the first list blocks it
 *                  any more, by name and owner. (If step->gone is 0, wait for nobody.) After a list that failed, and after a
 *                  restart of the server, wait for one more `presence` ttl.
 *               4  If step->takes_floor: acquire MIGRATE_FLOOR_LOCK on each side, keep its token (0: the side has none) and
 *                  release it. The floor is migrate_floor_after(the tokens, the floors of both registers of each side).
 *               5  If step->opens_to is not 0, read the other role's registers again: if one has another version than this step
 *                  read or wrote, the step ends. Write step->opens_to to the other side's register, at the version read in 1, with
 *                  the floor of 4, or with its own floor if 4 was not done.
 *             If a write answers BUSY or INDETERMINATE, read the register again. If it holds what was to be written, under
 *             the version read + 1, then 5 is done; 2 is written again, at the version read now, until the answer is OK,
 *             because the value found may be another operator's. If it holds anything else, another operator is at work
 *             and the step ends. It is safe to stop anywhere: the next advance, in either direction, begins at 1.
 *
 * Where a register is. It is on its own side. A driver without records (redlock answers NOTSUP to READ) has it on the other
 * side, under the name of its own role. A migration needs at least one side with records. mortise_record_read() tells:
 * MORTISE_NOTSUP.
 *
 * Names follow the role of a side, not its server: the `to` of one migration may be the `from` of the next one, when the first
 * migration has come to its end. Such a side has the registers of both roles, one for each migration (protocol.h, 9). But if the
 * other side keeps no records, the register of the other role belongs to the same migration, and that of another migration is
 * not known. */
#ifndef MORTISE_MIGRATION_H
#define MORTISE_MIGRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIGRATE_PREFIX ".mortise-migrate/" /* of all names that the plugin uses itself */
#define MIGRATE_PRESENCES MIGRATE_PREFIX "presence/"
#define MIGRATE_FLOOR_LOCK MIGRATE_PREFIX "floor"
#define MIGRATE_CLIENT_ID_SIZE 33   /* 32 hex digits */
#define MIGRATE_NAME_SIZE 96        /* of a register or presence */
#define MIGRATE_RECORD_SIZE 128     /* of a register's text */
#define MIGRATE_PHASES_TEXT_SIZE 32 /* "{old, both, new}" */

enum migrate_phase { MIGRATE_OLD = 1, MIGRATE_BOTH = 2, MIGRATE_NEW = 4 };

enum migrate_side { MIGRATE_FROM = 0, MIGRATE_TO = 1 };

/* ---- phases and sides -------------------------------------------------------------------------- */

/* "old", "both", "new"; "from", "to". NULL or 0 if there is none. */
const char *migrate_phase_word(unsigned phase);
unsigned migrate_phase_of(const char *word);
const char *migrate_side_word(enum migrate_side side);
/* Whether clients of that phase take locks on that side. */
bool migrate_uses(unsigned phase, enum migrate_side side);
/* A set of phases as text: "{old, both}", "{}". */
void migrate_phases_text(unsigned phases, char text[MIGRATE_PHASES_TEXT_SIZE]);

/* ---- registers --------------------------------------------------------------------------------- */

struct migrate_register {
    unsigned phases; /* that may use the side */
    uint64_t floor;  /* every later token of the side is above it */
};

const char *migrate_register_name(enum migrate_side side);
/* What an absent register means: {old, both} on `from`, {both} on `to` (stage 1). */
struct migrate_register migrate_register_absent(enum migrate_side side);
/* Writes the register as text, NUL-terminated; returns the length. */
size_t migrate_register_encode(const struct migrate_register *reg, char text[MIGRATE_RECORD_SIZE]);
/* size 0: an absent register. False: this version does not understand the text. Then no client may use the side; and if it is the
 * register of `to`, no client of phase old may go on. */
bool migrate_register_decode(enum migrate_side side, const void *text, size_t size,
                             struct migrate_register *reg);

/* Whether the register lets clients of that phase use its side. */
bool migrate_allows(const struct migrate_register *reg, unsigned phase);
/* Whether a client of phase old that can read the register of `to` may go on. False if `to` allows phase new, even if `from`
 * has lost its register and would allow phase old. */
bool migrate_old_may_beside(const struct migrate_register *to);

/* ---- presences --------------------------------------------------------------------------------- */

/* The name of a client's presence, the same on each side that its phase uses; and the prefix of all presences of a phase. */
void migrate_presence_name(unsigned phase, const char *client_id, char name[MIGRATE_NAME_SIZE]);
void migrate_presence_prefix(unsigned phase, char prefix[MIGRATE_NAME_SIZE]);
/* False: this is not the name of a presence. client_id may be NULL. */
bool migrate_presence_decode(const char *name, unsigned *phase,
                             char client_id[MIGRATE_CLIENT_ID_SIZE]);

/* ---- stages and steps -------------------------------------------------------------------------- */

enum migrate_stage {
    MIGRATE_STAGE_1,         /* {old, both}  {both}       old, both */
    MIGRATE_STAGE_1_TO_2,    /* {both}       {both}       both: within a step, either way */
    MIGRATE_STAGE_2,         /* {both}       {both, new}  both, new */
    MIGRATE_STAGE_2_TO_3,    /* {both}       {new}        new: within a step, either way */
    MIGRATE_STAGE_3,         /* {}           {new}        new; `from` can be removed */
    MIGRATE_STAGE_UNHEARD_OF /* no step leads here: a server lost its records. Either step repairs it */
};

struct migrate_step {
    const char *words; /* "1 -> 2: stops admitting phase old, then admits phase new" */
    enum migrate_side
        closes;         /* whose register is written first; the other side's is written last */
    unsigned closes_to; /* the phases that it gets */
    unsigned gone;      /* the phase whose presences must be gone from that side then; 0: none */
    unsigned foreign;   /* the phase that only clients of another migration have there. They, and that migration's clients of
                           phase both, must be gone too; 0: they may stay */
    unsigned opens_to;  /* the phases that the other side's register gets */
    bool takes_floor;   /* the opened register gets a floor above the tokens of both sides */
    enum migrate_stage leads_to;
};

enum migrate_stage migrate_stage_of(const struct migrate_register *from,
                                    const struct migrate_register *to);
const char *migrate_stage_word(enum migrate_stage stage); /* "1", "between 1 and 2", … */
/* The step that leads forward (towards phase new) or back from the stage that the registers show. A step that was begun and
 * not ended begins again. NULL: that end is reached. */
const struct migrate_step *migrate_step_of(const struct migrate_register *from,
                                           const struct migrate_register *to, bool forward);
/* Whether another migration forbids a step that opens a register (opens_to is not 0). `other` is the register that the other
 * migration has on this side, in the other role; it has been written. On `from`, true if that migration has not come to its end;
 * on `to`, if it has gone past phase old. */
bool migrate_other_is_in_the_way(enum migrate_side side, const struct migrate_register *own,
                                 const struct migrate_register *other);
/* A floor above every token that either side may have given: a day above the tokens that the sides have just given (0: the
 * side has none) and above the floors of both registers. */
uint64_t migrate_floor_after(const uint64_t tokens[2], const uint64_t floors[2]);
#define MIGRATE_FLOOR_LEAD_US (UINT64_C(86400) * 1000 * 1000)

#endif
