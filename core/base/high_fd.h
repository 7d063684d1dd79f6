/* high_fd.h - descriptors of the library under numbers that the kernel does not give to the program next.
 *
 * The application may close descriptors that are not its own, as a daemon does, and then get descriptors of the same kind under
 * their numbers: another epoll set, or another timer, which the library could not distinguish from its own. So ours have high numbers. If we replace
 * a descriptor, the new one gets another number, because the old number may by now be that of another client. For the same
 * reason each new descriptor gets another number, until all are used up and they begin again. */
#ifndef MORTISE_CORE_BASE_HIGH_FD_H
#define MORTISE_CORE_BASE_HIGH_FD_H

/* The first number. All are below FD_SETSIZE, because applications use select(). */
#define HIGH_FD 500
#define HIGH_TURNS 400 /* how many numbers there are, taken ones included; then they begin again */

/* Returns the same descriptor with a high number, if the limit on descriptor numbers permits. -1 for -1. */
int high_fd(int fd);

#endif
