/* store.c - the sim driver's backend: names, their grants, tokens and owners, in memory.
 *
 * serve.c has the requests; flight.c decides when they are executed, and the caller passes the time. The hash table is
 * its own, not uthash: it costs 12 bytes for each name where uthash costs 56, and the memory that the core needs for a
 * lease is measured in the same process. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { IDLE_MAX = 4096, NOTES_MAX = 255 };

static struct claim **buckets;
static size_t bucket_count, claim_count, held_count;
static size_t sweep_at = IDLE_MAX; /* names that nobody holds: when to look for idle ones */
static uint64_t last_token;
static bool tokens_by_clock;
static char *notes[NOTES_MAX]; /* the first one means unknown; one process has a few at most */
static unsigned note_count = 1;

/* ---- the table -------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *name, size_t name_len)
{
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    for (size_t i = 0; i < name_len; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT32_C(16777619);
    return hash;
}

static bool grow(void)
{
    size_t count = bucket_count ? bucket_count * 2 : 64;
    struct claim **larger = calloc(count, sizeof *larger);
    if (!larger)
        return bucket_count != 0;
    for (size_t i = 0; i < bucket_count; i++)
        for (struct claim *claim = buckets[i], *next; claim; claim = next) {
            next = claim->chain;
            struct claim **slot = &larger[claim->hash & (count - 1)];
            claim->chain = *slot;
            *slot = claim;
        }
    free(buckets);
    buckets = larger;
    bucket_count = count;
    return true;
}

static void claim_free(struct claim *claim)
{
    if (claim->extra) {
        free(claim->extra->owner);
        free(claim->extra->more);
        free(claim->extra);
    }
    free(claim);
    claim_count--;
}

static bool claim_idle(const struct claim *claim)
{
    return !claim->held && !(claim->extra && (claim->extra->watches || claim->extra->queue));
}

/* Names that nobody holds are kept, so that a steady cycle allocates nothing, but not for ever. */
static void sweep(void)
{
    for (size_t i = 0; i < bucket_count; i++)
        for (struct claim **slot = &buckets[i]; *slot;) {
            struct claim *claim = *slot;
            if (claim_idle(claim)) {
                *slot = claim->chain;
                claim_free(claim);
            } else {
                slot = &claim->chain;
            }
        }
    sweep_at = (claim_count - held_count) * 2 + IDLE_MAX;
}

static struct claim *find_hashed(const char *name, size_t name_len, uint32_t hash)
{
    if (!bucket_count)
        return NULL;
    struct claim *claim = buckets[hash & (bucket_count - 1)];
    while (claim && !(claim->hash == hash && claim->name_len == name_len &&
                      memcmp(claim->name, name, name_len) == 0))
        claim = claim->chain;
    return claim;
}

struct claim *store_find(const char *name, size_t name_len)
{
    return find_hashed(name, name_len, hash_of(name, name_len));
}

struct claim *store_name(const char *name, size_t name_len)
{
    uint32_t hash = hash_of(name, name_len);
    struct claim *claim = find_hashed(name, name_len, hash);
    if (claim)
        return claim;
    if (claim_count - held_count > sweep_at)
        sweep();
    if (claim_count >= bucket_count * 2 && !grow())
        return NULL;
    if (name_len > UINT16_MAX || !(claim = calloc(1, sizeof *claim + name_len)))
        return NULL;
    memcpy(claim->name, name, name_len);
    claim->name_len = (uint16_t)name_len;
    claim->hash = hash;
    claim->chain = buckets[hash & (bucket_count - 1)];
    buckets[hash & (bucket_count - 1)] = claim;
    claim_count++;
    return claim;
}

struct extra *store_extra(struct claim *claim)
{
    if (!claim->extra)
        claim->extra = calloc(1, sizeof *claim->extra);
    return claim->extra;
}

void store_each(void (*visit)(struct claim *claim, void *argument), void *argument)
{
    for (size_t i = 0; i < bucket_count; i++)
        for (struct claim *claim = buckets[i], *next; claim; claim = next) {
            next = claim->chain;
            visit(claim, argument);
        }
}

