/* slab.c - the tables behind the handles: see slab.h. */
#include "base/slab.h"

#include "base/log.h"

#include <assert.h>
#include <stdlib.h>

static_assert(sizeof(void *) == 8, "a handle keeps a generation and an index of 32 bits each");

_Atomic uint32_t fork_epoch;
static struct slab *const *_Atomic guarded; /* the slabs whose locks a fork takes, in this order */

static struct slot *slot_at(struct slab *slab, struct slot *chunk, uint32_t index)
{
    return (struct slot *)(void *)((char *)chunk + slab->size * (index % SLAB_CHUNK));
}

/* slab lock held */
static void grow_locked(struct slab *slab)
{
    uint32_t chunk_index = slab->count / SLAB_CHUNK;
    if (chunk_index >= SLAB_CHUNKS)
        return;
    struct slot *chunk = calloc(SLAB_CHUNK, slab->size);
    if (chunk == NULL)
        return;
    for (uint32_t i = SLAB_CHUNK; i-- > 0;) {
        struct slot *slot = slot_at(slab, chunk, i);
        slot->index = chunk_index * SLAB_CHUNK + i;
        slot->next_free = slab->free;
        slab->free = slot;
    }
    slab->count += SLAB_CHUNK;
    atomic_store_explicit(&(*slab->chunks)[chunk_index], chunk, memory_order_release);
}

void *slab_take(struct slab *slab)
{
    pthread_mutex_lock(&slab->lock);
    if (slab->free == NULL)
        grow_locked(slab);
    struct slot *slot = slab->free;
    if (slot != NULL) {
        slab->free = slot->next_free;
        slot->epoch = atomic_load_explicit(&fork_epoch, memory_order_relaxed);
        slot_spend(slot); /* from even to odd */
    }
    pthread_mutex_unlock(&slab->lock);
    return slot;
}

void slab_give(struct slab *slab, struct slot *slot)
{
    assert((atomic_load(&slot->generation) & 1) == 0);
    pthread_mutex_lock(&slab->lock);
    slot->next_free = slab->free;
    slab->free = slot;
    pthread_mutex_unlock(&slab->lock);
}

void *slab_find(struct slab *slab, const void *handle)
{
    uint32_t index = (uint32_t)(uintptr_t)handle - 1;
    if (index / SLAB_CHUNK >= SLAB_CHUNKS)
        return NULL;
    struct slot *chunk =
        atomic_load_explicit(&(*slab->chunks)[index / SLAB_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : slot_at(slab, chunk, index);
}

/* If another thread held a table's lock during a fork, the lock would stay taken in the child forever. */
static void before_fork(void)
{
    for (struct slab *const *each = guarded; *each != NULL; each++)
        pthread_mutex_lock(&(*each)->lock);
    log_before_fork();
}

static void unlock_after_fork(bool in_child)
{
    log_after_fork(in_child);
    for (struct slab *const *each = guarded; *each != NULL; each++)
        pthread_mutex_unlock(&(*each)->lock);
}

static void after_fork(void)
{
    unlock_after_fork(false);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add_explicit(&fork_epoch, 1, memory_order_relaxed);
    unlock_after_fork(true);
}

static void register_fork_handlers(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void slabs_init(struct slab *const *all)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    guarded = all;
    pthread_once(&once, register_fork_handlers);
}
