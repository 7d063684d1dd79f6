/* taker.c - a second process for tests: it acquires and releases locks as lines on its stdin say, and answers with
 * lines on stdout. So a test can really stop or kill -9 a holder or a waiter.
 *
 *     taker WHERE                          first line out: "ready", or a status and its message
 *     acquire NAME WAIT TTL [OWNER] [no_renew] [shared] [permits=N]   "OK TOKEN", or a status and its message
 *     many NAME NAME…                      all of them, with one call and however long it takes: "OK", or as above
 *     release | nowait | downgrade | state | remaining | token | owner    of the lease acquired last; release forgets it
 *     spin NAME FILE COUNT                 COUNT times: acquire, read a number, write it plus one, release
 *     peek NAME FILE COUNT                 COUNT times: acquire shared, read the number twice, release
 *     inspect NAME | stats | ping | close | quit
 *
 * In NAME, %XX is a byte. WAIT -1 waits forever; TTL 0 is the config's; OWNER - means none. Dies with its parent. */
#include <mortise/mortise.h>

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LEASES_MAX = 8192, WORDS_MAX = 8 };

static mortise_client *client;
static mortise_lease *leases[LEASES_MAX];
static size_t lease_count;

static void answer(mortise_status status, const mortise_error *error)
{
    if (status == MORTISE_OK)
        printf("OK\n");
    else
        printf("%s %s\n", mortise_status_name(status), error ? error->message : "");
}

static mortise_lease *last_lease(void)
{
    return lease_count > 0 ? leases[lease_count - 1] : NULL;
}

static void decode(char *name)
{
    char *to = name;
    for (const char *from = name; *from; to++) {
        char digits[3] = {from[0] == '%' ? from[1] : '\0', from[0] == '%' ? from[2] : '\0', '\0'};
        *to = digits[1] ? (char)strtol(digits, NULL, 16) : *from;
        from += digits[1] ? 3 : 1;
    }
    *to = '\0';
}

static int64_t number(const char *text)
{
    return text ? strtoll(text, NULL, 10) : 0;
}

static void acquire(char **words)
{
    mortise_error error = {0};
    mortise_options options = {.size = sizeof options};
    if (!words[1] || lease_count == LEASES_MAX) {
        printf("INVALID acquire\n");
        return;
    }
    decode(words[1]);
    options.wait_ms = number(words[2]);
    options.ttl_ms = words[2] ? number(words[3]) : 0;
    for (size_t i = 4; words[2] && words[3] && i < WORDS_MAX && words[i]; i++) {
        if (strcmp(words[i], "no_renew") == 0)
            options.no_renew = true;
        else if (strcmp(words[i], "shared") == 0)
            options.mode = MORTISE_SHARED;
        else if (strncmp(words[i], "permits=", 8) == 0)
            options.permits = (uint32_t)number(words[i] + 8);
        else if (strcmp(words[i], "-") != 0)
            options.owner = words[i];
    }
    mortise_lease *lease;
    mortise_status status = mortise_acquire(client, words[1], &options, &lease, &error);
    if (status != MORTISE_OK) {
        answer(status, &error);
        return;
    }
    leases[lease_count++] = lease;
    printf("OK %" PRIu64 "\n", mortise_token(lease));
}

static void acquire_many(char **words)
{
    mortise_error error = {0};
    size_t count = 0;
    while (words[1 + count]) /* a line has few */
        decode(words[1 + count++]);
    if (lease_count + count > LEASES_MAX) {
        printf("INVALID many\n");
        return;
    }
    mortise_status status = mortise_acquire_many(client, (const char *const *)(words + 1), count,
                                                 MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER),
                                                 &leases[lease_count], &error);
    if (status == MORTISE_OK)
        lease_count += count;
    answer(status, &error);
}

static void release(mortise_status (*how)(mortise_lease *, mortise_error *))
{
    mortise_error error = {0};
    mortise_status status = how(last_lease(), &error);
    if (lease_count > 0)
        lease_count--;
    answer(status, &error);
}

static void downgrade(void)
{
    mortise_error error = {0};
    mortise_status status = mortise_downgrade(last_lease(), &error);
    answer(status, &error);
}

/* Not atomic on purpose: the lock is what makes it so. */
static bool add_one(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "r+");
    if (!file)
        return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    rewind(file);
    bool written = fprintf(file, "%" PRId64 "\n", number(text) + 1) > 0;
    return fclose(file) == 0 && read && written;
}

static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "r");
    bool read = file && fgets(line, size, file) != NULL;
    return (!file || fclose(file) == 0) && read;
}

