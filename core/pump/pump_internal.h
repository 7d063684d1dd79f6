/* pump_internal.h - what the files of the pump (pump.c, tasks.c, wait.c, service.c, host.c) share among themselves. */
#ifndef MORTISE_CORE_PUMP_INSIDE_H
#define MORTISE_CORE_PUMP_INSIDE_H

#include "pump/pump.h"

/* Where a task is; under the pump's lock. */
enum task_phase { TASK_IDLE, TASK_QUEUED, TASK_STARTED, TASK_DELIVERED };

/* op.core_state, of the thread inside alone: what may be completed. Ops of plugins are zero. */
enum { OP_OF_PLUGIN = 0, OP_STARTED = 1, OP_COMPLETED = 2, OP_OF_PLUGIN_COMPLETED = 3 };

/* The pump that this thread is inside of, or NULL. (Looked at so often that a call for it would show.) */
extern _Thread_local struct pump *pump_inside_here __attribute__((tls_model("initial-exec")));

/* pump.c; pump lock held */
bool pump_has_work_locked(const struct pump *pump);
/* Does what is on the lists; a caller leaves what keeps coming in to the service thread, which serves
 * without end. Nobody is inside. */
void pump_go_inside_locked(struct pump *pump);
void pump_serve_locked(struct pump *pump);

/* interest.c; pump lock held */
void pump_update_interest_locked(struct pump *pump);
bool pump_open_epoll_locked(struct pump *pump);
void pump_poke_locked(struct pump *pump);
/* Somebody is inside; and: nobody is any more. */
void pump_hide_locked(struct pump *pump);
void pump_show_locked(struct pump *pump);

/* pump.c; inside */
void pump_wake_later(struct pump *pump, _Atomic uint32_t *word);
bool pump_complete(struct pump *pump, mortise_op *op, mortise_status status);
void pump_closing_fd(struct pump *pump, int fd); /* interest.c */
/* any thread */
bool pump_post(struct pump *pump, struct instance *instance, void (*run)(void *ctx, void *argument),
               void *argument);

/* resolve.c; inside, or while the instance is opened: as host->resolve. */
bool resolve_begin(struct pump *pump, struct instance *instance, const char *node, const char *port,
                   mortise_resolved resolved, void *argument);
/* The instance goes, and nobody is inside: likewise for what it began. */
void resolve_forget(struct pump *pump, const struct instance *instance);
void pump_forget_posted(struct pump *pump, const struct instance *instance);

/* The same in two parts, the second of which cannot fail. A posting that is not posted is freed by free(). */
struct posted *pump_posting(void);
void pump_post_made(struct pump *pump, struct posted *posted, struct instance *instance,
                    void (*run)(void *ctx, void *argument), void *argument);

/* wait.c; pump lock held. Polls until something is ready, `until_ns`, or a poke; notes what is ready. */
void pump_poll_locked(struct pump *pump, int64_t until_ns);
/* The same without waiting, beside the thread that polls: true if there is something to be done. */
bool pump_peek_locked(struct pump *pump);
void pump_name_next_locked(struct pump *pump);
/* Waits on `left` or another condition until `until_ns` of clock_now(). */
void pump_cond_wait_locked(struct pump *pump, pthread_cond_t *cond, int64_t until_ns);

/* service.c; pump lock held. True: the service thread runs. False: the system gives none. */
bool service_start_locked(struct pump *pump);
/* service.c; pump lock held. Sees to it that the service thread looks after what is outstanding that no
 * caller waits for; and, if no caller is about to lead, after the driver's timer. */
void service_attend_locked(struct pump *pump, bool timer);
/* A caller waits behind another one, which leads and may stand still. */
void service_guard_locked(struct pump *pump);
/* A leader left without a successor: the service thread that was looking on is to look now. */
void service_follow_up_locked(struct pump *pump);
/* A leader left, will come back soon, and has no successor: the service thread looks whether it does. */
void service_stand_by_locked(struct pump *pump);
/* Has the service thread do what is on the lists at once; false: there is none. */
bool service_take_over_locked(struct pump *pump);

#endif
