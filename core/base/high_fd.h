/* high_fd.h - descriptors of the library under numbers that a program does not get next.
 *
 * The application may close descriptors that are not its own, as a daemon does, and have others of the same kind under their
 * numbers: another epoll set, or another timer, which nothing tells from ours. So ours have high numbers. One that comes in the
 * place of another has another number, because that may be the old number of another client's; and so has each that is made
 * before the numbers begin again, as long as there is room among them. */
#ifndef MORTISE_CORE_BASE_HIGH_FD_H
#define MORTISE_CORE_BASE_HIGH_FD_H

#define HIGH_FD 500    /* and below FD_SETSIZE, for applications that use select() */
#define HIGH_TURNS 400 /* numbers, less those that are taken; then they begin again */

/* The same descriptor with a high number, if the limit on numbers permits one. -1 for -1. */
int high_fd(int fd);

#endif
