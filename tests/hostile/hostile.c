/* hostile.c - clients of servers that lie. Whatever a server sends, every call returns in a bounded time with a
 * status and one printable line, nothing is granted that the server did not grant, nothing crashes and nothing leaks.
 *
 *     hostile KIND
 *
 * KIND: redis, postgres, mysql, zookeeper, etcd, redlock. The first part sends what no such server sends (acts.c). In the second
 * part a real server is behind the liar, which changes a byte now and then. Of Redlock's three nodes one lies, or two
 * are the same liar.
 *
 * Each client is closed while callers wait: each of them gets one outcome. All of this is repeated, and no descriptor
 * may be left. Changes come from two seeds, a fixed one and a fresh one, which is printed; $MORTISE_HOSTILE_SEED sets
 * it. */
#include "acts.h"

#include <mortise/mortise.h>
#include <support.h>

#include <CUnit/Basic.h>

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define VISITORS 12 /* most of them wait */
#define VISITS_MAX 2048
#define ROUNDS 2
/* A client that is stuck when it is closed, for the machine is slow, is left standing: that takes so long, and it may
 * keep so many descriptors. */
#define STUCK_MS 1000
#define STUCK_KEEPS 8
#define CORE "ttl=300ms&unreachable_timeout=200ms&close_timeout=200ms&log=none"

static const struct kind {
    const char *name, *url, *rest; /* the port stands between */
    const char *later;             /* in every second round, behind all that. NULL */
    const char *server, *keys;     /* of tests/servers.sh */
    bool is_group;                 /* the ports of two honest ones follow */
    bool is_judged; /* a number of a real one, when changed, may be a reason for CONFIG */
    const struct act *acts;
    size_t within; /* of what a real server says, the bytes that are changed */
    unsigned
        how; /* a bit of enum how each. libzookeeper believes what it is told: there it is only cut short */
    /* The client library ends the process, by an assertion of its own in this file, where an answer fits to no
     * question: each visit is a process, and that end is known. NULL: it does not. */
    const char *asserts_in;
} kinds[] = {
    {.name = "redis",
     .server = "redis",
     .url = "redis://127.0.0.1:",
     .rest = "?connect_timeout=300ms&command_timeout=200ms&" CORE,
     .acts = redis_acts,
     .within = 1500,
     .how = ANYHOW},
    {.name = "postgres",
     .server = "postgres",
     .url = "postgresql://mortise@127.0.0.1:",
     .rest = "/mortise?connect_timeout=300ms&command_timeout=200ms&" CORE,
     .later = "&sslmode=disable", /* otherwise it begins by asking for TLS */
     .is_judged = true,           /* the schema that its tables are in */
     .acts = postgres_acts,
     .within = 6000,
     .how = ANYHOW},
    {.name = "mysql",
     .server = "mysql",
     .url = "mysql://mortise@127.0.0.1:",
     .rest = "/mortise?connect_timeout=300ms&command_timeout=200ms&" CORE,
     .is_judged = true, /* durability, and the number of its session */
     .acts = mysql_acts,
     .within = 4000,
     .how = ANYHOW},
    {.name = "redlock",
     .server = "redis",
     .keys = "nodes=3",
     .url = "redlock://127.0.0.1:",
     .rest = "?connect_timeout=300ms&command_timeout=200ms&node_timeout=100ms&max_ttl=1s&node_"
             "persistent=yes&" CORE,
     .is_group = true,
     .acts = redis_acts,
     .within = 1500,
     .how = ANYHOW},
    {.name = "zookeeper",
     .server = "zookeeper",
     .url = "zookeeper://127.0.0.1:",
     .rest = "/locks?connect_timeout=300ms&session_timeout=1s&" CORE,
     .acts = zookeeper_acts,
     .within = 1000,
     .how = 1u << LESS,
     .asserts_in = "zookeeper.c:"},
    {.name = "etcd",
     .server = "etcd",
     .url = "etcd://127.0.0.1:",
     .rest = "/locks?connect_timeout=300ms&timeout=200ms&" CORE,
     .acts = etcd_acts,
     .within = 1200,
     .how = ANYHOW},
};
static const struct kind *kind;

/* ---- one visit -------------------------------------------------------------------------------------- */

struct visit {
    char doing[128];
    int port, number;
    bool may_succeed, may_refuse, was_stuck, is_later, passes;
    unsigned failures;
};

/* Who waits when a client is closed. Static: one that comes too late finds it still. */
static struct waiter {
    atomic_bool closed;
    atomic_int outcomes, late;
} waiters[VISITS_MAX];
static int real_ports[3];

