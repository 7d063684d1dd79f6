/* holder.c - a process that holds a lock and then does what a witness must not mistake for its death.
 *
 *     holder WHERE NAME…        acquires each NAME; "held" when it has all of them, or a message. "shared:NAME",
 *                               "permits=N:NAME" and "owner=WHO:NAME" say how
 *     fork                      a child that lives on with copies of all descriptors: "forked PID"
 *     close                     closes all descriptors but 0 to 2, and opens others under their numbers: "closed"
 *     exec                      becomes another program that runs on, and says "execed"
 *     thread                    the main thread ends, another goes on: "threaded"
 *     acquire NAME | release    one more; the first one
 *     exit                      ends without a release
 *     quit                      closes the client and ends
 *
 *     holder --print WHERE      prints mortise_config_print() of the configuration, which a HELLO needs */
#include <mortise/mortise.h>
#include <mortise/witness.h>

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEASES_MAX = 20000 };
static mortise_client *client;
static mortise_lease *leases[LEASES_MAX];
static size_t count;
static const char *self;

static void say(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

/* What is before the ':' of a name, if there is one. Returns the name. */
static const char *read_how(const char *word, mortise_options *options)
{
    static char owner[64];
    const char *colon = strchr(word, ':');
    if (colon == NULL)
        return word;
    if (strncmp(word, "owner=", 6) == 0) {
        snprintf(owner, sizeof owner, "%.*s", (int)(colon - word - 6), word + 6);
        options->owner = owner;
        return colon + 1;
    }
    options->mode = MORTISE_SHARED;
    if (strncmp(word, "permits=", 8) == 0)
        options->permits = (uint32_t)strtoul(word + 8, NULL, 10);
    return colon + 1;
}

static bool acquire(const char *word)
{
    mortise_error error;
    mortise_options options = *MORTISE_OPTIONS();
    const char *name = read_how(word, &options);
    if (count == LEASES_MAX ||
        mortise_acquire(client, name, &options, &leases[count], &error) != MORTISE_OK) {
        say(count == LEASES_MAX ? "INVALID" : error.message);
        return false;
    }
    count++;
    return true;
}

static void do_fork(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    printf("forked %d\n", (int)child);
    fflush(stdout);
}

static void do_close(void)
{
    for (int fd = 3; fd < 256; fd++)
        syscall(SYS_close, fd); /* not close(): ThreadSanitizer would report the library's threads, which is the point */
    while (open("/dev/null", O_RDWR) < 64)
        continue;
    say("closed");
}

static void *go_on(void *argument);

static void do_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, go_on, NULL) == 0)
        pthread_exit(NULL);
}

static void serve(void)
{
    char line[600];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "fork") == 0)
            do_fork();
        else if (strcmp(line, "close") == 0)
            do_close();
        else if (strcmp(line, "exec") == 0)
            execl(self, self, "--execed", (char *)NULL);
        else if (strcmp(line, "thread") == 0)
            do_thread();
        else if (strncmp(line, "acquire ", 8) == 0 && acquire(line + 8))
            say("held");
        else if (strcmp(line, "release") == 0)
            say(mortise_status_name(mortise_release(leases[0], NULL)));
        else if (strcmp(line, "exit") == 0)
            _exit(0);
        else if (strcmp(line, "quit") == 0)
            exit(mortise_close(client, NULL) == MORTISE_OK ? 0 : 1);
    }
    _exit(1); /* the test has ended */
}

static void *go_on(void *argument)
{
    say("threaded");
    serve();
    return argument;
}

int main(int argc, char **argv)
{
    mortise_error error;
    self = "/proc/self/exe";
    if (argc == 2 && strcmp(argv[1], "--execed") == 0) {
        say("execed");
        serve();
    }
    bool prints = argc == 3 && strcmp(argv[1], "--print") == 0;
    if (argc < 2 || mortise_open(argv[prints ? 2 : 1], &client, &error) != MORTISE_OK) {
        say(argc < 2 ? "usage" : error.message);
        return 1;
    }
    if (prints) {
        printf("%" PRIu64 "\n", mortise_config_print(client));
        return mortise_close(client, NULL) == MORTISE_OK ? 0 : 1;
    }
    for (int i = 2; i < argc; i++)
        if (!acquire(argv[i]))
            return 1;
    say("held");
    serve();
}
