/* run_hold.c - `mortise run` while its command runs: the wrapper's loop.
 *
 * Watches three things: its signals, the library (a lost lease) and the keeper (the state of the command). It kills
 * nothing itself, unless the keeper is dead (run_rest.c). run.c has the model. */
#include "run.h"

#include "clock.h"
#include "duration.h"
#include "exit_code.h"
#include "output.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS_NS INT64_C(1000000)

/* ---- Until when the lock is held -------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* After grace and margin, at least half of the ttl must be left for two tries to renew. */
static int64_t grace_of(struct run *run, int64_t margin_ms, int64_t lead_ms)
{
    char asked[DURATION_SIZE], given[DURATION_SIZE];
    int64_t most_ms = clamp(run->span_ms / 2 - margin_ms - lead_ms, 0, run->span_ms);

    if (run->grace_ms < 0)
        return run->span_ms / 6 < most_ms ? run->span_ms / 6 : most_ms;
    if (run->grace_ms > most_ms && !run->grace_limited) {
        run->grace_limited = true;
        run_say("%s: a grace of %s does not fit in the ttl and is limited to %s", run->shown,
                format_duration(run->grace_ms, asked), format_duration(most_ms, given));
    }
    return run->grace_ms < most_ms ? run->grace_ms : most_ms;
}

void run_publish(struct run *run)
{
    struct keeper_page *page = run->keeper.page;
    const int64_t now_ns = boottime_ns(); /* read first: a deadline that is too early is safe */
    const int64_t left_ms = run_remaining_ms(run);
    const int64_t deadline_ns = now_ns + left_ms * MS_NS;

    /* Milliseconds are rounded: if the deadline moves by less, the lease was not renewed, and the keeper must see that. */
    if (left_ms <= 0 || deadline_ns <= run->deadline_ns + 2 * MS_NS)
        return;
    run->deadline_ns = deadline_ns;
    run->asked = false;
    /* Not the ttl: a lease that depends on a session may be shorter. */
    run->span_ms = left_ms > run->span_ms ? left_ms : run->span_ms;
    /* The lead is time for the wrapper's answer, on a busy machine too; the margin is time in which killed processes end. */
    const int64_t margin_ms = clamp(run->span_ms / 20, 5, 500);
    const int64_t lead_ms = clamp(run->span_ms / 6, 5, 500);
    const int64_t grace_ms = grace_of(run, margin_ms, lead_ms);
    /* With --on-loss=warn no process has to be gone by the deadline, and a renewal may come until then. */
    const int64_t before_ms = run->warn_only ? 0 : margin_ms;
    const int64_t act_ms = run->warn_only ? 0 : margin_ms + grace_ms;
    atomic_store(&page->grace_ms, grace_ms);
    atomic_store(&page->kill_ns, deadline_ns - before_ms * MS_NS);
    atomic_store(&page->act_ns, deadline_ns - act_ms * MS_NS);
    atomic_store(&page->ask_ns, deadline_ns - (act_ms + lead_ms) * MS_NS);
}

/* ---- Loss ------------------------------------------------------------------------------------ */

static const char *consequence(const struct run *run)
{
    const struct keeper_page *page = run->keeper.page;

    if (atomic_load(&page->command_pid) == 0 && (run->gone || atomic_load(&page->done)))
        return "the command was not started";
    return run->warn_only ? "the command goes on without it" : "the command is being ended";
}

static bool start_is_unsent(const struct keeper *keeper)
{
    return keeper->unsent_count > 0 && keeper->unsent[0].kind == MESSAGE_START;
}

static void look_for_loss(struct run *run)
{
    if (!run->lost && run_is_lost(run))
        run->lost = true;
    if (run->lost && run->lost_ns == 0)
        run->lost_ns = boottime_ns();
    if (!run->lost || run->lost_told)
        return;
    run->lost_told = true;
    if (start_is_unsent(&run->keeper))
        run->gone = true; /* no command without the lock: unsent messages are never sent */
    else
        keeper_send(&run->keeper, MESSAGE_LOST, 0);
    run_say("%s: the lock was lost; %s", run->shown, consequence(run));
}

static void say_late(struct run *run)
{
    if (!run->lost_told)
        run_say("%s: the lock could not be renewed in time; %s", run->shown, consequence(run));
    run->lost_told = true;
}