static void fail(struct visit *visit, const char *what, mortise_status status,
                 const mortise_error *error)
{
    visit->failures++;
    fprintf(stderr, "    %s: %s: %s %s\n", visit->doing, what, mortise_status_name(status),
            error->message);
}

/* One line of printable text that somebody can read, and the very status. */
static bool is_sound(mortise_status status, const mortise_error *error)
{
    bool printable = error->message[0] != '\0';
    for (const unsigned char *at = (const unsigned char *)error->message; *at; at++)
        printable &= *at >= 0x20 && *at != 0x7f;
    return printable && error->status == status;
}

static bool may_be(const struct visit *visit, mortise_status status)
{
    if (status == MORTISE_CONFIG)
        return visit->may_refuse;
    if (status == MORTISE_BACKEND)
        return !visit->passes;
    return status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE ||
           status == MORTISE_TIMEDOUT || status == MORTISE_NOMEM || status == MORTISE_BUSY;
}

/* True: it succeeded. */
static bool expect(struct visit *visit, const char *call, mortise_status status, int64_t from_ms,
                   const mortise_error *error)
{
    if (test_now_ms() - from_ms > TEST_PATIENCE_MS)
        fail(visit, "took too long", status, error);
    if (status == MORTISE_OK && visit->may_succeed)
        return true;
    if (!may_be(visit, status) || !is_sound(status, error))
        fail(visit, call, status, error);
    return false;
}

static bool never(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return true;
}

static void call_all(struct visit *visit, mortise_client *client)
{
    mortise_error error = {.message = ""};
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = NULL;
    char text[256];
    int64_t from_ms = test_now_ms();
    mortise_status status = mortise_acquire(
        client, "lie", MORTISE_OPTIONS(.wait_ms = 150, .ttl_ms = 300), &lease, &error);
    if (expect(visit, "acquire", status, from_ms, &error)) {
        status = mortise_release(lease, &error);
        if (status != MORTISE_OK && status != MORTISE_LOST && !may_be(visit, status))
            fail(visit, "release", status, &error);
    }
    from_ms = test_now_ms();
    expect(visit, "try",
           mortise_acquire(client, "lie", MORTISE_OPTIONS(.wait_ms = 0), &lease, &error), from_ms,
           &error);
    from_ms = test_now_ms();
    expect(visit, "inspect", mortise_inspect(client, "lie", &info, &error), from_ms, &error);
    from_ms = test_now_ms();
    expect(visit, "list", mortise_list(client, "", never, NULL, &error), from_ms, &error);
    from_ms = test_now_ms();
    expect(visit, "ping", mortise_ping(client, text, sizeof text, &error), from_ms, &error);
}

/* Not under ThreadSanitizer: room for a huge list takes it seconds, in which the client that is closed is taken for
 * stuck, and left standing. */
#ifdef __SANITIZE_THREAD__
static const bool waits_at_close = false;
#else
static const bool waits_at_close = true;
#endif
/* Sanitizers write down more of each byte than it is. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static const long memory_max_kib = LONG_MAX;
#else
static const long memory_max_kib = 512 * 1024;
#endif

static void have_outcome(mortise_status status, mortise_lease *lease, const mortise_error *error,
                         void *user_data)
{
    struct waiter *waiter = user_data;
    (void)status;
    (void)lease; /* it ends with the client */
    (void)error;
    atomic_fetch_add(&waiter->outcomes, 1);
    if (atomic_load(&waiter->closed))
        atomic_fetch_add(&waiter->late, 1);
}

static void write_url(const struct visit *visit, char *url, size_t size)
{
    char others[64] = "";
    bool two_lie = visit->number % 2 == 1; /* one server, by two addresses */
    if (kind->is_group)
        snprintf(others, sizeof others, ",%s:%d,127.0.0.1:%d", two_lie ? "localhost" : "127.0.0.1",
                 two_lie ? visit->port : real_ports[1], real_ports[2]);
    snprintf(url, size, "%s%d%s%s%s", kind->url, visit->port, others, kind->rest,
             visit->is_later && kind->later ? kind->later : "");
}

