/* run_hold.c - `mortise run` while its command runs: the wrapper's loop.
 *
 * Watches three things: its signals, the library (a lost lease), the keeper (what became of the
 * command). It ends nothing itself, except when the keeper is dead. The model is told in run.c. */
#include "run.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcntl.h>

#define MS_NS INT64_C(1000000)

/* ---- Until when the lock is ours -------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* What is left of the ttl after the margin must hold two tries to renew: half of it at least. */
static int64_t grace_of(struct run *run, int64_t margin_ms, int64_t lead_ms)
{
    char asked[DURATION_SIZE], given[DURATION_SIZE];
    int64_t most_ms = clamp(run->span_ms / 2 - margin_ms - lead_ms, 0, run->span_ms);

    if (run->grace_ms < 0)
        return run->span_ms / 6 < most_ms ? run->span_ms / 6 : most_ms;
    if (run->grace_ms > most_ms && !run->grace_limited) {
        run->grace_limited = true;
        say("%s: a grace of %s does not fit in the ttl and is limited to %s", run->shown,
            format_duration(run->grace_ms, asked), format_duration(most_ms, given));
    }
    return run->grace_ms < most_ms ? run->grace_ms : most_ms;
}

void run_publish(struct run *run)
{
    struct keeper_page *page = run->keeper.page;
    const int64_t now_ns = boottime_ns(); /* before the question: an instant too early is safe */
    const int64_t left_ms = mortise_remaining_ms(run->lease);
    const int64_t deadline_ns = now_ns + left_ms * MS_NS;

    /* Milliseconds are rounded: what moves by less was not renewed, and the keeper must see that. */
    if (left_ms <= 0 || deadline_ns <= run->deadline_ns + 2 * MS_NS)
        return;
    run->deadline_ns = deadline_ns;
    run->asked = false;
    /* Not the ttl: what a session holds may be good for less. */
    run->span_ms = left_ms > run->span_ms ? left_ms : run->span_ms;
    /* The lead is for us to answer in, on a machine that is busy; the margin for the dead to go. */
    const int64_t margin_ms = clamp(run->span_ms / 20, 5, 500);
    const int64_t lead_ms = clamp(run->span_ms / 6, 5, 500);
    const int64_t grace_ms = grace_of(run, margin_ms, lead_ms);
    atomic_store(&page->grace_ms, grace_ms);
    atomic_store(&page->kill_ns, deadline_ns - margin_ms * MS_NS);
    atomic_store(&page->act_ns, deadline_ns - (margin_ms + grace_ms) * MS_NS);
    atomic_store(&page->ask_ns, deadline_ns - (margin_ms + grace_ms + lead_ms) * MS_NS);
}

/* ---- Loss ------------------------------------------------------------------------------------ */

static const char *consequence(const struct run *run)
{
    return run->warn_only ? "the command goes on without it" : "the command is being ended";
}

static void look_for_loss(struct run *run)
{
    if (!run->lost && mortise_state(run->lease) == MORTISE_STATE_LOST)
        run->lost = true;
    if (!run->lost || run->lost_told)
        return;
    run->lost_told = true;
    run->lost_ns = boottime_ns();
    keeper_send(&run->keeper, MESSAGE_LOST, 0);
    say("%s: the lock was lost; %s", run->shown, consequence(run));
}

static void on_late(struct run *run)
{
    if (!run->lost)
        say("%s: the lock could not be renewed in time; %s", run->shown, consequence(run));
    run->lost = run->lost_told = true;
    run->lost_ns = boottime_ns();
}

/* ---- Stop and continue ----------------------------------------------------------------------- */

/* We may have been away for long. The clock says whether the deadline has passed; whether an operator
 * broke the lock, or another has it, only the backend knows, and the next renewal would ask it too late.
 * Where it does not answer, or cannot tell, the deadline stands, and the keeper sees to it. */
static bool is_still_ours(const struct run *run)
{
    mortise_info info = {.size = sizeof info};
    char owner[MORTISE_OWNER_MAX + 1];

    if (mortise_inspect(run->client, run->name, &info, NULL) != MORTISE_OK)
        return true;
    mortise_owner(run->lease, owner, sizeof owner);
    return info.held && info.token == mortise_token(run->lease) && strcmp(info.owner, owner) == 0;
}

static void resume(struct run *run)
{
    if (!run->lost && mortise_state(run->lease) != MORTISE_STATE_LOST && !is_still_ours(run))
        run->lost = true;
    look_for_loss(run);
    if (run->lost && !run->warn_only)
        return; /* what was stopped stays so until it is killed */
    run_publish(run);
    if (!run->ended)
        terminal_give(run);
    keeper_send(&run->keeper, MESSAGE_SIGNAL, SIGCONT);
}

