/* test_events.c - the executor of callbacks alone, without a client: the queue, the two ways to run it, and its end. */
#include "rig.h"

#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct events executor;
static _Atomic int begun, ended; /* threads of the executor */
static struct states seen;

#define LEASE(n) ((mortise_lease *)(uintptr_t)(n)) /* a handle is not looked at */

static void thread_begins(struct events *of)
{
    CU_ASSERT_PTR_EQUAL(of, &executor);
    atomic_fetch_add(&begun, 1);
}

static void thread_ends(struct events *of)
{
    CU_ASSERT_PTR_EQUAL(of, &executor);
    atomic_fetch_add(&ended, 1);
}

static const struct events_upcalls upcalls = {.thread_begins = thread_begins,
                                              .thread_ends = thread_ends};

static void begin(void)
{
    set_now(-1);
    begun = ended = 0;
    memset(&seen, 0, sizeof(seen));
    events_init(&executor, &upcalls, false);
}

static void end(void)
{
    int fd = executor.wakeup.epoll, event = executor.wakeup.event;
    events_closing(&executor);
    CU_ASSERT_EQUAL(events_stop(&executor, MORTISE_NEVER), EVENTS_OVER);
    events_destroy(&executor);
    CU_ASSERT(fcntl(fd, F_GETFD) < 0 && fcntl(event, F_GETFD) < 0);
    CU_ASSERT_EQUAL(begun, ended);
}

static struct notice notice_of(int lease, mortise_lease_state state)
{
    return (struct notice){
        .lease = LEASE(lease), .on_state = on_state, .state = state, .user_data = &seen};
}

static bool is_readable(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

static int dispatch(void)
{
    CU_ASSERT_TRUE(events_dispatch_begin(&executor));
    int count = events_dispatch_run(&executor);
    events_dispatch_end(&executor);
    return count;
}

/* ---- the queue ---- */

static void test_order_and_merging(void)
{
    begin();
    int other = eventfd(0, EFD_CLOEXEC);
    CU_ASSERT_FALSE(events_dispatch_begin(&executor));
    int fd = events_open_fd(&executor, other);
    CU_ASSERT_FATAL(fd >= 0);
    struct notice change = notice_of(1, MORTISE_STATE_HELD), none = {.lease = LEASE(2)};
    struct notice loss = notice_of(3, MORTISE_STATE_LOST), gone = notice_of(4, MORTISE_STATE_LOST);
    events_push_state(&executor, &change, MORTISE_STATE_SUSPECT);
    events_push(&executor, &none);
    events_push_state(&executor, &none, MORTISE_STATE_LOST);
    events_push(&executor, &gone);
    events_push(&executor, &loss);
    events_push(&executor, &loss);
    events_push_state(&executor, &change, MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(executor.count, 3);
    events_forget(&executor, &gone);
    events_forget(&executor, &gone);
    events_forget(&executor, &none);
    CU_ASSERT_TRUE(is_readable(fd));
    CU_ASSERT_EQUAL(dispatch(), 2);
    CU_ASSERT_EQUAL(seen.count, 2);
    CU_ASSERT_EQUAL(seen.seen[0], MORTISE_STATE_HELD); /* at the first place, with the last state */
    CU_ASSERT_EQUAL(seen.seen[1], MORTISE_STATE_LOST);
    CU_ASSERT_PTR_EQUAL(seen.lease, LEASE(3));
    CU_ASSERT_FALSE(is_readable(fd));
    events_push_state(&executor, &change, MORTISE_STATE_SUSPECT); /* once more, since it has run */
    CU_ASSERT_EQUAL(dispatch(), 1);
    CU_ASSERT_EQUAL(seen.seen[2], MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(dispatch(), 0);
    end();
    close(other);
    CU_ASSERT_EQUAL(begun, 0); /* nobody asked for the thread */
}

/* What a callback queues is for the next dispatch, and makes the descriptor readable at the end of this one. */
static struct notice chained;

static void push_one_more(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    on_state(lease, state, user_data);
    events_push(&executor, &chained);
}

/* An edge-triggered poller is woken by each notice, also by one that a callback queues, and by the other descriptor. */
static void test_edges(void)
{
    begin();
    int other = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int outer = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET}, seen_edge;
    CU_ASSERT_EQUAL_FATAL(epoll_ctl(outer, EPOLL_CTL_ADD, events_open_fd(&executor, other), &edge),
                          0);
    struct notice change = notice_of(1, MORTISE_STATE_HELD);
    struct notice chains = change;
    chains.on_state = push_one_more;
    chained = notice_of(2, MORTISE_STATE_LOST);
    uint64_t one = 1;
    for (int round = 0; round < 3; round++) {
        events_push(&executor, &change);
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 1);
        CU_ASSERT_EQUAL(dispatch(), 1);
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 0);
        events_push(&executor, &chains);
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 1);
        CU_ASSERT_EQUAL(dispatch(), 1);
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 1);
        CU_ASSERT_EQUAL(dispatch(), 1);
        CU_ASSERT_EQUAL(write(other, &one, sizeof(one)), (ssize_t)sizeof(one));
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 1);
        CU_ASSERT_EQUAL(dispatch(), 0);
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 1); /* nobody has read it yet */
        CU_ASSERT_EQUAL(read(other, &one, sizeof(one)), (ssize_t)sizeof(one));
        CU_ASSERT_EQUAL(dispatch(), 0);
        CU_ASSERT_EQUAL(epoll_wait(outer, &seen_edge, 1, 0), 0);
    }
    end();
    close(outer);
    close(other);
}