/* Whoever writes is kept out: it is whole, and stays the same. */
static bool read_twice(const char *path)
{
    char first[32] = "", second[32] = "";
    bool read = read_line(path, first, sizeof first);
    sched_yield();
    return read && read_line(path, second, sizeof second) && strchr(first, '\n') &&
           strcmp(first, second) == 0;
}

static void spin(char **words, mortise_mode mode, bool (*visit)(const char *path))
{
    mortise_error error = {0};
    if (!words[1] || !words[2] || !words[3]) {
        printf("INVALID %s\n", words[0]);
        return;
    }
    decode(words[1]);
    for (int64_t left = number(words[3]); left > 0; left--) {
        mortise_lease *lease;
        mortise_status status = mortise_acquire(
            client, words[1], MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .mode = mode),
            &lease, &error);
        if (status == MORTISE_OK && !visit(words[2])) {
            bool lost = mortise_state(lease) == MORTISE_STATE_LOST; /* so others may be inside */
            printf("%s cannot %s in %s\n", lost ? "LOST" : "INVALID", words[0], words[2]);
            return;
        }
        if (status == MORTISE_OK)
            status = mortise_release(lease, &error);
        if (status != MORTISE_OK) {
            answer(status, &error);
            return;
        }
    }
    printf("OK\n");
}

static void inspect(char **words)
{
    mortise_error error = {0};
    mortise_info info = {.size = sizeof info};
    if (words[1])
        decode(words[1]);
    mortise_status status = mortise_inspect(client, words[1], &info, &error);
    if (status != MORTISE_OK)
        answer(status, &error);
    else
        printf("OK %d %" PRIu64 " %" PRId64 " %d\n", info.held, info.token, info.pid, info.waiters);
}

static void tell_owner(void)
{
    char owner[MORTISE_OWNER_MAX + 1] = "";
    mortise_owner(last_lease(), owner, sizeof owner);
    printf("OK %s\n", owner);
}

static void tell_stats(void)
{
    mortise_stats stats = {.size = sizeof stats};
    mortise_status status = mortise_stats_get(client, &stats);
    if (status != MORTISE_OK)
        answer(status, NULL);
    else
        printf("OK %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", stats.acquires, stats.renewals,
               stats.waiting);
}

static void close_client(void)
{
    mortise_error error = {0};
    mortise_status status = mortise_close(client, &error);
    lease_count = 0;
    answer(status, &error);
}

static void ping(void)
{
    mortise_error error = {0};
    char text[256];
    answer(mortise_ping(client, text, sizeof text, &error), &error);
}

/* false: it was "quit" */
static bool obey(char **words)
{
    static const char *const states[] = {"LOST", "SUSPECT", "HELD"};
    const char *what = words[0] ? words[0] : "";
    if (strcmp(what, "acquire") == 0)
        acquire(words);
    else if (strcmp(what, "many") == 0)
        acquire_many(words);
    else if (strcmp(what, "release") == 0)
        release(mortise_release);
    else if (strcmp(what, "downgrade") == 0)
        downgrade();
    else if (strcmp(what, "nowait") == 0)
        release(mortise_release_nowait);
    else if (strcmp(what, "state") == 0)
        printf("%s\n", states[mortise_state(last_lease())]);
    else if (strcmp(what, "remaining") == 0)
        printf("OK %" PRId64 "\n", mortise_remaining_ms(last_lease()));
    else if (strcmp(what, "token") == 0)
        printf("OK %" PRIu64 "\n", mortise_token(last_lease()));
    else if (strcmp(what, "owner") == 0)
        tell_owner();
    else if (strcmp(what, "spin") == 0)
        spin(words, MORTISE_EXCLUSIVE, add_one);
    else if (strcmp(what, "peek") == 0)
        spin(words, MORTISE_SHARED, read_twice);
    else if (strcmp(what, "inspect") == 0)
        inspect(words);
    else if (strcmp(what, "stats") == 0)
        tell_stats();
    else if (strcmp(what, "ping") == 0)
        ping();
    else if (strcmp(what, "close") == 0)
        close_client();
    else if (strcmp(what, "quit") == 0)
        return false;
    else
        printf("INVALID what is \"%s\"?\n", what);
    return true;
}

static void split(char *line, char **words)
{
    size_t count = 0;
    char *rest;
    for (char *word = strtok_r(line, " \n", &rest); word && count < WORDS_MAX;
         word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    words[count] = NULL;
}

int main(int argc, char **argv)
{
    char line[4096];
    char *words[WORDS_MAX + 1];
    mortise_error error = {0};
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mortise_status status = mortise_open(argc > 1 ? argv[1] : NULL, &client, &error);
    if (status != MORTISE_OK) {
        answer(status, &error);
        return 1;
    }
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        split(line, words);
        if (!obey(words))
            break;
    }
    mortise_close(client, NULL);
    return 0;
}