static void visit_here(struct visit *visit)
{
    char url[512];
    mortise_client *client;
    mortise_error error = {.message = ""};
    struct waiter *waiter = &waiters[visit->number];
    atomic_store(&waiter->closed, false);
    atomic_store(&waiter->outcomes, 0);
    write_url(visit, url, sizeof url);
    int64_t from_ms = test_now_ms();
    mortise_status status = mortise_open(url, &client, &error);
    if (status != MORTISE_OK) {
        expect(visit, "open", status, from_ms, &error);
        return;
    }
    call_all(visit, client);
    if (waits_at_close) {
        status =
            mortise_acquire_async(client, "lie", MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER),
                                  have_outcome, waiter, NULL, &error);
        if (status != MORTISE_OK)
            fail(visit, "acquire_async", status, &error);
    }
    from_ms = test_now_ms();
    status = mortise_close(client, &error);
    atomic_store(&waiter->closed, true);
    if (atomic_load(&waiter->outcomes) != waits_at_close)
        fail(visit, "not one outcome when the client is closed", status, &error);
    if (status != MORTISE_OK && status != MORTISE_UNREACHABLE)
        fail(visit, "close", status, &error);
    int64_t took_ms = test_now_ms() - from_ms;
    if (took_ms > TEST_PATIENCE_MS)
        fail(visit, "close took too long", status, &error);
    visit->was_stuck = took_ms >= STUCK_MS;
}

/* In a process of its own, which says what was wrong by lines. */
static void visit_there(struct visit *visit)
{
    struct test_process process;
    char port[16], line[1024];
    bool known = false;
    snprintf(port, sizeof port, "%d", visit->port);
    const char *const argv[] = {
        "/proc/self/exe", kind->name, port, visit->doing, visit->may_succeed ? "may" : NULL, NULL};
    if (!test_spawn(&process, argv)) {
        perror(visit->doing);
        visit->failures++;
        return;
    }
    while (test_hear(&process, line, sizeof line, 4 * TEST_PATIENCE_MS)) {
        known |= strstr(line, kind->asserts_in) && strstr(line, "Assertion");
        fprintf(stderr, "%s\n", line);
    }
    int status = test_reap(&process, TEST_PATIENCE_MS);
    test_kill(&process);
    if (status == 0 || (known && status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT))
        return;
    fprintf(stderr, "    %s: ended with %d\n", visit->doing, status);
    visit->failures++;
}

/* A sanitizer's malloc is to refuse a huge size, as any other does, and not to end the process. */
static void allow_refusals(const char *variable)
{
    char value[1024];
    const char *before = getenv(variable);
    snprintf(value, sizeof value, "%s:allocator_may_return_null=1", before ? before : "");
    setenv(variable, value, 1);
}

/* The child of visit_there. */
static int be_visitor(int argc, char **argv)
{
    struct visit visit = {.port = (int)strtol(argv[2], NULL, 10), .may_succeed = argc > 4};
    snprintf(visit.doing, sizeof visit.doing, "%s", argv[3]);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    visit_here(&visit);
    return visit.failures > 0;
}

/* ---- many at once ----------------------------------------------------------------------------------- */

static const struct act honest = {.name = "honest"}, *acts[64];
static int visits, act_count, server_port; /* 0: there is no server behind the liar */
static uint64_t seed;
static atomic_int next, failures, stuck;

/* Visit `number`: of the acts, or with the server behind. */
static void visit_liar(int number)
{
    const struct act *act = server_port ? &honest : acts[number % act_count];
    struct liar liar;
    struct visit visit = {.number = number,
                          .is_later = number / act_count % 2 == 1,
                          .passes = act->passes,
                          .may_succeed = server_port != 0 || act->is_plausible ||
                                         (kind->is_group && number % 2 == 0)};
    visit.may_refuse = server_port != 0 && kind->is_judged;
    struct change change = {.port = server_port,
                            .random = (seed + (uint64_t)number) * 0x9e3779b97f4a7c15u | 1,
                            .how = kind->how,
                            .within = kind->within};
    snprintf(visit.doing, sizeof visit.doing, "%s: %s (%llu)", kind->name, act->name,
             (unsigned long long)(seed + (uint64_t)number));
    if (!liar_start(&liar, act, &change)) {
        perror("the liar");
        atomic_fetch_add(&failures, 1);
        return;
    }
    visit.port = liar.port;
    if (kind->asserts_in)
        visit_there(&visit);
    else
        visit_here(&visit);
    liar_end(&liar);
    atomic_fetch_add(&failures, (int)visit.failures);
    atomic_fetch_add(&stuck, visit.was_stuck);
}

static void *visitor(void *argument)
{
    int number;
    (void)argument;
    while ((number = atomic_fetch_add(&next, 1)) < visits)
        visit_liar(number);
    return NULL;
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder_of_them = opendir("/proc/self/fd");
    CU_ASSERT_PTR_NOT_NULL_FATAL(folder_of_them);
    while (readdir(folder_of_them))
        count++;
    closedir(folder_of_them);
    return count;
}

static bool are_back(void *limit)
{
    return count_descriptors() <= *(const int *)limit;
}

