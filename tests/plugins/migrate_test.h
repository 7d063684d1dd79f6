/* migrate_test.h - what the tests of the migrate plugin share: a config of two databases in a directory, clients and
 * processes in a phase, presences and registers as the command reads them, and a step as protocol.h describes it. */
#ifndef MIGRATE_TEST_H
#define MIGRATE_TEST_H

#include <mortise/mortise.h>
#include <support.h>

#include "migration.h"

#include <CUnit/Basic.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 60000 /* bounds failure only */

static char folder[256];
static mortise_error detail;

/* ---- configs and clients ----------------------------------------------------------------------- */

static inline const char *config(const char *phase, const char *presence)
{
    static char path[400];
    char text[1200];
    snprintf(path, sizeof path, "%s/%s-%s.conf", folder, phase, presence);
    snprintf(text, sizeof text,
             "[mortise]\ndriver = migrate\n[migrate]\nfrom = sqlite:a\nto = sqlite:b\nphase = %s\n"
             "presence = %s\n[sqlite:a]\npath = %s/a.db\n[sqlite:b]\npath = %s/b.db\n",
             phase, presence, folder, folder);
    if (access(path, F_OK) != 0) /* others may be reading it */
        CU_ASSERT_FATAL(test_file_write(path, text));
    return path;
}

/* Everything anew. */
static inline void begin(void)
{
    if (folder[0] != '\0')
        test_folder_remove(folder);
    CU_ASSERT_FATAL(test_folder_make(folder, sizeof folder));
}

static inline bool is(mortise_status wanted, mortise_status got, unsigned line)
{
    char text[1400];
    snprintf(text, sizeof text, "%s, wanted %s: %s", mortise_status_name(got),
             mortise_status_name(wanted), got == MORTISE_OK ? "" : detail.message);
    CU_assertImplementation(got == wanted, line, text, __FILE__, "", CU_FALSE);
    return got == wanted;
}
#define IS(wanted, call) is(MORTISE_##wanted, (call), __LINE__)

static inline mortise_client *open_at(const char *where)
{
    mortise_client *client = NULL;
    IS(OK, mortise_open(where, &client, &detail));
    return client;
}

static inline mortise_client *open_phase(const char *phase)
{
    return open_at(config(phase, "60s"));
}

/* A side by itself, as the command opens it. */
static inline mortise_client *open_side(enum migrate_side side)
{
    char where[500];
    snprintf(where, sizeof where, "%s#%s", config("old", "60s"),
             side == MIGRATE_FROM ? "sqlite:a" : "sqlite:b");
    return open_at(where);
}

/* Tries once, for the status; a lease that was had is given back. */
static inline mortise_status attempt(mortise_client *client, const char *name)
{
    mortise_lease *lease;
    mortise_status status = mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
    if (status == MORTISE_OK)
        IS(OK, mortise_release(lease, &detail));
    return status;
}

static inline mortise_lease *take(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    IS(OK, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = PATIENCE_MS), &lease, &detail));
    return lease;
}

/* ---- a process --------------------------------------------------------------------------------- */

static inline bool start_taker(struct test_process *taker, const char *phase, const char *presence)
{
    char line[1200];
    const char *const argv[] = {getenv("MORTISE_TAKER"), config(phase, presence), NULL};
    return argv[0] && test_spawn(taker, argv) && test_hear(taker, line, sizeof line, PATIENCE_MS) &&
           strcmp(line, "ready") == 0;
}

/* Says a line; the answer begins so, and has that in it. */
static inline void expect(struct test_process *taker, const char *line, const char *answer,
                          const char *with)
{
    char heard[1200] = "";
    CU_ASSERT(test_say(taker, "%s", line));
    CU_ASSERT(test_hear(taker, heard, sizeof heard, PATIENCE_MS));
    if (strncmp(heard, answer, strlen(answer)) != 0 || !strstr(heard, with)) {
        fprintf(stderr, "  %s: %s\n", line, heard);
        CU_FAIL("the taker's answer is another");
    }
}

