/* run.h - the parts of `mortise run`. run.c has the model. */
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
    const char *names[RUN_NAMES_MAX]; /* in the order of the command line */
    size_t count;                     /* of the names */
    char *const *command;
    char *shell_command[4]; /* -c: sh -c TEXT */
    bool by_shell;
    int64_t wait_ms;         /* as mortise_options */
    int64_t ttl_ms;          /* 0: the config's */
    mortise_mode mode;       /* --shared */
    uint32_t permits;        /* --permits; 0: any number */
    int64_t grace_ms;        /* -1: a sixth of the ttl */
    int not_had_code;        /* -E */
    bool warn_only;          /* --on-loss=warn */
    bool hide_config;        /* --hide-config */
    char shown[QUOTED_SIZE]; /* the names, quoted */

    /* signals: run_signals.c */
    sigset_t original_mask, handled;
    bool child_ignored;
    int signals; /* signalfd */

    /* terminal: run_terminal.c */
    int terminal; /* of /dev/tty, or -1 */
    pid_t group;  /* the wrapper's own */
    bool terminal_wanted; /* the command stopped because it needs the terminal */
    bool terminal_shared; /* another process of the wrapper's group needed it while the command had it */

    /* the lock: run_wait.c */
    mortise_client *client;
    mortise_lease *leases[RUN_NAMES_MAX]; /* as the names; NULL: not yet */
    int events;                           /* mortise_fd */
    size_t asked_for;                     /* the name that is waited for */
    bool answered;                        /* the acquire's callback has come */
    bool notice_due;  /* still to do: tell the user who holds the lock */
    int notice_fd;    /* of notice_ask(), or -1 */
    bool interrupted; /* the wait was ended by a signal */
    int typed_end;    /* that signal, if it was INT or QUIT and was typed (terminal_typed()); else 0 */
    mortise_status status;
    mortise_error error;
    int64_t begin_ns;    /* of the wait */
    int64_t span_ms;     /* the longest time to the deadline so far: about the ttl */
    int64_t deadline_ns; /* as published last */
    bool asked;          /* the keeper has asked for a later deadline, and there was none yet */

    /* the command: run_hold.c */
    struct keeper keeper;
    bool lost, lost_told, ended, gone;
    bool late;          /* the keeper began to end the command because no renewal came */
    bool told_to_end;   /* a renewal came after all, but the command was sent TERM */
    bool resume_wanted; /* the wrapper was continued; the command will be continued when a renewal has come */
    int ours_fd;        /* of ours_ask(), or -1 */
    bool ask_again;     /* a CONT came since ours_ask(): the wrapper may have been stopped for long after that question */
    bool stop_again;    /* a TSTP came after a CONT that is not passed on yet */
    int ending_signal;  /* the last INT, TERM, HUP or QUIT while the command ran; 0: none */
    int64_t signal_ns;  /* when that signal came */
    bool leave_wanted;  /* such a signal came after the lock was lost */
    bool rest_unkillable_told;
    bool abandoned;    /* the wrapper ends although processes are left that cannot be killed */
    bool keeper_stuck; /* the keeper did not act any more, and the wrapper killed it */
    int64_t killing_since_ns; /* when the wrapper first saw that the keeper sends KILL */
    int64_t killing_seen_ns;
    int killing_same;   /* for how many looks in a row the keeper has not sent KILL again */
    bool grace_limited; /* the user was told that --grace was cut */
    int64_t lost_ns;    /* when the loss was seen */
    bool rest_told;     /* the user was told that other processes than the command go on */
    int64_t stop_ns;    /* when TSTP last came only to the wrapper, and not to the terminal's group; 0: never */
    bool stop_stands;   /* the last of TSTP and CONT that came was TSTP, and it was passed on */
    bool had_terminal;  /* the command had the terminal when it died */
    int passed_on;      /* the last of INT and QUIT that the wrapper passed on */
    bool passed_on_typed; /* that signal was typed (perhaps for a run around this one), and came to the wrapper's whole group */
    int wait_status;
};

bool run_read_options(struct run *run, int argc, char **argv, int *code);

/* Blocks the signals that are handled, from the first instant. Signals that were ignored stay ignored. */
bool signals_take(struct run *run);
/* Between these two calls, INT, TERM, HUP and QUIT end the process at once: with the signal's exit code, or by the signal itself
 * if it was typed. For times when nothing needs to be cleaned up, as while the library is opened. */
void signals_end_at_once(const struct run *run);
void signals_held_back(const struct run *run);
/* The command has ended, or never ran, and the rest takes as long as the backend takes. The first INT, TERM, HUP or QUIT
 * from here on limits that time to two seconds, and the second ends the process at once; `signalled` says that the first came
 * before. The process then ends as it would have ended: with end->code, or by signal end->number if that is not 0 (`alone`: see
 * signals_die). If there are last words (signals_last_words()), they go to stderr first. */
