/* witness_claims.c - reads the slots of a process. The area comes from that process, so nothing in it is trusted: it is read
 * with pread(), which copies and cannot fault, and the copy is checked. The library checks the rest of a slot. */
#include "witness.h"

#include "clock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A claim that was granted may outlive its ttl: zookeeper keeps it for a session. This is the longest `session_timeout`. */
#define SESSION_MAX_NS INT64_C(3600000000000)

bool claims_are_readable(int fd)
{
    struct stat about;
    /* Only a memfd can have this seal. Other files could block forever (FUSE, a pipe). */
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &about) == 0 &&
           about.st_size >= (off_t)(sizeof(mortise_witness_area) + sizeof(mortise_witness_slot));
}

static uint32_t slots_used(int fd)
{
    mortise_witness_area head;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != MORTISE_WITNESS_MAGIC || head.version != MORTISE_WITNESS_VERSION ||
        head.slot_size != sizeof(mortise_witness_slot))
        return 0;
    return head.used < MORTISE_WITNESS_SLOTS_MAX ? head.used : MORTISE_WITNESS_SLOTS_MAX;
}

static bool read_slot(int fd, uint32_t index, mortise_witness_slot *slot)
{
    off_t at = (off_t)(sizeof(mortise_witness_area) + index * sizeof *slot);
    return pread(fd, slot, sizeof *slot, at) == (ssize_t)sizeof *slot;
}

bool claims_next(int fd, uint32_t *index, mortise_witness_slot *slot)
{
    const uint32_t used = slots_used(fd);
    const int64_t now = boottime_ns();

    while (*index < used) {
        if (!read_slot(fd, (*index)++, slot))
            return false;
        bool written = slot->sequence % 2 == 0; /* else the process died in WRITING */
        /* HELD slots are released also after their end, because one release is enough */
        if (written && (slot->state == MORTISE_WITNESS_HELD ||
                        (slot->state == MORTISE_WITNESS_ASKED && slot->ends_ns > now)))
            return true;
    }
    return false;
}

static bool may_stand(const mortise_witness_slot *slot, int64_t now)
{
    if (slot->sequence % 2 != 0) /* a request is about to leave */
        return true;
    if (slot->state == MORTISE_WITNESS_HELD)
        return slot->ends_ns > now - SESSION_MAX_NS;
    return slot->state == MORTISE_WITNESS_ASKED && slot->ends_ns > now;
}

bool claims_may_stand(int fd, int64_t now, uint64_t *written)
{
    static mortise_witness_slot slot;
    const uint32_t used = slots_used(fd);
    uint64_t before = *written, sum = 0;

    for (uint32_t index = 0; index < used && read_slot(fd, index, &slot); index++) {
        if (may_stand(&slot, now))
            return true;
        sum += slot.sequence;
    }
    *written = sum;
    return sum != before;
}
