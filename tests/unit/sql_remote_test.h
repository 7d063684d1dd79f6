/* sql_remote_test.h - a client of a database server, drivers/lib/sql with drivers/lib/sql/remote, whose dialect keeps one row in memory:
 * a test says when the statement that is on its way is answered. */
#ifndef MORTISE_TESTS_SQL_REMOTE_TEST_H
#define MORTISE_TESTS_SQL_REMOTE_TEST_H

#include "sql_dialect_stub.h"

#include <CUnit/Basic.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the host ------------------------------------------------------------------------------------ */

static int64_t now_ns;
static mortise_status completed;

static int64_t host_now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static inline void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    memset(bytes, 7, size);
}

static inline void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    (void)op;
    completed = status;
}

static inline void host_news(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
}

static inline void host_closing(mortise_host *host, int fd)
{
    (void)host;
    (void)fd;
}

static mortise_host host = {.size = sizeof(host),
                            .now = host_now,
                            .random = host_random,
                            .complete = host_complete,
                            .news = host_news,
                            .closing = host_closing};

/* ---- the server ---------------------------------------------------------------------------------- */

static struct rowlease_row table;    /* the only row */
static struct rowlease_row bound_to; /* of the WRITE that is on its way */
static int failures;                 /* so many errands fail, before one succeeds */

static void execute(const struct sql_request *request)
{
    struct sql_locks *locks = request->locks;
    locks->result = (struct sql_result){.now_us = now_ns / 1000, .wall_us = now_ns / 1000};
    if (request->step == SQL_READ) {
        locks->row = table;
        return;
    }
    CU_ASSERT(request->step == SQL_APPEND || request->step == SQL_WRITE);
    locks->result.touched = true;
    if (request->step == SQL_WRITE) {
        table = bound_to;
        return;
    }
    table.waiters_len = ROWLEASE_WAITER_SIZE;
    memcpy(table.waiters, locks->inbox.bytes, ROWLEASE_INBOX_SIZE);
    locks->result.version = table.version;
    locks->result.hint_ms = 1000;
}

static void run(struct sql_request *base);

static void answered(struct request *request)
{
    execute(&request->base);
    if (locks_step(&request->base) == SQL_AGAIN)
        run(&request->base);
    else
        locks_tell(&request->base);
}

static const struct handler handler = {.answered = answered, .failed = op_failed, .lost = op_lost};

static void run(struct sql_request *base)
{
    struct request *request = (struct request *)base;
    request->handler = &handler;
    bound_to = base->locks->next;
    statement_queue(request, base->step == SQL_READ ? LANE_READING : LANE_LAZY);
    request->not_before_ns = locks_look_due(base);
}

/* If nothing is on its way, a close waits in vain. */
static void come_in(struct link *link, short events)
{
    (void)events;
    if (link->group_count == 0) {
        now_ns += 1000 * NS_PER_MS;
        return;
    }
    struct group *group = flight_group(link);
    group->failed = failures > 0 && group->requests[0]->base.task == SQL_TASK_FORGET;
    if (group->failed) {
        failures--;
        group->fault = (struct fault){.base.status = MORTISE_BACKEND};
    }
    flight_done(link);
}

/* ---- the dialect --------------------------------------------------------------------------------- */

static bool send_nothing(struct link *link, struct group *group)
{
    (void)link;
    return group->count > 0;
}

static bool hear(struct sql_locks *locks, bool dropped)
{
    (void)dropped;
    return locks->hears;
}

static unsigned char notified; /* the first byte of the inbox, last */

static enum sql_notified notify(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                                const char *name, size_t name_len)
{
    (void)locks;
    (void)name;
    (void)name_len;
    notified = inbox->bytes[0];
    return SQL_NOTIFIED;
}

static int64_t looked_for; /* the session, last */
static bool can_look;      /* for sessions */
static bool ends_session;  /* a look is followed by another statement; or else nothing is found */

static bool look_for_session(struct request *request, const struct session *session)
{
    looked_for = session->id;
    if (can_look)
        statement_queue(request, LANE_READING);
    return can_look;
}

static enum ghost_answer take_session(struct request *request, const struct session *session)
{
    (void)session;
    if (ends_session)
        statement_queue(request, LANE_READING);
    return ends_session ? GHOST_ASKED : GHOST_GONE;
}

static const char *where(const struct link *link, char *text, size_t size)
{
    (void)link;
    if (size > 0)
        text[0] = '\0';
    return text;
}

static const struct remote_dialect dialect = {.name = "test",
                                              .group_max = 1,
                                              .events = wants_to_read,
                                              .come_in = come_in,
                                              .is_there = is_there,
                                              .is_open = is_open,
                                              .size = no_size,
                                              .send = send_nothing,
                                              .close = close_nothing,
                                              .forget = forget,
                                              .where = where,
                                              .ghost_look = look_for_session,
                                              .ghost_take = take_session};
static const struct sql_dialect statements = {.request_size = sizeof(struct request),
                                              .append = true,
                                              .run = run,
                                              .cancel = op_cancel,
                                              .notify = notify,
                                              .hasten = op_hasten,
                                              .hear = hear};

/* ---- a client ------------------------------------------------------------------------------------ */

static struct remote *remote;
static struct link main_link, live_link;
static int ends[2];

/* That row is held under the grant 1 for an hour. */
static inline void rig_begin(bool hears)
{
    remote = calloc(1, sizeof *remote);
    CU_ASSERT_PTR_NOT_NULL_FATAL(remote);
    now_ns = 1000000 * NS_PER_MS;
    completed = MORTISE_OK;
    memset(&main_link, 0, sizeof main_link);
    memset(&live_link, 0, sizeof live_link);
    remote->main = &main_link;
    remote->live = &live_link;
    remote->connect_ms = remote->command_ms = 5000;
    remote_init(remote, &host, &dialect, &statements, 50);
    remote->locks.hears = hears;
    main_link.state = LINK_READY;
    live_link.retry_ns = MORTISE_NEVER; /* it cannot be had: renewals go on the first */
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_EQUAL(write(ends[1], "x", 1), 1); /* each answer is there */
    CU_ASSERT_FATAL(link_poll(&main_link, ends[0]));
    table = (struct rowlease_row){.exists = true,
                                  .version = 5,
                                  .grants = {1},
                                  .grants_len = MORTISE_GRANT_ID_SIZE,
                                  .expires_us = now_ns / 1000 + INT64_C(3600000000)};
}

static inline void rig_end(void)
{
    remote_close(remote);
    close(ends[0]);
    close(ends[1]);
}

static inline mortise_op rig_op(mortise_op_kind kind, unsigned char grant)
{
    return (mortise_op){
        .kind = kind, .name = "name", .name_len = 4, .ttl_ms = 30000, .grant.bytes = {grant}};
}

static inline void rig_start(mortise_op *op)
{
    remote_start(remote, (mortise_op *[]){op}, 1);
}

/* The statement that is on its way is answered, and the next one goes out. */
static inline void rig_answer(void)
{
    come_in(&main_link, POLLIN);
    remote_go(remote);
}

#endif
