/* own_number.h - the application closes a descriptor of an observer, and has an empty file of its own under that number. Calls of the
 * system, and no fstat() of what is not ours: ThreadSanitizer would report that two threads use a number, which is the point. */
#ifndef OWN_NUMBER_H
#define OWN_NUMBER_H

#include <CUnit/Basic.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The highest descriptor that leads to what has this in its path; -1: there is none. */
static inline int number_of(const char *part)
{
    char link[64], target[600];
    for (int fd = FD_SETSIZE - 1; fd >= 0; fd--) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, part) != NULL)
            return fd;
    }
    return -1;
}

static inline int own_file(void)
{
    int own = memfd_create("the application's", MFD_CLOEXEC);
    CU_ASSERT_FATAL(own >= 0);
    return own;
}

static inline void put_under(int own, int number)
{
    CU_ASSERT(number >= 500); /* not among the first that a program gets */
    CU_ASSERT_EQUAL_FATAL(syscall(SYS_dup3, own, number, O_CLOEXEC), number);
}

/* By flock(): another description of it cannot be. */
static inline bool own_is_locked(int own)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", own);
    int other = open(link, O_RDWR | O_CLOEXEC);
    bool locked = other >= 0 && flock(other, LOCK_EX | LOCK_NB) != 0;
    close(other);
    return locked;
}

/* Nobody has written to it, or closed it. Closes it. */
static inline void expect_untouched(int own, int number)
{
    struct stat file, other;
    CU_ASSERT_FATAL(fstat(own, &file) == 0 && fstat(number, &other) == 0);
    CU_ASSERT_EQUAL(other.st_ino, file.st_ino);
    CU_ASSERT_EQUAL(file.st_size, 0);
    syscall(SYS_close, number);
}

#endif
