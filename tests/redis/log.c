/* log.c - see log.h. */
#include "log.h"

#include <expect.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char log_path[300];
static int stderr_is = -1;

bool log_begin(const char *folder)
{
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    int log = open(log_path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    stderr_is = dup(2);
    bool begun = log >= 0 && stderr_is >= 0 && dup2(log, 2) == 2;
    if (log >= 0)
        close(log);
    return CHECK(begun);
}

void log_end(void)
{
    CHECK(dup2(stderr_is, 2) == 2);
    close(stderr_is);
}

int log_count(const char *words)
{
    char *text = test_file_read(log_path);
    int count = 0;
    for (const char *at = text; at && (at = strstr(at, words)); at += strlen(words))
        count++;
    free(text);
    return count;
}
