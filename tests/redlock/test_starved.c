/* test_starved.c - what the driver leaves on the nodes, and what it says, if its allocations fail in the middle of an op. The
 * driver is linked into this program. On three nodes. */
#include "alone.h"

#include <stdlib.h>

extern const mortise_module mortise_module_v1;
void *__real_calloc(size_t count, size_t size);
/* visible, because in a build for ThreadSanitizer a library refers to it */
__attribute__((visibility("default"))) void *__wrap_calloc(size_t count, size_t size);

static struct nodes nodes;
static struct alone one;
static int passes = -1; /* so many allocations succeed, and then `fails` do not; -1: all succeed */
static int fails;

void *__wrap_calloc(size_t count, size_t size)
{
    if (passes > 0)
        passes--;
    else if (passes == 0 && fails > 0) {
        fails--;
        return NULL;
    }
    return __real_calloc(count, size);
}

static bool is_free(void *name)
{
    return nodes_with(&nodes, name) == 0;
}

/* An acquire is repeated under its grant id, and the request for votes finds no memory. What the first one has got must
 * not stay for its ttl, whether the undo finds memory at once or not. */
static void test_repeat(void)
{
    static char name[] = "starved";
    for (int failing = 1; failing <= 8; failing++) {
        struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:starved"), again;
        if (!alone_open(&one, nodes.group.ports, 3, ALONE("node_persistent", "yes")) ||
            !alone_works(&one))
            return;
        DONE(OK, call_run(&one, &lock));
        CHECK(wait_nodes_with(&nodes, name, 7));
        again = call_about(MORTISE_OP_ACQUIRE, &lock);
        again.op.flags = MORTISE_OP_REPEAT;
        again.op.first_sent_ns = lock.op.first_sent_ns;
        passes = 1; /* the attempt */
        fails = failing;
        DONE(NOMEM, call_run(&one, &again));
        CHECK(alone_until(&one, is_free, name));
        passes = -1;
        alone_close(&one);
    }
}

/* The nodes name the reader that is to be removed, and there is no memory to note it. That does not mean that nobody has this
 * token. */
static void test_break(void)
{
    struct call reader = call_of(MORTISE_OP_ACQUIRE, "mortise:read"), end;
    if (!alone_open(&one, nodes.group.ports, 3,
                    ALONE("node_persistent", "yes", "node_timeout", "20s")) ||
        !alone_works(&one))
        return;
    reader.op.mode = MORTISE_SHARED;
    DONE(OK, call_run(&one, &reader));
    CHECK(wait_nodes_with(&nodes, "read", 7));
    end = call_of(MORTISE_OP_RELEASE, "mortise:read");
    end.op.flags = MORTISE_OP_BREAK;
    end.op.token = reader.op.token;
    passes = 2; /* the claim, and the question to the nodes */
    fails = 3;  /* the reader, as each node names it */
    DONE(NOMEM, call_run(&one, &end));
    CHECK(fails == 0 && nodes_with(&nodes, "read") == 7);
    passes = -1;
    DONE(OK, call_run(&one, &end));
    CHECK(wait_nodes_with(&nodes, "read", 0));
    alone_close(&one);
}

static const CU_TestInfo tests[] = {
    {"an acquire is repeated without memory", test_repeat},
    {"a break without memory", test_break},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    alone_linked = &mortise_module_v1;
    int code = nodes_start(&nodes, 3, NULL);
    if (code == 0)
        code = run_tests("redlock starved", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
