/* postgres_server.h - a private PostgreSQL server that a test controls, and clients of it: for test_postgres*.c. It
 * has a standby, a pooler, and a clock that can be set; the fault proxy is in front of it. */
#ifndef MORTISE_TESTS_POSTGRES_SERVER_H
#define MORTISE_TESTS_POSTGRES_SERVER_H

#include <mortise/mortise.h>
#include <proxy.h>
#include <support.h>

#include <CUnit/Basic.h>

#include <fcntl.h>
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
#define SERVER_SETTINGS "standby=yes\nfaketime=yes\npooler=yes\n"
#endif

/* Bounds failure only. Each question to the server is a process of its own, and the machine may be busy. */
#define PATIENCE_MS 60000
/* A waiter is notified before that, or fails. */
#define WAITER_MS 100000
/* So a claim that is waited for does not end by itself. */
#define HOLD_MS 600000

static char folder[200], script[400], port[16], standby_port[16], pooler_port[16];
static struct test_proxy proxy;
static _Thread_local mortise_error detail;

/* ---- the server -------------------------------------------------------------------------------- */

/* servers.sh; `first` gets the first line, or that which begins so, without it. The exit code. */
static int server(const char *verb, const char *a, const char *b, const char *begin, char *first,
                  size_t size)
{
    struct test_process process;
    char line[1024];
    const char *const argv[] = {"/bin/sh", script, verb, "postgres", folder, a, b, NULL};
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
    return server(verb, member, NULL, "", NULL, 0) == 0;
}

/* The first value that a statement of the superuser returns; a buffer of this function's. */
static const char *ask(const char *sql)
{
    static char answer[1024];
    answer[0] = '\0';
    if (server("ask", "-c", sql, "", answer, sizeof answer) != 0)
        snprintf(answer, sizeof answer, "failed: %.900s", sql);
    return answer;
}

/* The same with up to four words for psql, the last of them NULL: "-d", "other"; or "only=2" for the standby. */
static inline const char *ask_as(const char *const *words, const char *sql)
{
    static char answer[256];
    struct test_process process;
    char line[256];
    const char *argv[12] = {"/bin/sh", script, "ask", "postgres", folder};
    size_t count = 5;
    for (; *words != NULL; words++)
        argv[count++] = *words;
    argv[count++] = "-c";
    argv[count] = sql;
    answer[0] = '\0';
    bool good = test_spawn(&process, argv);
    while (good && test_hear(&process, line, sizeof line, 4 * PATIENCE_MS))
        if (answer[0] == '\0')
            memcpy(answer, line, sizeof answer);
    if (!good || test_reap(&process, 4 * PATIENCE_MS) != 0)
        snprintf(answer, sizeof answer, "failed: %.200s", sql);
    return answer;
}

static inline const char *ask_in(const char *database, const char *sql)
{
    return ask_as((const char *const[]){"-d", database, NULL}, sql);
}

static inline const char *ask_standby(const char *sql)
{
    return ask_as((const char *const[]){"only=2", NULL}, sql);
}

struct wanted {
    const char *sql, *answer;
};

/* Each look starts psql, so a little time passes between two of them. */
static bool answers(void *argument)
{
    const struct wanted *wanted = argument;
    if (strcmp(ask(wanted->sql), wanted->answer) == 0)
        return true;
    poll(NULL, 0, 50);
    return false;
}

static bool soon(const char *sql, const char *answer)
{
    struct wanted wanted = {sql, answer};
    return test_poll(answers, &wanted, PATIENCE_MS);
}

/* Of a server's file SERVER.pid; 0: it cannot be had. */
static inline pid_t server_pid(const char *member)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s.pid", folder, member);
    char *text = test_file_read(path);
    long pid = text != NULL ? strtol(text, NULL, 10) : 0;
    free(text);
    return (pid_t)pid;
}

static inline bool has_gone(void *argument)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)*(pid_t *)argument);
    char *text = test_file_read(path), *state = text != NULL ? strrchr(text, ')') : NULL;
    bool gone = state == NULL || strchr("ZX", state[2]) != NULL;
    free(text);
    return gone;
}

/* Ends server 1: INT is `pg_ctl stop -m fast`, QUIT is `-m immediate`; KILL kills all of it. */
static inline bool server_stop(int signal)
{
    pid_t pid = server_pid("1");
    if (signal == SIGKILL)
        return act("kill", "only=1");
    return pid > 0 && kill(pid, signal) == 0 && test_poll(has_gone, &pid, PATIENCE_MS);
}

/* The first `times` writes to the row of this name do `action` in the server (plpgsql). A sequence counts: it is
 * not rolled back. */
static inline void row_fault(const char *name, int times, const char *action)
{
    char sql[1024];
    snprintf(sql, sizeof sql,
             "CREATE SEQUENCE faults; GRANT ALL ON faults TO PUBLIC; "
             "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS "
             "'BEGIN IF nextval(''public.faults'') <= %d THEN %s; END IF; RETURN NEW; END'; "
             "CREATE TRIGGER fault BEFORE UPDATE ON mortise_lock FOR EACH ROW "
             "WHEN (OLD.name = '%s') EXECUTE FUNCTION fault(); SELECT 'armed'",
             times, action, name);
    CU_ASSERT_STRING_EQUAL(ask(sql), "armed");
}

