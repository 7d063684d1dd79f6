/* pump_internal.h - what the files of the pump share among themselves. */
#ifndef MORTISE_CORE_PUMP_INSIDE_H
#define MORTISE_CORE_PUMP_INSIDE_H

#include "pump/pump.h"

/* Where a task is; under the pump's lock. */
enum task_phase { TASK_IDLE, TASK_QUEUED, TASK_STARTED, TASK_DELIVERED };

/* op.core_state, used only by the thread inside: which ops may be completed. Ops of plugins begin with zero. */
enum { OP_OF_PLUGIN = 0, OP_STARTED = 1, OP_COMPLETED = 2, OP_OF_PLUGIN_COMPLETED = 3 };

/* The pump that this thread is inside of, or NULL. (Read so often that a function call for it would cost time.) */
extern _Thread_local struct pump *pump_inside_here __attribute__((tls_model("initial-exec")));

/* pump.c; pump lock held */
bool pump_has_work_locked(const struct pump *pump);
/* Do what is on the lists; no thread is inside. A caller (the first function) leaves work that keeps coming in to the
 * service thread (the second), which goes on without a limit. */
void pump_go_inside_locked(struct pump *pump);
void pump_serve_locked(struct pump *pump);

/* interest.c; pump lock held */
void pump_update_interest_locked(struct pump *pump);
bool pump_open_epoll_locked(struct pump *pump);
void pump_poke_locked(struct pump *pump);
/* A thread is inside (the first function); no thread is inside any more (the second). */
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
/* The instance is closed, and no thread is inside: drops the results of its look-ups, and what it has posted. */
void resolve_forget(struct pump *pump, const struct instance *instance);
void pump_forget_posted(struct pump *pump, const struct instance *instance);

/* pump_post() in two parts; the second cannot fail. If you do not post a posting, free it with free(). */
struct posted *pump_posting(void);
void pump_post_made(struct pump *pump, struct posted *posted, struct instance *instance,
                    void (*run)(void *ctx, void *argument), void *argument);

/* wait.c; pump lock held. Polls until a descriptor is ready, until_ns, or a poke; notes the ready descriptors. */
void pump_poll_locked(struct pump *pump, int64_t until_ns);
/* Polls without waiting, also while another thread polls. True: there is work to do. */
bool pump_peek_locked(struct pump *pump);
void pump_name_next_locked(struct pump *pump);
/* Waits on `left` or another condition until `until_ns` of clock_now(). */
void pump_cond_wait_locked(struct pump *pump, pthread_cond_t *cond, int64_t until_ns);

/* service.c; pump lock held. True: the service thread runs. False: the system gives none. */
bool service_start_locked(struct pump *pump);
/* service.c; pump lock held. Makes the service thread run if something is outstanding that no caller waits
 * for; and, if `timer` is set and no caller is about to lead, if the driver's timer is due while it would sleep. */
void service_attend_locked(struct pump *pump, bool timer);
/* A caller waits behind another one, which leads and may stand still: the service thread watches the leader. */
void service_guard_locked(struct pump *pump);
/* A leader left without a successor: wakes the service thread, which was watching that leader. */
void service_follow_up_locked(struct pump *pump);
/* A leader left without a successor, because it will come back soon: the service thread checks that it does. */
void service_stand_by_locked(struct pump *pump);
/* Makes the service thread do what is on the lists at once; false: there is none. */
bool service_take_over_locked(struct pump *pump);

#endif