/* ---- presences and registers ------------------------------------------------------------------- */

struct present {
    mortise_client *side;
    unsigned phase;
    int count;
    uint64_t token;
    char name[MORTISE_NAME_MAX + 1];
};

static inline bool count_present(const mortise_info *info, void *argument)
{
    struct present *present = argument;
    unsigned phase;
    if (migrate_presence_decode(info->name, &phase, NULL) && phase == present->phase) {
        present->count++;
        present->token = info->token;
        snprintf(present->name, sizeof present->name, "%s", info->name);
    }
    return true;
}

static inline struct present look_for(mortise_client *side, unsigned phase)
{
    struct present present = {.side = side, .phase = phase};
    IS(OK, mortise_list(side, MIGRATE_PRESENCES, count_present, &present, &detail));
    return present;
}

static inline bool nobody_is_there(void *argument)
{
    const struct present *asked = argument;
    return look_for(asked->side, asked->phase).count == 0;
}

static inline struct migrate_register read_register(mortise_client *client, enum migrate_side side,
                                                    uint64_t *version)
{
    char text[MIGRATE_RECORD_SIZE];
    size_t size = sizeof text;
    struct migrate_register reg;
    IS(OK, mortise_record_read(client, migrate_register_name(side), text, &size, version, &detail));
    CU_ASSERT(migrate_register_decode(side, text, size, &reg));
    return reg;
}

static inline mortise_status write_register(mortise_client *client, enum migrate_side side,
                                            struct migrate_register reg, uint64_t version)
{
    char text[MIGRATE_RECORD_SIZE];
    size_t size = migrate_register_encode(&reg, text);
    return mortise_record_write(client, migrate_register_name(side), text, size, &version, &detail);
}

/* ---- a step ------------------------------------------------------------------------------------ */

struct operation {
    mortise_client *sides[2];
    struct migrate_register regs[2];
    uint64_t versions[2];
    const struct migrate_step *step;
};

/* Up to the closing of one side. */
static inline void step_begin(struct operation *o, bool forward)
{
    for (unsigned side = 0; side < 2; side++) {
        o->sides[side] = open_side(side);
        o->regs[side] = read_register(o->sides[side], side, &o->versions[side]);
    }
    o->step = migrate_step_of(&o->regs[0], &o->regs[1], forward);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o->step);
    struct migrate_register closed = {o->step->closes_to, o->regs[o->step->closes].floor};
    IS(OK, write_register(o->sides[o->step->closes], o->step->closes, closed,
                          o->versions[o->step->closes]));
}

/* And the rest: nobody of the closed phase is there any more; the other side is opened. */
static inline void step_end(struct operation *o)
{
    enum migrate_side closes = o->step->closes, opens = !closes;
    struct present gone = {.side = o->sides[closes], .phase = o->step->gone};
    struct migrate_register opened = {o->step->opens_to, o->regs[opens].floor};
    CU_ASSERT(gone.phase == 0 || test_poll(nobody_is_there, &gone, PATIENCE_MS));
    if (o->step->takes_floor) {
        uint64_t tokens[2], floors[2];
        for (unsigned side = 0; side < 2; side++) {
            mortise_lease *lease = take(o->sides[side], MIGRATE_FLOOR_LOCK);
            tokens[side] = mortise_token(lease);
            floors[side] = o->regs[side].floor;
            IS(OK, mortise_release(lease, &detail));
        }
        opened.floor = migrate_floor_after(tokens, floors);
    }
    IS(OK, write_register(o->sides[opens], opens, opened, o->versions[opens]));
    for (unsigned side = 0; side < 2; side++)
        IS(OK, mortise_close(o->sides[side], &detail));
}

static inline void take_step(bool forward)
{
    struct operation operation;
    step_begin(&operation, forward);
    step_end(&operation);
}

#endif
