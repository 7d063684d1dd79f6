/* tasks.c - what the core gives the pump to do: ops to start or to cancel; see pump.h. */
#include "pump/pump_internal.h"

#define HELD_MAX 128 /* starts that callbacks hold back at most */

static void queue_starts_locked(struct pump *pump, struct task_list *tasks)
{
    for (struct task *task = tasks->first, *next; task != NULL; task = next) {
        next = task->next;
        task->phase = TASK_QUEUED;
        if (task->unattended)
            pump->unattended++;
        task_append(&pump->starts, task);
    }
    *tasks = (struct task_list){NULL, NULL};
}

void pump_start(struct pump *pump, struct task_list *tasks)
{
    if (tasks->first == NULL && pump_inside_here == pump)
        return; /* in a completion: this thread reads the lists before it leaves the inside */
    pthread_mutex_lock(&pump->lock);
    queue_starts_locked(pump, tasks);
    if (!pump->inside && pump_has_work_locked(pump))
        pump_go_inside_locked(pump);
    if (pump->due_ns != MORTISE_NEVER) /* if all was answered at once, no thread is about to lead */
        service_attend_locked(pump, true);
    pthread_mutex_unlock(&pump->lock);
}

/* The pump whose callbacks this thread runs, and how many tasks it has held back for that pump. */
static _Thread_local struct pump *held_here;
static _Thread_local unsigned held;

void pump_hold(struct pump *pump)
{
    held_here = pump;
    held = 0;
}

void pump_start_soon(struct pump *pump, struct task_list *tasks)
{
    if (held_here != pump || ++held > HELD_MAX) {
        held = 0;
        pump_start(pump, tasks);
        return;
    }
    pthread_mutex_lock(&pump->lock);
    queue_starts_locked(pump, tasks);
    service_attend_locked(pump, false); /* in case the callback takes long */
    pthread_mutex_unlock(&pump->lock);
}

void pump_let_go(struct pump *pump)
{
    held_here = NULL;
    if (pump == NULL)
        return;
    pthread_mutex_lock(&pump->lock);
    if (pump_has_work_locked(pump) && !pump->inside && !pump->stopping)
        pump_go_inside_locked(pump);
    if (pump->due_ns != MORTISE_NEVER) /* as in pump_start() */
        service_attend_locked(pump, true);
    pthread_mutex_unlock(&pump->lock);
}

void pump_start_detached(struct pump *pump, struct task_list *tasks)
{
    pthread_mutex_lock(&pump->lock);
    queue_starts_locked(pump, tasks);
    if (!pump->inside && pump_has_work_locked(pump) && !service_take_over_locked(pump))
        pump_go_inside_locked(pump); /* there is no such thread: a test, or the end of a close */
    pthread_mutex_unlock(&pump->lock);
}

void pump_cancel(struct pump *pump, struct task *task)
{
    pthread_mutex_lock(&pump->lock);
    if (task->phase != TASK_DELIVERED && !task->cancel_wanted) {
        task->cancel_wanted = true;
        if (task->phase == TASK_STARTED) {
            task->on_cancels = true;
            task->cancel_previous = NULL;
            task->cancel_next = pump->cancels;
            if (pump->cancels != NULL)
                pump->cancels->cancel_previous = task;
            pump->cancels = task;
        }
    }
    pthread_mutex_unlock(&pump->lock);
}

bool pump_may_be_sent(struct pump *pump, const struct task *task)
{
    pthread_mutex_lock(&pump->lock);
    bool given = task->phase != TASK_QUEUED && task->phase != TASK_IDLE;
    /* first_sent_ns decides only for an acquire that a driver has: drivers set it for no other kind, and a plugin copies
     * it when it answers. It does not change while no thread is inside; an answer not yet delivered counts as inside. */
    bool marked = given && !pump->inside && task->op.kind == MORTISE_OP_ACQUIRE &&
                  pump->top->module.kind == MORTISE_KIND_DRIVER;
    bool sent = given && (!marked || task->op.first_sent_ns != 0);
    pthread_mutex_unlock(&pump->lock);
    return sent;
}

void pump_unattend(struct pump *pump, struct task *task)
{
    pthread_mutex_lock(&pump->lock);
    if (!task->unattended && task->phase != TASK_DELIVERED) {
        task->unattended = true;
        if (task->phase != TASK_IDLE) { /* else counted when it is queued */
            pump->unattended++;
            service_attend_locked(pump, false);
        }
    }
    pthread_mutex_unlock(&pump->lock);
}

void pump_attention(struct pump *pump, int change)
{
    pthread_mutex_lock(&pump->lock);
    pump->unattended = (unsigned)((int)pump->unattended + change);
    if (change > 0)
        service_attend_locked(pump, false);
    pthread_mutex_unlock(&pump->lock);
}
