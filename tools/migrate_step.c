/* migrate_step.c - takes one step of a migration: closes one side's register to a phase, waits until that phase's
 * clients are gone, and opens the other side's register (protocol.h, 5).
 *
 * If this process dies between two actions, or a reply is lost, the registers are in a state from which the next `advance`
 * goes on, in either direction. If another operator writes a register meanwhile, the step ends. */
#include "migrate.h"

#include "clock.h"
#include "duration.h"
#include "exit_code.h"
#include "output.h"
#include "ping.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 250   /* between two lists of presences */
#define TELL_MS 10000 /* between two messages about the clients in the way */
#define NAMED_MAX 5   /* clients in one message */
#define FLOOR_WAIT_MS 30000
#define RUN_SIZE MORTISE_PING_SIZE /* a cluster names each master */

static int64_t now_ms(void)
{
    return boottime_ns() / 1000000;
}

/* ---- registers ---------------------------------------------------------------------------------- */

static int could_not_write(const char *shown, mortise_status status, const mortise_error *error)
{
    if (status == MORTISE_BUSY) {
        say("another operator wrote the register of %s meanwhile: the step ends here; "
            "`mortise migrate status` shows the state",
            shown);
        return EXIT_NOT_HAD;
    }
    say("the register of %s could not be written: %s", shown, error->message);
    return exit_code_of(status);
}

/* Writes the register, and tells the user what it allows now. */
static int put_register(struct migration *migration, enum migrate_side role,
                        const struct migrate_register *reg, bool closes)
{
    struct side *side = &migration->sides[role];
    char shown[SIDE_TEXT_SIZE], phases[MIGRATE_PHASES_TEXT_SIZE];
    mortise_error error;

    side_text(side, shown);
    mortise_status status = side_write(migration, role, reg, closes, &side->version, &error);
    if (status != MORTISE_OK)
        return could_not_write(shown, status, &error);
    side->reg = *reg;
    migrate_phases_text(reg->phases, phases);
    say("%s now admits %s", shown, phases);
    return EXIT_DONE;
}

/* Shuts out the clients of another migration that has the other role on that side. */
static int close_other(struct migration *migration, struct side *side)
{
    char shown[SIDE_TEXT_SIZE];
    mortise_error error;

    side_text(side, shown);
    mortise_status status = side_close_other(migration, side->role, &error);
    if (status != MORTISE_OK)
        return could_not_write(shown, status, &error);
    if (side->other_closed && side->other.phases != 0)
        say("%s no longer admits clients of another migration", shown);
    return EXIT_DONE;
}

static int has_changed(const char *shown)
{
    say("the register of %s has changed: another operator wrote it, or the server lost it; the "
        "step ends here",
        shown);
    return EXIT_NOT_HAD;
}

static int cannot_be_read(const char *shown, const mortise_error *error)
{
    say("the register of %s cannot be read any more: %s", shown, error->message);
    return exit_code_of(error->status);
}

/* Checks that the closed register is still closed: a server may have lost it. */
static int still_closed(struct migration *migration, enum migrate_side role)
{
    const struct side *side = &migration->sides[role];
    char shown[SIDE_TEXT_SIZE];
    struct migrate_register now;
    mortise_error error;
    uint64_t version;

    side_text(side, shown);
    if (!side_read(migration, role, &now, &version, &error))
        return cannot_be_read(shown, &error);
    return version == side->version && now.phases == side->reg.phases ? EXIT_DONE
                                                                      : has_changed(shown);
}

/* Checks that no operator of another migration has changed a register on which the plan, or this step, relies: a register that
 * was absent may have been opened meanwhile, and the one beside the register that this step opens may have been closed. */
