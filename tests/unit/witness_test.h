/* witness_test.h - what the tests of a witness share: the test is the witness. It listens, gets the area, and reads it as it
 * would after a death; and a client that it watches. */
#ifndef WITNESS_TEST_H
#define WITNESS_TEST_H

#include "rig.h"

#include <sys/socket.h>
#include <sys/un.h>

static struct rig rig;
static struct outcome got;
static int listener = -1, peer = -1, area = -1, pidfd = -1;
static char path[300], config[700];

/* ---- the test as the witness ----------------------------------------------------------------------- */

static inline void start_listening(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    unlink(path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    CU_ASSERT_EQUAL_FATAL(listen(listener, 8), 0);
}

static inline void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static inline void stop_listening(void)
{
    shut(&listener);
    shut(&peer);
    shut(&area);
    shut(&pidfd);
    unlink(path);
}

static struct {
    mortise_witness_message head;
    char text[MORTISE_WITNESS_TEXT_MAX + 1];
} in;

/* The next message of the client; false: end of file. */
static inline bool hear(void)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {&in, sizeof(in)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    memset(&in, 0, sizeof(in));
    if (recvmsg(peer, &message, MSG_CMSG_CLOEXEC) <= 0)
        return false;
    struct cmsghdr *fds = CMSG_FIRSTHDR(&message);
    if (fds != NULL && fds->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
        shut(&pidfd);
        shut(&area);
        memcpy(&pidfd, CMSG_DATA(fds), sizeof(int));
        memcpy(&area, CMSG_DATA(fds) + sizeof(int), sizeof(int));
    }
    return true;
}

static inline void say(mortise_witness_kind kind, const char *text)
{
    struct {
        mortise_witness_message head;
        char text[200];
    } out = {.head = {.magic = MORTISE_WITNESS_MAGIC,
                      .version = MORTISE_WITNESS_VERSION,
                      .kind = (uint16_t)kind,
                      .text_len = (uint32_t)strlen(text)}};
    memcpy(out.text, text, strlen(text));
    size_t size = sizeof(out.head) + strlen(text);
    CU_ASSERT_EQUAL(send(peer, &out, size, MSG_NOSIGNAL), (ssize_t)size);
}

static inline void meet(void)
{
    shut(&peer);
    peer = accept(listener, NULL, NULL);
    CU_ASSERT_FATAL(peer >= 0);
    CU_ASSERT_FATAL(hear());
    CU_ASSERT_EQUAL(in.head.kind, MORTISE_WITNESS_HELLO);
    CU_ASSERT_FATAL(area >= 0 && pidfd >= 0);
}

static inline mortise_witness_area head(void)
{
    mortise_witness_area head = {0};
    CU_ASSERT_EQUAL(pread(area, &head, sizeof(head), 0), sizeof(head));
    return head;
}

static inline mortise_witness_slot slot(uint32_t index)
{
    static mortise_witness_slot slot;
    off_t at = (off_t)(sizeof(mortise_witness_area) + index * sizeof(slot));
    CU_ASSERT_EQUAL(pread(area, &slot, sizeof(slot), at), sizeof(slot));
    CU_ASSERT_EQUAL(slot.sequence % 2, 0);
    return slot;
}

static inline unsigned count(mortise_witness_state state)
{
    unsigned found = 0;
    uint32_t used = head().used;
    for (uint32_t i = 0; i < used; i++)
        found += slot(i).state == (uint32_t)state;
    return found;
}

#define IN_USE() (count(MORTISE_WITNESS_ASKED) + count(MORTISE_WITNESS_HELD))

/* ---- the client ------------------------------------------------------------------------------------ */

static inline struct witness_link *the_link(void)
{
    return &rig.client->locks.witness;
}

static inline void turn(void)
{
    pthread_mutex_lock(&rig.client->locks.lock);
    witness_turn_locked(&rig.client->locks);
    locks_unlock(&rig.client->locks, START_NOW);
}

/* A client with a witness, this test. */
static inline void start(const char *settings)
{
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "ttl = 3s\nhandover_max = 0\nwitness = %s\n%s", path,
             settings);
    start_listening();
    rig_open(&rig, config);
    turn();
    meet();
    say(MORTISE_WITNESS_WELCOME, "");
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_WATCHED);
    tap(&rig);
}

static inline void finish(void)
{
    CU_ASSERT_EQUAL(IN_USE(), 0);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
    CU_ASSERT(hear());
    CU_ASSERT_EQUAL(in.head.kind, MORTISE_WITNESS_BYE);
    CU_ASSERT_FALSE(hear());
    stop_listening();
}

static inline void release(mortise_lease *lease)
{
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
}

#endif
