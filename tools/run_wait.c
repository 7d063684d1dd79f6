/* run_wait.c - `mortise run` until it holds the lock: queue, signals, and the message if it fails.
 *
 * The acquire is asynchronous, so that one poll loop sees the lock and the signals: INT, TERM, HUP and QUIT leave the
 * queue at once. */
#include "run.h"

#include "clock.h"
#include "duration.h"
#include "exit_code.h"
#include "holders.h"
#include "output.h"
#include "text.h"

#include <mortise/witness.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct run *run = user_data;

    if (state == MORTISE_STATE_LOST && run_has_lease(run, lease))
        run->lost = true;
}

static void on_acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                        void *user_data)
{
    struct run *run = user_data;

    run->answered = true;
    run->status = status;
    run->leases[run->asked_for] = lease;
    if (error != NULL)
        run->error = *error;
}

/* ---- Nested runs ----------------------------------------------------------------------------- */

static bool in_list(const char *list, const char *text)
{
    const size_t length = strlen(text);

    while (list != NULL && *list != '\0') {
        size_t word = strcspn(list, " ");
        if (word == length && memcmp(list, text, length) == 0)
            return true;
        list += word + (list[word] == ' ');
    }
    return false;
}

/* The name is part of the word because the process alone is not unique: each of two containers with the same host name has
 * a process 1. It is in hexadecimal because it may hold blanks. */
void run_outer_holder(const char *name, int64_t pid, const char *host, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%" PRId64 "@%s/", pid, host);

    for (; *name != '\0' && length + 2 < size; name++, length += 2)
        snprintf(text + length, size - length, "%02x", (unsigned char)*name);
}

/* Whether the holder is a run around this one: it is recognised by its owner. But a migration uses a grant of its own on each
 * side, so another client may see another owner than the holder. So a run over a migration is also recognised by its process and
 * name. */
static bool is_outer_holder(const mortise_info *info)
{
    const char *owners = getenv(OUTER_OWNERS), *nearest_one = getenv("MORTISE_OWNER");
    char holder[OUTER_HOLDER_SIZE];

    if (info->owner[0] != '\0' &&
        (in_list(nearest_one, info->owner) || in_list(owners, info->owner)))
        return true;
    if (info->pid <= 0)
        return false;
    run_outer_holder(info->name, info->pid, info->host, holder, sizeof holder);
    return in_list(getenv(OUTER_MIGRATING), holder);
}

static bool look_at_holder(const mortise_info *info, void *user_data)
{
    bool *found = user_data;

    *found = is_outer_holder(info);
    return !*found;
}

static bool is_outer_name(const char *name)
{
    const char *outer_name = getenv("MORTISE_NAME");

    return outer_name != NULL && strcmp(outer_name, name) == 0;
}

/* Whether a run around this one holds the same lock: each would wait for the other. (Even if both share the lock, this run would
 * wait behind a writer that waits for the other run.) The backend decides. If it cannot tell, or does not answer (it may answer
 * when the lock is asked for), only $MORTISE_NAME is known: the first name of the nearest run. *answers: whether to ask the
 * backend; set to false if it does not answer. */
static bool would_wait_for_itself(struct run *run, const char *name, bool *answers)
{
    bool found = false;

    if (!*answers)
        return is_outer_name(name);
    signals_end_at_once(run);
    mortise_status status = mortise_holders(run->client, name, look_at_holder, &found, NULL);
    signals_held_back(run);
    *answers = status != MORTISE_UNREACHABLE && status != MORTISE_TIMEDOUT;
    if (status == MORTISE_OK)
        return found;
    return (status == MORTISE_NOTSUP || !*answers) && is_outer_name(name);
}

/* Looks only if this run is inside another one. After a question without an answer it does not ask again, because each takes a
 * long time, and -w limits the time for all names. */
static bool says_it_would_wait_for_itself(struct run *run)
{
    char shown[QUOTED_SIZE];
    bool answers = true;

    if (getenv("MORTISE_OWNER") == NULL)
        return false;
    for (size_t i = 0; i < run->count; i++) {
        if (!would_wait_for_itself(run, run->names[i], &answers))
            continue;
        run_say(
            "%s is held by the mortise run that started this one, which would wait for itself: use "
            "another name, or run the command without a second mortise run",
            quoted(run->names[i], shown, sizeof shown));
        return true;
    }
    return false;
}