struct bounded_end {
    int code, number;
    bool alone, signalled;
};
void signals_bound(const struct run *run, const struct bounded_end *end);
void signals_last_words(const char *line); /* "": none */
bool signals_is_ending(int number);
/* Returns the next signal, or 0. *typed (NULL is allowed): it came from the terminal, so the whole group has got it. */
int signals_next(const struct run *run, bool *typed);
/* Stops this process only (alone), or its whole group, by TSTP, TTIN or TTOU. Returns when it is continued, or at once if no
 * process could continue it. */
void signals_stop(const struct run *run, int number, bool alone);
/* Whether a CONT has come that was not read yet. */
bool signals_was_continued(void);
/* The same for TTIN and TTOU, which stop the other processes of the group. */
bool signals_others_are_stopped(void);
/* Continues the others of the group. */
void signals_continue_others(void);
/* Dies of a signal; if not `alone`, its group gets it too: for ^C that was typed for the command. */
_Noreturn void signals_die(int number, bool alone);

void terminal_open(struct run *run);
/* Whether the wrapper's group is in the foreground of the terminal. */
bool terminal_is_ours(const struct run *run);
bool terminal_is_commands(const struct run *run);
/* Whether the signal is an INT or QUIT that was typed for the wrapper's group (`typed`: signals_next() said so), or for the group
 * of a run around it, which passed it on. Then a script around the wrapper must see that the wrapper died of this signal. */
bool terminal_typed(const struct run *run, int number, bool typed);
/* Whether the command gets the terminal before it needs it. */
bool terminal_is_for_command(const struct run *run);
void terminal_give(const struct run *run);
/* Takes the terminal from the command's group, and continues the processes that were stopped because they had no terminal. */
void terminal_take(const struct run *run);
/* Takes the terminal for another process of the wrapper's group, from any group below the keeper. False: another group has it. */
bool terminal_take_back(const struct run *run);

/* Waits for the locks. True: run->leases are held. False: the process must end with *code. */
bool run_wait(struct run *run, int *code);
/* ---- run_say.c: what the wrapper says, from the first request for a lock on ---- */
/* Like say(), but never waits for the reader of stderr. Lines that stderr does not take now are kept, and written in their order
 * by the next call of one of these functions. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void run_say_kept(void);
/* Writes the kept lines when the lock is released, or others will release it: waits a second at most. */
void run_say_last(void);
/* ---- run_leases.c: one name or several, as one lock ---- */
/* Returns the smallest name (byte by byte) without a lease; run->count: there is none. Two runs that acquire names in this order
 * never wait for each other forever: each waits for a name only while all names that it holds are smaller. */
size_t run_next_name(const struct run *run);
bool run_is_lost(const struct run *run);
/* The time until the first deadline. */
int64_t run_remaining_ms(const struct run *run);
bool run_has_lease(const struct run *run, const mortise_lease *lease);
/* Releases all leases that the run has. waits: waits for the answers. */
mortise_status run_release(struct run *run, bool waits, mortise_error *error);
/* Writes one word for a holder, for OUTER_MIGRATING. */
void run_outer_holder(const char *name, int64_t pid, const char *host, char *text, size_t size);
/* ---- run_notice.c: tells a user on a terminal who holds the lock ---- */
/* Asks who holds the lock, and does not wait for the answer. Returns a descriptor that polls readable once the answer is
 * there; -1: there will be none. */
int notice_ask(struct run *run);
void notice_say(struct run *run);

/* ---- run_ours.c: whether the backend still knows this run as the holder ---- */
/* Asks, and does not wait for the answer. Returns a descriptor that polls readable once the answer is there; -1: there will
 * be none. One question at a time. */
int ours_ask(const struct run *run);
/* False: another client has the lock, or it is free. Closes the descriptor. */
bool ours_answer(int fd);

/* Holds the lock while the command runs; returns when every process is gone. */
void run_hold(struct run *run);
/* Tells the keeper until when the lock is held. */
void run_publish(struct run *run);
/* run_page.c: fills what is constant in the page of the keeper. */
void run_fill_page(struct run *run);

/* ---- run_rest.c: processes that are left ---- */
/* Tells the user once that the command has ended but other processes of its family go on, and so why the lock is not
 * released. */
void run_say_rest(struct run *run);
/* After a loss: checks that the keeper works, and tells the user which processes cannot be killed. */
void run_watch_killing(struct run *run);
/* When to do so again. */
int run_watch_again_ms(const struct run *run);
/* The keeper is dead: kills and reaps the processes that it left, until none is left or run->abandoned is set. */
void run_end_family(struct run *run);
/* Reaps orphans of other processes: PID 1 of a container inherits all of them. */
void run_reap_strangers(const struct run *run);

#endif
