/* area.h - the claims of one client in memory that a witness can read: the slots of <mortise/witness.h>, which has the
 * table of their states.
 *
 * The area is one memfd of fixed size, sealed against shrinking. Its addresses are reserved once; pages are allocated for
 * a few slots at a time, so a client with few claims costs few pages, and no store can fail because memory is short. If
 * there is no memory, a claim simply has no slot. The caller serialises all calls. Knows no claim, no lock and no
 * witness. */
#ifndef MORTISE_CORE_WITNESS_AREA_H
#define MORTISE_CORE_WITNESS_AREA_H

#include <mortise/driver.h>
#include <mortise/witness.h>

#include "witness/own_fd.h"

struct area {
    mortise_witness_area *head; /* NULL: there is no area */
    mortise_witness_slot *slots;
    struct own_fd file;
    size_t size;
    uint32_t most;         /* how many slots the area can have */
    uint32_t ready, fresh; /* how many have pages, and were handed out at least once */
    uint32_t in_use;
    uint32_t free_count;
    /* Returned slots; room for all that are ready. Not in the area, which others can write. */
    mortise_witness_slot **free;
};

/* False: the system gives no memory for it; *area is empty then. */
bool area_make(struct area *area);
/* Unmaps it. A witness that was passed the descriptor keeps it. */
void area_drop(struct area *area);

/* NULL: no slot is left. */
mortise_witness_slot *area_take(struct area *area);
/* Frees the slot: the backend holds nothing of its claim. */
void area_give(struct area *area, mortise_witness_slot *slot);

/* What a claim is about to ask for. */
struct slot_claim {
    const char *name;
    size_t name_len;
    const char *owner; /* NULL: none */
    size_t owner_len;
    const mortise_grant_id *grant;
    int64_t ttl_ms;
    mortise_mode mode;
    uint32_t permits;
};
/* WRITING, then ASKED. Nothing of a former claim in this slot may be left in the backend. */
void slot_write(mortise_witness_slot *slot, const struct slot_claim *claim);

/* Single stores: the slot is whole at every instant. */
static inline void slot_set_state(mortise_witness_slot *slot, mortise_witness_state state)
{
    __atomic_store_n(&slot->state, (uint32_t)state, __ATOMIC_RELEASE);
}

static inline void slot_add_flags(mortise_witness_slot *slot, uint32_t flags)
{
    __atomic_store_n(&slot->flags, slot->flags | flags, __ATOMIC_RELEASE);
}

/* The claim may last for ttl_ms after its next request. */
static inline void slot_set_ttl(mortise_witness_slot *slot, int64_t ttl_ms)
{
    __atomic_store_n(&slot->ttl_ms, ttl_ms, __ATOMIC_RELEASE);
}

static inline void slot_set_end(mortise_witness_slot *slot, int64_t ends_ns)
{
    __atomic_store_n(&slot->ends_ns, ends_ns, __ATOMIC_RELAXED);
}

#endif
