/* area.c - see area.h. */
#include "witness/area.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define FIRST_SLOTS 8 /* about two pages */
#define LEAST_SLOTS 64
#define STEP_SLOTS 1024 /* about a MiB, and much less than a ms */
#define TRIES 20

static_assert(sizeof(mortise_witness_area) == 64 && sizeof(mortise_witness_slot) == 1088,
              "clients and witnesses of different builds share these");

static size_t size_of(uint32_t slots)
{
    return sizeof(mortise_witness_area) + (size_t)slots * sizeof(mortise_witness_slot);
}

/* How many slots a file may hold: beyond RLIMIT_FSIZE the kernel would send SIGXFSZ. 0: too few. */
static uint32_t most_slots(void)
{
    struct rlimit limit;
    uint32_t most = MORTISE_WITNESS_SLOTS_MAX;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        while (most >= LEAST_SLOTS && size_of(most) > limit.rlim_cur)
            most /= 2;
    return most >= LEAST_SLOTS ? most : 0;
}

/* Before Linux 6.11 any signal for this thread ends fallocate(), which then has allocated nothing. Calls are short, so that
 * a timer of the application cannot end each one. They are few, too, because the caller holds a lock. */
static bool allocate(const struct area *area, uint32_t ready)
{
    size_t from = area->ready == 0 ? 0 : size_of(area->ready); /* its page is there already */
    size_t size = size_of(ready) - from;
    int failed, tries = 0;
    do
        failed = fallocate(area->file.fd, 0, (off_t)from, (off_t)size);
    while (failed != 0 && errno == EINTR && ++tries < TRIES);
    return failed == 0;
}

/* Allocates pages for more slots. It does not do so by touching them: if there is no memory, that would be a SIGBUS. The
 * rest of the mapping cannot be accessed, so mlockall() allocates no pages for it. */
static bool grow(struct area *area)
{
    uint32_t more = area->ready == 0 ? FIRST_SLOTS : area->ready;
    uint32_t ready = area->ready + (more < STEP_SLOTS ? more : STEP_SLOTS);
    if (ready > area->most)
        ready = area->most;
    if (ready == area->ready)
        return false;
    mortise_witness_slot **list = reallocarray(area->free, ready, sizeof(*list));
    if (list == NULL)
        return false;
    area->free = list;
    if (!own_fd_is(&area->file) || !allocate(area, ready) ||
        mprotect(area->head, size_of(ready), PROT_READ | PROT_WRITE) != 0)
        return false;
    area->ready = ready;
    return true;
}

static bool map(struct area *area)
{
    int fd = area->file.fd;
    if (fd < 0 || ftruncate(fd, (off_t)area->size) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return false;
    void *at = mmap(NULL, area->size, PROT_NONE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return false;
    madvise(at, area->size, MADV_DONTFORK); /* a child has no claims here */
    madvise(at, area->size, MADV_DONTDUMP);
    area->head = at;
    area->slots = (mortise_witness_slot *)(void *)((char *)at + sizeof(*area->head));
    return true;
}

bool area_make(struct area *area)
{
    *area = (struct area){.file.fd = -1, .most = most_slots()};
    if (area->most == 0)
        return false;
    area->size = size_of(area->most);
    area->file = own_fd_of(memfd_create("mortise-claims", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!map(area) || !grow(area)) {
        area_drop(area);
        return false;
    }
    area->head->magic = MORTISE_WITNESS_MAGIC;
    area->head->version = MORTISE_WITNESS_VERSION;
    area->head->slot_size = sizeof(*area->slots);
    return true;
}

void area_drop(struct area *area)
{
    if (area->head != NULL)
        munmap(area->head, area->size);
    own_fd_close(&area->file);
    free(area->free);
    *area = (struct area){.file.fd = -1};
}

mortise_witness_slot *area_take(struct area *area)
{
    mortise_witness_slot *slot;
    if (area->free_count > 0)
        slot = area->free[--area->free_count];
    else if (area->fresh < area->ready || grow(area)) {
        slot = &area->slots[area->fresh++];
        __atomic_store_n(&area->head->used, area->fresh, __ATOMIC_RELEASE);
    } else
        return NULL;
    area->in_use++;
    return slot;
}

void area_give(struct area *area, mortise_witness_slot *slot)
{
    slot_set_state(slot, MORTISE_WITNESS_FREE);
    area->free[area->free_count++] = slot;
    area->in_use--;
}

void slot_write(mortise_witness_slot *slot, const struct slot_claim *claim)
{
    __atomic_store_n(&slot->sequence, slot->sequence + 1, __ATOMIC_RELAXED);
    /* The witness releases only what it reads after the process has died, and a process dies between two instructions. So it
     * is enough that the compiler keeps the order. What it reads of a live process may be an instant old, and half written;
     * from that it only concludes whether to go on watching a process that has no connection any more. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    slot->flags = claim->mode == MORTISE_SHARED ? MORTISE_WITNESS_SHARED : 0;
    slot->permits = claim->permits;
    slot->ttl_ms = claim->ttl_ms;
    slot->ends_ns = INT64_MAX;
    memcpy(slot->grant, claim->grant, sizeof(slot->grant));
    slot->name_len = (uint32_t)claim->name_len;
    memcpy(slot->name, claim->name, claim->name_len);
    slot->owner_len = (uint32_t)claim->owner_len;
    if (claim->owner_len > 0)
        memcpy(slot->owner, claim->owner, claim->owner_len);
    slot->state = MORTISE_WITNESS_ASKED;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->sequence, slot->sequence + 1, __ATOMIC_RELEASE);
}
