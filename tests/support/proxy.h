/* proxy.h - the fault proxy (tests/proxy has the list of commands) for tests in C: a child process that ends with the
 * test and is controlled by lines. */
#ifndef MORTISE_TESTS_PROXY_H
#define MORTISE_TESTS_PROXY_H

#include "support.h"

struct test_proxy {
    struct test_process process;
    char control[108]; /* the control socket's path */
    int port;          /* on 127.0.0.1 */
};

/* Between a free port and this server. The program is $MORTISE_PROXY, the socket lies in the folder. */
bool test_proxy_start(struct test_proxy *proxy, const char *folder, const char *host, int port);
/* One command, in force when this returns. False: it was not understood, or nobody answers. */
bool test_proxy_say(struct test_proxy *proxy, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A number of `count`, by its name ("now", "up", …); -1: nobody answers. */
int64_t test_proxy_count(struct test_proxy *proxy, const char *name);
void test_proxy_end(struct test_proxy *proxy);

/* The same to any proxy, by its control socket: the answer is a line. False: nobody answers. */
bool test_proxy_ask(const char *control, const char *command, char *answer, size_t size);

#endif
