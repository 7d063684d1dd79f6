/* test_resolve.c - host names looked up for modules (core/pump/resolve.c): what is answered, on which thread, how
 * often, and what happens to a look-up whose client is closed.
 *
 * getaddrinfo is this file's own: a script answers names below .test and can delay a look-up until a gate opens; the
 * system answers all other names. */
#include "client/client.h"
#include "pump/pump_internal.h"
#include "rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <signal.h>

#define CONFIG "ttl = 30s\nclose_timeout = 2s\n"

static struct rig rig;

/* ---- the resolver ---------------------------------------------------------------------------------- */

static struct test_count hanging = TEST_COUNT_INIT,
                         gates = TEST_COUNT_INIT; /* ever; opened so far */
static _Atomic int asked, numeric, signals_open;
static _Atomic unsigned asker; /* the thread */

typedef int resolver(const char *node, const char *port, const struct addrinfo *hints,
                     struct addrinfo **found);

static int system_resolver(const char *node, const char *port, const struct addrinfo *hints,
                           struct addrinfo **found)
{
    resolver *next;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&next, &symbol, sizeof(next));
    return next(node, port, hints, found);
}

static int scripted(const char *node, const char *port, const struct addrinfo *hints,
                    struct addrinfo **found)
{
    struct addrinfo plain = {.ai_socktype = hints->ai_socktype,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    bool cautious = (hints->ai_flags & AI_ADDRCONFIG) != 0;
    if (strncmp(node, "hangs", 5) == 0) {
        test_count_add(&hanging, 1);
        test_count_wait(&gates, 1);
    }
    if (strcmp(node, "unknown.test") == 0)
        return EAI_NONAME;
    if (strcmp(node, "broken.test") == 0)
        return EAI_FAIL;
    if (strcmp(node, "loopback-only.test") == 0 && cautious)
        return EAI_NONAME;
    if (strcmp(node, "other-family.test") == 0 && cautious)
        return EAI_ADDRFAMILY;
    return system_resolver("127.0.0.9", port, &plain, found);
}

static void note_thread(void)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM))
        atomic_fetch_add(&signals_open, 1);
    atomic_fetch_add(&asked, 1);
    atomic_store(&asker, (unsigned)gettid());
}

int getaddrinfo(const char *node, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    if (hints->ai_flags & AI_NUMERICHOST) {
        atomic_fetch_add(&numeric, 1);
        return system_resolver(node, port, hints, found);
    }
    note_thread();
    size_t length = strlen(node);
    if (length > 5 && strcmp(node + length - 5, ".test") == 0)
        return scripted(node, port, hints, found);
    return system_resolver(node, port, hints, found);
}

static void open_gates(void)
{
    test_count_add(&gates, 1);
}

static void shut_gates(void)
{
    test_count_add(&gates, -test_count_get(&gates));
}

static int thread_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count;
}

static int threads_before, threads_outside; /* with the client open, and without */

/* Of the look-ups; the resolver's answer is not their end. */
static bool threads_gone(void *argument)
{
    (void)argument;
    return thread_count() <= threads_before;
}

/* ---- look-ups -------------------------------------------------------------------------------------- */

struct lookup_test {
    const char *node;
    bool begun;
    int calls, addresses, family, type;
    unsigned thread;
    void *ctx;
    char text[64], problem[128];
    const char *chained; /* looked up when this one is answered */
};

static struct test_count answers = TEST_COUNT_INIT;
static _Atomic bool closed;
static _Atomic int after_close;
static mortise_host *host;

static void note_address(struct lookup_test *test, const struct addrinfo *first)
{
    const void *address = first->ai_family == AF_INET6
                              ? (const void *)&((struct sockaddr_in6 *)first->ai_addr)->sin6_addr
                              : (const void *)&((struct sockaddr_in *)first->ai_addr)->sin_addr;
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(first->ai_family, address, text, sizeof(text));
    in_port_t port = first->ai_family == AF_INET6
                         ? ((struct sockaddr_in6 *)first->ai_addr)->sin6_port
                         : ((struct sockaddr_in *)first->ai_addr)->sin_port;
    snprintf(test->text, sizeof(test->text), "%s %d", text, ntohs(port));
    test->family = first->ai_family;
    test->type = first->ai_socktype;
}

