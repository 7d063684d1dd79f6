/* migrate_plan.c - which step is next for the fleet and for the phase in a config file, and what is in its way.
 *
 * Forward, the file goes from old to both to new; back, the other way. Before each change the registers must allow the new
 * phase, so at most one step of the registers comes first. The step that closes `from` for good, or opens it again, changes
 * no config file. migrate_plan.c only reads; migrate_step.c writes. */
#include "migrate.h"

#include "exit_code.h"
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *who_text(const mortise_info *info, char *buffer)
{
    char host[4 * sizeof info->host], program[4 * sizeof info->program];

    if (info->host[0] == '\0')
        snprintf(buffer, WHO_SIZE, "an unknown client");
    else
        snprintf(buffer, WHO_SIZE, "%s pid %" PRId64 " (%s)",
                 printable(info->host, host, sizeof host), info->pid,
                 printable(info->program, program, sizeof program));
    return buffer;
}

bool is_foreign(const mortise_info *presence, unsigned gone)
{
    unsigned phase;

    return migrate_presence_decode(presence->name, &phase, NULL) && phase != gone;
}

static size_t count_foreign(const struct infos *presences, unsigned gone)
{
    size_t count = 0;

    for (size_t i = 0; i < presences->count; i++)
        count += is_foreign(&presences->list[i], gone);
    return count;
}

bool any_foreign(const struct infos *presences, unsigned gone)
{
    return count_foreign(presences, gone) > 0;
}

const char *clients_text(const struct infos *presences, unsigned gone, char *buffer)
{
    const size_t foreign = count_foreign(presences, gone), own = presences->count - foreign;
    int used = 0;

    buffer[0] = '\0';
    if (own > 0)
        used = snprintf(buffer, CLIENTS_SIZE, "%zu client%s of phase %s%s", own,
                        own == 1 ? "" : "s", migrate_phase_word(gone), foreign > 0 ? " and " : "");
    if (foreign > 0)
        snprintf(buffer + used, CLIENTS_SIZE - (size_t)used, "%zu client%s of another migration",
                 foreign, foreign == 1 ? "" : "s");
    return buffer;
}

const char *whence_text(const mortise_info *presence, unsigned gone)
{
    return is_foreign(presence, gone) ? ", of another migration" : "";
}

bool phase_is_allowed(const struct migrate_register *from, const struct migrate_register *to,
                      unsigned phase)
{
    if (migrate_uses(phase, MIGRATE_FROM) && !migrate_allows(from, phase))
        return false;
    if (migrate_uses(phase, MIGRATE_TO) && !migrate_allows(to, phase))
        return false;
    if (phase == MIGRATE_OLD)
        return migrate_old_may_beside(to);
    return phase != MIGRATE_NEW || !migrate_allows(from, MIGRATE_OLD);
}

static unsigned next_phase(unsigned phase, bool forward)
{
    if (phase == MIGRATE_BOTH)
        return forward ? MIGRATE_NEW : MIGRATE_OLD;
    return phase == (forward ? MIGRATE_NEW : MIGRATE_OLD) ? phase : MIGRATE_BOTH;
}

