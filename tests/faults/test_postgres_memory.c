/* test_postgres_memory.c - libpq gets no memory for what the server has answered: the statement was executed all the same.
 * On a private server. */
#define SERVER_SETTINGS "conf=checkpoint_timeout = 1h\n"
#include "postgres_server.h"

#include <link.h>
#include <stdatomic.h>

#define IN_PLACE __attribute__((visibility("default"))) /* of the system's, also for libraries */

/* ---- the allocator ------------------------------------------------------------------------------------ */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static uintptr_t code_begin, code_end; /* libpq's */
static atomic_int refuse_at, asked;    /* its allocation of that number fails. 0: none does */

static int find_code(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    if (strstr(info->dlpi_name, "/libpq.so") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0) {
            code_begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            code_end = code_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static bool is_refused(const void *caller)
{
    int at = atomic_load(&refuse_at);
    bool is_libpq = (uintptr_t)caller >= code_begin && (uintptr_t)caller < code_end;
    return at != 0 && is_libpq && atomic_fetch_add(&asked, 1) + 1 == at;
}

IN_PLACE void *malloc(size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

IN_PLACE void *calloc(size_t count, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

IN_PLACE void *realloc(void *block, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(block, size);
}

static void refuse(int at)
{
    atomic_store(&asked, 0);
    atomic_store(&refuse_at, at);
}

/* Whether it came to that. */
static bool refuse_end(void)
{
    int at = atomic_exchange(&refuse_at, 0);
    return atomic_load(&asked) >= at;
}

/* ---- acquire and release -------------------------------------------------------------------------------- */

/* Without memory for libpq's allocation of that number, in an acquire and in a release. False: it has no so many. */
static bool goes_round(mortise_client *other, const mortise_options *options, int at)
{
    static int count;
    char name[32];
    mortise_lease *lease = NULL;
    mortise_client *client = open_client("", "");
    snprintf(name, sizeof name, "name %d", count++);
    give(take(client, "another one", HOLD_MS)); /* it is connected */
    if (code_begin == 0)
        dl_iterate_phdr(find_code, NULL);
    refuse(at);
    CU_ASSERT_EQUAL(mortise_acquire(client, name, options, &lease, &detail), MORTISE_OK);
    bool hit = refuse_end();
    refuse(at);
    give(lease);
    hit = refuse_end() || hit;
    CU_ASSERT_EQUAL(try_for(other, name, PATIENCE_MS), MORTISE_OK); /* nothing is left of it */
    mortise_close(client, NULL);
    return hit;
}

static void go_round(const mortise_options *options)
{
    mortise_client *other = open_client("", "");
    int at = 1;
    while (goes_round(other, options, at))
        at++;
    CU_ASSERT(code_begin != 0 && at > 3);
    mortise_close(other, NULL);
}

static void test_exclusive(void)
{
    go_round(MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = HOLD_MS));
}

static void test_shared(void)
{
    go_round(MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = HOLD_MS, .mode = MORTISE_SHARED));
}

int main(int argc, char **argv)
{
    CU_TestInfo tests[] = {
        {"no memory for an answer", test_exclusive},
        {"no memory for an answer: shared", test_shared},
        CU_TEST_INFO_NULL,
    };
    return server_run(tests, argc, argv);
}
