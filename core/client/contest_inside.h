/* contest_inside.h - what contest.c (the queue) and ask.c (the request of its head) share. Nobody else's. */
#ifndef MORTISE_CORE_CONTEST_INSIDE_H
#define MORTISE_CORE_CONTEST_INSIDE_H

#include "client/core.h"

/* ask.c: the head asks; nobody waits for the ask any more; a new acquisition begins, under a new id. */
void ask_locked(struct contest *contest, struct task_list *starts);
void ask_abandon_locked(struct contest *contest);
void ask_forget_grant_locked(struct contest *contest, struct task_list *starts);

/* contest.c */
void contest_queue_waiter_locked(struct client *client, struct waiter *waiter);
void contest_watch_locked(struct contest *contest, bool wanted);
void contest_take_off_locked(struct contest *contest, struct waiter *waiter,
                             struct task_list *starts);
void contest_fail_locked(struct contest *contest, struct waiter *waiter, mortise_status status,
                         const mortise_error *error, struct task_list *starts);
void contest_join_owners_locked(struct contest *contest, const char *owner, size_t owner_len,
                                struct task_list *starts);
void contest_join_queue_locked(struct contest *contest, struct task_list *starts);

#endif
