/* pace.c - when a session beats. See pace.h. */
#include "pace.h"

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t step_ns(int64_t timeout_ns)
{
    return timeout_ns * 103 / 400;
}

static int64_t short_ns(int64_t timeout_ns)
{
    return timeout_ns / 10;
}

/* A step is delayed by less than this. */
static int64_t join_ns(int64_t timeout_ns)
{
    return timeout_ns / 20;
}

/* Steps that are half a tick apart can prove anything only if three of those distances fit into the timeout. */
static bool makes_steps(int64_t timeout_ns, int64_t half_tick_ns)
{
    return half_tick_ns <= timeout_ns / 4;
}

void pace_begin(struct pace *pace, int64_t now_ns)
{
    *pace = (struct pace){.step_due_ns = now_ns, .extra_due_ns = PACE_NEVER, .is_step = true};
}

int64_t pace_due(const struct pace *pace)
{
    return earlier(pace->step_due_ns, pace->extra_due_ns);
}

void pace_sent(struct pace *pace, bool connected, int64_t timeout_ns, int64_t half_tick_ns,
               int64_t now_ns)
{
    pace->sent_ns = now_ns;
    pace->extra_due_ns = PACE_NEVER;
    pace->is_step = now_ns >= pace->step_due_ns || now_ns >= pace->step_answered_ns + half_tick_ns;
    bool is_quiet = connected && makes_steps(timeout_ns, half_tick_ns);
    if (pace->is_step)
        pace->step_due_ns = now_ns + (is_quiet ? step_ns(timeout_ns) : short_ns(timeout_ns));
}

void pace_need(struct pace *pace, int64_t timeout_ns)
{
    pace->extra_due_ns = earlier(pace->extra_due_ns, pace->sent_ns + short_ns(timeout_ns));
}

/* A step that is due a little before the next extra beat is merged with it; but not a step that is already due after a late
 * answer. */
static void join(struct pace *pace, int64_t timeout_ns, int64_t now_ns)
{
    int64_t until_ns = pace->extra_due_ns - pace->step_due_ns;
    if (pace->step_due_ns > now_ns && until_ns > 0 && until_ns < join_ns(timeout_ns))
        pace->step_due_ns = pace->extra_due_ns;
}

void pace_answered(struct pace *pace, bool holds, int64_t timeout_ns, int64_t half_tick_ns,
                   int64_t now_ns)
{
    if (pace->is_step)
        pace->step_answered_ns = now_ns;
    if (pace->is_step && makes_steps(timeout_ns, half_tick_ns) &&
        pace->step_due_ns < now_ns + half_tick_ns)
        pace->step_due_ns = now_ns + half_tick_ns;
    if (!holds)
        return;
    pace_need(pace, timeout_ns);
    join(pace, timeout_ns, now_ns);
}

void pace_look(struct pace *pace, int64_t timeout_ns, int64_t now_ns)
{
    if (now_ns >= pace->sent_ns + short_ns(timeout_ns))
        pace->extra_due_ns = now_ns;
}

void pace_again(struct pace *pace, int64_t now_ns)
{
    pace->extra_due_ns = now_ns;
}

void pace_connected(struct pace *pace, bool is_out, int64_t timeout_ns, int64_t now_ns)
{
    pace->step_due_ns = is_out ? earlier(pace->step_due_ns, now_ns + step_ns(timeout_ns)) : now_ns;
}

void pace_suspended(struct pace *pace, int64_t now_ns)
{
    pace->step_due_ns = earlier(pace->step_due_ns, now_ns);
    pace->extra_due_ns = PACE_NEVER;
}

void pace_rest(struct pace *pace)
{
    pace->step_due_ns = pace->extra_due_ns = PACE_NEVER;
}