static bool was_continued(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

/* The command was stopped: so are we, then, and the shell sees its job stopped. */
static void on_stopped(struct run *run, int number)
{
    const bool typed = terminal_is_commands(run), alone = run->stop_alone;

    run->stop_alone = false;
    if ((number == SIGTTIN || number == SIGTTOU) && terminal_is_ours(run)) {
        resume(run); /* `fg` of a job that was running: only now it wants the terminal */
        return;
    }
    if (!alone && !typed && (number == SIGSTOP || run->terminal < 0))
        return; /* somebody stopped the command by its pid, and will continue it so */
    signals_stop(run, alone);
    /* Nobody could continue us (no shell with job control), so we were not stopped: the terminal would
     * be dead for ever. */
    if (typed && !was_continued())
        resume(run);
}

static void on_signal(struct run *run, int number)
{
    if (number == SIGCHLD)
        return; /* the keeper's death shows at its socket */
    if (number == SIGCONT) {
        resume(run);
        return;
    }
    if (number == SIGTSTP)
        run->stop_alone = true;
    if (number == SIGINT || number == SIGQUIT)
        run->passed_on = number;
    keeper_send(&run->keeper, MESSAGE_SIGNAL, number);
}

/* ---- The keeper ------------------------------------------------------------------------------ */

static void on_ended(struct run *run)
{
    run->ended = true;
    run->wait_status = atomic_load(&run->keeper.page->wait_status);
    run->had_terminal = terminal_is_commands(run);
    terminal_take(run);
}

/* The keeper is gone. Where it was killed, the kernel killed the command, and what it left behind came
 * to us. */
static void on_keeper_gone(struct run *run)
{
    const struct keeper_page *page = run->keeper.page;

    run->gone = true;
    if (!run->ended && atomic_load(&page->ended))
        on_ended(run);
    if (atomic_load(&page->late))
        on_late(run);
    if (atomic_load(&page->done))
        return;
    say("%s: the keeper process was killed, and the command with it", run->shown);
    terminal_take(run);
    family_end();
    run->keeper.pid = 0; /* waited for, with the rest */
    close(run->keeper.socket);
    if (!run->ended)
        run->wait_status = SIGKILL;
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
        break;
    case MESSAGE_LATE:
        on_late(run);
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

/* ---- What is left of the command ------------------------------------------------------------- */

struct rest {
    pid_t command, first;
    int count;
};

static void count_rest(pid_t child, void *argument)
{
    struct rest *rest = argument;

    if (child == rest->command)
        return;
    if (rest->count++ == 0)
        rest->first = child;
}

static void name_of(pid_t pid, char *shown, size_t size)
{
    char path[64], name[64] = "";
    int fd;

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, name, sizeof name - 1) : 0;
    if (fd >= 0)
        close(fd);
    name[length > 0 ? length : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    printable(name, shown, size);
}

/* Said once, when the command is dead and others of its family go on: else nobody would know why the
 * lock is not released. */
static void say_rest(struct run *run)
{
    struct rest rest = {.command = atomic_load(&run->keeper.page->command_pid)};
    char name[256], more[32] = "";

    run->rest_told = true;
    family_each(run->keeper.pid, count_rest, &rest);
    if (rest.count == 0)
        return;
    name_of(rest.first, name, sizeof name);
    if (rest.count > 1)
        snprintf(more, sizeof more, " and %d more", rest.count - 1);
    say("%s is kept: the command has ended, but what it started goes on: %s (pid %d)%s", run->shown,
        name, (int)rest.first, more);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void fill_page(struct run *run)
{
    struct keeper_page *page = run->keeper.page;
    mortise_module_info info = {.size = sizeof info};
    const char *driver = "";

    for (size_t i = 0; mortise_module_at(run->client, i, &info); i++) {
        if (strcmp(info.kind, "driver") == 0) {
            driver = info.name;
            break;
        }
    }
    snprintf(page->name, sizeof page->name, "%s", run->name);
    snprintf(page->driver, sizeof page->driver, "%s", driver);
    mortise_owner(run->lease, page->owner, sizeof page->owner);
    page->token = mortise_token(run->lease);
    page->warn_only = run->warn_only;
    page->foreground = terminal_is_ours(run);
}

enum { LOOK_AGAIN_MS = 20, REST_TOLD_AFTER_MS = 1000, KEEPER_LATE_MS = 1000 };

/* A keeper that does not end the command in time is itself stopped: killed, it leaves the rest to us. */
static bool keeper_is_late(const struct run *run)
{
    int64_t grace_ms = atomic_load(&run->keeper.page->grace_ms);

    return boottime_ns() > run->lost_ns + (grace_ms + KEEPER_LATE_MS) * MS_NS;
}

static void on_timeout(struct run *run)
{
    if (run->lost && !run->warn_only && keeper_is_late(run))
        kill(run->keeper.pid, SIGKILL);
    if (run->ended && !run->rest_told)
        say_rest(run);
    if (run->asked)
        run_publish(run);
}

static int timeout_ms(const struct run *run)
{
    bool wanted = (run->ended && !run->rest_told) || (run->lost && !run->warn_only);

    if (run->asked && !run->lost && !run->ended)
        return LOOK_AGAIN_MS; /* the renewal may be on its way */
    return wanted ? REST_TOLD_AFTER_MS : -1;
}

void run_hold(struct run *run)
{
    run_publish(run);
    fill_page(run);
    keeper_send(&run->keeper, MESSAGE_START, 0);
    while (!run->gone) {
        struct pollfd fds[] = {{.fd = run->signals, .events = POLLIN},
                               {.fd = run->events, .events = POLLIN},
                               {.fd = run->keeper.socket, .events = POLLIN}};
        int ready = poll(fds, 3, timeout_ms(run));
        if (ready == 0)
            on_timeout(run);
        if (ready > 0 && fds[1].revents != 0)
            mortise_dispatch(run->client);
        look_for_loss(run);
        if (ready > 0 && fds[2].revents != 0)
            on_keeper(run);
        for (int number; ready > 0 && !run->gone && (number = signals_next(run)) != 0;)
            on_signal(run, number);
    }
}