/* ---- Failures -------------------------------------------------------------------------------- */

static int64_t waited_ms(const struct run *run)
{
    return (boottime_ns() - run->begin_ns) / 1000000;
}

static void how_it_ended(const struct run *run, char *text, size_t size)
{
    char waited[DURATION_SIZE];

    if (run->wait_ms == 0)
        snprintf(text, size, "not waited for");
    else if (run->wait_ms > 0)
        snprintf(text, size, "gave up after %s", format_duration(run->wait_ms, waited));
    else
        snprintf(text, size, "gave up after %s",
                 format_duration(waited_ms(run) / 1000 * 1000, waited));
}

/* What the backend says about the lock that was asked for. OK is an answer, and so is NOTSUP (it cannot say who holds a lock). */
struct look {
    bool remains; /* this process may have held the lock then, without a lease */
    mortise_status status;
    mortise_info info;
    mortise_error error;
};

/* Takes up to `unreachable_timeout`. A signal may end the process meanwhile: the request needs no clean-up, and if some of
 * several names are held, the keeper releases them. */
static void look_at_lock(struct run *run, struct look *look)
{
    const char *name = run->names[run->asked_for];

    look->info = (mortise_info){.size = sizeof look->info};
    look->remains = mortise_has_remains(run->client, name); /* before the backend looks */
    signals_end_at_once(run);
    look->status = mortise_inspect(run->client, name, &look->info, &look->error);
    signals_held_back(run);
}

static bool is_answer(const struct look *look)
{
    return look->status == MORTISE_OK || look->status == MORTISE_NOTSUP;
}

/* The lock is, or may be, held by a request of this wait that was granted without an answer, and is not undone yet. (Another
 * container may have the same host name and process id. But if the lock is held for longer than this wait, this wait has not
 * acquired it.) */
static bool is_left_behind(const struct run *run, const struct look *look)
{
    const mortise_info *info = &look->info;
    char host[sizeof info->host] = "";

    if (!look->remains || look->status != MORTISE_OK)
        return look->remains && look->status == MORTISE_NOTSUP;
    gethostname(host, sizeof host - 1);
    return info->held && info->held_ms <= waited_ms(run) &&
           (info->pid == 0 || (info->pid == getpid() && strcmp(info->host, host) == 0));
}

/* False if this run may share the lock: only an acquire shows whether a permit is left, or a writer waits. */
static bool is_held_by_another(const struct run *run, const struct look *look)
{
    const mortise_info *info = &look->info;

    return look->status == MORTISE_OK && info->held &&
           (run->mode == MORTISE_EXCLUSIVE || info->mode == MORTISE_EXCLUSIVE);
}

static void say_not_had(const struct run *run, const struct look *look)
{
    char host[4 * sizeof((mortise_info *)0)->host], held[DURATION_SIZE];
    char after[64], since[48] = "", others[48], permits[48] = "", shown[QUOTED_SIZE];
    const mortise_info *info = &look->info;

    how_it_ended(run, after, sizeof after);
    quoted(run->names[run->asked_for], shown, sizeof shown);
    if (!is_answer(look)) {
        run_say("%s was not acquired; %s: %s", shown, after, look->error.message);
        return;
    }
    if (look->status != MORTISE_OK || !info->held) { /* the holder may have released it since */
        run_say("%s was held by another; %s", shown, after);
        return;
    }
    if (info->held_ms >= 0)
        snprintf(since, sizeof since, " for %s", format_duration(info->held_ms, held));
    if (info->permits > 0)
        snprintf(permits, sizeof permits, ", %" PRIu32 " of %" PRIu32 " permits",
                 holders_count(info), info->permits);
    if (info->host[0] != '\0' && info->pid > 0)
        run_say("%s is held by %s (pid %" PRId64 ")%s%s%s; %s", shown,
                printable(info->host, host, sizeof host), info->pid,
                holders_others(info, others, sizeof others), since, permits, after);
    else
        run_say("%s is held by another%s%s; %s", shown, since, permits, after);
}

