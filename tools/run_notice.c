/* run_notice.c - `mortise run` on a terminal: after a second of waiting, prints which lock it waits for and who holds it.
 *
 * A thread of its own asks the backend, because the backend may not answer and the wait must see signals meanwhile. The
 * thread is never joined: if the client is closed first, its request fails. */
#include "run.h"

#include "duration.h"
#include "holders.h"
#include "output.h"
#include "text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct {
    mortise_client *client;
    const char *name;
    mortise_info info;
    mortise_status status;
    int ends[2];
} question;

static void *ask(void *unused)
{
    (void)unused;
    question.info.size = sizeof question.info;
    question.status = mortise_inspect(question.client, question.name, &question.info, NULL);
    close(question.ends[1]); /* the other end reads end of file: the answer is there */
    return NULL;
}

int notice_ask(struct run *run)
{
    pthread_t thread;

    question.client = run->client;
    question.name = run->names[run->asked_for];
    if (pipe2(question.ends, O_CLOEXEC) != 0)
        return -1;
    if (pthread_create(&thread, NULL, ask, NULL) != 0) {
        close(question.ends[0]);
        close(question.ends[1]);
        return -1;
    }
    pthread_detach(thread);
    return question.ends[0];
}

void notice_say(struct run *run)
{
    const mortise_info *info = &question.info;
    char host[4 * sizeof info->host], program[4 * sizeof info->program];
    char held[DURATION_SIZE], since[48] = "", others[48];
    char shown[QUOTED_SIZE];

    close(run->notice_fd);
    run->notice_fd = -1;
    if (question.name != run->names[run->asked_for])
        return; /* there are several names, and the run holds that one meanwhile */
    quoted(question.name, shown, sizeof shown);
    if (question.status != MORTISE_OK || !info->held) {
        run_say("waiting for %s", shown);
        return;
    }
    if (info->held_ms >= 0)
        snprintf(since, sizeof since, " for %s", format_duration(info->held_ms, held));
    if (info->host[0] == '\0' || info->pid <= 0)
        run_say("waiting for %s, which another holds%s", shown, since);
    else
        run_say("waiting for %s, held by %s (pid %" PRId64 ", %s)%s%s", shown,
                printable(info->host, host, sizeof host), info->pid,
                printable(info->program, program, sizeof program),
                holders_others(info, others, sizeof others), since);
}
