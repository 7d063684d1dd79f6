/* fake_driver.h - a driver for tests of the pump, in place of the sim's functions: it keeps an acquire until a byte
 * comes through a pipe, or until a timer, and records how it was called. One at a time. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include "rig.h"

#include <poll.h>
#include <unistd.h>

static struct rig rig;
/* ---- a driver on a pipe ----------------------------------------------------------------------------- */

static struct fake {
    int in, out;
    mortise_op *first, **end;
    int64_t due_ns;       /* one op is completed then */
    int64_t due_after_ms; /* set at the next start */
    int64_t due_then_ms;  /* set at the next byte */
    bool renew_pipe;      /* at the next turn */
    bool renews_silently; /* then `closing` is not called; from then on it asks for other events, too */
    short more_events;
    bool keep_all;        /* releases too, and whatever is canceled */
    bool at_once;         /* complete in start */
    bool in_turn;         /* complete the first one that waits, at the next start */
    _Atomic int turns, starts, canceled, posts, timers;
} fake;

static inline mortise_host *host(void)
{
    return &rig.client->top->host;
}

static inline void grant(mortise_op *op)
{
    op->token = 1;
    op->from_ns = clock_now();
    op->good_for_ms = op->ttl_ms;
    op->sure = true;
    host()->complete(host(), op, MORTISE_OK);
}

static inline void grant_first(void)
{
    mortise_op *op = fake.first;
    if (op == NULL)
        return;
    fake.first = op->next;
    if (fake.first == NULL)
        fake.end = &fake.first;
    grant(op);
}

static inline void fake_start(void *ctx, mortise_op **ops, size_t n)
{
    (void)ctx;
    if (fake.in_turn)
        grant_first();
    for (size_t i = 0; i < n; i++) {
        if (fake.at_once || (ops[i]->kind != MORTISE_OP_ACQUIRE && !fake.keep_all)) {
            grant(ops[i]);
            continue;
        }
        ops[i]->next = NULL;
        *fake.end = ops[i];
        fake.end = &ops[i]->next;
    }
    if (fake.due_after_ms > 0)
        fake.due_ns = clock_after_ms(clock_now(), fake.due_after_ms);
    fake.due_after_ms = 0;
    atomic_fetch_add(&fake.starts, (int)n);
}

static inline void fake_cancel(void *ctx, mortise_op *op)
{
    (void)ctx;
    if (fake.keep_all)
        return;
    for (mortise_op **place = &fake.first; *place != NULL; place = &(*place)->next)
        if (*place == op) {
            *place = op->next;
            if (*place == NULL)
                fake.end = place;
            break;
        }
    atomic_fetch_add(&fake.canceled, 1);
    host()->complete(host(), op, MORTISE_CANCELED);
}

static inline size_t fake_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    (void)ctx;
    if (fake.due_ns < *due_ns)
        *due_ns = fake.due_ns;
    if (capacity == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = fake.in, .events = (short)(POLLIN | fake.more_events)};
    return 1;
}

static inline void make_pipe(void)
{
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0)
        abort();
    fake.in = ends[0];
    fake.out = ends[1];
}

static inline void fake_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    char byte;
    (void)ctx;
    if (clock_now() >= fake.due_ns) {
        fake.due_ns = MORTISE_NEVER;
        atomic_fetch_add(&fake.timers, 1);
        grant_first();
    }
    if (n > 0 && ready[0].fd == fake.in && read(fake.in, &byte, 1) == 1) {
        grant_first();
        if (fake.due_then_ms > 0)
            fake.due_ns = clock_after_ms(clock_now(), fake.due_then_ms);
        fake.due_then_ms = 0;
    }
    if (n > 0 && fake.renew_pipe) {
        fake.renew_pipe = false;
        if (!fake.renews_silently)
            host()->closing(host(), fake.in);
        else
            fake.more_events ^= POLLPRI;
        close(fake.in);
        close(fake.out);
        make_pipe(); /* on the same numbers */
    }
    atomic_fetch_add(&fake.turns, 1);
}

/* alone: no threads but the callers'. */
static inline void start(bool alone)
{
    mortise_error error;
    set_now(-1);
    CU_ASSERT_EQUAL_FATAL(rig_try_open(&rig, alone, "", &error), MORTISE_OK);
    memset(&fake, 0, sizeof(fake));
    fake.end = &fake.first;
    fake.due_ns = MORTISE_NEVER;
    make_pipe();
    mortise_module *module = &rig.client->top->module;
    pthread_mutex_lock(&rig.client->pump.lock);
    module->start = fake_start;
    module->cancel = fake_cancel;
    module->interest = fake_interest;
    module->turn = fake_turn;
    pthread_mutex_unlock(&rig.client->pump.lock);
}

static inline void finish(void)
{
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    close(fake.in);
    close(fake.out);
}

static inline void send_byte(void)
{
    CU_ASSERT_EQUAL(write(fake.out, "x", 1), 1);
}

#endif
