/* redis_link_test.h - one connection of drivers/lib/redis, with a clock and a resolver of the test's own, and servers that
 * the test itself plays: each listens on a socket in a folder, so that what one side has sent is there for the other at once. */
#ifndef MORTISE_TESTS_REDIS_LINK_TEST_H
#define MORTISE_TESTS_REDIS_LINK_TEST_H

#include "link.h"

#include "suite.h"
#include "support.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MS LINK_NS_PER_MS
#define CONNECT_MS 500
#define COMMAND_MS 3000

/* ---- the host ------------------------------------------------------------------------------------ */

struct question {
    mortise_resolved resolved;
    void *argument;
    char name[64];
};

static int64_t now_ns;
static struct question questions[8];
static size_t question_count;
static bool resolver_fails;

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

static void host_closing(mortise_host *host, int fd)
{
    (void)host;
    (void)fd;
}

static bool host_resolve(mortise_host *host, const char *node, const char *port,
                         mortise_resolved resolved, void *argument)
{
    (void)host;
    (void)port;
    if (resolver_fails)
        return false;
    struct question *question = &questions[question_count++];
    CU_ASSERT_FATAL(question_count <= sizeof questions / sizeof *questions);
    *question = (struct question){resolved, argument, ""};
    snprintf(question->name, sizeof question->name, "%.60s", node);
    return true;
}

static mortise_host host = {.size = sizeof(host),
                            .now = host_now,
                            .random = host_random,
                            .closing = host_closing,
                            .resolve = host_resolve};

/* ---- servers ------------------------------------------------------------------------------------- */

static char folder[PATH_MAX];

struct server {
    struct sockaddr_un at;
    int listener;
    unsigned accepted;
    int fd;              /* of the last connection; -1 */
    redisReader *reader; /* of its requests */
    const char *info;    /* what it says of itself; NULL: it refuses to */
    const char *kill;    /* the answer to CLIENT KILL */
    bool hides_id;       /* it refuses CLIENT ID */
    const char *cluster; /* the answer to CLUSTER INFO, as a text; NULL: it refuses */
    const char *slots;   /* the answer to CLUSTER SLOTS */
    int id;              /* of the last connection, in this server */
    int killed_id;       /* that it was asked to end; 0: none */
    unsigned others;     /* requests that belong to no greeting */
};

#define INFO_7 "redis_version:7.0.0\r\nrun_id:0123456789\r\n"

static inline struct endpoint endpoint_of(const char *text)
{
    struct endpoint endpoint;
    const char *problem;
    CU_ASSERT_FATAL(endpoint_next(&text, LINK_PORT, &endpoint, &problem));
    return endpoint;
}

static inline void server_start(struct server *server, const char *name)
{
    *server = (struct server){
        .at.sun_family = AF_UNIX, .fd = -1, .info = INFO_7, .kill = ":1\r\n", .id = 10};
    int length =
        snprintf(server->at.sun_path, sizeof server->at.sun_path, "%.80s/%s", folder, name);
    CU_ASSERT_FATAL(length > 0 && (size_t)length < sizeof server->at.sun_path);
    unlink(server->at.sun_path); /* of a test that has failed */
    server->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CU_ASSERT_FATAL(server->listener >= 0 &&
                    bind(server->listener, (struct sockaddr *)&server->at, sizeof server->at) ==
                        0 &&
                    listen(server->listener, 16) == 0);
}

static inline void server_hang_up(struct server *server)
{
    if (server->fd >= 0)
        close(server->fd);
    if (server->reader != NULL)
        redisReaderFree(server->reader);
    server->fd = -1;
    server->reader = NULL;
}

/* From now on it refuses. */
static inline void server_end(struct server *server)
{
    server_hang_up(server);
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
    unlink(server->at.sun_path);
}

/* The next connection, if there is one; the one before is left alone. */
static inline bool server_accept(struct server *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return false;
    if (server->reader != NULL)
        redisReaderFree(server->reader);
    server->fd = fd;
    server->reader = redisReaderCreate();
    server->accepted++;
    server->id++;
    return true;
}