/* No renewal came in time. It may still come before KILL; with --on-loss=warn this is the deadline. */
static void on_late(struct run *run, bool told)
{
    run->late = true;
    if (told || run->warn_only)
        say_late(run);
    if (run->warn_only)
        run->lost = true;
}

/* A late renewal came, and the keeper will not kill. */
static void on_renewed(struct run *run, bool told)
{
    run->late = false;
    if (!told || run->lost)
        return;
    run->lost_told = false;
    run->told_to_end = true;
    run_say("%s: the lock was renewed after all, but SIGTERM had already been sent to the command",
            run->shown);
}

/* Every process is gone. What the keeper did counts, even if its messages were lost. */
static void settle(struct run *run)
{
    if (!atomic_load(&run->keeper.page->late) || run->lost)
        return;
    say_late(run);
    run->lost = true;
}

/* ---- Stop and continue ----------------------------------------------------------------------- */

/* Also continues the keeper, because a stopped keeper would not pass the signal on. */
static void pass_on(struct run *run, int number)
{
    keeper_send(&run->keeper, MESSAGE_SIGNAL, number);
    kill(run->keeper.pid, SIGCONT);
}

static void pass_stop_on(struct run *run)
{
    run->stop_again = false;
    run->stop_stands = true;
    run->stop_ns = boottime_ns();
    pass_on(run, SIGTSTP);
}

/* Continues the command, but not before an overdue renewal has come: the keeper is about to end the command. */
static void resume_if_renewed(struct run *run)
{
    run_publish(run);
    run->resume_wanted = !run->warn_only && boottime_ns() >= atomic_load(&run->keeper.page->ask_ns);
    if (run->resume_wanted)
        return;
    if (!run->ended && (run->terminal_wanted || terminal_is_for_command(run)))
        terminal_give(run);
    run->terminal_wanted = false;
    run->stop_stands = false;
    pass_on(run, SIGCONT);
    if (run->stop_again)
        pass_stop_on(run);
}

static void resume_unless_lost(struct run *run)
{
    look_for_loss(run);
    if (!run->lost || run->warn_only)
        resume_if_renewed(run); /* otherwise it stays stopped until it is killed */
}

/* The wrapper may have been stopped for long, and another client may have the lock: asks before the command is continued. */
static void resume(struct run *run)
{
    if (run->ours_fd >= 0) {
        run->ask_again = true;
        return;
    }
    look_for_loss(run);
    run->resume_wanted = false; /* the answer comes first */
    if (!run->lost)
        run->ours_fd = ours_ask(run);
    if (run->ours_fd < 0)
        resume_unless_lost(run);
}

/* The command has ended, and a signal asked the processes that it left to end too: a stopped process acts on it only when it
 * is continued. If the wrapper itself was stopped, its own SIGCONT comes, or is being handled, and does the same. */
static void continue_rest(struct run *run)
{
    run->stop_again = run->stop_stands = false;
    if (run->ours_fd < 0 && !run->resume_wanted && !signals_was_continued())
        resume_unless_lost(run);
}

enum { STOP_COUNTS_MS = 5000 };

/* Whether the command was stopped by the TSTP that the wrapper passed on. A command may ignore that TSTP, and be stopped by
 * another process much later. */
static bool was_told_to_stop(const struct run *run)
{
    return run->stop_ns != 0 && boottime_ns() <= run->stop_ns + STOP_COUNTS_MS * MS_NS;
}

/* The command, or a process that it left, was stopped. If that was asked for, the wrapper stops too, so that the shell sees
 * its job stopped. */
static void on_stopped(struct run *run, int number)
{
    /* What the command left does not get the terminal, so ^Z reaches it by way of the wrapper. */
    const bool typed = run->ended ? terminal_is_ours(run) : terminal_is_commands(run);
    const bool wants_terminal = !run->ended && (number == SIGTTIN || number == SIGTTOU);
    const bool alone = was_told_to_stop(run);

    /* Each process that is left is reported, and may have been continued since. */
    if (run->ended && (!alone || !run->stop_stands || signals_was_continued()))
        return;
    run->stop_ns = 0;
    /* In a pipeline, or after `fg` of a running job, the command needs the terminal only now. */
    if (wants_terminal && terminal_is_ours(run)) {
        run->terminal_wanted = true;
        if (run->ours_fd < 0 && !signals_was_continued())
            resume_unless_lost(run); /* the wrapper was not stopped */
        return;
    }
    if (!alone && !typed && (number == SIGSTOP || run->terminal < 0))
        return; /* it was stopped by its pid, and will be continued by its pid */
    /* If this run is the command of another run, the other run must see that the terminal is wanted. */
    signals_stop(run, wants_terminal ? number : SIGTSTP, alone);
    /* Without a shell with job control, no process could continue the wrapper, so it was not stopped. Continue the command, or
     * the terminal would hang forever. */
    if (typed && !signals_was_continued())
        resume(run);
}