static void trouble(struct plan *plan, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void trouble(struct plan *plan, int code, const char *format, ...)
{
    va_list arguments;

    plan->code = code;
    va_start(arguments, format);
    vsnprintf(plan->trouble, sizeof plan->trouble, format, arguments);
    va_end(arguments);
}

/* Computes the registers as they would be after a step. */
static void step_leads_to(const struct migrate_step *step, struct migrate_register *regs)
{
    regs[step->closes].phases = step->closes_to;
    regs[OTHER(step->closes)].phases = step->opens_to;
}

/* Finds the step that must come first, if any. */
static void find_step(const struct migration *migration, bool forward, struct plan *plan)
{
    struct migrate_register regs[] = {migration->sides[MIGRATE_FROM].reg,
                                      migration->sides[MIGRATE_TO].reg};
    const unsigned now = migration->file.phase;

    plan->phase = next_phase(now, forward);
    if (plan->phase != now && phase_is_allowed(&regs[0], &regs[1], plan->phase))
        return;
    plan->step = migrate_step_of(&regs[0], &regs[1], forward);
    if (plan->step != NULL)
        step_leads_to(plan->step, regs);
    if (phase_is_allowed(&regs[0], &regs[1], plan->phase)) {
        plan->last = plan->step == NULL;
        return;
    }
    plan->phase = now;
    /* the file is at its end, or one phase before it: the step moves the fleet on, and the file stays as it is */
    if (plan->step != NULL &&
        (now == (forward ? MIGRATE_NEW : MIGRATE_OLD) || phase_is_allowed(&regs[0], &regs[1], now)))
        return;
    trouble(
        plan, EXIT_BAD_CONFIG,
        "the fleet is past phase %s: the file says %s, so clients that read it are refused; set "
        "the phase of the other files",
        migrate_phase_word(now), migrate_phase_word(now));
}

/* Checks another migration that has a server in common with this one, in the other role. Its register is read after this
 * migration's own register. So if both take a step, one of them sees what the other has closed, or its write fails. If a step
 * has nothing to write there, it reads again before it opens (protocol.h, 9, which also names the case that remains). */
static void look_at_other(struct migration *migration, enum migrate_side role, struct plan *plan)
{
    struct side *side = &migration->sides[role];
    char shown[SIDE_TEXT_SIZE], phases[MIGRATE_PHASES_TEXT_SIZE];
    mortise_error error;

    side_text(side, shown);
    if (!side_read_other(migration, role, &error)) {
        trouble(plan, exit_code_of(error.status),
                "the register of another migration on %s cannot be read: %s", shown, error.message);
        return;
    }
    if (side->other_version == 0 || !migrate_other_is_in_the_way(role, &side->reg, &side->other))
        return;
    migrate_phases_text(side->other.phases, phases);
    if (role == MIGRATE_FROM)
        trouble(plan, EXIT_NOT_HAD,
                "%s is also the `to` of another migration, which has not come to its end (its "
                "register there admits %s): take that one to stage 3 first",
                shown, phases);
    else
        trouble(plan, EXIT_NOT_HAD,
                "%s is also the `from` of another migration, which has gone past phase old (its "
                "register there admits %s): take that one back first",
                shown, phases);
}

static void find_others(struct migration *migration, struct plan *plan)
{
    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++) {
        if (plan->step->opens_to != 0 && plan->code == EXIT_DONE)
            look_at_other(migration, (enum migrate_side)role, plan);
    }
}

/* Finds the clients that the step would wait for. */
static void find_blockers(struct migration *migration, struct plan *plan)
{
    struct side *side;
    char shown[SIDE_TEXT_SIZE];
    mortise_error error;

    if (plan->step->gone == 0)
        return;
    mortise_status status =
        sides_in_the_way(migration, plan->step, &plan->waits_for, &side, &error);
    if (status != MORTISE_OK)
        trouble(plan, exit_code_of(status), "%s does not list its clients: %s",
                side_text(side, shown), error.message);
}

const char *migrate_from_may_go(const struct migration *migration)
{
    return migration->sides[MIGRATE_TO].kept_on == MIGRATE_TO
               ? "; you can remove `from`"
               : "; `from` keeps the register of `to`, which keeps no records: remove `from` when "
                 "no client uses the plugin any more";
}

static bool from_may_be_gone(const struct migration *migration)
{
    const struct side *from = &migration->sides[MIGRATE_FROM], *to = &migration->sides[MIGRATE_TO];

    return !from->known && to->known && to->reg.phases == MIGRATE_NEW;
}

bool migrate_from_is_gone(const struct migration *migration, const struct infos *on_to)
{
    for (size_t i = 0; i < on_to->count; i++)
        if (is_of_both(&on_to->list[i]))
            return false;
    return from_may_be_gone(migration);
}

static bool look_whether_from_is_gone(struct migration *migration)
{
    struct infos on_to = {0};
    mortise_error error;

    bool gone =
        from_may_be_gone(migration) &&
        side_presences(&migration->sides[MIGRATE_TO], MIGRATE_BOTH, &on_to, &error) == MORTISE_OK &&
        migrate_from_is_gone(migration, &on_to);
    infos_free(&on_to);
    return gone;
}

/* Whether both registers are known: one register alone decides nothing. */
static bool both_known(const struct migration *migration, struct plan *plan)
{
    char shown[SIDE_TEXT_SIZE];

    for (int role = MIGRATE_FROM; role <= MIGRATE_TO; role++) {
        const struct side *side = &migration->sides[role], *kept = &migration->sides[side->kept_on];
        if (side->known)
            continue;
        trouble(plan, exit_code_of(kept->status), "the register of %s cannot be read: %s%s",
                side_text(side, shown), kept->error.message,
                plan->from_gone
                    ? ". `to` admits only phase new: if `from` was removed, nothing is left to do"
                    : "");
        return false;
    }
    return true;
}

void plan_make(struct migration *migration, bool forward, struct plan *plan)
{
    *plan = (struct plan){.phase = migration->file.phase,
                          .from_gone = look_whether_from_is_gone(migration)};
    if (!both_known(migration, plan))
        return;
    find_step(migration, forward, plan);
    if (plan->step != NULL && plan->code == EXIT_DONE)
        find_others(migration, plan);
    if (plan->step != NULL && plan->code == EXIT_DONE)
        find_blockers(migration, plan);
}

void plan_end(struct plan *plan)
{
    infos_free(&plan->waits_for);
}
