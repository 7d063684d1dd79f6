/* dead.c - the release of another client's claim by its slot, as a witness does it when the process has died
 * (<mortise/witness.h>). The test is the witness. The "dead" client is alive here, so the test also sees that it learns of
 * its loss, and that the claims beside it are left alone. */
#include "conformance.h"

#include <mortise/witness.h>

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The area of a client that was opened with the other end of a socket. */
struct watched {
    mortise_client *client;
    int socket, area;
};

static int take_area(int socket)
{
    struct {
        mortise_witness_message head;
        char text[MORTISE_WITNESS_TEXT_MAX];
    } hello;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int fds[2] = {-1, -1};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) > 0 && CMSG_FIRSTHDR(&message) != NULL &&
        CMSG_FIRSTHDR(&message)->cmsg_len == CMSG_LEN(sizeof fds))
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
    if (fds[0] >= 0)
        close(fds[0]);
    return fds[1];
}

static struct watched watched_open(const char *settings)
{
    struct watched watched = {.area = -1};
    int pair[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    EXPECT(OK, mortise_open_witnessed(subject_where(settings), pair[0], &watched.client, &detail));
    watched.socket = pair[1];
    CU_ASSERT_FATAL(watched.client != NULL);
    return watched;
}

static void watched_close(struct watched *watched)
{
    close_client(watched->client);
    close(watched->socket);
    if (watched->area >= 0)
        close(watched->area);
}

static bool find_held(const struct watched *watched, mortise_witness_slot *slot)
{
    off_t at = sizeof(mortise_witness_area);
    for (; pread(watched->area, slot, sizeof *slot, at) == (ssize_t)sizeof *slot &&
           at < 64 * (off_t)sizeof *slot;
         at += (off_t)sizeof *slot)
        if (slot->state == MORTISE_WITNESS_HELD && slot->sequence % 2 == 0)
            return true;
    return false;
}

/* The slot of its claim that is held. It passes its area when it has asked for a claim, and may enter the claim after that. */
static mortise_witness_slot slot_of(struct watched *watched)
{
    mortise_witness_slot slot = {0};
    int64_t until = test_now_ms() + TEST_PATIENCE_MS;
    struct pollfd hello = {.fd = watched->socket, .events = POLLIN};
    if (watched->area < 0 && poll(&hello, 1, TEST_PATIENCE_MS) == 1)
        watched->area = take_area(watched->socket);
    while (!find_held(watched, &slot) && test_now_ms() < until)
        poll(NULL, 0, 1);
    CU_ASSERT_EQUAL(slot.state, MORTISE_WITNESS_HELD);
    return slot;
}

struct told {
    struct test_count calls;
    mortise_status status;
};

static void on_told(mortise_status status, const mortise_error *error, void *user_data)
{
    struct told *told = user_data;
    (void)error;
    told->status = status;
    test_count_add(&told->calls, 1);
}

/* Releases the slot by a client of its own, as the witness does, and returns the answer. */
static mortise_status release_dead(const mortise_witness_slot *slot)
{
    struct told told = {TEST_COUNT_INIT, MORTISE_OK};
    mortise_client *undertaker = NULL;
    EXPECT(OK, mortise_open_for_dead(subject_where(NULL), &undertaker, &detail));
    EXPECT(OK, mortise_release_dead(undertaker, slot, on_told, &told, &detail));
    CU_ASSERT(test_count_wait(&told.calls, 1));
    /* A request of an ASKED claim may come later than the close, which says so. */
    mortise_status closed = mortise_close(undertaker, &detail);
    CU_ASSERT(closed == MORTISE_OK ||
              (closed == MORTISE_UNREACHABLE && slot->state == MORTISE_WITNESS_ASKED));
    return told.status;
}

/* LOST or NOTOWNER: both say that nothing of the claim was there. */
static bool is_absent(mortise_status status)
{
    return status == MORTISE_LOST || status == MORTISE_NOTOWNER;
}

static void test_held(void)
{
    struct watched dead = watched_open("renew_every = 100ms");
    const char *name = fresh_name();
    mortise_lease *lease = take(dead.client, name, 60000);
    mortise_witness_slot slot = slot_of(&dead);
    EXPECT(BUSY, try_once(subject.looker, name));
    EXPECT(OK, release_dead(&slot));
    EXPECT(OK, try_once(subject.looker, name));
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS)); /* at its next renewal */
    EXPECT(LOST, mortise_release(lease, &detail));
    watched_close(&dead);
}