/* Another process of the wrapper's group needs the terminal, so the whole group was stopped. If the command has the terminal,
 * only the wrapper can help. */
static void on_group_wants_terminal(struct run *run, int number)
{
    if (terminal_take_back(run)) {
        run->terminal_shared = true;
        signals_continue_others();
    } else if (number == SIGTTIN && !signals_was_continued()) {
        signals_stop(run, number, true); /* in the background of a shell */
    }
}

static void on_signal(struct run *run, int number, bool typed)
{
    if (number == SIGCHLD) {
        run_reap_strangers(run); /* the keeper's socket reports its death */
        return;
    }
    if (number == SIGCONT) {
        run->stop_again = run->stop_stands = false;
        resume(run);
        return;
    }
    if (number == SIGTSTP) {
        run->stop_again = true; /* it came after a CONT that may wait, and is passed on after it */
        if (run->ours_fd < 0 && !run->resume_wanted)
            pass_stop_on(run);
        return;
    }
    if (number == SIGTTIN || number == SIGTTOU) {
        on_group_wants_terminal(run, number);
        return;
    }
    if (signals_is_ending(number)) {
        run->ending_signal = number;
        run->signal_ns = boottime_ns();
        run->leave_wanted = run->lost || run->late;
    }
    if (number == SIGINT || number == SIGQUIT) {
        run->passed_on = number;
        run->passed_on_typed = terminal_typed(run, number, typed);
    }
    pass_on(run, number);
    if (run->ended && signals_is_ending(number))
        continue_rest(run);
}

static void on_answer(struct run *run)
{
    const bool again = run->ask_again;

    run->lost = !ours_answer(run->ours_fd) || run->lost;
    run->ours_fd = -1;
    run->ask_again = false;
    if (again && !run->lost) {
        resume(run);
        return;
    }
    resume_unless_lost(run);
    if (run->stop_again && !run->resume_wanted)
        pass_stop_on(run); /* the lock is lost */
}

/* ---- The keeper ------------------------------------------------------------------------------ */

static void on_ended(struct run *run)
{
    run->ended = true;
    run->wait_status = atomic_load(&run->keeper.page->wait_status);
    run->had_terminal = terminal_is_commands(run);
    terminal_take(run);
}

/* The keeper is gone. If it was killed, the kernel killed the command too (unless that runs as another user), and the wrapper
 * got its other children. */
static void on_keeper_gone(struct run *run)
{
    const struct keeper_page *page = run->keeper.page;

    run->gone = true;
    if (!run->ended && atomic_load(&page->ended))
        on_ended(run);
    if (atomic_load(&page->done))
        return;
    const bool started = atomic_load(&page->command_pid) != 0;
    run_say(run->keeper_stuck
                ? "%s: the keeper process does not answer; the command is killed without it"
            : started ? "%s: the keeper process was killed; the command is killed too"
                      : "%s: the keeper process was killed; the command was not started",
            run->shown);
    terminal_take(run);
    run_end_family(run);
    run->keeper.pid = 0; /* run_end_family() has waited for it */
    close(run->keeper.socket);
    if (!run->ended)
        run->wait_status = started ? SIGKILL : EXIT_SYSTEM << 8;
}

static void on_message(struct run *run, const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_LOOK:
        look_for_loss(run);
        run->asked = true;
        run_publish(run);
        break;
    case MESSAGE_STOPPED:
        on_stopped(run, message->value);
        break;
    case MESSAGE_ENDED:
        on_ended(run);
        if (run->ending_signal != 0 || signals_is_ending(WTERMSIG(run->wait_status)))
            continue_rest(run); /* processes that were stopped before have the signal as well */
        break;
    case MESSAGE_LATE:
        on_late(run, message->value != 0);
        break;
    case MESSAGE_RENEWED:
        on_renewed(run, message->value != 0);
        break;
    case MESSAGE_DONE:
        if (!run->ended)
            on_ended(run);
        run->gone = true;
        break;
    default:
        break;
    }
}

