/* commands.c - the proxy's commands, which come through its control socket: each datagram is a command, and the
 * answer is sent when it is in force. main.c has the list. */
#include "internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

struct rules rules = {.budget = {-1, -1}};

static void cut_all(bool only_lost)
{
    struct link *link;
    DL_FOREACH (links, link)
        if (link->lost || !only_lost)
            close_link(link, true);
}

static void cut_now(void)
{
    struct link *link;
    int now;
    DL_COUNT(links, link, now);
    counts.cut += (uint64_t)now;
    cut_all(false);
}

static void set_budget(enum way way, int64_t bytes, bool each)
{
    struct link *link;
    rules.budget[way] = bytes;
    rules.budget_each[way] = each;
    DL_FOREACH (links, link)
        link->flows[way].budget = bytes;
}

static bool pass_all(void)
{
    struct link *link;
    rules.held[UP] = rules.held[DOWN] = rules.losing = false;
    rules.delay_ms[UP] = rules.delay_ms[DOWN] = rules.replies_to_cut = 0;
    set_budget(UP, -1, false);
    set_budget(DOWN, -1, false);
    cut_all(true);
    DL_FOREACH (links, link)
        for (int way = UP; way < WAYS; way++)
            for (struct chunk *chunk = link->flows[way].chunks; chunk; chunk = chunk->next)
                chunk->due_ms = 0;
    return listen_again();
}

static void refuse_all(void)
{
    cut_all(false);
    listen_no_more();
}

bool read_number(const char *word, int64_t *number)
{
    char *end = NULL;
    errno = 0;
    *number = word ? strtoll(word, &end, 10) : -1;
    return word && *word && *end == '\0' && errno == 0 && *number >= 0 && *number <= INT32_MAX;
}

/* Bits of the ways that it names; 0: none. */
static unsigned read_ways(const char *word)
{
    static const char *const names[] = {"", "up", "down", "both"};
    for (unsigned ways = 1; word && ways < 4; ways++)
        if (strcmp(word, names[ways]) == 0)
            return ways;
    return 0;
}

static bool command_with_number(char **words)
{
    int64_t number;
    bool cutting = strcmp(words[0], "cut-after") == 0, delaying = strcmp(words[0], "delay") == 0;
    unsigned ways = cutting || delaying ? read_ways(words[cutting ? 1 : 2]) : 1;
    bool each = cutting && words[3] && strcmp(words[3], "each") == 0;
    if (!ways || !read_number(words[cutting ? 2 : 1], &number) || (cutting && words[3] && !each))
        return false;
    if (strcmp(words[0], "cut-reply") == 0) {
        rules.replies_to_cut = number;
        return number > 0;
    }
    for (int way = UP; way < WAYS; way++) {
        if (ways & 1u << way && cutting)
            set_budget(way, number, each);
        if (ways & 1u << way && delaying)
            rules.delay_ms[way] = number;
    }
    return cutting || delaying;
}

static void count(char *answer, size_t size)
{
    struct link *link;
    int now;
    DL_COUNT(links, link, now);
    snprintf(answer, size,
             "now=%d ever=%" PRIu64 " up=%" PRIu64 " down=%" PRIu64 " up_taken=%" PRIu64
             " down_taken=%" PRIu64 " cut=%" PRIu64 " cut-after-up=%" PRIu64
             " cut-after-down=%" PRIu64 " cut-reply=%" PRIu64,
             now, counts.ever, counts.given[UP], counts.given[DOWN], counts.taken[UP],
             counts.taken[DOWN], counts.cut, counts.cut_after[UP], counts.cut_after[DOWN],
             counts.cut_reply);
}

static bool command(char **words, char *answer, size_t size)
{
    const char *word = words[0] ? words[0] : "";
    snprintf(answer, size, "ok");
    if (strcmp(word, "pass") == 0)
        return pass_all();
    if (strcmp(word, "accept") == 0)
        return listen_again();
    if (strcmp(word, "map") == 0)
        return map_port(words[1], words[2]);
    if (strcmp(word, "hold") == 0)
        rules.held[UP] = rules.held[DOWN] = true;
    else if (strcmp(word, "hold-up") == 0)
        rules.held[UP] = true;
    else if (strcmp(word, "hold-down") == 0)
        rules.held[DOWN] = true;
    else if (strcmp(word, "lose") == 0)
        rules.losing = true;
    else if (strcmp(word, "cut") == 0)
        cut_now();
    else if (strcmp(word, "refuse") == 0)
        refuse_all();
    else if (strcmp(word, "quit") == 0)
        rules.quit = true;
    else if (strcmp(word, "count") == 0)
        count(answer, size);
    else
        return words[0] && command_with_number(words);
    return true;
}

void hear_command(int control)
{
    char line[256], answer[512], *rest = line, *words[5] = {NULL};
    struct sockaddr_un from;
    socklen_t size = sizeof from;
    ssize_t length =
        recvfrom(control, line, sizeof line - 1, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
    if (length < 0)
        return;
    line[length] = '\0';
    for (int i = 0; i < 4 && (words[i] = strtok_r(rest, " \n", &rest)); i++)
        continue;
    if (!command(words, answer, sizeof answer))
        snprintf(answer, sizeof answer, "error: cannot do that");
    sendto(control, answer, strlen(answer), MSG_DONTWAIT, (struct sockaddr *)&from, size);
}