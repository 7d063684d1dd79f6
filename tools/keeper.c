/* keeper.c - the keeper's life: it is the command's parent, reaps the command's family, and is the only process that ends it.
 *
 * Three things make it act: a message of the wrapper (a signal to pass on, a lost lock), the wrapper's death, and the clock. The
 * wrapper moves the instants in the shared page on. If it does not do so in time, because the server is unreachable or the
 * wrapper is stopped, the keeper ends the command, so that all processes are gone before the deadline. Signals are blocked here:
 * until the keeper only has locks to release, only SIGKILL and SIGSTOP affect it.
 *
 * The keeper does not wait for a dead command (waitpid) until the rest of its family is gone. So the kernel cannot give its pid,
 * which is the group's number, to another process, and a signal to the group never hits another group. */
#include "keeper.h"

#include "clock.h"
#include "exit_code.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ORPHANED_GRACE_MS = 400, /* between TERM and KILL when the wrapper is dead */
    ANSWER_MS = 10           /* for the wrapper to move the page on, when asked late */
};

enum phase { IDLE, RUNNING, ENDING, KILLING, OVER /* no process is left, but the wrapper */ };

struct state {
    struct keeper_page *page;
    const struct keeper_setup *setup;
    pid_t wrapper_group;
    int socket, children, timer; /* what is polled */
    struct keeper_witness witness;
    int lease_read, lease_write; /* MORTISE_LEASE_FD: end of file once lease_write is closed */
    enum phase phase;
    pid_t command;
    bool command_dead, command_waited_for, command_stopped;
    bool wrapper_dead, lost;
    bool late, late_told; /* ENDING because no renewal came; the command was sent TERM for it */
    int kill_again_ms;
    bool look_sent;       /* false: memory was short; LOOK is sent again */
    int64_t asked_for_ns; /* the ask_ns for which LOOK was sent; answered if the page has another */
    int64_t answer_by_ns; /* by when LOOK should be answered */
    int64_t kill_at_ns;   /* valid while ENDING */
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool tell(struct state *state, enum message_kind kind, int32_t value)
{
    struct message message = {(int32_t)kind, value};

    /* A stopped wrapper does not read, so everything important is in the page too. */
    return send(state->socket, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* ---- Signals to the family ------------------------------------------------------------------- */

static void signal_group(struct state *state, int number)
{
    if (state->command <= 0 || state->command_waited_for)
        return;
    killpg(state->command, number);
    if (getpgid(state->command) != state->command)
        kill(state->command, number); /* the command has left its group */
}

/* Also to orphans outside of the group (daemons, other sessions). */
static void signal_everyone(struct state *state, int number)
{
    signal_group(state, number);
    family_signal_others(state->command, number);
}

static void pass_on(struct state *state, int number)
{
    bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;

    /* Also SIGCONT, because a stopped process acts on other signals only after it. */
    if (state->command_dead && (ends || number == SIGCONT))
        signal_everyone(state, number);
    else
        signal_group(state, number);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void close_lease(struct state *state)
{
    if (state->lease_write >= 0)
        close(state->lease_write);
    state->lease_write = -1;
}

static void kill_everyone(struct state *state)
{
    atomic_store(&state->page->killing_ns, boottime_ns());
    signal_everyone(state, SIGKILL);
}

static void begin_killing(struct state *state)
{
    close_lease(state);
    state->phase = KILLING;
    state->kill_again_ms = KILL_AGAIN_MS;
    kill_everyone(state);
}

/* TERM now, and KILL after the grace, but in any case before the deadline (with --on-loss=warn that may be long past). A stopped
 * group is not continued, because it must not run without the lock: it is killed while it is stopped. */
static void begin_ending(struct state *state, int64_t grace_ms)
{
    const int64_t limit_ns = state->page->warn_only ? NEVER_NS : atomic_load(&state->page->kill_ns);
    int64_t kill_at_ns = earlier(boottime_ns() + grace_ms * 1000000, limit_ns);

    close_lease(state);
    state->late = false; /* whatever began the ending, it is not called off any more */
    if (state->phase == ENDING) {
        state->kill_at_ns = earlier(state->kill_at_ns, kill_at_ns);
        return;
    }
    if (state->phase != RUNNING)
        return;
    state->phase = ENDING;
    state->kill_at_ns = kill_at_ns;
    signal_everyone(state, SIGTERM);
}

static void begin_lost(struct state *state)
{
    state->lost = true;
    if (state->page->warn_only)
        close_lease(state);
    else
        begin_ending(state, atomic_load(&state->page->grace_ms));
}

/* The wrapper judges by the end of the grace whether the command ended because of TERM. */
static void tell_to_end(struct state *state)
{
    atomic_store(&state->page->grace_end_ns, state->kill_at_ns);
    close_lease(state);
    signal_everyone(state, SIGTERM);
}

/* No renewal came. If one still comes before KILL, it calls the ending off. A stopped command gets no TERM: it
 * would act on TERM only when it is continued. */
static void begin_late(struct state *state)
{
    const bool told = !state->command_stopped;

    atomic_store(&state->page->late, 1);
    tell(state, MESSAGE_LATE, told);
    if (state->page->warn_only) {
        begin_lost(state);
        return;
    }
    state->phase = ENDING;
    state->late = true;
    state->late_told = told;
    state->kill_at_ns = atomic_load(&state->page->kill_ns);
    if (told)
        tell_to_end(state);
}

/* True: the wrapper has published a renewal, and the command goes on running. */
static bool call_off(struct state *state)
{
    if (state->phase != ENDING || !state->late ||
        boottime_ns() >= atomic_load(&state->page->act_ns))
        return false;
    state->phase = RUNNING;
    state->late = false;
    atomic_store(&state->page->late, 0);
    tell(state, MESSAGE_RENEWED, state->late_told);
    return true;
}

/* The end: no process uses the locks any more. keeper_witness_release() closes stderr, so say the line first. */
static _Noreturn void leave(struct state *state, bool ended_command)
{
    if (ended_command && !atomic_load(&state->page->abandoned))
        say_if_possible("the process that held the lock was killed; its command was ended");
    if (!atomic_load(&state->page->parting))
        keeper_witness_release(&state->witness);
    _exit(EXIT_DONE);
}

static void wrapper_died(struct state *state)
{
    state->wrapper_dead = true;
    if (state->phase == IDLE || state->phase == OVER)
        leave(state, false);
    begin_ending(state, ORPHANED_GRACE_MS);
}

static void give_terminal_back(struct state *state)
{
    if (tcgetpgrp(state->setup->terminal) == state->command)
        tcsetpgrp(state->setup->terminal, state->wrapper_group);
}

static void all_gone(struct state *state)
{
    state->phase = OVER;
    atomic_store(&state->page->done, 1);
    if (!state->wrapper_dead) {
        /* Without that message the wrapper would wait forever. So it gets end of file, and reads the rest from the page. */
        if (!tell(state, MESSAGE_DONE, 0))
            shutdown(state->socket, SHUT_WR);
        return;
    }
    give_terminal_back(state);
    leave(state, true);
}

/* ---- Children -------------------------------------------------------------------------------- */

static void command_died(struct state *state)
{
    siginfo_t info = {0};

    waitid(P_PID, (id_t)state->command, &info, WEXITED | WNOHANG | WNOWAIT);
    const bool exited = info.si_code == CLD_EXITED;
    const int status = exited ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
    state->command_dead = true;
    state->command_stopped = false; /* the processes that it left get SIGTERM, stopped or not */
    atomic_store(&state->page->wait_status, status);
    atomic_store(&state->page->ended_ns, boottime_ns());
    atomic_store(&state->page->ended, 1);
    tell(state, MESSAGE_ENDED, status);
}

/* Reaps dead children until it meets the dead command, which stays unreaped. */
static void reap_until_command(struct state *state)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        if (info.si_pid == state->command) {
            command_died(state);
            return;
        }
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}

static void reap_child(pid_t child, void *command)
{
    if (child != *(const pid_t *)command)
        waitpid(child, NULL, WNOHANG);
}

/* The command is dead: reaps the rest of its family, and the command at the very end. Only family_alive() decides that no process
 * is left: the list of children may miss a child while others end, and is empty if there is no /proc. If the command were reaped
 * too early, signals would not reach the rest of its group any more. */
static void reap_rest(struct state *state)
{
    if (family_alive()) {
        family_each(getpid(), reap_child, &state->command);
        return;
    }
    state->command_waited_for = true;
    pid_t child;
    while ((child = waitpid(-1, NULL, WNOHANG)) > 0)
        continue;
    if (child < 0 && errno == ECHILD)
        all_gone(state);
}

/* When the command is dead, reports the stops of the processes that it left in its group. */
static void look_for_stop(struct state *state)
{
    const idtype_t which = state->command_dead ? P_PGID : P_PID;
    const int events = WSTOPPED | WCONTINUED | WNOHANG;
    siginfo_t info = {0};

    while (waitid(which, (id_t)state->command, &info, events) == 0 && info.si_pid != 0) {
        const bool stopped = info.si_code != CLD_CONTINUED;
        state->command_stopped = stopped && !state->command_dead;
        if (stopped) {
            tell(state, MESSAGE_STOPPED, info.si_status);
        } else if (state->phase == ENDING && state->late && !state->late_told) {
            state->late_told = true; /* the command was continued, but has no lock any more */
            tell_to_end(state);
        }
    }
}

static void on_children(struct state *state)
{
    struct signalfd_siginfo drained[8];

    while (read(state->children, drained, sizeof drained) > 0)
        continue;
    if (state->phase == IDLE || state->phase == OVER)
        return;
    if (!state->command_dead)
        reap_until_command(state);
    look_for_stop(state);
    if (state->command_dead)
        reap_rest(state);
    if (state->phase == KILLING) {
        state->kill_again_ms = KILL_AGAIN_MS; /* each death may bring new orphans */
        kill_everyone(state);
    }
}

/* ---- Messages of the wrapper ----------------------------------------------------------------- */

static void start(struct state *state)
{
    /* The wrapper was stopped before it sent this: another client may have the lock by now. */
    if (boottime_ns() >= atomic_load(&state->page->act_ns)) {
        state->command_waited_for = true;
        atomic_store(&state->page->late, 1);
        all_gone(state);
        return;
    }
    state->command = command_start(state->page, state->setup, state->lease_read);
    if (state->command < 0) {
        atomic_store(&state->page->start_errno, errno);
        atomic_store(&state->page->wait_status, EXIT_SYSTEM << 8);
        all_gone(state);
        return;
    }
    close(state->lease_read);
    atomic_store(&state->page->command_pid, state->command);
    state->phase = RUNNING;
}

static void on_message(struct state *state)
{
    struct message message;

    for (;;) {
        ssize_t length = recv(state->socket, &message, sizeof message, MSG_DONTWAIT);
        if (length == 0 || (length < 0 && errno == ECONNRESET)) {
            wrapper_died(state);
            return;
        }
        if (length != (ssize_t)sizeof message)
            return;
        if (message.kind == MESSAGE_START && state->phase == IDLE)
            start(state);
        else if (message.kind == MESSAGE_SIGNAL) {
            call_off(state); /* before SIGCONT: the page has the renewal that allows it */
            pass_on(state, message.value);
        } else if (message.kind == MESSAGE_LOST)
            begin_lost(state);
    }
}

/* ---- The clock ------------------------------------------------------------------------------- */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void on_running_time(struct state *state, int64_t now_ns)
{
    /* In this order: even if the wrapper moves them on in between, the keeper never acts without having asked. */
    const int64_t ask_ns = atomic_load(&state->page->ask_ns);
    const int64_t act_ns = atomic_load(&state->page->act_ns);

    if (state->lost || now_ns < ask_ns)
        return;
    if (state->asked_for_ns != ask_ns || (!state->look_sent && now_ns < act_ns)) {
        /* If LOOK is sent late (the machine was suspended), the wrapper still gets a moment to answer. */
        state->asked_for_ns = ask_ns;
        state->answer_by_ns = now_ns + ANSWER_MS * 1000000;
        state->look_sent = tell(state, MESSAGE_LOOK, 0);
    } else if (now_ns >= later(act_ns, state->answer_by_ns)) {
        begin_late(state);
    }
}

static void on_time(struct state *state)
{
    const int64_t now_ns = boottime_ns();
    uint64_t times;

    while (read(state->timer, &times, sizeof times) > 0)
        continue;
    if (state->phase == RUNNING)
        on_running_time(state, now_ns);
    else if (state->phase == ENDING && now_ns >= state->kill_at_ns && !call_off(state))
        begin_killing(state);
    else if (state->phase == KILLING) {
        state->kill_again_ms = kill_again_later(state->kill_again_ms);
        kill_everyone(state);
    }
}

static int64_t next_due(struct state *state)
{
    int64_t ask_ns;

    switch (state->phase) {
    case IDLE:
    case OVER:
        break;
    case RUNNING:
        if (state->lost)
            break;
        ask_ns = atomic_load(&state->page->ask_ns);
        if (state->asked_for_ns == ask_ns && !state->look_sent)
            return state->answer_by_ns;
        if (state->asked_for_ns == ask_ns)
            return later(atomic_load(&state->page->act_ns), state->answer_by_ns);
        return ask_ns;
    case ENDING:
        return state->kill_at_ns;
    case KILLING:
        return boottime_ns() + (int64_t)state->kill_again_ms * 1000000;
    }
    return NEVER_NS;
}

static void arm_timer(struct state *state)
{
    int64_t due_ns = next_due(state);
    struct itimerspec when = {0};

    if (due_ns != NEVER_NS) {
        due_ns = due_ns > 0 ? due_ns : 1; /* zero would disarm it */
        when.it_value.tv_sec = due_ns / 1000000000;
        when.it_value.tv_nsec = due_ns % 1000000000;
    }
    timerfd_settime(state->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static bool prepare(struct state *state)
{
    sigset_t everything, child;
    int lease[2];

    sigfillset(&everything);
    sigprocmask(SIG_SETMASK, &everything, NULL);
    setpgid(0, 0); /* `kill -9 %1` and ^C mean the wrapper's group or the command's, not this one */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "mortise-keeper");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    state->children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    state->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (state->children < 0 || state->timer < 0 || pipe2(lease, O_CLOEXEC) != 0)
        return false;
    state->lease_read = lease[0];
    state->lease_write = lease[1];
    return true;
}

_Noreturn void keeper_main(struct keeper_page *page, int socket, int witness, pid_t wrapper_group,
                           const struct keeper_setup *setup)
{
    struct state state = {.page = page,
                          .setup = setup,
                          .wrapper_group = wrapper_group,
                          .socket = socket,
                          .witness = {.socket = witness, .pidfd = -1, .area = -1},
                          .phase = IDLE,
                          .lease_write = -1};

    if (!prepare(&state)) {
        say("the keeper cannot start: %s", strerror(errno));
        _exit(EXIT_SYSTEM);
    }
    for (;;) {
        struct pollfd fds[] = {{.fd = state.wrapper_dead ? -1 : socket, .events = POLLIN},
                               {.fd = state.children, .events = POLLIN},
                               {.fd = state.timer, .events = POLLIN},
                               {.fd = state.witness.socket, .events = POLLIN}};
        arm_timer(&state);
        if (poll(fds, 4, -1) < 0)
            continue;
        if (fds[3].revents != 0)
            keeper_witness_read(&state.witness);
        if (fds[1].revents != 0)
            on_children(&state);
        if (fds[0].revents != 0)
            on_message(&state);
        if (fds[2].revents != 0)
            on_time(&state);
    }
}
