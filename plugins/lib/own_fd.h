/* own_fd.h - a descriptor that is looked at again before it is used. The application may close descriptors that are not its own, as
 * a daemon does, and open others, which get their numbers: then what is written, unlocked or closed would be a file of the
 * application's.
 *
 * So it has a high number, which a program does not get next, and its file is compared with the one that was opened. A number that
 * leads to another file is forgotten, not closed. */
#ifndef MORTISE_OWN_FD_H
#define MORTISE_OWN_FD_H

#include <stdbool.h>
#include <sys/types.h>

struct own_fd {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
};

#define OWN_FD_NONE ((struct own_fd){.fd = -1})

/* Takes over `fd`, which was just opened, under another number. False, with errno as it is: fd is -1. */
bool own_fd_take(struct own_fd *own, int fd);
/* It is still there. If not, forgets it; errno is EBADF then. */
bool own_fd_is_there(struct own_fd *own);
/* Closes it if it is still there. Leaves errno as it is. */
void own_fd_close(struct own_fd *own);
bool own_fd_is_same_file(const struct own_fd *one, const struct own_fd *other);

#endif