static void on_keeper(struct run *run)
{
    struct message message;

    while (!run->gone) {
        int got = keeper_receive(&run->keeper, &message);
        if (got == 0)
            return;
        if (got < 0)
            on_keeper_gone(run);
        else
            on_message(run, &message);
    }
}

/* ---- The loop -------------------------------------------------------------------------------- */

enum { LOOK_AGAIN_MS = 20, LOOK_AT_REST_MS = 1000, START_WITHIN_MS = 2000 };

/* Sends the messages for which the kernel had no memory. Without START there is no command for which to hold the lock, and
 * none that a signal could end. So this gives up after a time, as if the keeper had been killed. */
static void send_rest(struct run *run, int64_t begin_ns)
{
    struct keeper *keeper = &run->keeper;

    if (keeper->unsent_count == 0 || run->gone)
        return;
    if (start_is_unsent(keeper))
        run_publish(run);
    keeper_send_rest(keeper);
    if (start_is_unsent(keeper) && boottime_ns() > begin_ns + START_WITHIN_MS * MS_NS)
        kill(keeper->pid, SIGKILL);
}

/* Whether a renewal may be on its way and something waits for it. */
static bool expects_renewal(const struct run *run)
{
    return (run->asked || run->late || run->resume_wanted) && !run->lost && !run->gone;
}

static bool watches_killing(const struct run *run)
{
    return run->lost && !run->warn_only;
}

static void on_timeout(struct run *run)
{
    if (watches_killing(run))
        run_watch_killing(run);
    if (run->ended && !run->rest_told &&
        boottime_ns() >= atomic_load(&run->keeper.page->ended_ns) + LOOK_AT_REST_MS * MS_NS)
        run_say_rest(run);
    if (expects_renewal(run) && run->resume_wanted)
        resume_if_renewed(run);
    else if (expects_renewal(run))
        run_publish(run);
}

static int timeout_ms(const struct run *run)
{
    /* Also when the command has ended, because its family goes on under the lock. */
    if (expects_renewal(run) || run->keeper.unsent_count > 0)
        return LOOK_AGAIN_MS;
    if (watches_killing(run))
        return run_watch_again_ms(run);
    return run->ended && !run->rest_told ? LOOK_AT_REST_MS : -1;
}

/* Returns when on_timeout() is due. Events in the meantime, an endless stream of signals for example, do not delay it. */
static int64_t next_due(const struct run *run, int64_t due_ns)
{
    const int wait_ms = timeout_ms(run);
    const int64_t from_now_ns = boottime_ns() + wait_ms * MS_NS;

    if (wait_ms < 0)
        return NEVER_NS;
    return from_now_ns < due_ns ? from_now_ns : due_ns;
}

static int left_ms(int64_t due_ns)
{
    const int64_t left_ns = due_ns - boottime_ns();

    if (due_ns == NEVER_NS)
        return -1;
    return left_ns > 0 ? (int)(left_ns / MS_NS + 1) : 0;
}

void run_hold(struct run *run)
{
    const int64_t begin_ns = boottime_ns();
    int64_t due_ns = NEVER_NS;

    run->ours_fd = -1;
    run_fill_page(run);
    run_publish(run); /* last: the keeper starts no command after the time to act */
    keeper_send(&run->keeper, MESSAGE_START, 0);
    while (!run->gone) {
        struct pollfd fds[] = {{.fd = run->signals, .events = POLLIN},
                               {.fd = run->events, .events = POLLIN},
                               {.fd = run->keeper.socket, .events = POLLIN},
                               {.fd = run->ours_fd, .events = POLLIN}};
        due_ns = next_due(run, due_ns);
        int ready = poll(fds, 4, left_ms(due_ns));
        if (boottime_ns() >= due_ns) {
            on_timeout(run);
            due_ns = NEVER_NS;
        }
        if (ready > 0 && fds[1].revents != 0)
            mortise_dispatch(run->client);
        look_for_loss(run);
        run_say_kept();
        send_rest(run, begin_ns);
        if (ready > 0 && fds[2].revents != 0)
            on_keeper(run);
        bool typed = false;
        for (int number; ready > 0 && !run->gone && (number = signals_next(run, &typed)) != 0;)
            on_signal(run, number, typed);
        if (ready > 0 && fds[3].revents != 0 && !run->gone)
            on_answer(run);
        run->gone = run->gone || run->abandoned;
    }
    settle(run);
}