/* A waiter gets the lock at once, and a late or second witness leaves it alone. */
static void test_successor(void)
{
    struct watched dead = watched_open(NULL);
    mortise_client *other = open_client(NULL);
    struct blocked waiter;
    const char *name = fresh_name();
    mortise_lease *lease = take(dead.client, name, 60000);
    mortise_witness_slot slot = slot_of(&dead);
    blocked_start(&waiter, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000));
    CU_ASSERT(wait_local_waiters(other, 1));
    wait_waiters(name, 1);
    EXPECT(OK, release_dead(&slot));
    EXPECT(OK, blocked_join(&waiter));
    for (int i = 0; i < 3; i++)
        CU_ASSERT(is_absent(release_dead(&slot)));
    slot.state = MORTISE_WITNESS_ASKED; /* repeated for a ttl */
    slot.ttl_ms = MORTISE_TTL_MIN_MS;
    CU_ASSERT(is_absent(release_dead(&slot)));
    EXPECT(BUSY, try_once(subject.looker, name));
    CU_ASSERT_EQUAL(mortise_state(waiter.lease), MORTISE_STATE_HELD);
    give(waiter.lease);
    mortise_release(lease, &detail);
    watched_close(&dead);
    close_client(other);
}

/* Another live process of the same owner keeps its own hold. */
static void test_owner(void)
{
    struct watched dead = watched_open(NULL);
    mortise_client *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *first = NULL, *second = NULL;
    if (!lacks(MORTISE_CAP_REENTRANT)) {
        const mortise_options *us =
            MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000, .owner = "us");
        EXPECT(OK, mortise_acquire(dead.client, name, us, &first, &detail));
        EXPECT(OK, mortise_acquire(other, name, us, &second, &detail));
        mortise_witness_slot slot = slot_of(&dead);
        EXPECT(OK, release_dead(&slot));
        CU_ASSERT(is_absent(release_dead(&slot)));
        EXPECT(BUSY, try_once(subject.looker, name));
        give(second);
        EXPECT(OK, try_once(subject.looker, name));
        mortise_release(first, &detail);
    }
    watched_close(&dead);
    close_client(other);
}

/* So do the other shared holders; and one that was exclusive when its slot was written is released as what it is now. */
static void test_shared(void)
{
    struct watched dead = watched_open(NULL);
    mortise_client *other = open_client(NULL);
    const char *name = fresh_name();
    if (!lacks(MORTISE_CAP_SHARED)) {
        mortise_lease *first = take_shared(dead.client, name, 60000, 0);
        mortise_lease *second = take_shared(other, name, 60000, 0);
        mortise_witness_slot slot = slot_of(&dead);
        EXPECT(OK, release_dead(&slot));
        CU_ASSERT(is_absent(release_dead(&slot)));
        EXPECT(BUSY, try_once(subject.looker, name));
        give(second);
        EXPECT(OK, try_once(subject.looker, name));
        mortise_release(first, &detail);
        name = fresh_name();
        first = take(dead.client, name, 60000);
        EXPECT(OK, mortise_downgrade(first, &detail));
        slot = slot_of(&dead);
        EXPECT(OK, release_dead(&slot));
        EXPECT(OK, try_once(subject.looker, name));
        mortise_release(first, &detail);
    }
    watched_close(&dead);
    close_client(other);
}

const CU_TestInfo dead_tests[] = {{"dead: of a holder", test_held},
                                  {"dead: its successor", test_successor},
                                  {"dead: beside the same owner", test_owner},
                                  {"dead: beside shared holders", test_shared},
                                  CU_TEST_INFO_NULL};
