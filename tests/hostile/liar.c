/* liar.c - the lying server: see liar.h. It drops what does not fit into a connection's buffers at once. */
#include "liar.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS 24

struct link {
    int client, server; /* -1: none */
    int pieces;         /* from the client */
    size_t dripped;
    size_t down;  /* bytes from the server so far */
    size_t where; /* of them, the one that is changed; SIZE_MAX: none */
    enum how how;
};

static uint64_t draw(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void say(int fd, const char *bytes, size_t size)
{
    if (bytes && size > 0)
        (void)!send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void end_link(struct link *link, bool reset)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (reset)
        setsockopt(link->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(link->client);
    if (link->server >= 0)
        close(link->server);
    *link = (struct link){.client = -1, .server = -1};
}

/* ---- one that has no server behind it ------------------------------------------------------------- */

static void drip(const struct act *act, struct link *link)
{
    say(link->client, act->answer + link->dripped, 1);
    link->dripped = (link->dripped + 1) % act->answer_size;
}

static void answer(const struct act *act, struct link *link)
{
    if (link->pieces++ < act->polite) {
        say(link->client, act->manners, act->manners_size);
        return;
    }
    if (act->drips)
        drip(act, link);
    else
        say(link->client, act->answer, act->answer_size);
    if (act->then != STAY)
        end_link(link, act->then == RESET);
}

/* Without being asked. */
static void go_on(const struct act *act, struct link *link)
{
    if (link->client < 0 || link->pieces <= act->polite)
        return;
    if (act->endless)
        say(link->client, act->answer, act->answer_size);
    else if (act->drips && act->answer)
        drip(act, link);
}

/* ---- one that has --------------------------------------------------------------------------------- */

static void change(struct liar *liar, struct link *link, char *bytes, size_t *size, size_t room)
{
    size_t at = link->where - link->down, rest = *size - at;
    uint64_t random = draw(&liar->change.random);
    switch (link->how) {
    case OTHER: /* another byte */
        bytes[at] = (char)(bytes[at] ^ (char)(random % 255 + 1));
        break;
    case LENGTH: /* a length, maybe */
        memset(bytes + at, random & 1 ? 0xff : 0x7f, rest < 4 ? rest : 4);
        break;
    case BYTE_LESS: /* a byte less */
        memmove(bytes + at, bytes + at + 1, rest - 1);
        *size -= 1;
        break;
    case TWICE: /* some more */
        rest = rest < room - *size ? rest : room - *size;
        memcpy(bytes + *size, bytes + at, rest);
        *size += rest;
        break;
    case LESS: /* the connection ends here */
        *size = at;
        break;
    default: /* nonsense from here on */
        for (size_t i = at; i < *size; i++)
            bytes[i] = (char)draw(&liar->change.random);
    }
}

static bool forward_down(struct liar *liar, struct link *link)
{
    char bytes[32768];
    ssize_t got = recv(link->server, bytes, sizeof bytes / 2, 0);
    if (got <= 0)
        return false;
    size_t size = (size_t)got;
    bool changes = link->where >= link->down && link->where - link->down < size;
    if (changes)
        change(liar, link, bytes, &size, sizeof bytes);
    link->down += (size_t)got;
    say(link->client, bytes, size);
    return !changes || link->how != LESS;
}

static bool forward_up(struct link *link)
{
    char bytes[16384];
    ssize_t got = recv(link->client, bytes, sizeof bytes, 0);
    if (got > 0)
        say(link->server, bytes, (size_t)got);
    return got > 0;
}

static int connect_to(int port)
{
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&there, sizeof there) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- both ------------------------------------------------------------------------------------------- */

static void choose_change(struct liar *liar, struct link *link)
{
    link->where = draw(&liar->change.random) % liar->change.within;
    do
        link->how = (enum how)(draw(&liar->change.random) % HOWS);
    while (!(liar->change.how & 1u << link->how));
}

static void take_link(struct liar *liar, struct link *links)
{
    struct link *link = links;
    int fd = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    while (link < links + LINKS && link->client >= 0)
        link++;
    if (link == links + LINKS) {
        close(fd);
        return;
    }
    *link = (struct link){.client = fd, .server = -1, .where = SIZE_MAX};
    say(fd, liar->act.greeting, liar->act.greeting_size);
    if (liar->change.port == 0)
        return;
    link->server = connect_to(liar->change.port);
    if (link->server < 0)
        end_link(link, true);
    else if (draw(&liar->change.random) & 1)
        choose_change(liar, link);
}

static void attend(struct liar *liar, struct link *link, bool client_ready, bool server_ready)
{
    char bytes[16384];
    bool goes_on = true;
    if (link->server >= 0) {
        goes_on =
            (!client_ready || forward_up(link)) && (!server_ready || forward_down(liar, link));
    } else if (client_ready) {
        goes_on = recv(link->client, bytes, sizeof bytes, 0) > 0;
        if (goes_on)
            answer(&liar->act, link);
    }
    if (!goes_on && link->client >= 0)
        end_link(link, false);
}

static void *run(void *argument)
{
    struct liar *liar = argument;
    struct link links[LINKS];
    struct pollfd fds[2 * LINKS + 1];
    for (size_t i = 0; i < LINKS; i++)
        links[i] = (struct link){.client = -1, .server = -1};
    while (!atomic_load(&liar->stops)) {
        fds[2 * LINKS] = (struct pollfd){.fd = liar->listener, .events = POLLIN};
        for (size_t i = 0; i < LINKS; i++) {
            fds[2 * i] = (struct pollfd){.fd = links[i].client, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = links[i].server, .events = POLLIN};
        }
        poll(fds, 2 * LINKS + 1, 10);
        for (size_t i = 0; i < LINKS; i++) {
            if (links[i].client >= 0 && (fds[2 * i].revents || fds[2 * i + 1].revents))
                attend(liar, &links[i], fds[2 * i].revents, fds[2 * i + 1].revents);
            go_on(&liar->act, &links[i]);
        }
        if (fds[2 * LINKS].revents)
            take_link(liar, links);
    }
    for (size_t i = 0; i < LINKS; i++)
        if (links[i].client >= 0)
            end_link(&links[i], false);
    return NULL;
}

bool liar_start(struct liar *liar, const struct act *act, const struct change *changes)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    *liar = (struct liar){.act = *act, .change = *changes};
    liar->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (liar->listener < 0 || bind(liar->listener, (struct sockaddr *)&here, sizeof here) != 0 ||
        listen(liar->listener, 16) != 0 ||
        getsockname(liar->listener, (struct sockaddr *)&here, &size) != 0)
        return false;
    liar->port = ntohs(here.sin_port);
    return pthread_create(&liar->thread, NULL, run, liar) == 0;
}

void liar_end(struct liar *liar)
{
    atomic_store(&liar->stops, true);
    pthread_join(liar->thread, NULL);
    close(liar->listener);
}
