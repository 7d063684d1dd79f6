/* relay.h - the calls of one connection of the driver, passed on to the server and back, or broken: the part of middle.c that knows
 * HTTP/2 and no sockets. */
#ifndef MORTISE_TESTS_ETCD_RELAY_H
#define MORTISE_TESTS_ETCD_RELAY_H

#include "middle.h"

#include <nghttp2/nghttp2.h>

#define HEADERS_MAX 24

struct text {
    uint8_t *data;
    size_t size, at;
};

struct headers {
    nghttp2_nv all[HEADERS_MAX];
    size_t count;
};

struct pair;
struct stream {
    struct stream *next, *prev;
    struct pair *pair;
    int32_t down, up; /* 0: none */
    char path[100];
    struct headers asked, answered, trailers;
    struct text request, answer;
    bool asked_all, is_watch, has_begun, is_done, is_held, is_delayed, no_more;
    bool is_ruled;
    struct rule rule;
};

/* A connection of the driver, and the one to the server that belongs to it. */
struct pair {
    int down_fd, up_fd; /* -1: none */
    nghttp2_session *down, *up;
    struct stream *streams;
    bool ends;
};

/* What is to be broken, and what was. */
struct orders {
    bool has_rule;
    struct rule rule;
    int hits, resets;
    bool wants_reset, passes;
    uint64_t random;
    unsigned rate;
};
extern struct orders orders;

bool relay_begin(struct pair *pair);
void relay_end(struct pair *pair);
/* What was held, and what was ordered meanwhile. */
void relay_obey(struct pair *pair);

#endif
