/* run.h - the parts of `mortise run`. The model is told in run.c. */
#ifndef MORTISE_TOOLS_RUN_H
#define MORTISE_TOOLS_RUN_H

#include "keeper.h"
#include "text.h"

#include <mortise/mortise.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run {
    /* what was asked for: run_options.c */
    const char *name;
    char *const *command;
    char *shell_command[4]; /* -c: sh -c TEXT */
    bool by_shell;
    int64_t wait_ms;         /* as mortise_options */
    int64_t ttl_ms;          /* 0: the config's */
    int64_t grace_ms;        /* -1: a sixth of the ttl */
    int not_had_code;        /* -E */
    bool warn_only;          /* --on-loss=warn */
    bool hide_config;        /* --hide-config */
    char shown[QUOTED_SIZE]; /* the name, quoted */

    /* signals: run_signals.c */
    sigset_t original_mask, handled;
    bool child_ignored;
    int signals; /* signalfd */

    /* terminal: run_terminal.c */
    int terminal; /* of /dev/tty, or -1 */
    pid_t group;  /* the wrapper's own */

    /* the lock: run_wait.c */
    mortise_client *client;
    mortise_lease *lease;
    int events;       /* mortise_fd */
    bool answered;    /* the acquire's callback has come */
    bool notice_due;  /* nothing was said yet of whom we wait for */
    int notice_fd;    /* of notice_ask(), or -1 */
    bool interrupted; /* the wait was ended by a signal */
    mortise_status status;
    mortise_error error;
    int64_t begin_ns;    /* of the wait */
    int64_t span_ms;     /* the longest time to the deadline that was seen: about the ttl */
    int64_t deadline_ns; /* as published last */
    bool asked;          /* by the keeper for a later one, which there was not yet */

    /* the command: run_hold.c */
    struct keeper keeper;
    bool lost, lost_told, ended, gone;
    bool late;          /* the keeper began to end the command because no renewal came */
    bool told_to_end;   /* a renewal came after all, but the command had been sent TERM */
    bool resume_wanted; /* continued, but the command is not until a renewal has come */
    int ending_signal; /* the last of INT, TERM, HUP and QUIT that came while the command ran; 0: none */
    int64_t signal_ns; /* when that came */
    bool leave_wanted; /* the same, after the lock was lost */
    bool rest_unkillable_told;
    bool abandoned;           /* processes are left that cannot be killed; the wrapper ends */
    bool keeper_stuck;        /* the wrapper killed the keeper, because it did nothing any more */
    int64_t killing_since_ns; /* when the wrapper saw first that the keeper sends KILL */
    int64_t killing_seen_ns;
    int killing_same;   /* so many looks in a row the keeper had not sent KILL again */
    bool grace_limited; /* said that --grace was cut */
    int64_t lost_ns;    /* when that was seen */
    bool rest_told;     /* that others than the command itself go on */
    bool stop_alone;    /* TSTP came to the wrapper, not to the terminal's group */
    bool had_terminal;  /* the command had it when it died */
    int passed_on;      /* the last of INT and QUIT that the wrapper passed on */
    int wait_status;
};

bool run_read_options(struct run *run, int argc, char **argv, int *code);

/* Blocks what is handled, from the first instant; what was ignored stays ignored. */
bool signals_take(struct run *run);
/* Between these two, INT, TERM, HUP and QUIT end the process at once, by its code: while the library
 * is opened, when there is nothing of ours to put in order. */
void signals_end_at_once(const struct run *run);
void signals_held_back(const struct run *run);
/* From here on the command has ended, or never ran, and what is left to do takes as long as the backend
 * takes. The first of INT, TERM, HUP and QUIT gives it two seconds, the second ends the process at once;
 * `signalled`: there was a first one before. The process then ends as it would have: with end->code, or
 * of end->number if that is not 0. last_words go to stderr first if they are not empty. */
struct bounded_end {
    int code, number;
    bool signalled;
};
void signals_bound(const struct run *run, const struct bounded_end *end);
void signals_last_words(const char *line); /* "": none */
bool signals_is_ending(int number);
/* The next signal, 0 if there is none. */
int signals_next(const struct run *run);
/* Stops this process (or its whole group) as TSTP does, and returns when it was continued, or at once
 * where nobody could continue it. */
void signals_stop(const struct run *run, bool alone);
/* Dies of a signal, and has its group told too: for ^C that was typed for the command. */
_Noreturn void signals_die(const struct run *run, int number);

void terminal_open(struct run *run);
/* Whether the wrapper's group is in the foreground of the terminal. */
bool terminal_is_ours(const struct run *run);
bool terminal_is_commands(const struct run *run);
void terminal_give(const struct run *run);
void terminal_take(const struct run *run);

/* Waits for the lock. True: run->lease is held; false: the process ends with *code. */
bool run_wait(struct run *run, int *code);
/* One word for a holder, for OUTER_MIGRATING. */
void run_outer_holder(const char *name, int64_t pid, const char *host, char *text, size_t size);
/* ---- run_notice.c: on a terminal, who holds what is waited for ---- */
/* Asks who holds it, without waiting for the answer. Returns a descriptor that polls readable once the answer
 * is there; -1: nothing will be said. */
int notice_ask(struct run *run);
void notice_say(struct run *run);

/* Holds it while the command runs; returns when every process is gone. */
void run_hold(struct run *run);
/* Tells the keeper until when the lock is ours. */
void run_publish(struct run *run);

/* ---- run_rest.c: processes that are left ---- */
/* Says once, when the command is dead and others of its family go on: else nobody would know why the
 * lock is not released. */
void run_say_rest(struct run *run);
/* After the loss: looks after the keeper, and says which processes cannot be killed. */
void run_watch_killing(struct run *run);
/* The keeper is dead: kills and reaps what it left, until nothing is left or run->abandoned. */
void run_end_family(struct run *run);
/* Reaps children that are none of ours: as PID 1 of a container we inherit every orphan. */
void run_reap_strangers(const struct run *run);

#endif
