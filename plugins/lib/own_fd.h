/* own_fd.h - a descriptor that is checked before each use. The application may close descriptors that are not its own, as a
 * daemon does, and open others, which get their numbers. Then we would write to, unlock or close a file of the application.
 *
 * So the descriptor has a high number, which the kernel does not give to the program next, and before each use its file is
 * compared with the one that was opened. If the number belongs to another file, the number is forgotten and the file is not
 * closed. */
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
/* Whether the descriptor is still ours. If not, forgets it and sets errno to EBADF. */
bool own_fd_is_there(struct own_fd *own);
/* Closes the descriptor if it is still ours. Does not change errno. */
void own_fd_close(struct own_fd *own);
bool own_fd_is_same_file(const struct own_fd *one, const struct own_fd *other);

#endif