static void resolved(void *ctx, void *argument, const struct addrinfo *addresses,
                     const char *problem)
{
    struct lookup_test *test = argument;
    test->calls++;
    test->ctx = ctx;
    test->thread = (unsigned)gettid();
    test->addresses = 0;
    if (addresses != NULL)
        note_address(test, addresses);
    for (; addresses != NULL; addresses = addresses->ai_next)
        test->addresses++;
    snprintf(test->problem, sizeof(test->problem), "%s", problem != NULL ? problem : "");
    if (atomic_load(&closed))
        atomic_fetch_add(&after_close, 1);
    if (test->chained != NULL) {
        test->node = test->chained;
        test->chained = NULL;
        test->begun = host->resolve(host, test->node, "2", resolved, test);
    }
    test_count_add(&answers, 1);
}

static void begin(void *ctx, void *argument)
{
    struct lookup_test *test = argument;
    (void)ctx;
    test->begun = host->resolve(host, test->node, "6379", resolved, test);
}

/* In the pump, as a module would. */
static void look_up(struct lookup_test *test, const char *node)
{
    *test = (struct lookup_test){.node = node};
    host->post(host, begin, test);
}

static struct lookup_test answer_of(const char *node);

static void open_client(void)
{
    threads_outside = thread_count();
    rig_open_real(&rig, CONFIG);
    host = &rig.client->top->host;
    atomic_store(&closed, false);
    answer_of("127.0.0.1"); /* the client's own thread runs from here on */
    threads_before = thread_count();
}

static void close_client(void)
{
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    atomic_store(&closed, true);
    threads_before = threads_outside;
}

/* Looks it up and waits for the answer. */
static struct lookup_test answer_of(const char *node)
{
    struct lookup_test test;
    int before = test_count_get(&answers);
    look_up(&test, node);
    CU_ASSERT_FATAL(test_count_wait(&answers, before + 1));
    CU_ASSERT(test.begun);
    CU_ASSERT_EQUAL(test.calls, 1);
    CU_ASSERT_PTR_EQUAL(test.ctx, rig.client->top->ctx);
    return test;
}

/* ---- what is answered ------------------------------------------------------------------------------ */

static void test_numeric(void)
{
    open_client();
    int before = atomic_load(&asked);
    struct lookup_test test = answer_of("127.0.0.5");
    CU_ASSERT_STRING_EQUAL(test.text, "127.0.0.5 6379");
    CU_ASSERT_EQUAL(test.addresses, 1);
    CU_ASSERT_EQUAL(test.family, AF_INET);
    CU_ASSERT_EQUAL(test.type, SOCK_STREAM);
    test = answer_of("2001:db8::7");
    CU_ASSERT_STRING_EQUAL(test.text, "2001:db8::7 6379");
    CU_ASSERT_EQUAL(test.family, AF_INET6);
    CU_ASSERT_EQUAL(test.addresses, 1);
    CU_ASSERT_STRING_EQUAL(test.problem, "");
    CU_ASSERT_EQUAL(atomic_load(&asked), before); /* no thread was needed */
    close_client();
}

static void test_localhost(void)
{
    open_client();
    struct lookup_test test = answer_of("localhost");
    CU_ASSERT(strcmp(test.text, "127.0.0.1 6379") == 0 || strcmp(test.text, "::1 6379") == 0);
    CU_ASSERT(test.addresses >= 1);
    CU_ASSERT_EQUAL(test.type, SOCK_STREAM);
    close_client();
}

static void test_thread(void)
{
    open_client();
    struct lookup_test test = answer_of("some.test");
    CU_ASSERT_STRING_EQUAL(test.text, "127.0.0.9 6379");
    CU_ASSERT_NOT_EQUAL(atomic_load(&asker), test.thread); /* the resolver is not in the pump */
    CU_ASSERT_EQUAL(atomic_load(&signals_open), 0);
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    close_client();
}

static void test_unknown(void)
{
    open_client();
    struct lookup_test test = answer_of("unknown.test");
    CU_ASSERT_EQUAL(test.addresses, 0);
    CU_ASSERT_STRING_EQUAL(test.problem, gai_strerror(EAI_NONAME));
    test = answer_of("broken.test");
    CU_ASSERT_STRING_EQUAL(test.problem, gai_strerror(EAI_FAIL));
    test = answer_of("");
    CU_ASSERT_EQUAL(test.addresses, 0);
    CU_ASSERT_NOT_EQUAL(test.problem[0], '\0');
    close_client();
}

