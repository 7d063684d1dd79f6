/* high_fd.c - the next high number, for all kinds of descriptors. See high_fd.h. */
#include "base/high_fd.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

static unsigned place(unsigned turn)
{
    return turn % HIGH_TURNS;
}

static int move_up(int fd, unsigned turn)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD + (int)place(turn));
}

/* The turn to which the number `high` belongs. The kernel gives the lowest free number from `turn` on, so taken numbers are
 * skipped, and their turns too. A number above our range belongs to no turn. */
static unsigned turn_of(int high, unsigned turn)
{
    return high < HIGH_FD + HIGH_TURNS ? turn - place(turn) + (unsigned)(high - HIGH_FD) : turn;
}

int high_fd(int fd)
{
    static atomic_uint next; /* one counter for all kinds: two would give the same numbers */
    if (fd < 0)
        return fd;
    unsigned turn = atomic_fetch_add(&next, 1), seen = turn + 1;
    int high = move_up(fd, turn);
    if (high < 0) { /* above the limit on numbers: begin with the lowest again */
        turn += HIGH_TURNS - place(turn);
        high = move_up(fd, turn);
    }
    if (high < 0)
        return fd;
    close(fd);
    unsigned after = turn_of(high, turn) + 1;
    while ((int)(after - seen) > 0 && !atomic_compare_exchange_weak(&next, &seen, after))
        continue;
    return high;
}