static int failed_to_acquire(struct run *run)
{
    struct look look;

    run_release(run, false, NULL); /* of several names, a run holds all or none */
    if (run->status != MORTISE_BUSY) {
        run_say("%s", error_text(&run->error));
        return exit_code_of(run->status);
    }
    look_at_lock(run, &look);
    say_not_had(run, &look);
    return run->not_had_code;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Leaves the queue. That takes at most one answer of the backend; after a signal, the wait for it is bounded. */
static int leave(struct run *run, mortise_request request, const struct bounded_end *end)
{
    run->interrupted = end->signalled;
    mortise_cancel(run->client, request);
    signals_bound(run, end);
    while (!run->answered) {
        struct pollfd fd = {.fd = run->events, .events = POLLIN};
        poll(&fd, 1, -1);
        mortise_dispatch(run->client);
    }
    run_release(run, false, NULL); /* it may have come at the last moment; leases may be NULL */
    signals_held_back(run);
    return end->code;
}

static int leave_by_signal(struct run *run, mortise_request request, int number)
{
    return leave(run, request,
                 &(struct bounded_end){.code = EXIT_SIGNAL_BASE + number,
                                       .number = run->typed_end,
                                       .alone = true, /* the group has the signal already */
                                       .signalled = true});
}

/* Without the keeper no command can be started. And if the wrapper is process 1, it would not reap orphans that die after the
 * keeper. */
static int leave_without_keeper(struct run *run, mortise_request request)
{
    run_say("%s: the keeper process was killed; the command was not started", run->shown);
    return leave(run, request, &(struct bounded_end){.code = EXIT_SYSTEM});
}

static int next_ending_signal(struct run *run)
{
    bool typed = false;

    for (int number; (number = signals_next(run, &typed)) != 0;) {
        if (signals_is_ending(number)) {
            run->typed_end = terminal_typed(run, number, typed) ? number : 0;
            return number;
        }
        if (number == SIGCHLD)
            run_reap_strangers(run);
        /* TTIN may be for another process of the group. If its wrapper has handled it, nothing would continue this one. */
        if (number == SIGTSTP ||
            (number == SIGTTIN && !terminal_is_ours(run) && !signals_was_continued()))
            signals_stop(run, number, true);
    }
    return 0;
}

enum { HELD = -1 }; /* no exit code: -E may ask for any */
enum { NOTICE_AFTER_MS = 1000 };

/* True: run->status is the answer. False: the process must end with *code. */
static bool ask_once(struct run *run, int64_t wait_ms, int *code)
{
    const mortise_options *options =
        MORTISE_OPTIONS(.wait_ms = wait_ms, .ttl_ms = run->ttl_ms, .mode = run->mode,
                        .permits = run->permits, .on_state = on_state, .user_data = run);
    mortise_request request;

    run->answered = false;
    run->status = mortise_acquire_async(run->client, run->names[run->asked_for], options,
                                        on_acquired, run, &request, &run->error);
    if (run->status != MORTISE_OK)
        return true;
    mortise_dispatch(run->client);
    while (!run->answered) {
        struct pollfd fds[] = {{.fd = run->signals, .events = POLLIN},
                               {.fd = run->events, .events = POLLIN},
                               {.fd = run->notice_fd, .events = POLLIN},
                               {.fd = run->keeper.socket, .events = POLLIN}};
        int ready = poll(fds, 4, run->notice_due ? NOTICE_AFTER_MS : -1);
        if (ready < 0)
            continue;
        if (ready == 0 && run->notice_due) {
            run->notice_due = false;
            run->notice_fd = notice_ask(run);
        }
        int number = fds[0].revents != 0 ? next_ending_signal(run) : 0;
        if (number != 0) {
            *code = leave_by_signal(run, request, number);
            return false;
        }
        if (fds[3].revents != 0) { /* the keeper sends nothing yet, so this is its end */
            *code = leave_without_keeper(run, request);
            return false;
        }
        mortise_dispatch(run->client);
        if (fds[2].revents != 0 && !run->answered)
            notice_say(run);
    }
    return true;
}

/* At the end of the wait, no holder of the lock was seen, although there may have been one before. The code of -E, which may be
 * that of a success, is not for this case. */
static int code_without_holder(mortise_status status)
{
    int code = exit_code_of(status);

    return code == EXIT_NOT_HAD ? EXIT_BACKEND_AWAY : code;
}

static int failed_at_end(struct run *run, const struct look *look, int code)
{
    run_release(run, false, NULL);
    say_not_had(run, look);
    return code;
}

/* BUSY may come from a request of the wait itself, which may have been hidden in a transaction until now. So this asks again who
 * holds the lock. If there is no holder, it may have been such a request, which was undone since. remained: what the look before
 * the try has found about that. */
static bool is_busy_by_another(struct run *run, struct look *look, bool remained)
{
    look_at_lock(run, look);
    if (!is_answer(look))
        return false;
    return look->status == MORTISE_OK && look->info.held ? !is_left_behind(run, look) : !remained;
}

/* Does not say that the lock "is held by" a host: a user who filters out the lines about other holders must see this line. */
static const char *why_busy(const struct look *look)
{
    return is_answer(look) ? "a request of this run that got no answer may have acquired it"
                           : error_text(&look->error);
}

static int failed_last_try(struct run *run, bool remained)
{
    struct look look;
    char after[64], shown[QUOTED_SIZE];
    const char *why = error_text(&run->error);

    run_release(run, false, NULL);
    if (run->status == MORTISE_BUSY) {
        if (is_busy_by_another(run, &look, remained)) {
            say_not_had(run, &look);
            return run->not_had_code;
        }
        why = why_busy(&look);
    }
    how_it_ended(run, after, sizeof after);
    run_say("%s was not acquired; %s: %s", quoted(run->names[run->asked_for], shown, sizeof shown),
            after, why);
    return code_without_holder(run->status);
}

/* TIMEDOUT is not an answer of the backend: a short wait ends before a driver gives up a request. So this asks who holds the
 * lock. An answer to that does not mean that the backend can grant: it may answer only readers, like a database that another
 * program writes, or whose standby is unreachable. If no holder is seen, a try shows what a wait does not: it ends with BUSY only
 * if another has the lock. Each question takes up to `unreachable_timeout`. If some of several names are held, they stay held
 * meanwhile. */
static int end_of_wait(struct run *run)
{
    struct look look;
    int code;

    run->notice_due = false; /* the wait is over */
    look_at_lock(run, &look);
    if (!is_answer(&look))
        return failed_at_end(run, &look, code_without_holder(look.status));
    if (!is_left_behind(run, &look) && is_held_by_another(run, &look))
        return failed_at_end(run, &look, run->not_had_code);
    if (!ask_once(run, 0, &code))
        return code;
    return run->status == MORTISE_OK ? HELD : failed_last_try(run, look.remains);
}

static int wait_once(struct run *run, int64_t wait_ms)
{
    int code;

    if (!ask_once(run, wait_ms, &code))
        return code;
    if (run->status == MORTISE_TIMEDOUT)
        return end_of_wait(run);
    return run->status == MORTISE_OK ? HELD : failed_to_acquire(run);
}

/* The time that is left of -w. Without -w, the config's `wait` is the limit for each name. */
static int64_t rest_of_wait(const struct run *run)
{
    int64_t rest_ms = run->wait_ms - waited_ms(run);

    if (run->wait_ms <= 0)
        return run->wait_ms;
    return rest_ms > 0 ? rest_ms : 0;
}

static int wait_for_all(struct run *run)
{
    run->lost = false;
    while ((run->asked_for = run_next_name(run)) < run->count) {
        int code = wait_once(run, rest_of_wait(run));
        if (code != HELD)
            return code;
    }
    return HELD;
}

static int wait_until_held(struct run *run)
{
    mortise_status status;

    run->notice_due = isatty(STDERR_FILENO) == 1;
    run->notice_fd = -1;
    run->begin_ns = boottime_ns();
    run->events = mortise_fd(run->client, &status);
    if (run->events < 0) {
        run_say("%s: %s", run->shown, mortise_status_text(status));
        return exit_code_of(status);
    }
    if (says_it_would_wait_for_itself(run))
        return run->not_had_code;
    for (;;) {
        int code = wait_for_all(run);
        if (code != HELD || !run_is_lost(run))
            return code;
        /* A lease was lost during the wait, because the wrapper was stopped or an operator broke it. Nothing was done under
         * it, so queue again. */
        run_release(run, false, NULL);
    }
}

bool run_wait(struct run *run, int *code)
{
    *code = wait_until_held(run);
    return *code == HELD;
}
