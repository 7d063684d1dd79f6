/* counter.h - a number that only the holder of its lock writes, in storage that checks tokens: this is what the locks
 * of a torture run protect. Each reader and writer presents a token, and the storage refuses a write with a token
 * that is smaller than the largest one that it has seen (docs/fencing.md).
 *
 * The storage is a file that only grows: each request is a line, appended by one write(2), and the order of the lines
 * is the order of the decisions. So a process that is stopped or killed at any instant does no harm, and the checker
 * repeats all decisions from the same file. */
#ifndef MORTISE_TESTS_TORTURE_COUNTER_H
#define MORTISE_TESTS_TORTURE_COUNTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct counter {
    int fd;
    const char *name;
    off_t decided;         /* bytes of the file that we know */
    uint64_t fence, value; /* as of there */
};

/* folder/name.counter.jsonl; the name must outlive the counter. One counter belongs to one thread. */
bool counter_open(struct counter *counter, const char *folder, const char *name);
void counter_close(struct counter *counter);
/* False: the file is broken. */
bool counter_read(struct counter *counter, uint64_t token, uint64_t *value);
/* *taken: the storage let it pass. */
bool counter_write(struct counter *counter, uint64_t token, uint64_t value, bool *taken);

/* A number in a file of its own, folder/name.count, that nothing protects but the lock: for a load, where no fault may
 * excuse anything. -1: it cannot be opened. */
int plain_open(const char *folder, const char *name);
bool plain_read(int fd, int64_t *value);
bool plain_write(int fd, int64_t value);

#endif