static int others_stay(struct migration *migration, const struct migrate_step *step)
{
    char shown[SIDE_TEXT_SIZE];
    mortise_error error;

    for (int role = MIGRATE_FROM; role <= MIGRATE_TO && step->opens_to != 0; role++) {
        if (side_other_stays(migration, (enum migrate_side)role, &error))
            continue;
        side_text(&migration->sides[role], shown);
        return error.status == MORTISE_OK ? has_changed(shown) : cannot_be_read(shown, &error);
    }
    return EXIT_DONE;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

/* The step waits only for the clients that the first list after the write finds. Later clients read the register after the write,
 * and are refused. So clients that try again and again do not delay the step. (If a presence has another grant, its client has
 * read the register again.)
 *
 * For clients of another migration this holds only if their register is closed too. If it was never written, the step closes it
 * when it sees one of these clients in two lists in a row. One list is not enough: a client of this migration may be on one side
 * only for an instant. Such clients may come and go all the time, so the step goes on when all those of the previous list are
 * gone. */
struct waiting {
    struct migration *migration;
    const struct migrate_step *step;
    struct side *side;
    int64_t quiet_until_ms; /* the step goes on no earlier: the server may have lost presences */
    int64_t tell_at_ms;
    bool listed;          /* the first list has filled `there` */
    struct infos there;   /* the clients of that list that are still there */
    struct infos foreign; /* another migration's clients at the last look */
    bool foreign_stay;    /* one of them was there at the previous look too */
    bool foreign_new;     /* at the previous look there were none */
    bool shut_out;        /* their register is closed, or there is none */
    bool failed;          /* the last look failed */
    bool unsure;          /* the other side did not list its clients of phase both */
    char run[RUN_SIZE];
};

static void name_them(struct waiting *waiting)
{
    const struct infos *there = &waiting->there;
    char shown[SIDE_TEXT_SIZE], who[WHO_SIZE], clients[CLIENTS_SIZE];

    if (there->count == 0 || now_ms() < waiting->tell_at_ms)
        return;
    waiting->tell_at_ms = now_ms() + TELL_MS;
    say("waiting for %s on %s:", clients_text(there, waiting->step->gone, clients),
        side_text(waiting->side, shown));
    for (size_t i = 0; i < there->count && i < NAMED_MAX; i++)
        say("  %s%s", who_text(&there->list[i], who),
            whence_text(&there->list[i], waiting->step->gone));
    if (there->count > NAMED_MAX)
        say("  and %zu more", there->count - NAMED_MAX);
}

/* Whether the list has the presence, with the same grant. */
static bool is_listed(const struct infos *now, const mortise_info *presence, size_t *at)
{
    return infos_find(now, presence->name, at) &&
           strcmp(now->list[*at].owner, presence->owner) == 0;
}

/* Remembers the clients of another migration, until their register is closed. */
static void note_foreign(struct waiting *waiting, const struct infos *now)
{
    struct infos foreign = {0};
    size_t at = 0;

    waiting->foreign_stay = false;
    for (size_t i = 0; i < now->count && !waiting->shut_out; i++) {
        if (!is_foreign(&now->list[i], waiting->step->gone))
            continue;
        waiting->foreign_stay |= is_listed(&waiting->foreign, &now->list[i], &at);
        infos_add(&foreign, &now->list[i]);
    }
    waiting->foreign_new = waiting->foreign.count == 0 && foreign.count > 0;
    infos_free(&waiting->foreign);
    waiting->foreign = foreign;
}

/* The first time takes over the list; later removes the clients that are gone. */
static void strike_off(struct waiting *waiting, struct infos *now)
{
    struct infos *there = &waiting->there;
    size_t left = 0, at = 0;

    if (!waiting->listed) {
        *there = *now;
        *now = (struct infos){0};
        waiting->listed = true;
        return;
    }
    for (size_t i = 0; i < there->count; i++) {
        if (is_listed(now, &there->list[i], &at))
            there->list[left++] = there->list[i];
    }
    there->count = left;
}

/* If the server may have lost presences, waits until their clients must have noticed. */
static void begin_anew(struct waiting *waiting, const char *why)
{
    char shown[SIDE_TEXT_SIZE], duration[DURATION_SIZE];

    waiting->quiet_until_ms = now_ms() + waiting->migration->file.presence_ms;
    say("%s %s: waiting for %s more, because it may have lost its list of clients",
        side_text(waiting->side, shown), why,
        format_duration(waiting->migration->file.presence_ms, duration));
}

/* Whether the server was restarted, as far as its ping tells. A failed ping changes nothing. */
static bool run_is_another(struct waiting *waiting, mortise_status *status, mortise_error *error)
{
    char run[RUN_SIZE];

    *status = ping_server(waiting->side->client, run, sizeof run, NULL, 0, error);
    if (*status != MORTISE_OK)
        return false;
    ping_without_time(run);
    bool another = waiting->run[0] != '\0' && strcmp(run, waiting->run) != 0;
    memcpy(waiting->run, run, sizeof run);
    return another;
}

/* Lists the clients again. True: they are certainly gone. */
static bool look(struct waiting *waiting)
{
    struct infos now;
    struct side *asked;
    mortise_error error;
    mortise_status status =
        sides_in_the_way(waiting->migration, waiting->step, &now, &asked, &error);
    bool another = false;

    if (status == MORTISE_OK) {
        note_foreign(waiting, &now);
        strike_off(waiting, &now);
    }
    infos_free(&now);
    if (asked != waiting->side && status != MORTISE_OK) {
        if (!waiting->unsure)
            say_error(&error);
        waiting->unsure = true;
        return false;
    }
    waiting->unsure = false;
    if (status == MORTISE_OK)
        another = run_is_another(waiting, &status, &error);
    if (status != MORTISE_OK) {
        if (!waiting->failed)
            say_error(&error);
        waiting->failed = true;
        return false;
    }
    name_them(waiting);
    if (waiting->failed || another)
        begin_anew(waiting, another ? "was restarted" : "answers again");
    waiting->failed = false;
    return waiting->there.count == 0 && !waiting->foreign_stay && !waiting->foreign_new &&
           now_ms() >= waiting->quiet_until_ms;
}

/* Closes the other migration's register. From then on, only the clients in the next list count. */
static int shut_out(struct waiting *waiting)
{
    int code = close_other(waiting->migration, waiting->side);

    infos_free(&waiting->foreign);
    infos_free(&waiting->there);
    waiting->listed = waiting->foreign_stay = waiting->foreign_new = false;
    waiting->shut_out = true;
    return code;
}

static int wait_until_gone(struct waiting *waiting, int64_t wait_ms)
{
    const int64_t until_ms = wait_ms < 0 ? INT64_MAX : now_ms() + wait_ms;
    char shown[SIDE_TEXT_SIZE], duration[DURATION_SIZE];

    if (waiting->step->gone == 0)
        return EXIT_DONE;
    while (!look(waiting)) {
        const bool over = now_ms() >= until_ms && !waiting->foreign_new;
        const bool any =
            waiting->foreign.count > 0 || any_foreign(&waiting->there, waiting->step->gone);
        int code = waiting->foreign_stay ? shut_out(waiting) : EXIT_DONE;
        if (code != EXIT_DONE)
            return code;
        if (over) {
            say("gave up after %s: clients of phase %s%s may still be on %s; no new ones are "
                "admitted. "
                "`mortise migrate advance` continues from here, with --back it goes back",
                format_duration(wait_ms, duration), migrate_phase_word(waiting->step->gone),
                any ? ", or of another migration," : "", side_text(waiting->side, shown));
            return EXIT_NOT_HAD;
        }
        poll(NULL, 0, LOOK_MS);
    }
    return EXIT_DONE;
}

/* ---- the floor ------------------------------------------------------------------------------------ */

/* Takes a new token of a side, which is above all tokens that its clock, or its counter, has given. */
static int take_token(struct side *side, uint64_t *token)
{
    mortise_lease *lease;
    mortise_error error;
    char shown[SIDE_TEXT_SIZE];
    mortise_status status =
        mortise_acquire(side->client, MIGRATE_FLOOR_LOCK, MORTISE_OPTIONS(.wait_ms = FLOOR_WAIT_MS),
                        &lease, &error);
    if (status != MORTISE_OK) {
        say("%s gave no token: %s", side_text(side, shown), error.message);
        return exit_code_of(status);
    }
    *token = mortise_token(lease);
    mortise_release(lease, NULL); /* if that fails, the lock ends by its ttl */
    return EXIT_DONE;
}

/* ---- the step ------------------------------------------------------------------------------------- */

static int close_and_wait(struct migration *migration, const struct plan *plan, int64_t wait_ms)
{
    const struct migrate_step *step = plan->step;
    struct side *side = &migration->sides[step->closes];
    const struct migrate_register closed = {.phases = step->closes_to, .floor = side->reg.floor};
    struct waiting waiting = {.migration = migration, .step = step, .side = side};
    mortise_status status;
    mortise_error error;

    run_is_another(&waiting, &status, &error); /* the run before the step */
    waiting.failed = status != MORTISE_OK; /* the run is unknown: treat the server as restarted */
    /* write it even if it has that text already, because that ends another operator's step */
    int code = put_register(migration, side->role, &closed, true);
    /* write the other migration's register for the same reason, if it was ever written */
    if (code == EXIT_DONE && step->foreign != 0 && side->other_version != 0)
        code = shut_out(&waiting);
    if (code == EXIT_DONE)
        code = wait_until_gone(&waiting, wait_ms);
    infos_free(&waiting.there);
    infos_free(&waiting.foreign);
    return code;
}

/* Takes the floor from the tokens of both sides: in phase both, the opened side may have given tokens that the other one does not
 * know. It also uses the floor of another migration's register, because that migration's clients had tokens above it. */
static int take_floor(struct migration *migration, uint64_t *floor)
{
    uint64_t tokens[2] = {0}, floors[2];
    int code = EXIT_DONE;

    for (int role = MIGRATE_FROM; role <= MIGRATE_TO && code == EXIT_DONE; role++) {
        const struct side *side = &migration->sides[role];
        floors[role] = side->other.floor > side->reg.floor ? side->other.floor : side->reg.floor;
        code = take_token(&migration->sides[role], &tokens[role]);
    }
    if (code == EXIT_DONE)
        *floor = migrate_floor_after(tokens, floors);
    return code;
}

static int refuse_to_begin(const struct plan *plan)
{
    char who[WHO_SIZE], clients[CLIENTS_SIZE];

    const bool one = plan->waits_for.count == 1;

    say("%s %s still running%s %s%s; nothing was done",
        clients_text(&plan->waits_for, plan->step->gone, clients), one ? "is" : "are",
        one ? ":" : ", for example", who_text(plan->waits_for.list, who),
        whence_text(plan->waits_for.list, plan->step->gone));
    return EXIT_NOT_HAD;
}

int step_take(struct migration *migration, const struct plan *plan, int64_t wait_ms)
{
    const struct migrate_step *step = plan->step;
    const struct side *opened = &migration->sides[OTHER(step->closes)];
    struct migrate_register open = {.phases = step->opens_to, .floor = opened->reg.floor};

    if (wait_ms == 0 && plan->waits_for.count > 0)
        return refuse_to_begin(plan);
    int code = close_and_wait(migration, plan, wait_ms);
    if (code == EXIT_DONE && step->takes_floor)
        code = take_floor(migration, &open.floor);
    if (code == EXIT_DONE)
        code = still_closed(migration, step->closes);
    if (code == EXIT_DONE)
        code = others_stay(migration, step);
    return code == EXIT_DONE ? put_register(migration, opened->role, &open, false) : code;
}