/* On a host that has the loopback interface alone, its addresses count nevertheless. */
static void test_without_network(void)
{
    open_client();
    CU_ASSERT_STRING_EQUAL(answer_of("loopback-only.test").text, "127.0.0.9 6379");
    CU_ASSERT_STRING_EQUAL(answer_of("other-family.test").text, "127.0.0.9 6379");
    close_client();
}

static void test_from_an_answer(void)
{
    open_client();
    struct lookup_test test;
    int before = test_count_get(&answers);
    shut_gates();
    look_up(&test, "hangs.test");
    test.chained = "127.0.0.6";
    open_gates();
    CU_ASSERT(test_count_wait(&answers, before + 2));
    CU_ASSERT_EQUAL(test.calls, 2);
    CU_ASSERT_STRING_EQUAL(test.text, "127.0.0.6 2");
    close_client();
}

/* ---- a resolver that hangs ------------------------------------------------------------------------- */

/* count look-ups, all of them in the resolver when this returns. */
static void hang(struct lookup_test *tests, int count)
{
    int before = test_count_get(&hanging);
    shut_gates();
    for (int i = 0; i < count; i++)
        look_up(&tests[i], "hangs.test");
    CU_ASSERT_FATAL(test_count_wait(&hanging, before + count));
}

static void test_locks_go_on(void)
{
    struct lookup_test test;
    open_client();
    hang(&test, 1);
    for (int i = 0; i < 20; i++)
        CU_ASSERT_EQUAL(mortise_release(take(&rig, "a", NULL), NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(answer_of("127.0.0.1").calls, 1); /* nor does another look-up wait for it */
    int before = test_count_get(&answers);
    open_gates();
    CU_ASSERT(test_count_wait(&answers, before + 1));
    CU_ASSERT_STRING_EQUAL(test.text, "127.0.0.9 6379");
    close_client();
}

static void test_many(void)
{
    enum { MANY = 100 };
    static struct lookup_test tests[MANY], others[MANY];
    open_client();
    int before = test_count_get(&answers);
    hang(tests, MANY);
    for (int i = 0; i < MANY; i++)
        look_up(&others[i], i % 2 ? "127.0.0.1" : "unknown.test");
    CU_ASSERT(test_count_wait(&answers, before + MANY));
    open_gates();
    CU_ASSERT(test_count_wait(&answers, before + 2 * MANY));
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    for (int i = 0; i < MANY; i++) {
        CU_ASSERT_EQUAL(tests[i].calls, 1);
        CU_ASSERT_EQUAL(tests[i].addresses, 1);
        CU_ASSERT_EQUAL(others[i].calls, 1);
        CU_ASSERT_EQUAL(others[i].addresses, i % 2);
    }
    close_client();
}

/* ---- the end of the client ------------------------------------------------------------------------- */

static void test_close_while_it_hangs(void)
{
    enum { SOME = 5 };
    static struct lookup_test tests[SOME]; /* they outlive this test if it fails */
    open_client();
    hang(tests, SOME);
    int64_t began_ms = test_now_ms();
    close_client();
    CU_ASSERT(test_now_ms() - began_ms < TEST_PATIENCE_MS);
    open_gates();
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    for (int i = 0; i < SOME; i++)
        CU_ASSERT_EQUAL(tests[i].calls, 0);
    CU_ASSERT_EQUAL(atomic_load(&after_close), 0);
}

/* Answers and the end come at the same time: each is told once or not at all, and never after the close. */
static void test_close_races(void)
{
    enum { SOME = 4, ROUNDS = 150 };
    static struct lookup_test tests[SOME];
    int told = 0;
    for (int round = 0; round < ROUNDS; round++) {
        open_client();
        hang(tests, SOME);
        open_gates();
        for (int spin = 0; spin < round * 200; spin++)
            atomic_load(&closed); /* now earlier, now later */
        close_client();
        CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
        for (int i = 0; i < SOME; i++) {
            CU_ASSERT(tests[i].calls <= 1);
            told += tests[i].calls;
        }
    }
    CU_ASSERT_EQUAL(atomic_load(&after_close), 0);
    fprintf(stderr, "  told %d of %d\n", told, SOME * ROUNDS);
}

/* ---- while a module is opened ---------------------------------------------------------------------- */

static struct client *bare;
static struct instance instance;

/* A pump to which no stack is attached yet, as in a module's `open`. */
static void open_bare(void)
{
    bare = calloc(1, sizeof(*bare));
    CU_ASSERT_PTR_NOT_NULL_FATAL(bare);
    pump_init(&bare->pump, NULL, NULL);
    bare->pump.manual = true;
    instance = (struct instance){.ctx = NULL, .module = rig.client->top->module};
    host_prepare(&instance, &bare->pump);
    host = &instance.host;
    threads_before = thread_count();
    atomic_store(&closed, false);
}

static void close_bare(void)
{
    CU_ASSERT(pump_stop(&bare->pump, clock_after_ms(clock_now(), TEST_PATIENCE_MS)));
    resolve_end(&bare->pump);
    pump_destroy(&bare->pump);
    atomic_store(&closed, true);
    free(bare);
}

static size_t no_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    (void)ctx, (void)fds, (void)capacity, (void)due_ns;
    return 0;
}

/* The module's ctx is known only when its open has returned: it is the one that is given. */
static void test_in_open(void)
{
    struct lookup_test test = {.node = "127.0.0.1"}, named = {.node = "some.test"};
    int mark, before = test_count_get(&answers);
    rig_open_real(&rig, CONFIG);
    open_bare();
    instance.module.interest = no_interest;
    begin(NULL, &test);
    begin(NULL, &named);
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(test.calls + named.calls, 0);
    CU_ASSERT_EQUAL(atomic_load(&signals_open), 0); /* though they were in the thread that asked */
    instance.ctx = &mark;
    pump_attach(&bare->pump, &instance);
    CU_ASSERT_EQUAL(test_count_get(&answers), before + 2);
    CU_ASSERT_PTR_EQUAL(test.ctx, &mark);
    CU_ASSERT_PTR_EQUAL(named.ctx, &mark);
    CU_ASSERT_STRING_EQUAL(named.text, "127.0.0.9 6379");
    close_bare();
    close_client();
}

/* open fails: some look-ups were answered, some not, and nobody is there to be told. */
static void test_failed_open(void)
{
    static struct lookup_test answered, numeric_one, late;
    rig_open_real(&rig, CONFIG);
    open_bare();
    answered = (struct lookup_test){.node = "some.test"};
    numeric_one = (struct lookup_test){.node = "127.0.0.1"};
    late = (struct lookup_test){.node = "hangs.test"};
    begin(NULL, &answered);
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    begin(NULL, &numeric_one);
    shut_gates();
    int before = test_count_get(&hanging);
    begin(NULL, &late);
    CU_ASSERT(test_count_wait(&hanging, before + 1));
    close_bare();
    open_gates();
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(answered.calls + numeric_one.calls + late.calls, 0);
    close_client();
}

/* A plugin goes on without a module below it that did not open: what that one had asked for is forgotten. */
static void test_failed_below(void)
{
    char path[320], text[2000];
    mortise_client *handle;
    mortise_error error = {.message = ""};
    snprintf(path, sizeof(path), "%s/below.conf", rig_folder);
    snprintf(text, sizeof(text),
             "[mortise]\ndriver = layer\nlog = none\nmodule_path = %s:%s\n"
             "[layer]\nbelow = sim\nsecond = poster\nlenient = yes\n",
             TEST_FIXTURE_DIR, TEST_SIM_DIR);
    CU_ASSERT_FATAL(test_file_write(path, text));
    shut_gates();
    int before = test_count_get(&hanging);
    set_now(-1);
    atomic_store(&client_manual, false);
    mortise_status status = mortise_open(path, &handle, &error);
    if (status != MORTISE_OK)
        fprintf(stderr, "mortise_open: %s\n", error.message);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK); /* and what was posted had its chance */
    struct client *client = slab_find(&client_slab, handle);
    CU_ASSERT(test_count_wait(&hanging, before + 1));
    threads_before = thread_count() - 1; /* less the one that hangs */
    open_gates();
    CU_ASSERT(test_poll(threads_gone, NULL, TEST_PATIENCE_MS));
    pump_kick(&client->pump);
    CU_ASSERT_EQUAL(mortise_close(handle, NULL), MORTISE_OK);
}

static const CU_TestInfo tests[] = {
    {"numeric addresses", test_numeric},
    {"localhost", test_localhost},
    {"on a thread", test_thread},
    {"no such name", test_unknown},
    {"a host without network", test_without_network},
    {"from an answer", test_from_an_answer},
    {"locks go on meanwhile", test_locks_go_on},
    {"many at once", test_many},
    {"close while it hangs", test_close_while_it_hangs},
    {"close races with the answers", test_close_races},
    {"while the module opens", test_in_open},
    {"open fails", test_failed_open},
    {"a module below fails to open", test_failed_below},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return rig_run("resolve", tests);
}