static void test_pushed_inside(void)
{
    begin();
    int other = eventfd(0, EFD_CLOEXEC), fd = events_open_fd(&executor, other);
    chained = notice_of(1, MORTISE_STATE_HELD);
    struct notice first = chained;
    first.on_state = push_one_more;
    events_push(&executor, &first);
    CU_ASSERT_EQUAL(dispatch(), 1);
    CU_ASSERT_TRUE(is_readable(fd));
    CU_ASSERT_EQUAL(dispatch(), 1);
    CU_ASSERT_EQUAL(seen.count, 2);
    CU_ASSERT_FALSE(is_readable(fd));
    CU_ASSERT_TRUE(events_dispatch_begin(&executor));
    events_push(&executor, &first); /* comes too late for this dispatch */
    CU_ASSERT_FALSE(is_readable(fd));
    events_dispatch_end(&executor);
    CU_ASSERT_TRUE(is_readable(fd));
    CU_ASSERT_EQUAL(dispatch(), 1);
    events_forget(&executor, &chained);
    end();
    close(other);
}

/* A dispatch of a client that closes does not read the other descriptor. If that stayed in the set, a loop would never sleep. */
static void test_other_while_closing(void)
{
    begin();
    int other = eventfd(1, EFD_CLOEXEC), fd = events_open_fd(&executor, other);
    struct notice change = notice_of(1, MORTISE_STATE_LOST);
    CU_ASSERT_TRUE(is_readable(fd));
    events_closing(&executor);
    CU_ASSERT_FALSE(is_readable(fd));
    events_push(&executor, &change);
    CU_ASSERT_TRUE(is_readable(fd));
    CU_ASSERT_EQUAL(dispatch(), 1);
    CU_ASSERT_FALSE(is_readable(fd));
    end();
    close(other);
}

struct free_fds {
    int first, second;
};

static struct free_fds next_descriptors(void)
{
    struct free_fds next = {dup(STDERR_FILENO), dup(STDERR_FILENO)};
    close(next.first);
    close(next.second);
    return next;
}

/* A descriptor that cannot be made leaves nothing open. */
static void test_no_descriptor(void)
{
    begin();
    struct free_fds before = next_descriptors();
    CU_ASSERT_EQUAL(events_open_fd(&executor, -1), -1);
    struct free_fds after = next_descriptors();
    CU_ASSERT(before.first == after.first && before.second == after.second);
    CU_ASSERT_FALSE(events_dispatch_begin(&executor));
    end();
}

/* ---- the thread ---- */

static struct lingering {
    sem_t entered, leave;
} lingering;

static void stay(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    sem_post(&lingering.entered);
    while (sem_wait(&lingering.leave) != 0)
        continue;
    on_state(lease, state, user_data);
}

static void acquired_and_stay(mortise_status status, mortise_lease *lease,
                              const mortise_error *error, void *user_data)
{
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_PTR_NULL(error);
    CU_ASSERT_TRUE(events_inside());
    stay(lease, MORTISE_STATE_HELD, user_data);
}

static void begin_with_thread(void)
{
    begin();
    sem_init(&lingering.entered, 0, 0);
    sem_init(&lingering.leave, 0, 0);
    CU_ASSERT_TRUE(events_ready(&executor));
    CU_ASSERT_TRUE(events_ready(&executor));
    CU_ASSERT_EQUAL(begun, 1);
}