/* A copy that ends with a NUL; the original need not. */
static char *copy_text(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static uint8_t note_index(const char *note, size_t note_len)
{
    for (unsigned i = note_count; i-- > 1;)
        if (strlen(notes[i]) == note_len && memcmp(notes[i], note, note_len) == 0)
            return (uint8_t)i;
    if (!note_len || note_count == NOTES_MAX || !(notes[note_count] = copy_text(note, note_len)))
        return 0;
    return (uint8_t)note_count++;
}

/* ---- a claim ---------------------------------------------------------------------------------- */

static bool same_grant(const mortise_grant_id *a, const mortise_grant_id *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

struct grant *claim_grant(struct claim *claim, const mortise_grant_id *id)
{
    if (claim->held && same_grant(&claim->grant.id, id))
        return &claim->grant;
    for (size_t i = 0; i < more_count(claim); i++)
        if (same_grant(&claim->extra->more[i].grant.id, id))
            return &claim->extra->more[i].grant;
    return NULL;
}

uint64_t claim_token(const struct claim *claim, const struct grant *grant)
{
    return grant == &claim->grant ? claim->token
                                  : ((const struct member *)(const void *)grant)->token;
}

struct grant *claim_of_token(struct claim *claim, uint64_t token)
{
    if (claim->held && claim->token == token)
        return &claim->grant;
    for (size_t i = 0; i < more_count(claim); i++)
        if (claim->extra->more[i].token == token)
            return &claim->extra->more[i].grant;
    return NULL;
}

struct member claim_member(const struct claim *claim, size_t index)
{
    if (index > 0)
        return claim->extra->more[index - 1];
    return (struct member){claim->grant, claim->token, claim->since_ns, claim->note};
}

uint32_t claim_permits(const struct claim *claim)
{
    return claim->shared && claim->extra ? claim->extra->permits : 0;
}

bool claim_barred(const struct claim *claim, int64_t now_ns)
{
    return claim->extra && claim->extra->barred_ns > now_ns;
}

int64_t claim_first_expires(const struct claim *claim)
{
    int64_t first = claim->grant.expires_ns;
    for (size_t i = 0; i < more_count(claim); i++)
        if (claim->extra->more[i].grant.expires_ns < first)
            first = claim->extra->more[i].grant.expires_ns;
    return first;
}

int64_t claim_expires(const struct claim *claim)
{
    int64_t latest = claim->grant.expires_ns;
    for (size_t i = 0; i < more_count(claim); i++)
        if (claim->extra->more[i].grant.expires_ns > latest)
            latest = claim->extra->more[i].grant.expires_ns;
    return latest;
}

void claim_drop(struct claim *claim)
{
    if (!claim->held)
        return;
    claim->held = claim->shared = false;
    held_count--;
    if (claim->extra) {
        free(claim->extra->owner);
        claim->extra->owner = NULL;
        claim->extra->owner_len = claim->extra->more_count = 0;
    }
}

/* Takes one grant out; the claim is dropped with its last one. */
void claim_remove(struct claim *claim, struct grant *grant)
{
    size_t count = more_count(claim);
    if (count == 0) {
        claim_drop(claim);
        return;
    }
    struct member *more = claim->extra->more;
    struct member *left = grant == &claim->grant ? more : (struct member *)(void *)grant;
    if (grant == &claim->grant) {
        claim->grant = more[0].grant;
        claim->token = more[0].token;
        claim->since_ns = more[0].since_ns;
        claim->note = more[0].note;
    }
    memmove(left, left + 1, (size_t)(more + count - (left + 1)) * sizeof *left);
    claim->extra->more_count--;
}

void claim_freed(struct claim *claim, int64_t now_ns)
{
    if (!claim->extra || flight_grant_head(claim, now_ns))
        return;
    struct watch *watch;
    DL_FOREACH2(claim->extra->watches, watch, claim_next)
    {
        if (!watch->instance->notify)
            continue;
        watch->told = true;
        sim_dirty(watch->instance);
    }
}

bool claim_refresh(struct claim *claim, int64_t now_ns)
{
    if (!claim->held || (claim->grant.expires_ns > now_ns && !more_count(claim)))
        return claim->held;
    size_t before = more_count(claim);
    for (size_t i = before; i-- > 0;)
        if (claim->extra->more[i].grant.expires_ns <= now_ns)
            claim_remove(claim, &claim->extra->more[i].grant);
    if (claim->grant.expires_ns <= now_ns)
        claim_remove(claim, &claim->grant);
    if (!claim->held || more_count(claim) < before)
        claim_freed(claim, now_ns);
    return claim->held;
}

bool claim_same_owner(const struct claim *claim, const mortise_op *op)
{
    return op->owner && claim->extra && claim->extra->owner &&
           claim->extra->owner_len == op->owner_len &&
           memcmp(claim->extra->owner, op->owner, op->owner_len) == 0;
}

/* One more than the last of all names; or than the name's own, as a server does that has a clock. */
static uint64_t next_token(const struct claim *claim, uint64_t floor, int64_t now_ns)
{
    uint64_t of_name =
        claim->extra && claim->extra->token > claim->token ? claim->extra->token : claim->token;
    uint64_t token = (tokens_by_clock ? of_name : last_token) + 1;
    if (tokens_by_clock && token < (uint64_t)now_ns / 1000)
        token = (uint64_t)now_ns / 1000;
    token = token > floor ? token : floor;
    if (!tokens_by_clock)
        last_token = token;
    return token;
}

bool claim_add(struct claim *claim, const mortise_op *op, int64_t now_ns)
{
    struct extra *extra = store_extra(claim);
    if (!extra)
        return false;
    if (extra->more_count == extra->more_capacity) {
        size_t capacity = extra->more_capacity ? extra->more_capacity * 2 : 4;
        struct member *larger = realloc(extra->more, capacity * sizeof *larger);
        if (!larger)
            return false;
        extra->more = larger;
        extra->more_capacity = capacity;
    }
    struct member *member = &extra->more[extra->more_count++];
    member->grant.id = op->grant;
    member->token = claim->shared ? next_token(claim, op->token_floor, now_ns) : claim->token;
    member->since_ns = claim->shared ? now_ns : claim->since_ns;
    member->note = claim->shared ? note_index(op->note, op->note_len) : claim->note;
    if (claim->shared)
        extra->token = member->token;
    return true;
}

bool claim_take(struct claim *claim, const mortise_op *op, int64_t now_ns)
{
    if (op->owner) {
        char *owner = store_extra(claim) ? copy_text(op->owner, op->owner_len) : NULL;
        if (!owner)
            return false;
        claim->extra->owner = owner;
        claim->extra->owner_len = op->owner_len;
    }
    bool shared = op->mode == MORTISE_SHARED;
    if (shared && !store_extra(claim))
        return false;
    claim->token = next_token(claim, op->token_floor, now_ns);
    claim->held = true;
    claim->shared = shared;
    if (shared) {
        claim->extra->permits = op->permits;
        claim->extra->token = claim->token;
    } else if (claim->extra)
        claim->extra->barred_ns = 0;
    held_count++;
    claim->grant.id = op->grant;
    claim->since_ns = now_ns;
    claim->note = note_index(op->note, op->note_len);
    return true;
}

bool claim_seize(struct claim *claim, int64_t expires_ns, int64_t now_ns)
{
    static const char stranger[] = "elsewhere\n1\nstranger";
    static uint64_t strangers;
    mortise_op op = {.note = stranger, .note_len = sizeof stranger - 1};
    strangers++;
    memset(op.grant.bytes, 0xff, sizeof op.grant.bytes);
    memcpy(op.grant.bytes, &strangers, sizeof strangers);
    claim_drop(claim);
    if (!claim_take(claim, &op, now_ns))
        return false;
    claim->grant.expires_ns = expires_ns;
    return true;
}

const char *store_note(uint8_t note)
{
    return note ? notes[note] : "";
}

size_t store_count(void)
{
    return claim_count;
}

void store_tokens_from(uint64_t token)
{
    if (token > last_token)
        last_token = token - 1;
}

void store_tokens_by_clock(void)
{
    tokens_by_clock = true;
}

static void forget(struct claim *claim, void *argument)
{
    (void)argument;
    claim_drop(claim);
}

void store_reset(void)
{
    store_each(forget, NULL);
    sweep();
    last_token = 0;
    tokens_by_clock = false;
}
