/* keeper.h - the process between `mortise run` and its command. run.c has the model.
 *
 * The wrapper forks the keeper before it opens the library: the keeper has no lock, no connection and no thread. It calls
 * the library only at its very end, to release the locks of a wrapper that was killed. It shares a page of memory with the
 * wrapper (when to act, and what goes into the command's environment) and a socket on which both send short messages. End
 * of file there means that the other process is dead, or, if the page says `parting`, that it needs the keeper no more. */
#ifndef MORTISE_TOOLS_KEEPER_H
#define MORTISE_TOOLS_KEEPER_H

#include <mortise/mortise.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NEVER_NS INT64_MAX

enum { RUN_NAMES_MAX = 256 }; /* locks that one run holds */

/* For runs inside of the command: the owners of the runs around them; and for locks held over a migration the process
 * and the name of the lock, "PID@HOST/NAME", the name in hexadecimal. */
#define OUTER_OWNERS "MORTISE_OUTER_OWNERS"
#define OUTER_MIGRATING "MORTISE_OUTER_MIGRATING"
enum { OUTER_HOLDER_SIZE = 2 * MORTISE_NAME_MAX + 320 };

enum message_kind {
    /* from the wrapper */
    MESSAGE_START = 1, /* start the command; the page is filled */
    MESSAGE_SIGNAL,    /* value: send this signal to the command's group */
    MESSAGE_LOST,      /* the lock is lost: end the command (or only close the lease's pipe) */
    /* from the keeper */
    MESSAGE_LOOK,    /* the time to act is near: move the page on if the lease was renewed */
    MESSAGE_STOPPED, /* value: this signal stopped the command, or a process that it left in its group */
    MESSAGE_ENDED,   /* value: wait status of the command; its other processes may go on */
    MESSAGE_LATE,    /* no renewal came in time. value 1: the command was sent TERM. value 0: it is
                    * stopped, and will be killed unless a renewal comes first */
    MESSAGE_RENEWED, /* a renewal came after MESSAGE_LATE and before KILL: the command will not be killed.
                      * value 1: it was sent TERM */
    MESSAGE_DONE /* every process is gone; the keeper only waits for the wrapper's end */
};

struct message {
    int32_t kind, value;
};

/* Shared between the two. Instants are CLOCK_BOOTTIME. */
struct keeper_page {
    /* the wrapper moves them on with every renewal */
    _Atomic int64_t ask_ns;  /* send MESSAGE_LOOK */
    _Atomic int64_t act_ns;  /* TERM */
    _Atomic int64_t kill_ns; /* KILL, so that every process is dead before the deadline */
    _Atomic int64_t grace_ms;
    /* the keeper's results; they outlive the keeper */
    _Atomic int32_t command_pid;  /* 0: not started */
    _Atomic int32_t start_errno;  /* why the command could not be executed */
    _Atomic int32_t wait_status;  /* of the command, once ended */
    _Atomic int32_t ended, done;  /* the command has ended; every process has ended */
    _Atomic int64_t ended_ns;     /* when the keeper saw that the command had ended */
    _Atomic int64_t grace_end_ns; /* the end of the grace after the last TERM for a late renewal */
    _Atomic int32_t late;         /* the keeper began to end the command because no renewal came */
    _Atomic int64_t killing_ns;   /* when the keeper last sent KILL to all; 0: not yet */
    _Atomic int32_t abandoned;    /* the wrapper ended before all processes were gone */
    _Atomic int32_t parting;      /* the wrapper has released its locks itself, or has none */
    /* set before MESSAGE_START, then constant */
    bool warn_only;   /* --on-loss=warn */
    bool hide_config; /* --hide-config */
    bool foreground;  /* the command's group gets the terminal at once */
    uint64_t token; /* this, name and owner: of the first name */
    char name[MORTISE_NAME_MAX + 1];
    char owner[MORTISE_OWNER_MAX + 1];
    char driver[64];
    /* words, separated by blanks */
    char tokens[RUN_NAMES_MAX * 21];
    char other_owners[RUN_NAMES_MAX * (MORTISE_OWNER_MAX + 1)];
    char migrating[RUN_NAMES_MAX * OUTER_HOLDER_SIZE]; /* for OUTER_MIGRATING; empty: no migration */
};

