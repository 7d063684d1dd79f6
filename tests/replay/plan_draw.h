/* plan_draw.h - the numbers of the seed, for the files that make a plan. */
#ifndef MORTISE_TESTS_REPLAY_PLAN_DRAW_H
#define MORTISE_TESTS_REPLAY_PLAN_DRAW_H

#include "plan.h"

/* From 0 to below - 1. */
uint64_t plan_draw(uint64_t below);

static inline bool one_in(uint64_t n)
{
    return plan_draw(n) == 0;
}

static inline int64_t pick_ms(const int64_t *choices, size_t count)
{
    return choices[plan_draw(count)];
}

#define PICK(array) (array)[plan_draw(sizeof(array) / sizeof(*(array)))]
#define PICK_MS(...)                                                                               \
    pick_ms((const int64_t[]){__VA_ARGS__},                                                        \
            sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* The next step; the nemesis is worker -1. */
struct step *plan_add(struct plan *plan, int worker, enum plan_what what);

/* ---- plan_disk.c: the driver with a file ---- */

void plan_disk_settings(struct plan *plan);
void plan_disk_step(struct plan *plan);

/* ---- plan_net.c: drivers with servers and a network ---- */

void plan_net_settings(struct plan *plan);
void plan_net_step(struct plan *plan);
void plan_failover_settings(struct plan *plan);
void plan_failover_step(struct plan *plan);
/* What the driver cannot do is left out of a worker's step. */
void plan_net_restrict(const struct plan *plan, struct step *step);

#endif
