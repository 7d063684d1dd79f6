/* server.c - a private Redis for a test: started by tests/servers.sh, ended with the test however that ends, and read
 * directly with hiredis, without the driver and the proxy. */
#include "rig.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 24
#define ADMIN "admin" /* servers/redis.sh */

/* PORT, PORT2, PORT3 … */
static void take_port(struct server *server, const char *line)
{
    char *value = NULL;
    long member = line[4] == '=' ? 1 : strtol(line + 4, &value, 10);
    value = line[4] == '=' ? (char *)(uintptr_t)(line + 4) : value;
    if (*value == '=' && member >= 1 && member <= SERVERS_MAX)
        server->ports[member - 1] = (int)strtol(value + 1, NULL, 10);
}

static void take_value(struct server *server, const char *line)
{
    if (strncmp(line, "PORT", 4) == 0)
        take_port(server, line);
    if (strncmp(line, "PORT=", 5) == 0)
        server->port = (int)strtol(line + 5, NULL, 10);
    else if (strncmp(line, "PORT2=", 6) == 0)
        server->port2 = (int)strtol(line + 6, NULL, 10);
    else if (strncmp(line, "PORT3=", 6) == 0)
        server->port3 = (int)strtol(line + 6, NULL, 10);
    else if (strncmp(line, "SENTINELS=", 10) == 0)
        snprintf(server->sentinels, sizeof server->sentinels, "%s", line + 10);
    else if (strncmp(line, "SOCKET2=", 8) == 0)
        snprintf(server->socket2, sizeof server->socket2, "%s", line + 8);
    else if (strncmp(line, "SOCKET=", 7) == 0)
        snprintf(server->socket, sizeof server->socket, "%s", line + 7);
    else if (strncmp(line, "USER=", 5) == 0)
        server->users = true;
    else if (strncmp(line, "PASSWORD=", 9) == 0)
        snprintf(server->password, sizeof server->password, "%s", line + 9);
}

/* Runs servers.sh; its exit code, -1 if there is none. */
static int run_script(struct server *server, const char *verb, const char *const *words)
{
    const char *argv[WORDS_MAX + 6], *source = getenv("MORTISE_SOURCE_DIR");
    char script[512], line[1024];
    struct test_process process;
    size_t n = 0;
    snprintf(script, sizeof script, "%s/tests/servers.sh", source ? source : ".");
    const char *const head[] = {"/bin/sh", script, verb, "redis", server->folder};
    for (; n < 5; n++)
        argv[n] = head[n];
    for (; words && *words && n < WORDS_MAX + 5; words++)
        argv[n++] = *words;
    argv[n] = NULL;
    if (!test_spawn(&process, argv))
        return -1;
    while (test_hear(&process, line, sizeof line, 4 * TEST_PATIENCE_MS))
        take_value(server, line);
    int status = test_reap(&process, 4 * TEST_PATIENCE_MS);
    test_kill(&process);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int server_start(struct server *server, const char *const *keys)
{
    const char *words[WORDS_MAX + 1];
    char guard[32];
    size_t n = 0;
    *server = (struct server){.lock = PTHREAD_MUTEX_INITIALIZER};
    if (!test_folder_make(server->folder, sizeof server->folder))
        return 1;
    snprintf(guard, sizeof guard, "guard=%d", (int)getpid());
    words[n++] = guard;
    for (; keys && *keys && n < WORDS_MAX; keys++)
        words[n++] = *keys;
    words[n] = NULL;
    int code = run_script(server, "start", words);
    if (code == TEST_SKIP_CODE) {
        test_folder_remove(server->folder);
        return test_skip("redis", "the server cannot be started here");
    }
    return code == 0 && server->port > 0 ? 0 : 1;
}

bool server_do(struct server *server, const char *verb, const char *which)
{
    const char *const words[] = {which, NULL};
    bool done = run_script(server, verb, which ? words : NULL) == 0;
    CHECK(done);
    return done;
}

/* ---- asking ---------------------------------------------------------------------------------------------- */

/* Bounds failure only. */
static redisContext *connect_looker(struct server *server, int port)
{
    struct timeval patience = {.tv_sec = TEST_PATIENCE_MS / 1000};
    redisContext *looker = redisConnectWithTimeout("127.0.0.1", port, patience);
    if (!looker || looker->err || redisSetTimeout(looker, patience) != REDIS_OK ||
        fcntl(looker->fd, F_SETFD, FD_CLOEXEC) < 0) { /* servers that are started keep it else */
        if (looker)
            redisFree(looker);
        return NULL;
    }
    redisReply *reply = server->users         ? redisCommand(looker, "AUTH %s %s", ADMIN, ADMIN)
                        : server->password[0] ? redisCommand(looker, "AUTH %s", server->password)
                                              : NULL;
    freeReplyObject(reply);
    return looker;
}

/* With the lock. A server that was restarted is connected to anew. */
static redisReply *ask_locked(struct server *server, const char *format, va_list arguments)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        va_list copy;
        if (!server->looker)
            server->looker = connect_looker(server, server->port);
        if (!server->looker)
            return NULL;
        va_copy(copy, arguments);
        redisReply *reply = redisvCommand(server->looker, format, copy);
        va_end(copy);
        if (reply)
            return reply;
        redisFree(server->looker);
        server->looker = NULL;
    }
    return NULL;
}

