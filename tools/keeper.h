/* keeper.h - the process between `mortise run` and its command. The model is told in run.c.
 *
 * The keeper is forked before the library is opened: it holds no lock, no connection and no thread, and
 * asks the library nothing. It shares a page of memory with the wrapper (when to act, and what the
 * command finds in its environment) and a socket on which both send short messages; end of file there
 * means that the other one is dead. */
#ifndef MORTISE_TOOLS_KEEPER_H
#define MORTISE_TOOLS_KEEPER_H

#include <mortise/mortise.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NEVER_NS INT64_MAX

/* For runs inside of the command: the owners of the runs around them; and the process and the name of those that
 * hold over a migration, "PID@HOST/NAME", the name in hexadecimal. */
#define OUTER_OWNERS "MORTISE_OUTER_OWNERS"
#define OUTER_MIGRATING "MORTISE_OUTER_MIGRATING"
enum { OUTER_HOLDER_SIZE = 2 * MORTISE_NAME_MAX + 320 };

enum message_kind {
    /* from the wrapper */
    MESSAGE_START = 1, /* run the command; the page has been filled */
    MESSAGE_SIGNAL,    /* value: send this signal to the command's group */
    MESSAGE_LOST,      /* the lock is lost: end the command (or only close the lease's pipe) */
    /* from the keeper */
    MESSAGE_LOOK,    /* the time to act comes near: renew what the page says, if you can */
    MESSAGE_STOPPED, /* value: the command was stopped by this signal */
    MESSAGE_ENDED, /* value: wait status of the command itself; others of its processes may go on */
    MESSAGE_LATE,  /* no renewal came through in time. value: 1: the command was sent TERM; 0: it is
                    * stopped, and is killed as it is unless a renewal comes before that */
    MESSAGE_RENEWED, /* a renewal came after MESSAGE_LATE and before KILL: the command is not killed.
                      * value: 1: it had been sent TERM */
    MESSAGE_DONE     /* every process is gone; the keeper ends */
};

struct message {
    int32_t kind, value;
};

/* Shared between the two. Instants are CLOCK_BOOTTIME. */
struct keeper_page {
    /* the wrapper moves them with every renewal it sees */
    _Atomic int64_t ask_ns;  /* send MESSAGE_LOOK */
    _Atomic int64_t act_ns;  /* TERM */
    _Atomic int64_t kill_ns; /* KILL, and all is gone before the deadline */
    _Atomic int64_t grace_ms;
    /* the keeper's results, which outlive it */
    _Atomic int32_t command_pid;  /* 0: not started */
    _Atomic int32_t start_errno;  /* why the command could not be executed */
    _Atomic int32_t wait_status;  /* of the command, once ended */
    _Atomic int32_t ended, done;  /* the command; every process */
    _Atomic int64_t ended_ns;     /* when the keeper saw that the command had ended */
    _Atomic int64_t grace_end_ns; /* the last TERM for a late renewal gave the command until then */
    _Atomic int32_t late;         /* the keeper began to end it because no renewal came */
    _Atomic int64_t killing_ns;   /* when the keeper last sent KILL to all; 0: not yet */
    _Atomic int32_t abandoned;    /* set by a wrapper that ends before all processes are gone */
    /* set before MESSAGE_START, constant from then on */
    bool warn_only;   /* --on-loss=warn */
    bool hide_config; /* --hide-config */
    bool foreground;  /* the command's group gets the terminal */
    uint64_t token;
    char name[MORTISE_NAME_MAX + 1];
    char owner[MORTISE_OWNER_MAX + 1];
    char driver[64];
    char migrating[OUTER_HOLDER_SIZE]; /* the word for OUTER_MIGRATING; empty: no migration */
};

/* What the keeper needs to know of the wrapper when it is forked. */
struct keeper_setup {
    char *const *command;       /* argv of the command, NULL at its end */
    sigset_t command_mask;      /* the mask that the command gets: the wrapper's own at its start */
    bool command_ignores_child; /* SIGCHLD was ignored at the start */
    int terminal;               /* of /dev/tty, or -1 */
};

/* The wrapper's side. */
struct keeper {
    pid_t pid;
    int socket;
    struct keeper_page *page;
};
bool keeper_start(struct keeper *keeper, const struct keeper_setup *setup);
void keeper_send(const struct keeper *keeper, enum message_kind kind, int32_t value);
/* 1: a message; 0: none now; -1: the keeper is dead. */
int keeper_receive(const struct keeper *keeper, struct message *message);
/* Ends a keeper that has no command, or none any more, and waits for it. */
void keeper_stop(struct keeper *keeper);

/* ---- inside ---- */
/* The keeper's own life, in the forked child; never returns. */
_Noreturn void keeper_main(struct keeper_page *page, int socket, pid_t wrapper_group,
                           const struct keeper_setup *setup);
/* keeper_command.c: forks and executes the command in a group of its own. Returns its pid, or -1 with errno. */
pid_t command_start(struct keeper_page *page, const struct keeper_setup *setup, int lease_fd);
/* family.c: the children of `parent`, orphans given to it included. Calls `each` for every child that
 * is seen, dead ones too. */
void family_each(pid_t parent, void (*each)(pid_t child, void *argument), void *argument);
/* Whether any child is alive (stopped counts). Exact: the kernel's own answer. */
bool family_alive(void);
/* Sends KILL to all children and reaps the dead ones. True: none is left. */
bool family_kill(void);
/* The wait between two rounds of KILL: doubles up to a second, because some processes cannot be killed. */
enum { KILL_AGAIN_MS = 5, KILL_AGAIN_MOST_MS = 1000 };
static inline int kill_again_later(int wait_ms)
{
    return wait_ms < KILL_AGAIN_MOST_MS / 2 ? wait_ms * 2 : KILL_AGAIN_MOST_MS;
}

#endif
