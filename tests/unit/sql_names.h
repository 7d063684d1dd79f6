/* sql_names.h - the host of a client of database servers: its clock and its resolver are the test's own, which answers when it likes. */
#ifndef MORTISE_TESTS_SQL_NAMES_H
#define MORTISE_TESTS_SQL_NAMES_H

#include <mortise/driver.h>

#include "suite.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

struct question {
    mortise_resolved resolved;
    void *argument;
};

static int64_t now_ns;
static struct question questions[8];
static size_t question_count;
static bool resolver_fails;

static inline int64_t host_now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static inline void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    memset(bytes, 7, size);
}

static inline bool host_resolve(mortise_host *host, const char *node, const char *port,
                                mortise_resolved resolved, void *argument)
{
    (void)host;
    (void)node;
    (void)port;
    if (resolver_fails)
        return false;
    CU_ASSERT_FATAL(question_count < 8);
    questions[question_count++] = (struct question){resolved, argument};
    return true;
}

static inline void host_closing(mortise_host *host, int fd)
{
    (void)host;
    (void)fd;
}

static mortise_host host = {.size = sizeof(host),
                            .now = host_now,
                            .random = host_random,
                            .resolve = host_resolve,
                            .closing = host_closing};

/* A look-up that was not answered. address NULL: it fails. */
static inline void answer_at(void *ctx, size_t which, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct addrinfo found = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&at, .ai_addrlen = sizeof at};
    struct question question = questions[which];
    CU_ASSERT_FATAL(question_count > which);
    memmove(&questions[which], &questions[which + 1],
            (--question_count - which) * sizeof questions[0]);
    CU_ASSERT(address == NULL || inet_pton(AF_INET, address, &at.sin_addr) == 1);
    question.resolved(ctx, question.argument, address != NULL ? &found : NULL, "not found");
}

#endif
