/* mysql_server.h - a private MariaDB server that a test controls, and clients of it: for test_mysql*.c. The fault proxy is
 * in front of it. */
#ifndef MORTISE_TESTS_MYSQL_SERVER_H
#define MORTISE_TESTS_MYSQL_SERVER_H

#include <mortise/mortise.h>
#include <proxy.h>
#include <support.h>

#include <CUnit/Basic.h>

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SERVER_SETTINGS
#define SERVER_SETTINGS ""
#endif
/* A line of the config, if the server wants a password. */
#ifndef PASSWORD
#define PASSWORD ""
#endif

/* Bounds failure only. Each question to the server is a process of its own, and the machine may be busy. */
#define PATIENCE_MS 20000
/* So a claim that is waited for does not end by itself. */
#define HOLD_MS 600000

static char folder[200], script[400], port[16], replica_port[16];
static struct test_proxy proxy;
static _Thread_local mortise_error detail;

/* ---- the server -------------------------------------------------------------------------------- */

/* servers.sh; `first` gets the first line, or that which begins so, without it. The exit code. */
static int server(const char *verb, const char *const *words, const char *begin, char *first,
                  size_t size)
{
    struct test_process process;
    char line[1024];
    const char *argv[12] = {"/bin/sh", script, verb, "mysql", folder};
    for (size_t i = 5; *words != NULL && i < 11; i++)
        argv[i] = *words++;
    if (!test_spawn(&process, argv))
        return -1;
    while (test_hear(&process, line, sizeof line, 4 * PATIENCE_MS))
        if (first != NULL && *first == '\0' && strncmp(line, begin, strlen(begin)) == 0)
            snprintf(first, size, "%s", line + strlen(begin));
    int status = test_reap(&process, 4 * PATIENCE_MS);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline bool act(const char *verb, const char *member)
{
    return server(verb, (const char *const[]){member, NULL}, "", NULL, 0) == 0;
}

/* The first value that a statement of the superuser returns; a buffer of this function's. `;;` ends a statement. */
static const char *ask_of(const char *member, const char *sql)
{
    static char answer[1024];
    answer[0] = '\0';
    const char *delimiter = strstr(sql, ";;") != NULL ? "--delimiter=;;" : "--delimiter=;";
    if (server("ask", (const char *const[]){member, delimiter, "-e", sql, NULL}, "", answer,
               sizeof answer) != 0)
        snprintf(answer, sizeof answer, "failed: %.900s", sql);
    return answer;
}

static const char *ask(const char *sql)
{
    return ask_of("only=1", sql);
}

struct wanted {
    const char *sql, *answer;
};

static bool answers(void *argument)
{
    const struct wanted *wanted = argument;
    if (strcmp(ask(wanted->sql), wanted->answer) == 0)
        return true;
    poll(NULL, 0, 50); /* each question starts a program */
    return false;
}

static bool soon(const char *sql, const char *answer)
{
    struct wanted wanted = {sql, answer};
    return test_poll(answers, &wanted, PATIENCE_MS);
}

/* A session of the server does, until it is killed. */
#define SLEEPS                                                                                     \
    "DO SLEEP"                                                                                     \
    "(600)"

/* Sessions of clients; those that sleep in a fault. */
#define SESSIONS "FROM information_schema.processlist WHERE user = 'mortise'"
#define SLEEPERS "FROM information_schema.processlist WHERE state = 'User sleep'"

/* Ends or interrupts the sessions that sleep in a fault. */
static inline void kill_sleepers(const char *what)
{
    char sql[200];
    snprintf(sql, sizeof sql, "KILL %s %.20s; SELECT 'killed'", what, ask("SELECT id " SLEEPERS));
    CU_ASSERT_STRING_EQUAL(ask(sql), "killed");
}

/* The first `times` writes to the row of this name do `action` in the server. A sequence counts: it is not rolled back. */
static inline void row_fault(const char *name, int times, const char *action)
{
    char sql[800];
    snprintf(sql, sizeof sql,
             "CREATE OR REPLACE SEQUENCE faults;; "
             "CREATE OR REPLACE DEFINER = mortise@'%%' TRIGGER fault BEFORE UPDATE ON mortise_lock "
             "FOR EACH ROW BEGIN "
             "IF OLD.name = '%s' AND NEXTVAL(faults) <= %d THEN %s; END IF; END;; SELECT 'armed'",
             name, times, action);
    CU_ASSERT_STRING_EQUAL(ask(sql), "armed");
}

static inline void row_fault_end(void)
{
    CU_ASSERT_STRING_EQUAL(ask("DROP TRIGGER fault; DROP SEQUENCE faults; SELECT 'gone'"), "gone");
}

/* Another session of the superuser, which talks by lines: what it locks stays so. */
static inline bool session_begin(struct test_process *session, const char *sql)
{
    char line[256] = "";
    const char *const argv[] = {"/bin/sh", script, "ask", "mysql", folder, "-n", NULL};
    if (!test_spawn(session, argv) || !test_say(session, "BEGIN; %s; SELECT 'locked';", sql))
        return false;
    while (test_hear(session, line, sizeof line, PATIENCE_MS))
        if (strcmp(line, "locked") == 0)
            return true;
    return false;
}

static inline void session_end(struct test_process *session)
{
    char line[256];
    test_say(session, "COMMIT; SELECT 'over';");
    test_hear(session, line, sizeof line, PATIENCE_MS);
    test_kill(session);
}

/* ---- clients ----------------------------------------------------------------------------------- */

static inline mortise_status open_where(const char *host, const char *settings, const char *more,
                                        mortise_client **client)
{
    static int count;
    char path[300], text[1200];
    snprintf(path, sizeof path, "%s/mortise%d.conf", folder, count++);
    /* patient, unless the test says how long to be */
    snprintf(text, sizeof text, "[mortise]\ndriver = mysql\n%s%s%s\n[mysql]\n%s%s\n%s%s%s\n",
             strstr(settings, "close_timeout") ? "" : "close_timeout = 60s\n",
             strstr(settings, "unreachable_timeout") ? "" : "unreachable_timeout = 60s\n", settings,
             *host != '\0' ? "host = " : "", host, strstr(more, "user") ? "" : "user = mortise\n",
             strstr(more, "database") ? "" : "database = mortise\n", more);
    CU_ASSERT_FATAL(test_file_write(path, text));
    return mortise_open(path, client, &detail);
}

static inline mortise_client *open_at(const char *host, const char *settings, const char *more)
{
    mortise_client *client = NULL;
    CU_ASSERT_FATAL(open_where(host, settings, more, &client) == MORTISE_OK);
    return client;
}

static inline mortise_client *open_client(const char *settings, const char *more)
{
    char host[64];
    snprintf(host, sizeof host, "127.0.0.1:%s", port);
    return open_at(host, settings, more);
}

static inline mortise_client *open_proxied(const char *settings, const char *more)
{
    char host[64];
    snprintf(host, sizeof host, "127.0.0.1:%d", proxy.port);
    return open_at(host, settings, more);
}

/* Whether the server lets a new client in, and what it tells. */
static inline mortise_status reach(const char *host, const char *more, char *told, size_t size)
{
    mortise_client *client = NULL;
    char text[600];
    snprintf(text, sizeof text, "%s%s", strstr(more, "password") ? "" : PASSWORD, more);
    mortise_status status = open_where(host, "unreachable_timeout = 5s", text, &client);
    if (status == MORTISE_OK)
        status = mortise_ping(client, told, size, &detail);
    mortise_close(client, NULL);
    return status;
}

static inline mortise_lease *take(mortise_client *client, const char *name, int64_t ttl_ms)
{
    mortise_lease *lease = NULL;
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = PATIENCE_MS, .ttl_ms = ttl_ms), &lease, &detail);
    if (status != MORTISE_OK)
        fprintf(stderr, "acquire %s: %s\n", name, detail.message);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    return lease;
}