static redisReply *ask_v(struct server *server, const char *format, va_list arguments)
{
    pthread_mutex_lock(&server->lock);
    redisReply *reply = ask_locked(server, format, arguments);
    pthread_mutex_unlock(&server->lock);
    return reply;
}

void server_look_at(struct server *server, int port)
{
    pthread_mutex_lock(&server->lock);
    if (server->looker)
        redisFree(server->looker);
    server->looker = NULL;
    server->port = port;
    pthread_mutex_unlock(&server->lock);
}

redisReply *ask(struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask_v(server, format, arguments);
    va_end(arguments);
    return reply;
}

static int64_t number_of(const redisReply *reply)
{
    if (reply && reply->type == REDIS_REPLY_INTEGER)
        return reply->integer;
    if (reply && reply->type == REDIS_REPLY_STRING)
        return strtoll(reply->str, NULL, 10);
    return -100;
}

int64_t ask_number(struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask_v(server, format, arguments);
    va_end(arguments);
    int64_t number = number_of(reply);
    freeReplyObject(reply);
    return number;
}

bool ask_is(struct server *server, const char *wanted, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask_v(server, format, arguments);
    va_end(arguments);
    bool is = reply && reply->str && strcmp(reply->str, wanted) == 0;
    if (!is)
        fprintf(stderr, "%s: %s\n", format, reply && reply->str ? reply->str : "no text");
    freeReplyObject(reply);
    return is;
}

int64_t info_number(struct server *server, const char *section, const char *key)
{
    char pattern[80];
    snprintf(pattern, sizeof pattern, "\n%s:", key);
    redisReply *reply = ask(server, "INFO %s", section);
    const char *place = reply && reply->str ? strstr(reply->str, pattern) : NULL;
    int64_t number = place ? strtoll(place + strlen(pattern), NULL, 10) : -1;
    freeReplyObject(reply);
    return number;
}

/* ---- locks ------------------------------------------------------------------------------------------------ */

/* A hash: of the native layout (with "o") its grants, of Redisson's the count. */
static int holds_of(const redisReply *fields)
{
    int grants = 0, count = 0;
    bool native = false;
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const char *field = fields->element[i]->str;
        native |= strcmp(field, "o") == 0;
        grants += strncmp(field, "g:", 2) == 0;
        if (strncmp(field, "mortise", 7) != 0)
            count = (int)strtol(fields->element[i + 1]->str, NULL, 10);
    }
    return native ? grants : count;
}

int holds(struct server *server, const char *name)
{
    redisReply *type = ask(server, "TYPE mortise:%s", name);
    bool hash = type && type->str && strcmp(type->str, "hash") == 0;
    int count = !type || !type->str ? -1 : strcmp(type->str, "string") == 0;
    freeReplyObject(type);
    if (!hash)
        return count;
    redisReply *fields = ask(server, "HGETALL mortise:%s", name);
    count = fields && fields->type == REDIS_REPLY_ARRAY ? holds_of(fields) : -1;
    freeReplyObject(fields);
    return count;
}

int64_t calls_of(struct server *server, const char *command)
{
    char words[64];
    snprintf(words, sizeof words, "\ncmdstat_%s:calls=", command);
    redisReply *reply = ask(server, "INFO commandstats");
    const char *at = reply && reply->str ? strstr(reply->str, words) : NULL;
    int64_t calls = at ? strtoll(at + strlen(words), NULL, 10) : 0;
    freeReplyObject(reply);
    return calls;
}