static void visit_all(int count)
{
    pthread_t threads[VISITORS];
    struct rusage usage;
    CU_ASSERT_FATAL(count <= VISITS_MAX);
    visits = count;
    atomic_store(&next, 0);
    atomic_store(&failures, 0);
    for (int i = 0; i < VISITORS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, visitor, NULL), 0);
    for (int i = 0; i < VISITORS; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT_EQUAL(atomic_load(&failures), 0);
    for (int i = 0; i < count; i++)
        CU_ASSERT_EQUAL(atomic_load(&waiters[i].late), 0);
    getrusage(RUSAGE_SELF, &usage);
    CU_ASSERT(usage.ru_maxrss < memory_max_kib); /* nobody believed a length */
}

/* Whatever is opened once and for good, it is after the first round. */
static void visit_again_and_again(int count, int rounds)
{
    visit_all(count);
    CU_ASSERT_FATAL(count_descriptors() > 0);
    int descriptors = count_descriptors();
    visit_all(rounds * count);
    int limit = descriptors + STUCK_KEEPS * atomic_load(&stuck);
    bool back = test_poll(are_back, &limit, TEST_PATIENCE_MS);
    printf(" (%d descriptors, then %d; %d clients were stuck) ", descriptors, count_descriptors(),
           atomic_load(&stuck));
    CU_ASSERT_TRUE(back);
}

static void test_acts(void)
{
    act_count = 0;
    for (const struct act *act = any_acts; act->name; act++)
        acts[act_count++] = act;
    for (const struct act *act = kind->acts; act->name; act++)
        acts[act_count++] = act;
    visit_again_and_again(act_count, ROUNDS);
}

/* ---- a real server behind --------------------------------------------------------------------------- */

static char folder[200];

static int server(const char *verb, const char *argument, const char *keys)
{
    static const char *const port_words[] = {"PORT=", "PORT2=", "PORT3="};
    struct test_process process;
    char line[1024], script[512];
    const char *root = getenv("MORTISE_SOURCE_DIR");
    snprintf(script, sizeof script, "%s/tests/servers.sh", root ? root : ".");
    const char *const argv[] = {"/bin/sh", script,   verb, kind->server,
                                folder,    argument, keys, NULL};
    if (!test_spawn(&process, argv))
        return -1;
    while (test_hear(&process, line, sizeof line, 60000))
        for (int i = 0; i < 3; i++)
            if (strncmp(line, port_words[i], strlen(port_words[i])) == 0)
                real_ports[i] = (int)strtol(line + strlen(port_words[i]), NULL, 10);
    int status = test_reap(&process, 60000);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_changes(void)
{
    const char *nightly = getenv("MORTISE_NIGHTLY"), *given = getenv("MORTISE_HOSTILE_SEED");
    bool takes_its_time = nightly && strcmp(nightly, "1") == 0;
    CU_ASSERT_FATAL(real_ports[0] > 0);
    server_port = real_ports[0];
    seed = 1;
    visit_all(60);
    if (!given)
        CU_ASSERT_EQUAL_FATAL(getentropy(&seed, 4), 0);
    seed = given ? strtoull(given, NULL, 10) : seed & UINT32_MAX;
    printf(" (seed %llu) ", (unsigned long long)seed);
    unsigned before = CU_get_number_of_failures();
    visit_again_and_again(20, takes_its_time ? 100 : 3);
    if (CU_get_number_of_failures() > before) /* for tests/again.py */
        printf("\nMORTISE_HOSTILE_SEED=%llu\n", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    int code;
    char guard[32];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && argc > 1; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            kind = &kinds[i];
    if (kind && argc > 3)
        return be_visitor(argc, argv);
    if (!kind || argc > 2 || !test_folder_make(folder, sizeof folder)) {
        fprintf(stderr, "usage: hostile redis|postgres|mysql|zookeeper|etcd|redlock\n");
        return 64;
    }
    allow_refusals("ASAN_OPTIONS");
    allow_refusals("TSAN_OPTIONS");
    snprintf(guard, sizeof guard, "guard=%d", (int)getpid());
    code = server("start", guard, kind->keys);
    if (code == 0 && CU_initialize_registry() == CUE_SUCCESS) {
        CU_pSuite suite = CU_add_suite("hostile", NULL, NULL);
        CU_add_test(suite, "what no server says", test_acts);
        CU_add_test(suite, "a changed byte here and there", test_changes);
        CU_basic_set_mode(CU_BRM_VERBOSE);
        code = CU_basic_run_tests() != CUE_SUCCESS || CU_get_number_of_failures() > 0;
        CU_cleanup_registry();
    } else if (code == TEST_SKIP_CODE) {
        code = test_skip("hostile", "the server cannot be started here");
    }
    server("end", NULL, NULL);
    test_folder_remove(folder);
    return code;
}