static inline mortise_status try_for(mortise_client *client, const char *name, int64_t wait_ms)
{
    mortise_lease *lease;
    detail.message[0] = '\0';
    mortise_status status =
        mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = wait_ms), &lease, &detail);
    if (status == MORTISE_OK)
        status = mortise_release(lease, &detail);
    return status;
}

static inline void give(mortise_lease *lease)
{
    mortise_status status = mortise_release(lease, &detail);
    if (status != MORTISE_OK)
        fprintf(stderr, "release: %s\n", detail.message);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
}

/* The last error does. */
static inline void says(const char *words)
{
    bool found = strstr(detail.message, words) != NULL;
    if (!found)
        fprintf(stderr, "not \"%s\", but: %s\n", words, detail.message);
    CU_ASSERT(found);
}

static inline uint64_t renewals_of(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof stats};
    return mortise_stats_get(client, &stats) == MORTISE_OK ? stats.renewals : 0;
}

struct renewing {
    mortise_client *client;
    mortise_lease *lease;
    uint64_t least;
};

/* Or the lease, if there is one, has ended. */
static inline bool has_renewed(void *argument)
{
    const struct renewing *renewing = argument;
    return renewals_of(renewing->client) >= renewing->least ||
           (renewing->lease != NULL && mortise_remaining_ms(renewing->lease) <= 0);
}