/* What the keeper must know of the wrapper when it is forked. */
struct keeper_setup {
    char *const *command;       /* argv of the command, NULL at its end */
    sigset_t command_mask;      /* for the command: the mask that the wrapper was started with */
    bool command_ignores_child; /* the wrapper was started with SIGCHLD ignored */
    int terminal;               /* of /dev/tty, or -1 */
};

/* There are never more: each message is there only once, and there are these kinds and less than twenty signals. */
enum { KEEPER_UNSENT_MAX = 32 };

/* The wrapper's side. */
struct keeper {
    pid_t pid;
    int socket;
    int witness; /* for the library: at the other end, the keeper is the witness of this process */
    struct keeper_page *page;
    /* Messages for which the kernel had no memory, in their order. */
    struct message unsent[KEEPER_UNSENT_MAX];
    size_t unsent_count;
};
bool keeper_start(struct keeper *keeper, const struct keeper_setup *setup);
/* Never blocks. A message that cannot be sent because memory is short is kept for keeper_send_rest(). */
void keeper_send(struct keeper *keeper, enum message_kind kind, int32_t value);
void keeper_send_rest(struct keeper *keeper);
/* 1: a message; 0: none now; -1: the keeper is dead. */
int keeper_receive(const struct keeper *keeper, struct message *message);
/* Ends a keeper whose command was not started, or has ended, and waits for it. The locks are released. */
void keeper_stop(struct keeper *keeper);

/* ---- inside ---- */
/* keeper_witness.c: what the wrapper's client has passed to its witness. */
struct keeper_witness {
    int socket; /* -1: closed */
    int pidfd, area; /* -1: none */
    uint64_t print;
    int64_t crash_delay_ms;
};
/* Reads the messages of the client. Never blocks. */
void keeper_witness_read(struct keeper_witness *witness);
/* No process of the command is left, and the wrapper has ended or is about to: waits for its end, and releases what it held.
 * Blocks for the crash_delay, and then until the backend has answered, or the ttl is over. TERM (also one that came before),
 * INT or HUP limits the time after the crash_delay to two seconds. First it closes all inherited descriptors that are not files,
 * and drops the file locks of the others, so that no reader of stdout, for example, and no outer flock waits for this process.
 * After that, the caller can only exit. */
void keeper_witness_release(struct keeper_witness *witness);
/* The main function of the keeper, in the forked child. The sockets: of messages, and of the witness. */
_Noreturn void keeper_main(struct keeper_page *page, int socket, int witness, pid_t wrapper_group,
                           const struct keeper_setup *setup);
/* keeper_command.c: forks and executes the command in a group of its own. Returns its pid, or -1 with errno. */
pid_t command_start(struct keeper_page *page, const struct keeper_setup *setup, int lease_fd);
/* family.c: the parent of a process; 0 if unknown. */
pid_t family_parent(pid_t pid);
/* Calls `each` for every child of `parent`, dead ones and adopted orphans included. */
void family_each(pid_t parent, void (*each)(pid_t child, void *argument), void *argument);
/* Sends the signal to the children that are not in this group, and to the groups that they lead. */
void family_signal_others(pid_t group, int number);
/* Whether any child is alive; a stopped child is. The kernel's own answer, so it is exact. */
bool family_alive(void);
/* Sends KILL to all children and reaps the dead ones. True: no child is left. */
bool family_kill(void);
/* The wait between two rounds of KILL: doubles up to a second, because some processes cannot be killed. */
enum { KILL_AGAIN_MS = 5, KILL_AGAIN_MOST_MS = 1000 };
static inline int kill_again_later(int wait_ms)
{
    return wait_ms < KILL_AGAIN_MOST_MS / 2 ? wait_ms * 2 : KILL_AGAIN_MOST_MS;
}

#endif
