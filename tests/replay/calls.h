/* calls.h - what the files that replace calls of the C library share. They know the scheduler, and no lock of the
 * application. */
#ifndef MORTISE_TESTS_REPLAY_CALLS_H
#define MORTISE_TESTS_REPLAY_CALLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <time.h>

/* ---- owners.c ---- */

/* Reads where the libraries that are loaded now have their data. */
void calls_find_static_data(void);
bool calls_is_static(const void *address);
/* The mutexes that the running thread holds, for calls_process_of_new_thread(). */
void calls_note_locked(const pthread_mutex_t *mutex);
void calls_note_unlocked(const pthread_mutex_t *mutex);
/* One process may work in the data of another: the sim wakes the clients that wait. A thread that is created under a mutex
 * is of the process that made this mutex, or locked it first if it is static. */
int calls_process_of_new_thread(void);

/* ---- calls_time.c ---- */

/* The time of day when the scheduler's clock is 0, unless it was set. */
#define CALLS_WALL_NS INT64_C(1700000000000000000)

int64_t calls_duration(const struct timespec *duration);
/* On the scheduler's clock. */
int64_t calls_instant(clockid_t clock, const struct timespec *at);
/* The time of day that a process sees jumps. */
void calls_set_wall(int process, int64_t offset_ns);

/* ---- calls_file.c ---- */

/* timeout_ns -1: for ever. */
int calls_epoll_wait(int epoll, struct epoll_event *events, int capacity, int64_t timeout_ns);
/* The file of fd has another number, too. */
void calls_timer_moved(int fd, int moved);

/* ---- calls_disk.c ---- */

/* NS: on the scheduler's clock. */
struct calls_disk_faults {
    int64_t flush_ns;      /* how long a flush takes */
    int64_t slow_until_ns; /* it takes up to slow_ns more */
    int64_t slow_ns;
    int64_t full_until_ns; /* no file grows */
    int64_t bad_until_ns;  /* one write or flush in so many fails */
    uint32_t bad_one_in;
};
/* From now on descriptors and locks of files belong to the processes of the run. */
void calls_disk_begin(void);
void calls_disk_set(const struct calls_disk_faults *wanted);
/* Of a process that was killed. */
void calls_disk_end_process(int process);
/* Returns fd. */
int calls_disk_opened(int fd);
void calls_disk_closing(int fd);

/* ---- calls_net.c ---- */

/* What read() does with a descriptor that the simulated network has. False: it has another. */
bool calls_net_read(int fd, void *buffer, size_t size, int flags, ssize_t *count);
bool calls_net_write(int fd, const void *buffer, size_t size, ssize_t *count);
/* In the child of a fork: from now on the child ends with this exit code when it touches a connection. To close its
 * descriptor is no such touch. */
#define CALLS_TOUCHED 32
void calls_net_forked(void);

#endif