static inline bool is_renewed(mortise_client *client, mortise_lease *lease, uint64_t times)
{
    struct renewing renewing = {client, lease, renewals_of(client) + times};
    return test_poll(has_renewed, &renewing, PATIENCE_MS) && mortise_remaining_ms(lease) > 0;
}

/* At least so many renewals of the client have succeeded. */
static inline bool wait_renewals(mortise_client *client, uint64_t least)
{
    struct renewing renewing = {client, NULL, least};
    return test_poll(has_renewed, &renewing, PATIENCE_MS);
}

/* 0, or the exit code. */
static int server_begin(void)
{
    const char *source = getenv("MORTISE_SOURCE_DIR");
    const char *const nothing[] = {NULL};
    if (source == NULL || getenv("MORTISE_TAKER") == NULL ||
        !test_folder_make(folder, sizeof folder))
        return 1;
    snprintf(script, sizeof script, "%s/tests/servers.sh", source);
    char guard[32], settings[300];
    snprintf(guard, sizeof guard, "guard=%d", (int)getpid());
    snprintf(settings, sizeof settings, "%s/settings", folder);
    if (!test_file_write(settings, SERVER_SETTINGS))
        return 1;
    int code = server("start", (const char *const[]){guard, NULL}, "PORT2=", replica_port,
                      sizeof replica_port);
    if (code == TEST_SKIP_CODE)
        return test_skip("faults.mysql", "the server cannot be started here");
    if (code != 0 || server("values", nothing, "PORT=", port, sizeof port) != 0)
        return 1;
    return test_proxy_start(&proxy, folder, "127.0.0.1", (int)strtol(port, NULL, 10)) ? 0 : 1;
}

static void server_end(void)
{
    test_proxy_end(&proxy);
    server("end", (const char *const[]){NULL}, "", NULL, 0);
    test_folder_remove(folder);
}

/* ---- who waits, who gives up ------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    mortise_lease *lease; /* to be released; NULL: to be acquired and released */
    mortise_status status;
};

static inline void *call(void *argument)
{
    struct caller *caller = argument;
    caller->status = caller->lease != NULL ? mortise_release(caller->lease, &detail)
                                           : try_for(caller->client, caller->name, PATIENCE_MS);
    if (caller->status != MORTISE_OK)
        fprintf(stderr, "%s: %s\n", caller->name, detail.message);
    return NULL;
}

static inline void call_begin(struct caller *caller, mortise_client *client, const char *name,
                              mortise_lease *lease)
{
    *caller = (struct caller){.client = client, .name = name, .lease = lease};
    CU_ASSERT_FATAL(pthread_create(&caller->thread, NULL, call, caller) == 0);
}

static inline mortise_status call_end(struct caller *caller)
{
    pthread_join(caller->thread, NULL);
    return caller->status;
}

struct given_up {
    struct test_count calls;
    mortise_status status;
};

static inline void note_outcome(mortise_status status, mortise_lease *lease,
                                const mortise_error *error, void *user_data)
{
    struct given_up *given_up = user_data;
    (void)lease;
    (void)error;
    given_up->status = status;
    test_count_add(&given_up->calls, 1);
}

/* Asks for the name, and no longer does when the server says so. */
static inline void give_up_when(mortise_client *client, const char *name, const char *sql,
                                const char *answer)
{
    static struct given_up given_up;
    mortise_request request;
    given_up = (struct given_up){.calls = TEST_COUNT_INIT};
    CU_ASSERT_EQUAL_FATAL(mortise_acquire_async(client, name, MORTISE_OPTIONS(.wait_ms = -1),
                                                note_outcome, &given_up, &request, &detail),
                          MORTISE_OK);
    CU_ASSERT(soon(sql, answer));
    CU_ASSERT_EQUAL(mortise_cancel(client, request), MORTISE_OK);
    CU_ASSERT_FATAL(test_count_wait(&given_up.calls, 1));
    CU_ASSERT_EQUAL(given_up.status, MORTISE_CANCELED);
}

/* ---- main -------------------------------------------------------------------------------------- */

/* The tests, or those whose name holds the first argument. */
static int server_run(CU_TestInfo *tests, int argc, char **argv)
{
    CU_SuiteInfo suites[] = {{"mysql", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
    signal(SIGPIPE, SIG_IGN);
    int code = server_begin();
    if (code == 0 && CU_initialize_registry() == CUE_SUCCESS &&
        CU_register_suites(suites) == CUE_SUCCESS) {
        for (CU_pTest test = CU_get_registry()->pSuite->pTest; test && argc > 1; test = test->pNext)
            CU_set_test_active(test, strstr(test->pName, argv[1]) != NULL);
        CU_set_fail_on_inactive(CU_FALSE);
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();
        code = CU_get_number_of_failures() > 0;
        CU_cleanup_registry();
    }
    server_end();
    return code;
}

#endif