int64_t pttl(struct server *server, const char *name)
{
    return ask_number(server, "PTTL mortise:%s", name);
}

static bool holds_are(void *argument)
{
    const struct asked *asked = argument;
    return holds(asked->server, asked->name) == asked->number;
}

bool wait_holds(struct server *server, const char *name, int wanted)
{
    struct asked asked = {server, name, wanted};
    return test_poll(holds_are, &asked, TEST_PATIENCE_MS);
}

int64_t queue_length(struct server *server, const char *name)
{
    return ask_number(server, "LLEN {mortise:%s}:mortise:queue", name);
}

static bool queue_is(void *argument)
{
    const struct asked *asked = argument;
    return queue_length(asked->server, asked->name) == asked->number;
}

bool wait_queue(struct server *server, const char *name, int64_t wanted)
{
    struct asked asked = {server, name, wanted};
    return test_poll(queue_is, &asked, TEST_PATIENCE_MS);
}

static bool inboxes_are(void *argument)
{
    const struct asked *asked = argument;
    redisReply *reply = ask(asked->server, "PUBSUB CHANNELS mortise:inbox:*");
    bool are =
        reply && reply->type == REDIS_REPLY_ARRAY && (int64_t)reply->elements == asked->number;
    freeReplyObject(reply);
    return are;
}

bool wait_inboxes(struct server *server, int64_t wanted)
{
    struct asked asked = {server, NULL, wanted};
    return test_poll(inboxes_are, &asked, TEST_PATIENCE_MS);
}

/* ---- what is left --------------------------------------------------------------------------------------------- */

static const char left_script[] =
    "local left = {} "
    "for _, key in ipairs(redis.call('keys', '*')) do "
    "  if not key:find(':mortise:token') or redis.call('pttl', key) < 0 then "
    "    left[#left + 1] = 'key ' .. key "
    "  end "
    "end "
    "for _, channel in ipairs(redis.call('pubsub', 'channels')) do "
    "  if channel ~= '__sentinel__:hello' then "
    "    left[#left + 1] = 'subscription to ' .. channel "
    "  end "
    "end "
    "local shards = redis.pcall('pubsub', 'shardchannels') " /* from Redis 7 on */
    "for _, channel in ipairs(shards.err and {} or shards) do "
    "  left[#left + 1] = 'subscription to ' .. channel "
    "end "
    "return left";

/* The lines that are not a sentinel's. */
static int64_t count_type(struct server *server, const char *type)
{
    redisReply *list = ask(server, "CLIENT LIST TYPE %s", type);
    int64_t count = list && list->str ? 0 : -1000;
    for (const char *line = list ? list->str : NULL; line && strncmp(line, "id=", 3) == 0;) {
        const char *end = strchr(line, '\n'), *name = strstr(line, " name=sentinel-");
        count += !name || (end && name > end);
        line = end ? end + 1 : NULL;
    }
    freeReplyObject(list);
    return count;
}

/* Clients but the looker, replicas and sentinels. */
static int64_t count_clients(struct server *server)
{
    return count_type(server, "normal") - 1 + count_type(server, "pubsub");
}

static bool is_clean(void *argument)
{
    redisReply *left = ask(argument, "EVAL %s 0", left_script);
    bool clean = left && left->type == REDIS_REPLY_ARRAY && left->elements == 0;
    freeReplyObject(left);
    return clean && count_clients(argument) == 0;
}

bool server_is_clean(struct server *server)
{
    if (test_poll(is_clean, server, TEST_PATIENCE_MS))
        return true;
    redisReply *left = ask(server, "EVAL %s 0", left_script);
    for (size_t i = 0; left && i < left->elements; i++)
        fprintf(stderr, "left: %s\n", left->element[i]->str);
    if (left && left->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "left: %s\n", left->str);
    freeReplyObject(left);
    left = ask(server, "CLIENT LIST");
    fprintf(stderr, "clients:\n%s", left && left->str ? left->str : "no answer\n");
    freeReplyObject(left);
    return false;
}

bool server_end(struct server *server)
{
    bool clean = server_is_clean(server);
    if (server->looker)
        redisFree(server->looker);
    server->looker = NULL;
    run_script(server, "end", NULL);
    test_folder_remove(server->folder);
    return clean;
}

int servers_end(struct server *const *servers, size_t count, int code)
{
    for (size_t i = 0; i < count; i++)
        if (servers[i]->port > 0 && !server_end(servers[i]) && code == 0)
            code = 1;
    return code;
}
