/* run_rest.c - `mortise run`: processes that are left when the command should be gone.
 *
 * Some processes cannot be killed: those that hang in the kernel (state D), and those that run as another user. The user
 * must see which ones, and a signal must still end the wrapper. run.c has the model. */
#include "run.h"

#include "clock.h"
#include "output.h"
#include "text.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS_NS INT64_C(1000000)

struct rest {
    pid_t except, first;
    int count;
};

static void count_rest(pid_t child, void *argument)
{
    struct rest *rest = argument;

    if (child == rest->except)
        return;
    if (rest->count++ == 0)
        rest->first = child;
}

static void read_proc(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
}

static void name_of(pid_t pid, char *shown, size_t size)
{
    char name[64];

    read_proc(pid, "comm", name, sizeof name);
    name[strcspn(name, "\n")] = '\0';
    printable(name, shown, size);
}

static const char *more_than_one(const struct rest *rest, char *text, size_t size)
{
    text[0] = '\0';
    if (rest->count > 1)
        snprintf(text, size, " and %d more", rest->count - 1);
    return text;
}

void run_say_rest(struct run *run)
{
    struct rest rest = {.except = atomic_load(&run->keeper.page->command_pid)};
    char name[256], more[32];

    run->rest_told = true;
    family_each(run->keeper.pid, count_rest, &rest);
    if (rest.count == 0)
        return;
    name_of(rest.first, name, sizeof name);
    run_say("%s is still held: the command has ended, but processes that it started go on: %s (pid "
            "%d)%s",
            run->shown, name, (int)rest.first, more_than_one(&rest, more, sizeof more));
}

/* ---- What cannot be killed --------------------------------------------------------------------- */

/* "user 1000, state D: it waits in the kernel". By number, because a look-up of the name may hang too. */
static void describe(pid_t pid, char *text, size_t size)
{
    char status[1024];
    unsigned user = 0;
    char state = '?';

    read_proc(pid, "status", status, sizeof status);
    const char *line = strstr(status, "\nState:");
    if (line != NULL)
        sscanf(line, "\nState: %c", &state);
    line = strstr(status, "\nUid:");
    if (line == NULL || sscanf(line, "\nUid: %u", &user) != 1)
        snprintf(text, size, "state %c", state);
    else if (user == 0)
        snprintf(text, size, "user root, state %c", state);
    else
        snprintf(text, size, "user %u, state %c", user, state);
    if (state == 'D')
        snprintf(text + strlen(text), size - strlen(text), ": it waits in the kernel");
}

static void say_unkillable(struct run *run, pid_t parent)
{
    struct rest rest = {.except = 0};
    char name[256], described[96], more[32];

    if (run->rest_unkillable_told)
        return;
    family_each(parent, count_rest, &rest);
    if (rest.count == 0)
        return;
    run->rest_unkillable_told = true;
    name_of(rest.first, name, sizeof name);
    describe(rest.first, described, sizeof described);
    run_say(
        "%s: cannot kill %s (pid %d, %s)%s; mortise tries again until it is gone; a signal ends "
        "mortise",
        run->shown, name, (int)rest.first, described, more_than_one(&rest, more, sizeof more));
}

enum {
    UNKILLABLE_AFTER_MS = 2000,
    KEEPER_LATE_MS = 1000,
    KEEPER_ANSWER_MS = 100,
    WATCH_AGAIN_MS = 1000,
    STUCK_LOOKS = 5
};

/* The command goes on, and the keeper goes on trying to kill it; the wrapper does not wait for that. */
static void leave(struct run *run)
{
    run_say("%s: ended by a signal while processes of the command still run", run->shown);
    run->abandoned = true;
    atomic_store(&run->keeper.page->abandoned, 1);
    terminal_take(run);
}

/* After a loss: by when the keeper must have begun to kill. The instants in the page are earlier than this. The keeper also
 * gets a moment after the wrapper has seen the loss, because the whole machine may have been suspended until then. */
static int64_t killing_due_ns(const struct run *run)
{
    const int64_t grace_ms = atomic_load(&run->keeper.page->grace_ms);
    const int64_t grace_end_ns = run->lost_ns + (grace_ms + KEEPER_LATE_MS) * MS_NS;
    const int64_t answer_ns = run->lost_ns + KEEPER_ANSWER_MS * MS_NS;
    const int64_t deadline_ns = run->deadline_ns > answer_ns ? run->deadline_ns : answer_ns;

    return deadline_ns < grace_end_ns ? deadline_ns : grace_end_ns;
}

int run_watch_again_ms(const struct run *run)
{
    const int64_t left_ms = (killing_due_ns(run) - boottime_ns()) / MS_NS + 1;

    if (atomic_load(&run->keeper.page->killing_ns) != 0 || left_ms > WATCH_AGAIN_MS)
        return WATCH_AGAIN_MS;
    return left_ms > 0 ? (int)left_ms : 1;
}

/* Whether the keeper does not kill in time, or does not try again: then it is stopped itself. */
static bool keeper_is_stuck(struct run *run)
{
    const int64_t killing_ns = atomic_load(&run->keeper.page->killing_ns);

    if (killing_ns == 0)
        return run->lost_ns != 0 && boottime_ns() >= killing_due_ns(run);
    if (killing_ns != run->killing_seen_ns) {
        run->killing_seen_ns = killing_ns;
        run->killing_same = 0;
        return false;
    }
    return ++run->killing_same >= STUCK_LOOKS;
}

void run_watch_killing(struct run *run)
{
    const int64_t now_ns = boottime_ns();

    if (keeper_is_stuck(run)) {
        run->keeper_stuck = true;
        kill(run->keeper.pid, SIGKILL); /* the wrapper gets its children */
        return;
    }
    if (atomic_load(&run->keeper.page->killing_ns) == 0)
        return;
    if (run->killing_since_ns == 0)
        run->killing_since_ns = now_ns;
    if (now_ns < run->killing_since_ns + UNKILLABLE_AFTER_MS * MS_NS)
        return;
    say_unkillable(run, run->keeper.pid);
    if (run->leave_wanted)
        leave(run);
}

void run_end_family(struct run *run)
{
    const int64_t begin_ns = boottime_ns();
    int wait_ms = KILL_AGAIN_MS;

    while (!family_kill()) {
        struct pollfd fds[] = {{.fd = run->signals, .events = POLLIN},
                               {.fd = run->events, .events = POLLIN}};
        int ready = poll(fds, 2, wait_ms);
        wait_ms = kill_again_later(wait_ms);
        if (ready > 0 && fds[1].revents != 0)
            mortise_dispatch(run->client); /* on_state notes a loss */
        for (int number; (number = signals_next(run, NULL)) != 0;) {
            if (number == SIGCHLD)
                wait_ms = KILL_AGAIN_MS; /* each death may make new orphans */
            run->leave_wanted = run->leave_wanted || signals_is_ending(number);
        }
        if (boottime_ns() < begin_ns + UNKILLABLE_AFTER_MS * MS_NS)
            continue;
        say_unkillable(run, getpid());
        if (run->leave_wanted) {
            leave(run);
            return;
        }
    }
}

/* ---- Orphans of others ------------------------------------------------------------------------- */

void run_reap_strangers(const struct run *run)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 ||
            info.si_pid == run->keeper.pid)
            return;
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}
