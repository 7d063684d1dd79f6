/* foreign.c - a program that closes a client's connection by mistake, and has a socket of its own under the number. */
#include "expect.h"

#include <support.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MAX 1024
#define FEWEST 100 /* bytes that a read waits for */

/* The first end blocks: if it is full, a send blocks; otherwise a read blocks, although poll(2) reports data. */
static bool blocking_pair(int ends[2], bool full)
{
    static const char bytes[4096];
    const int fewest = FEWEST;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    while (full && send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    return full || (setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, &fewest, sizeof fewest) == 0 &&
                    send(ends[1], bytes, 1, MSG_NOSIGNAL) == 1);
}

/* Has `theirs` under the number of each descriptor of this process that is connected to the port. Returns how many. */
static int replace_connections(int port, int theirs)
{
    int count = 0;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        struct sockaddr_in peer = {.sin_family = AF_UNSPEC};
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == port)
            count += dup3(theirs, fd, O_CLOEXEC) == fd;
    }
    return count;
}

struct use {
    mortise_client *client;
    struct test_count done;
    mortise_status status;
};

static void *use_client(void *argument)
{
    struct use *use = argument;
    mortise_lease *lease;
    use->status = mortise_acquire(use->client, "foreign",
                                  MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, &detail);
    if (use->status == MORTISE_OK)
        use->status = mortise_release(lease, &detail);
    test_count_add(&use->done, 1);
    return NULL;
}

void put_foreign_socket(mortise_client *client, int port, bool full)
{
    struct use use = {.client = client, .done = TEST_COUNT_INIT};
    pthread_t thread;
    int ends[2];
    if (!CHECK(blocking_pair(ends, full)))
        return;
    CHECK(replace_connections(port, ends[0]) > 0);
    if (CHECK(pthread_create(&thread, NULL, use_client, &use) == 0)) {
        CHECK(test_count_wait(&use.done, 1));
        shutdown(ends[1], SHUT_RDWR); /* the blocked thread continues */
        pthread_join(thread, NULL);
        EXPECT(OK, use.status);
    }
    close(ends[0]);
    close(ends[1]);
}