static inline void row_fault_end(void)
{
    CU_ASSERT_STRING_EQUAL(ask("SET client_min_messages = warning; DROP FUNCTION fault CASCADE; "
                               "DROP SEQUENCE faults; SELECT 'gone'"),
                           "gone");
}

/* How many of ours sleep in a fault. */
#define SLEEPERS                                                                                   \
    "FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name = 'mortise'"

/* Another session of the superuser, which talks by lines: what it locks stays so. */
static inline bool session_begin_in(struct test_process *session, const char *database,
                                    const char *sql)
{
    char line[256];
    const char *const argv[] = {"/bin/sh", script, "ask", "postgres", folder, "-d", database, NULL};
    return test_spawn(session, argv) && test_say(session, "BEGIN; %s; SELECT 'locked';", sql) &&
           test_hear(session, line, sizeof line, PATIENCE_MS) &&
           (strcmp(line, "locked") == 0 || test_hear(session, line, sizeof line, PATIENCE_MS));
}

static inline bool session_begin(struct test_process *session, const char *sql)
{
    return session_begin_in(session, "mortise", sql);
}

static inline void session_end(struct test_process *session)
{
    test_say(session, "COMMIT; \\q");
    test_reap(session, PATIENCE_MS);
    test_kill(session);
}

/* ---- clients ----------------------------------------------------------------------------------- */

static inline mortise_client *open_as(const char *conninfo, const char *settings, const char *more)
{
    static int count;
    char path[300], text[1024];
    mortise_client *client = NULL;
    snprintf(path, sizeof path, "%s/mortise%d.conf", folder, count++);
    /* patient, unless the test says how long to be */
    snprintf(
        text, sizeof text,
        "[mortise]\ndriver = postgres\nclose_timeout = 60s\n%s%s\n[postgres]\nconninfo = %s\n%s\n",
        strstr(settings, "unreachable_timeout") ? "" : "unreachable_timeout = 60s\n", settings,
        conninfo, more);
    CU_ASSERT_FATAL(test_file_write(path, text));
    CU_ASSERT_FATAL(mortise_open(path, &client, &detail) == MORTISE_OK);
    return client;
}

static inline mortise_client *open_client(const char *settings, const char *more)
{
    char conninfo[200];
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%s dbname=mortise user=mortise", port);
    return open_as(conninfo, settings, more);
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
    CU_ASSERT_EQUAL(mortise_release(lease, &detail), MORTISE_OK);
}

/* The last error does. */
static inline void says(const char *words)
{
    bool found = strstr(detail.message, words) != NULL;
    if (!found)
        fprintf(stderr, "not \"%s\", but: %s\n", words, detail.message);
    CU_ASSERT(found);
}

/* 0, or the exit code. */
static int server_begin(void)
{
    const char *source = getenv("MORTISE_SOURCE_DIR");
    if (source == NULL || getenv("MORTISE_TAKER") == NULL ||
        !test_folder_make(folder, sizeof folder))
        return 1;
    snprintf(script, sizeof script, "%s/tests/servers.sh", source);
    char guard[32], settings[300];
    snprintf(guard, sizeof guard, "guard=%d", (int)getpid());
    snprintf(settings, sizeof settings, "%s/settings", folder);
    if (!test_file_write(settings, SERVER_SETTINGS))
        return 1;
    int code = server("start", guard, NULL, "PORT2=", standby_port, sizeof standby_port);
    if (code == TEST_SKIP_CODE)
        return test_skip("faults.postgres", "the server cannot be started here");
    if (code != 0 || server("values", NULL, NULL, "PORT=", port, sizeof port) != 0 ||
        server("values", NULL, NULL, "PORTpooler=", pooler_port, sizeof pooler_port) != 0)
        return 1;
    return test_proxy_start(&proxy, folder, "127.0.0.1", (int)strtol(port, NULL, 10)) ? 0 : 1;
}

static void server_end(void)
{
    test_proxy_end(&proxy);
    server("end", NULL, NULL, "", NULL, 0);
    test_folder_remove(folder);
}

/* ---- who waits --------------------------------------------------------------------------------- */

struct waiter {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    mortise_status status;
};

static void *wait_in_line(void *argument)
{
    struct waiter *waiter = argument;
    waiter->status = try_for(waiter->client, waiter->name, WAITER_MS);
    return NULL;
}

/* It asks; whether it waits already, nobody knows. */
static inline void waiter_start(struct waiter *waiter, mortise_client *client, const char *name)
{
    *waiter = (struct waiter){.client = client, .name = name};
    CU_ASSERT_FATAL(pthread_create(&waiter->thread, NULL, wait_in_line, waiter) == 0);
}

/* And the server knows that it waits. */
static inline void waiter_begin(struct waiter *waiter, mortise_client *client, const char *name)
{
    waiter_start(waiter, client, name);
    CU_ASSERT(soon("SELECT count(*) FROM mortise_lock WHERE length(waiters) = 12", "1"));
}

static inline mortise_status waiter_end(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
    return waiter->status;
}

/* ---- who gives up ------------------------------------------------------------------------------ */

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
    CU_SuiteInfo suites[] = {{"postgres", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
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
