/* servers.c - runs tests/servers.sh; see servers.h. */
#include "servers.h"

#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs servers.sh. Takes its last output line that begins with `begin`, without that beginning. */
static void run(const struct bench_servers *servers, const char *verb, const char *words,
                const char *begin, char *value, size_t size)
{
    const char *source = getenv("MORTISE_SOURCE_DIR");
    char command[2048], line[256];
    snprintf(command, sizeof(command), "sh '%s/tests/servers.sh' %s %s '%s' %s",
             source != NULL ? source : SOURCE_DIR, verb, servers->kind, servers->folder, words);
    FILE *output = popen(command, "r");
    if (output == NULL)
        bench_die("%s", command);
    while (fgets(line, sizeof(line), output) != NULL)
        if (value != NULL && strncmp(line, begin, strlen(begin)) == 0)
            snprintf(value, size, "%.*s", (int)strcspn(line + strlen(begin), "\n"),
                     line + strlen(begin));
    int status = pclose(output);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) /* servers.sh says why */
        exit(77);
    if (status != 0)
        bench_die("no %s server: %s", servers->kind, command);
}

void bench_servers_begin(struct bench_servers *servers, const char *kind, const char *name,
                         const char *keys, const char *value_name, char *value, size_t size)
{
    char words[256], command[600];
    servers->kind = kind;
    snprintf(servers->folder, sizeof(servers->folder), "%.400s/%s", bench_folder(), name);
    snprintf(command, sizeof(command), "mkdir '%s'", servers->folder);
    if (system(command) != 0)
        bench_die("%s", command);
    snprintf(words, sizeof(words), "guard=%d %s", (int)getpid(), keys);
    run(servers, "start", words, value_name, value, size);
}

void bench_servers_end(const struct bench_servers *servers)
{
    run(servers, "end", "", "", NULL, 0);
}
