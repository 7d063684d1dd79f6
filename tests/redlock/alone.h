/* alone.h - the Redlock driver alone, through driver.h: a test creates each op itself, so it can repeat one under its
 * grant id, start one during another, or leave one unread. The test also moves the driver's clock, so hours pass at
 * once. */
#ifndef MORTISE_TESTS_REDLOCK_ALONE_H
#define MORTISE_TESTS_REDLOCK_ALONE_H

#include "nodes.h"

#include <mortise/driver.h>

#define ALONE_OPTIONS 24
#define ALONE_LOOKUPS 32
#define S_NS INT64_C(1000000000)

struct alone {
    mortise_host host; /* first */
    const mortise_module *module;
    void *library, *ctx;
    mortise_value values[ALONE_OPTIONS];
    char list[200];
    int64_t shift_ns; /* what the clock was moved by */
    unsigned news, doubts;
    struct {
        mortise_resolved told;
        void *argument;
        struct addrinfo *found;
    } lookups[ALONE_LOOKUPS]; /* whose answers are to be told */
    unsigned lookup_count;
};

struct call {
    mortise_op op; /* first */
    bool done;
    char text[400]; /* what was said of its failure; of a ping, its answer */
    mortise_info info;
};

/* The module, if it is linked into the program (alone_linked is set before alone_open); else it is loaded. */
extern const mortise_module *alone_linked;
/* An instance for the nodes at these ports; settings: key, text, …, NULL. False: the check has failed. */
bool alone_open(struct alone *alone, const int *ports, int count, const char *const *settings);
#define ALONE(...) ((const char *const[]){__VA_ARGS__, NULL})
void alone_close(struct alone *alone);
/* Polls, at most until the bound, and turns the driver once if it is to be turned. */
void alone_turn(struct alone *alone, int64_t bound_ms);
/* Turns it with one of its connections that can be read, as if the others' answers had come since it polled. */
void alone_turn_one(struct alone *alone);
/* Turns it as long as ready(argument) is false; false within patience: the check has failed. */
bool alone_until(struct alone *alone, bool (*ready)(void *argument), void *argument);
/* So many of its connections have something to be read (or have ended). */
bool alone_wait_readable(struct alone *alone, unsigned count);

/* Of a grant id of its own, a ttl of a minute. */
struct call call_of(mortise_op_kind kind, const char *name);
/* About what that acquire has taken. */
struct call call_about(mortise_op_kind kind, const struct call *lock);
void call_start(struct alone *alone, struct call *call);
bool call_wait(struct alone *alone, struct call *call);
/* Starts it, waits for it. */
mortise_status call_run(struct alone *alone, struct call *call);
#define DONE(wanted, call) expect_at((call), MORTISE_##wanted, #call, __FILE__, __LINE__)
/* Until a lock can be had: it is connected to enough nodes. */
bool alone_works(struct alone *alone);
/* Until a ping says this ("3 of 3 nodes answer"); with a * at its end: until it says something that begins so. */
bool alone_says(struct alone *alone, const char *wanted);

#endif