/* Its next request, as words; NULL: none has come. */
static inline redisReply *server_read(struct server *server)
{
    char bytes[4096];
    void *request = NULL;
    ssize_t n;
    while (server->fd >= 0 && (n = recv(server->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        redisReaderFeed(server->reader, bytes, (size_t)n);
    if (server->reader != NULL)
        redisReaderGetReply(server->reader, &request);
    return request;
}

static inline void server_say(struct server *server, const char *text)
{
    CU_ASSERT_EQUAL(send(server->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static inline bool is_word(const redisReply *request, size_t at, const char *word)
{
    return request->elements > at && strcmp(request->element[at]->str, word) == 0;
}

static inline void write_text(char *to, size_t size, const char *text)
{
    if (text == NULL)
        snprintf(to, size, "-NOPERM this user has no permissions to run it\r\n");
    else
        snprintf(to, size, "$%zu\r\n%s\r\n", strlen(text), text);
}

static inline bool is_greeting(const redisReply *request)
{
    static const char *const words[] = {"AUTH", "SELECT", "CLIENT", "INFO", "ROLE", "TIME"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(request, 0, words[i]))
            return true;
    return false;
}

/* Answers what has come, as Redis answers a greeting. Everything else is OK. Returns how many requests these were. */
static inline unsigned server_answer(struct server *server)
{
    redisReply *request;
    unsigned count = 0;
    char id[32], info[256], cluster[256];
    snprintf(id, sizeof id, ":%d\r\n", server->id);
    write_text(info, sizeof info, server->info);
    write_text(cluster, sizeof cluster, server->cluster);
    for (; (request = server_read(server)) != NULL; count++) {
        const char *answer = "+OK\r\n";
        if (is_word(request, 0, "INFO"))
            answer = info;
        else if (is_word(request, 0, "CLUSTER"))
            answer = is_word(request, 1, "INFO") ? cluster : server->slots;
        else if (is_word(request, 1, "ID") && !server->hides_id)
            answer = id;
        else if (is_word(request, 1, "ID") || is_word(request, 0, "ROLE"))
            answer = "-NOPERM this user has no permissions to run it\r\n";
        else if (is_word(request, 1, "KILL")) {
            server->killed_id = (int)strtol(request->element[3]->str, NULL, 10);
            answer = server->kill;
        }
        server->others += !is_greeting(request);
        server_say(server, answer);
        freeReplyObject(request);
    }
    return count;
}

/* ---- the link ------------------------------------------------------------------------------------ */

struct owner {
    struct link link;
    struct link_settings settings;
    unsigned ups, downs;
    struct link_fault fault; /* of the last `down` */
};

static inline void noted_up(struct link *link, void *owner)
{
    (void)link;
    ((struct owner *)owner)->ups++;
}

static inline void noted_down(struct link *link, void *owner, const struct link_fault *fault)
{
    (void)link;
    ((struct owner *)owner)->downs++;
    ((struct owner *)owner)->fault = *fault;
}

static inline void owner_begin(struct owner *owner, const char *endpoint)
{
    static const struct link_callbacks callbacks = {.up = noted_up, .down = noted_down};
    memset(owner, 0, sizeof *owner);
    owner->settings = (struct link_settings){.endpoint = endpoint_of(endpoint),
                                             .connect_timeout_ms = CONNECT_MS,
                                             .command_timeout_ms = COMMAND_MS,
                                             .client_name = "test"};
    link_init(&owner->link, &host, &owner->settings, &callbacks, owner);
}

/* When the pump would call it next, if nothing comes. */
static inline int64_t due_of(const struct owner *owner)
{
    int64_t due_ns = MORTISE_NEVER;
    link_interest(&owner->link, NULL, 0, &due_ns);
    return due_ns;
}

/* As the pump does when something has come, or an instant has. */
static inline void owner_turn(struct owner *owner)
{
    struct pollfd fd;
    int64_t due_ns = MORTISE_NEVER;
    size_t count = link_interest(&owner->link, &fd, 1, &due_ns);
    bool ready = count == 1 && poll(&fd, 1, 0) == 1;
    link_turn(&owner->link, &fd, ready);
    link_flush(&owner->link);
}

/* Until nothing more happens at this instant. */
static inline void talk(struct owner *owner, struct server *server)
{
    for (int i = 0; i < 6; i++) {
        owner_turn(owner);
        server_accept(server);
        server_answer(server);
    }
    owner_turn(owner);
}

static inline void bring_up(struct owner *owner, struct server *server)
{
    link_want(&owner->link);
    talk(owner, server);
    CU_ASSERT_TRUE_FATAL(link_is_up(&owner->link));
}

/* ---- calls --------------------------------------------------------------------------------------- */

struct call {
    struct link_call call; /* first */
    unsigned replies, losses;
    enum link_loss loss;
    mortise_status status;
    void (*then)(void); /* when a reply has come */
};

static inline void call_replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct call *noted = (struct call *)call;
    (void)index;
    (void)reply;
    noted->replies++;
    if (noted->then != NULL)
        noted->then();
}

static inline void call_lost(struct link_call *call, enum link_loss loss,
                             const struct link_fault *fault)
{
    ((struct call *)call)->losses++;
    ((struct call *)call)->loss = loss;
    ((struct call *)call)->status = fault->status;
}

static inline void call_begin(struct link *link, struct call *call)
{
    *call = (struct call){.call = {.replied = call_replied, .lost = call_lost}};
    link_call_begin(link, &call->call);
}

/* Puts one request of one word. */
static inline void call_put(struct link *link, struct call *call, const char *word)
{
    call_begin(link, call);
    link_command(link, 1);
    link_text(link, word);
    link_call_end(link, &call->call, 1);
}

/* ---- one of each --------------------------------------------------------------------------------- */

static struct server server;
static struct owner owner;

static inline void begin(void)
{
    server_start(&server, "server");
    owner_begin(&owner, server.at.sun_path);
}

static inline void end(void)
{
    link_close(&owner.link);
    server_end(&server);
}

/* ---- around the tests ------------------------------------------------------------------------------ */

static inline void before_each(void)
{
    now_ns = 1000000 * MS;
    question_count = 0;
}

static inline unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *fds = opendir("/proc/self/fd");
    CU_ASSERT_PTR_NOT_NULL_FATAL(fds);
    while (readdir(fds) != NULL)
        count++;
    closedir(fds);
    return count;
}

static inline int link_tests_run(const char *name, const CU_TestInfo *tests)
{
    CU_SuiteInfo suites[] = {
        {name, NULL, NULL, before_each, NULL, (CU_TestInfo *)(uintptr_t)tests},
        CU_SUITE_INFO_NULL,
    };
    if (!test_folder_make(folder, sizeof folder))
        return 1;
    int code = suites_run(suites);
    test_folder_remove(folder);
    return code;
}

#endif