static void wait_for_entry(void)
{
    while (sem_wait(&lingering.entered) != 0)
        continue;
}

/* A notice may be used for something else while its callback runs. */
static void test_copy(void)
{
    begin_with_thread();
    struct notice notice = notice_of(7, MORTISE_STATE_SUSPECT);
    notice.on_state = stay;
    events_push(&executor, &notice);
    wait_for_entry();
    events_forget(&executor, &notice);
    notice = notice_of(8, MORTISE_STATE_LOST);
    events_push(&executor, &notice);
    CU_ASSERT_TRUE(events_run_elsewhere(&executor, LEASE(7)));
    CU_ASSERT_FALSE(events_run_elsewhere(&executor, LEASE(8)));
    CU_ASSERT_FALSE(events_over(&executor));
    sem_post(&lingering.leave);
    events_drain(&executor, LEASE(7));
    CU_ASSERT_FALSE(events_run_elsewhere(&executor, LEASE(7)));
    end();
    CU_ASSERT_EQUAL(seen.count, 2); /* the end waited for the second one */
    CU_ASSERT_EQUAL(seen.seen[0], MORTISE_STATE_SUSPECT);
    CU_ASSERT_EQUAL(seen.seen[1], MORTISE_STATE_LOST);
}

/* The callback of an acquire is no on_state: a thread to which it gave its lease may release that. */
static void test_acquired(void)
{
    begin_with_thread();
    struct notice *notice = calloc(1, sizeof(*notice));
    CU_ASSERT_PTR_NOT_NULL_FATAL(notice);
    *notice = (struct notice){
        .on_acquired = acquired_and_stay, .lease = LEASE(7), .user_data = &seen, .owned = notice};
    events_push(&executor, notice);
    wait_for_entry();
    CU_ASSERT_FALSE(events_run_elsewhere(&executor, LEASE(7)));
    CU_ASSERT_FALSE(events_run_elsewhere(&executor, NULL));
    events_drain(&executor, LEASE(7)); /* returns */
    CU_ASSERT_FALSE(events_inside());
    sem_post(&lingering.leave);
    end();
    CU_ASSERT_EQUAL(seen.count, 1);
}

/* The end comes when the time is over, and may be tried again. */
static void test_left(void)
{
    begin_with_thread();
    struct notice first = notice_of(1, MORTISE_STATE_LOST), second = first;
    first.on_state = stay;
    events_push(&executor, &first);
    events_push(&executor, &second);
    wait_for_entry();
    events_closing(&executor);
    CU_ASSERT_EQUAL(events_stop(&executor, clock_now()), EVENTS_LEFT);
    sem_post(&lingering.leave);
    end();
    CU_ASSERT_EQUAL(seen.count, 2);
}

/* ---- fork ---- */

static pid_t child;

static void fork_here(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    fflush(NULL);
    child = fork();
    on_state(lease, state, user_data);
}

/* A child that is forked in a callback returns from the dispatch, without the callbacks that wait: they are its parent's. */
static void test_fork_in_dispatch(void)
{
    static struct slab *const slabs[] = {&client_slab, &claim_slab, NULL};
    slabs_init(slabs); /* from here on forks are counted */
    begin();
    int other = eventfd(0, EFD_CLOEXEC), status;
    CU_ASSERT_FATAL(events_open_fd(&executor, other) >= 0);
    struct notice first = notice_of(1, MORTISE_STATE_LOST), second = first;
    first.on_state = fork_here;
    events_push(&executor, &first);
    events_push(&executor, &second);
    CU_ASSERT_TRUE(events_dispatch_begin(&executor));
    int count = events_dispatch_run(&executor);
    if (child == 0) {
        bool right = count == 1 && seen.count == 1 && !events_inside();
        syscall(SYS_exit_group, right ? 0 : 1);
    }
    events_dispatch_end(&executor);
    CU_ASSERT_EQUAL(count, 2);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end();
    close(other);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"order and merging", test_order_and_merging},
        {"pushed inside a callback", test_pushed_inside},
        {"polled edge-triggered", test_edges},
        {"the other descriptor while the client closes", test_other_while_closing},
        {"no descriptor", test_no_descriptor},
        {"a notice is used again", test_copy},
        {"the callback of an acquire", test_acquired},
        {"callbacks left", test_left},
        {"R8: fork in a callback", test_fork_in_dispatch},
        CU_TEST_INFO_NULL,
    };
    return rig_run("events", tests);
}
