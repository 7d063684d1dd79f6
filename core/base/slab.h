/* slab.h - handles that can be recognised after their end.
 *
 * A handle is not an address but (generation, index) in a table whose memory is never returned to the
 * system. So a second release, a use after close, or a use of a lease that another thread has just
 * released is recognised, without a lock and without touching freed memory. The table grows to the
 * largest number of handles that were live at once. Knows nothing of clients and leases. */
#ifndef MORTISE_CORE_SLAB_H
#define MORTISE_CORE_SLAB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SLAB_CHUNK 256 /* slots that are allocated together */
#define SLAB_CHUNKS 65536

/* The head of everything that is kept in a slab. */
struct slot {
    _Atomic uint32_t generation; /* odd: the handle with this generation is live */
    uint32_t index;
    _Atomic uint32_t
        epoch; /* fork_epoch when the slot was taken: if it differs, this process is a child */
    struct slot *next_free;
};

typedef struct slot *_Atomic slab_chunks[SLAB_CHUNKS];

struct slab {
    size_t size; /* of a slot with what follows it */
    pthread_mutex_t lock;
    struct slot *free;
    uint32_t count;
    slab_chunks *chunks;
};

/* Defines a slab of this type. Its table of chunks is a variable of its own because it is 512 KiB of zeros: inside the
 * slab, which has other values than zero, it would be in the file of the library. */
#define SLAB_DEFINE(name, type)                                                                    \
    static slab_chunks name##_chunks;                                                              \
    struct slab name = {                                                                           \
        .size = sizeof(type), .lock = PTHREAD_MUTEX_INITIALIZER, .chunks = &name##_chunks}

/* Counts the forks that led to this process. Everything made before the last fork belongs to the parent (R8). */
extern _Atomic uint32_t fork_epoch;

/* Returns a slot with a live handle, or NULL. A fresh slot is zero behind the head; a used one is as it was
 * left. */
void *slab_take(struct slab *slab);
/* Gives a slot back whose handle is spent. */
void slab_give(struct slab *slab, struct slot *slot);

/* Returns the slot of a handle, live or not: call slot_is() each time after reading from it. NULL: no handle. */
void *slab_find(struct slab *slab, const void *handle);

static inline void *slot_handle(const struct slot *slot)
{
    uint64_t generation = atomic_load_explicit(&slot->generation, memory_order_acquire);
    return (void *)(uintptr_t)(generation << 32 | (slot->index + UINT64_C(1)));
}

static inline int slot_is(const struct slot *slot, const void *handle)
{
    uint32_t generation = (uint32_t)((uintptr_t)handle >> 32);
    return (generation & 1) != 0 &&
           atomic_load_explicit(&slot->generation, memory_order_acquire) == generation;
}

/* Ends the live handle; the slot stays taken. */
static inline void slot_spend(struct slot *slot)
{
    atomic_fetch_add_explicit(&slot->generation, 1, memory_order_acq_rel);
}

/* Ends the live handle and begins another on the same slot. */
static inline void slot_renew(struct slot *slot)
{
    atomic_fetch_add_explicit(&slot->generation, 2, memory_order_acq_rel);
}

/* Called once, before any slab is used: keeps the locks of these slabs, and the log, usable in a child of fork. Later
 * calls do nothing. `all` ends with NULL and must stay where it is. */
void slabs_init(struct slab *const *all);

#endif
