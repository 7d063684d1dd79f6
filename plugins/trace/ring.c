/* ring.c - events between the caller and the writer: a ring of records with one producer and one consumer, each of which
 * writes one of the two positions. A record is contiguous: if it does not fit before the end of the ring, it is put at the
 * beginning, and the rest is marked as padding. */
#include "internal.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define PADDING UINT32_MAX

bool ring_make(struct ring *ring, size_t size)
{
    memset(ring, 0, sizeof(*ring));
    ring->size = 1;
    while (ring->size < size)
        ring->size *= 2;
    void *bytes =
        mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ring->bytes = bytes == MAP_FAILED ? NULL : bytes;
    return ring->bytes != NULL;
}

void ring_free(struct ring *ring)
{
    if (ring->bytes != NULL)
        munmap(ring->bytes, ring->size);
    ring->bytes = NULL;
}

static size_t record_size(const mortise_event *event)
{
    size_t size = sizeof(struct record) + event->name_len + event->owner_len;
    return (size + 7) / 8 * 8;
}

/* Whether `size` bytes are free. Reads the consumer's position only if the value read before shows too little room. */
static bool has_room(struct ring *ring, uint64_t written, size_t size)
{
    if (written + size - ring->read_seen <= ring->size)
        return true;
    ring->read_seen = atomic_load_explicit(&ring->read, memory_order_acquire);
    return written + size - ring->read_seen <= ring->size;
}

/* A core that was built before shared leases does not report the mode. */
static bool has_mode(const mortise_event *event)
{
    return event->size >= offsetof(mortise_event, permits) + sizeof(event->permits);
}

static void fill(struct record *record, const mortise_event *event, size_t size, uint64_t dropped)
{
    *record = (struct record){.size = (uint32_t)size,
                              .name_len = (uint16_t)event->name_len,
                              .owner_len = (uint16_t)event->owner_len,
                              .kind = (uint32_t)event->kind,
                              .status = event->status,
                              .dropped = dropped,
                              .at_ns = event->at_ns,
                              .deadline_ns = event->deadline_ns,
                              .lease = event->lease,
                              .caller = event->caller,
                              .token = event->token,
                              .grant = event->grant,
                              .mode = has_mode(event) ? (uint32_t)event->mode : 0,
                              .permits = has_mode(event) ? event->permits : 0};
    char *bytes = (char *)(record + 1);
    if (event->name_len > 0)
        memcpy(bytes, event->name, event->name_len);
    if (event->owner_len > 0)
        memcpy(bytes + event->name_len, event->owner, event->owner_len);
}

bool ring_put(struct ring *ring, const mortise_event *event)
{
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    size_t size = record_size(event), place = written & (ring->size - 1);
    size_t padding = place + size > ring->size ? ring->size - place : 0;

    if (event->name_len > MORTISE_NAME_MAX || event->owner_len > MORTISE_OWNER_MAX ||
        !has_room(ring, written, padding + size)) {
        ring->dropping++;
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return false;
    }
    if (padding > 0) {
        memcpy(ring->bytes + place, &(uint32_t){PADDING}, sizeof(uint32_t));
        place = 0;
    }
    fill((struct record *)(void *)(ring->bytes + place), event, size, ring->dropping);
    ring->dropping = 0;
    /* sequentially consistent: before the check whether the writer sleeps */
    atomic_store(&ring->written, written + padding + size);
    return true;
}

static uint32_t size_at(const struct ring *ring, size_t place)
{
    uint32_t size;
    memcpy(&size, ring->bytes + place, sizeof(size));
    return size;
}

const struct record *ring_look(struct ring *ring)
{
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    if (read == atomic_load_explicit(&ring->written, memory_order_acquire))
        return NULL;
    size_t place = read & (ring->size - 1);
    if (size_at(ring, place) == PADDING) {
        atomic_store_explicit(&ring->read, read + ring->size - place, memory_order_release);
        place = 0;
    }
    return (const struct record *)(const void *)(ring->bytes + place);
}

void ring_drop(struct ring *ring, const struct record *record)
{
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    atomic_store_explicit(&ring->read, read + record->size, memory_order_release);
}

bool ring_is_empty(const struct ring *ring)
{
    return atomic_load(&ring->written) == atomic_load_explicit(&ring->read, memory_order_relaxed);
}

bool ring_is_half_full(const struct ring *ring)
{
    return atomic_load_explicit(&ring->written, memory_order_relaxed) -
               atomic_load_explicit(&ring->read, memory_order_relaxed) >
           ring->size / 2;
}
