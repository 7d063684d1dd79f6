/* fake.c - see fake.h. One thread; it parses commands only as far as it needs to count them. */
#include "fake.h"

#include <hiredis/hiredis.h>

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS_MAX 16

static bool is_word(const redisReply *command, size_t at, const char *word)
{
    return command->type == REDIS_REPLY_ARRAY && command->elements > at &&
           command->element[at]->str && strcasecmp(command->element[at]->str, word) == 0;
}

/* What belongs to a greeting is answered as by Redis. */
static const char *greeting(const struct fake *fake, const redisReply *command)
{
    static const char info[] = "$61\r\nrun_id:0123456789012345678901234567890123456789\r\n"
                               "x:12345678\r\n\r\n";
    if (is_word(command, 0, "CLIENT"))
        return is_word(command, 1, "ID") ? ":7\r\n" : "+OK\r\n";
    if (is_word(command, 0, "INFO"))
        return fake->info ? fake->info : info;
    if (is_word(command, 0, "ROLE"))
        return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";
    if (fake->slots && is_word(command, 0, "CLUSTER"))
        return fake->slots;
    if (fake->time && is_word(command, 0, "TIME"))
        return fake->time;
    return NULL;
}

/* False: it is none. */
static bool subscribe(struct fake *fake, int fd, const redisReply *command, bool *sent)
{
    static const char *const verbs[] = {"subscribe", "unsubscribe"};
    char answer[600];
    size_t i = 0;
    while (i < 2 && !is_word(command, 0, verbs[i]))
        i++;
    if (i == 2 || command->elements != 2)
        return false;
    atomic_fetch_add(&fake->subscribed, i == 0);
    if (atomic_load(&fake->mute))
        return true;
    int length = snprintf(answer, sizeof answer, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n:1\r\n",
                          strlen(verbs[i]), verbs[i], (size_t)command->element[1]->len,
                          command->element[1]->str);
    *sent = send(fd, answer, (size_t)length, MSG_NOSIGNAL) >= 0;
    return true;
}

static bool is_script(const redisReply *command)
{
    return is_word(command, 0, "EVALSHA") || is_word(command, 0, "EVAL");
}

/* Three keys, then a grant. */
static void note_script(struct fake *fake, const redisReply *command)
{
    pthread_mutex_lock(&fake->lock);
    if (command->elements > 6)
        snprintf(fake->grant, sizeof fake->grant, "%s", command->element[6]->str);
    pthread_mutex_unlock(&fake->lock);
    if (command->elements >= 3 && command->elements < 3 + 16)
        atomic_fetch_add(&fake->asked[command->elements - 3], 1);
}

static bool asks_for_place(const redisReply *command)
{
    const redisReply *last = command->elements > 0 ? command->element[command->elements - 1] : NULL;
    return is_script(command) && last->str && strstr(last->str, " mortise:inbox:");
}

static const char *answer_to(struct fake *fake, const redisReply *command)
{
    pthread_mutex_lock(&fake->lock);
    const char *answer = greeting(fake, command);
    if (!answer && fake->seats && asks_for_place(command))
        answer = ":-600000\r\n";
    if (!answer && fake->afterwards && fake->times-- <= 0)
        answer = fake->afterwards;
    else if (!answer)
        answer = fake->answer;
    pthread_mutex_unlock(&fake->lock);
    return answer;
}

/* False: it has gone. */
static bool serve(struct fake *fake, int fd, redisReader *reader)
{
    char bytes[4096];
    void *command = NULL;
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0 || redisReaderFeed(reader, bytes, (size_t)got) != REDIS_OK)
        return false;
    while (redisReaderGetReply(reader, &command) == REDIS_OK && command) {
        bool sent = true, script = is_script(command);
        if (script)
            note_script(fake, command);
        if (!subscribe(fake, fd, command, &sent) && !(script && atomic_load(&fake->silent))) {
            const char *answer = answer_to(fake, command);
            sent = send(fd, answer, strlen(answer), MSG_NOSIGNAL) >= 0;
        }
        freeReplyObject(command);
        if (!sent)
            return false;
    }
    return true;
}

static void *run(void *argument)
{
    struct fake *fake = argument;
    struct pollfd fds[1 + CLIENTS_MAX] = {{.fd = fake->listener, .events = POLLIN}};
    redisReader *readers[1 + CLIENTS_MAX] = {NULL};
    for (int i = 1; i <= CLIENTS_MAX; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (!atomic_load(&fake->stops)) {
        bool ready = poll(fds, 1 + CLIENTS_MAX, 20) > 0, cuts = atomic_exchange(&fake->cuts, false);
        if (!ready && !cuts)
            continue;
        for (int i = 1; i <= CLIENTS_MAX; i++) {
            if (fds[i].fd >= 0 &&
                (cuts || (fds[i].revents && !serve(fake, fds[i].fd, readers[i])))) {
                close(fds[i].fd);
                redisReaderFree(readers[i]);
                fds[i].fd = -1;
            } else if (fds[i].fd < 0 && fds[0].revents) {
                fds[0].revents = 0;
                fds[i].fd = accept(fake->listener, NULL, NULL);
                fds[i].revents = 0;
                readers[i] = redisReaderCreate();
            }
        }
    }
    for (int i = 1; i <= CLIENTS_MAX; i++)
        if (fds[i].fd >= 0) {
            close(fds[i].fd);
            redisReaderFree(readers[i]);
        }
    return NULL;
}

bool fake_start(struct fake *fake)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    *fake = (struct fake){.lock = PTHREAD_MUTEX_INITIALIZER, .answer = "+OK\r\n"};
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fake->listener < 0 || bind(fake->listener, (struct sockaddr *)&here, sizeof here) != 0 ||
        listen(fake->listener, 16) != 0 ||
        getsockname(fake->listener, (struct sockaddr *)&here, &size) != 0)
        return false;
    fake->port = ntohs(here.sin_port);
    return pthread_create(&fake->thread, NULL, run, fake) == 0;
}

void fake_seat(struct fake *fake)
{
    pthread_mutex_lock(&fake->lock);
    fake->seats = true;
    fake->answer = "*3\r\n:600000\r\n$0\r\n\r\n$16\r\n1700000000000000\r\n";
    fake->afterwards = NULL;
    pthread_mutex_unlock(&fake->lock);
}

void fake_answer(struct fake *fake, const char *answer, int times, const char *afterwards)
{
    pthread_mutex_lock(&fake->lock);
    fake->seats = false;
    fake->answer = answer;
    fake->times = times;
    fake->afterwards = afterwards;
    pthread_mutex_unlock(&fake->lock);
}

void fake_map(struct fake *fake, const char *slots)
{
    pthread_mutex_lock(&fake->lock);
    fake->slots = slots;
    pthread_mutex_unlock(&fake->lock);
}

void fake_inform(struct fake *fake, const char *info)
{
    pthread_mutex_lock(&fake->lock);
    fake->info = info;
    pthread_mutex_unlock(&fake->lock);
}

void fake_cut(struct fake *fake, bool silent)
{
    atomic_store(&fake->silent, silent);
    atomic_store(&fake->cuts, true);
}

void fake_end(struct fake *fake)
{
    atomic_store(&fake->stops, true);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
}
