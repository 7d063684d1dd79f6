/* test_sql_leaving.c - a client of a database server closes while it is in a list of waiters, or is just being put there. The
 * dialect keeps one row in memory, and answers one statement after the other. */
#include "remote/remote.h"

#include "suite.h"

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

static void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    memset(bytes, 7, size);
}

static void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    (void)op;
    completed = status;
}

static void host_news(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
}

static void host_closing(mortise_host *host, int fd)
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
    statement_queue(request, LANE_LAZY);
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

static bool is_open(const struct link *link, enum lane lane)
{
    (void)lane;
    return link->group_count == 0;
}

static size_t no_size(const struct link *link, const struct request *request)
{
    (void)link;
    (void)request;
    return 0;
}

static bool is_there(struct link *link)
{
    return link->fd >= 0;
}

static short wants_to_read(const struct link *link)
{
    (void)link;
    return POLLIN;
}

static bool send_nothing(struct link *link, struct group *group)
{
    (void)link;
    return group->count > 0;
}

static void close_nothing(struct link *link)
{
    (void)link;
}

static void forget(struct request *request)
{
    (void)request;
}

static bool hear(struct sql_locks *locks, bool dropped)
{
    (void)dropped;
    return locks->hears;
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
                                              .forget = forget};
static const struct sql_dialect statements = {.request_size = sizeof(struct request),
                                              .append = true,
                                              .run = run,
                                              .cancel = op_cancel,
                                              .hear = hear};

/* ---- a client that waits --------------------------------------------------------------------------- */

static struct remote *remote;
static struct link main_link, live_link;
static mortise_op op;
static int ends[2];

/* Its acquire is BUSY, and what puts it into the list is on its way. */
static void begin(void)
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
    remote->locks.hears = true;
    main_link.state = LINK_READY;
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_EQUAL(write(ends[1], "x", 1), 1); /* each answer is there */
    CU_ASSERT_FATAL(link_poll(&main_link, ends[0]));
    table = (struct rowlease_row){.exists = true,
                                  .version = 5,
                                  .grants = {9},
                                  .grants_len = MORTISE_GRANT_ID_SIZE,
                                  .expires_us = now_ns / 1000 + 60000000};
    op = (mortise_op){.kind = MORTISE_OP_ACQUIRE,
                      .name = "name",
                      .name_len = 4,
                      .ttl_ms = 30000,
                      .grant.bytes = {1}};
    remote_start(remote, (mortise_op *[]){&op}, 1);
    come_in(&main_link, POLLIN);
    remote_go(remote);
    CU_ASSERT_EQUAL_FATAL(main_link.group_count, 1);
    CU_ASSERT_EQUAL(flight_group(&main_link)->requests[0]->base.step, SQL_APPEND);
    CU_ASSERT_EQUAL(table.waiters_len, 0);
}

/* It leaves, and waits for nothing else. */
static void end(void)
{
    int64_t began_ns = now_ns;
    remote_close(remote);
    CU_ASSERT_EQUAL(table.waiters_len, 0);
    CU_ASSERT_EQUAL(now_ns, began_ns);
    close(ends[0]);
    close(ends[1]);
}

static void test_listed(void)
{
    begin();
    come_in(&main_link, POLLIN);
    CU_ASSERT_EQUAL(completed, MORTISE_BUSY);
    CU_ASSERT_EQUAL(table.waiters_len, ROWLEASE_WAITER_SIZE);
    end();
}

/* The caller has given up, and the answer that puts the client into the list comes when it closes. */
static void test_listed_meanwhile(void)
{
    begin();
    remote_cancel(remote, &op);
    CU_ASSERT_EQUAL(completed, MORTISE_CANCELED);
    end();
}

/* The statement that leaves the list fails. */
static void test_leaving_fails(void)
{
    begin();
    come_in(&main_link, POLLIN);
    failures = 2;
    end();
    CU_ASSERT_EQUAL(failures, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"in the list when it closes", test_listed},
        {"put into the list while it closes", test_listed_meanwhile},
        {"leaving fails", test_leaving_fails},
        CU_TEST_INFO_NULL,
    };
    return suite_run("sql leaving", tests);
}
