/* cost.h - what an event costs its caller, beside what it would cost to write a line of it there and then. Both are had in
 * turn, by the processor time of this thread, and of many pieces the middle counts: how fast the machine is, and what else
 * it does, does not matter. */
#ifndef COST_H
#define COST_H

#include <CUnit/Basic.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COST_PIECES = 101, COST_EVENTS = 500, COST_LINES = 50 };

struct cost {
    int64_t event_ns[COST_PIECES], line_ns[COST_PIECES];
    int pieces, fd;
};

static inline int64_t cost_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void cost_begin(struct cost *cost, const char *folder)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/lines", folder);
    cost->pieces = 0;
    cost->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(cost->fd >= 0);
}

/* COST_EVENTS events cost so much; lines are written now. */
static inline void cost_add(struct cost *cost, int64_t events_ns)
{
    char line[100];
    memset(line, 'x', sizeof(line));
    int64_t before = cost_now_ns();
    for (int i = 0; i < COST_LINES; i++)
        if (write(cost->fd, line, sizeof(line)) != (ssize_t)sizeof(line))
            CU_FAIL_FATAL("a line could not be written");
    cost->line_ns[cost->pieces] = (cost_now_ns() - before) / COST_LINES;
    cost->event_ns[cost->pieces++] = events_ns / COST_EVENTS;
}

static inline int cost_by_size(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return a < b ? -1 : a > b;
}

/* An event that costs what a line costs has been written by its caller, or has waited for somebody. */
static inline void cost_end(struct cost *cost)
{
    size_t count = (size_t)cost->pieces;
    qsort(cost->event_ns, count, sizeof(int64_t), cost_by_size);
    qsort(cost->line_ns, count, sizeof(int64_t), cost_by_size);
    printf("    an event costs %lld ns, a line %lld\n", (long long)cost->event_ns[count / 2],
           (long long)cost->line_ns[count / 2]);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CU_ASSERT(cost->event_ns[count / 2] < cost->line_ns[count / 2]);
#endif
    close(cost->fd);
}

#endif
