/* decide.h - a decision on what was read under WATCH: what its parts, a file for each kind of layout, have in common.
 * Nobody else's. */
#ifndef MORTISE_DRIVERS_REDIS_DECIDE_H
#define MORTISE_DRIVERS_REDIS_DECIDE_H

#include "transaction.h"

struct decision {
    struct driver *driver;
    mortise_op *op;
    const struct view *view;
    bool put;
    struct plan plan;
};

/* ---- commands ----------------------------------------------------------------------------------------- */

static inline void command(struct decision *d, unsigned arguments, const char *word, enum key key)
{
    d->plan.commands++;
    if (!d->put)
        return;
    link_command(&d->driver->link, arguments);
    link_text(&d->driver->link, word);
    key_put(&d->driver->link, d->driver, d->op, key);
}

static inline void text(struct decision *d, const char *argument)
{
    if (d->put)
        link_text(&d->driver->link, argument);
}

static inline void bytes(struct decision *d, const void *data, size_t length)
{
    if (d->put)
        link_argument(&d->driver->link, data, length);
}

static inline void number(struct decision *d, uint64_t value)
{
    if (d->put)
        link_number(&d->driver->link, (int64_t)value);
}

/* ---- what was read ---------------------------------------------------------------------------------------- */

static inline uint64_t now_ms(const struct decision *d)
{
    return d->view->now_us / 1000;
}

static inline uint64_t number_of(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_STRING
               ? holder_number(reply->str, reply->len)
               : 0;
}

static inline uint64_t leading_number(const redisReply *reply)
{
    size_t digits = 0;
    while (digits < (size_t)reply->len && reply->str[digits] >= '0' && reply->str[digits] <= '9')
        digits++;
    return holder_number(reply->str, digits);
}

static inline int64_t pttl(const struct decision *d)
{
    return d->view->pttl->type == REDIS_REPLY_INTEGER ? d->view->pttl->integer : -2;
}

static inline bool is_absent(const redisReply *state)
{
    return state->type == REDIS_REPLY_NIL ||
           (state->type == REDIS_REPLY_ARRAY && state->elements == 0);
}

static inline const redisReply *field_of(const redisReply *state, const char *name, size_t length)
{
    if (state->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < state->elements; i += 2)
        if ((size_t)state->element[i]->len == length &&
            memcmp(state->element[i]->str, name, length) == 0)
            return state->element[i + 1];
    return NULL;
}

/* ---- ends ---------------------------------------------------------------------------------------------------- */

static inline void found(struct decision *d, uint64_t token, int64_t remaining_ms)
{
    lease_found(d->driver, d->op, token, remaining_ms, d->view->read_ns);
}

static inline void busy(struct decision *d, int64_t remaining_ms)
{
    mortise_info *info = d->op->info;
    const redisReply *state = d->view->state;
    if (info != NULL && state->type == REDIS_REPLY_STRING)
        holder_of_string(state->str, state->len, d->view->now_us, info);
    else if (info != NULL && !holder_of_hash(d->driver, state, d->view->now_us, info))
        holder_set(info, "", 0, 0, 0, 0, "", 0);
    lease_busy(d->driver, d->op, remaining_ms);
}

static inline void renewed(struct decision *d, char digit)
{
    renew_answer(d->driver, d->op, digit, 0);
}

static inline void released(struct decision *d, int64_t answer)
{
    lease_released(d->driver, d->op, answer);
}

/* ---- the token -------------------------------------------------------------------------------------------------- */

static inline uint64_t new_token(struct decision *d)
{
    uint64_t token = d->view->now_us, next = number_of(d->view->token) + 1;
    if (!d->driver->fencing)
        return 1;
    token = next > token ? next : token;
    uint64_t floor = place_floor(d->driver, d->op);
    return floor > token ? floor : token;
}

static inline void set_token(struct decision *d, uint64_t token)
{
    if (!d->driver->fencing)
        return;
    command(d, 5, "SET", KEY_TOKEN);
    number(d, token);
    text(d, "PX");
    number(d, (token - d->view->now_us) / 1000 + 86400000);
}

static inline void free_lock(struct decision *d)
{
    d->plan.answer = 2;
    d->plan.frees = true;
    command(d, 2, "DEL", KEY_LOCK);
}

/* decide_redisson.c */
void redisson_acquire(struct decision *d);
void redisson_renew(struct decision *d);
void redisson_release(struct decision *d);

#endif
