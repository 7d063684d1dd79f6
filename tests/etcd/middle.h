/* middle.h - a server between the driver and an etcd server. It speaks HTTP/2 with both sides, so it sees whole calls, and breaks
 * those that a test names. One thread; knows gRPC's framing, and nothing of etcd's messages. */
#ifndef MORTISE_TESTS_ETCD_MIDDLE_H
#define MORTISE_TESTS_ETCD_MIDDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault {
    LOSE,       /* the call is done; the connection ends in place of its answer */
    DROP,       /* the connection ends in place of the call */
    RESET,      /* the call is done; its stream is reset in place of the answer */
    REFUSE,     /* the call is done, and answered with `status` and `text` */
    REFUSE_NOT, /* the same, and it is not done */
    GO_AWAY, /* the call is done, but GOAWAY comes before the answer, and then the connection ends */
    HOLD,    /* the call is done; its answer comes when middle_clear() was called */
    DELAY,   /* the call is done only when middle_clear() or middle_pass() was called */
    OTHER_MEMBER /* the answer is of another member of the cluster, as behind a balancer of calls */
};

struct rule {
    const char *method;   /* the end of its path, such as "KV/Txn" */
    const char *contains; /* text in the request; NULL: any */
    enum fault fault;
    int times; /* how often; then the calls pass again */
    int status;
    const char *text;
    const struct rule *
        then; /* what happens when it was applied so often; middle_hits() counts from there; NULL: nothing */
};

/* Between a free port of 127.0.0.1 and that one. Returns the free one; 0: it failed. One at a time. */
int middle_start(int port);
void middle_end(void);
/* What happens from now on. */
void middle_rule(const struct rule *rule);
/* Everything passes again, and what was held is answered. Returns how often the rule was applied. */
int middle_clear(void);
/* What was delayed or held until now passes, whatever the rule is. */
void middle_pass(void);
/* How often it was applied until now. */
int middle_hits(void);
/* Resets the watch streams that are open. Returns how many there were. */
int middle_reset_watches(void);
/* From now on one of `rate` answers is changed at random. 0: none. */
void middle_noise(uint64_t seed, unsigned rate);

#endif
