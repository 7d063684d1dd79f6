/* run_ours.c - `mortise run`: asks the backend whether it still holds its locks.
 *
 * A thread of its own asks, as in run_notice.c: the backend may not answer, and meanwhile signals are passed on and renewals
 * are seen. It is never joined: if the client is closed first, its requests fail. */
#include "run.h"

#include "thread.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct {
    mortise_client *client; /* this and the rest are copies: the run may end meanwhile */
    const char *names[RUN_NAMES_MAX];
    mortise_lease *leases[RUN_NAMES_MAX];
    size_t count;
    bool ours;
    int ends[2];
} question;

struct search {
    uint64_t token;
    char owner[MORTISE_OWNER_MAX + 1];
    bool found;
};

static bool look_at_holder(const mortise_info *info, void *user_data)
{
    struct search *search = user_data;

    search->found = info->token == search->token && strcmp(info->owner, search->owner) == 0;
    return !search->found;
}

/* The clock says whether the deadline has passed. Only the backend knows whether an operator broke a lock or another client
 * holds it, and the next renewal may ask too late. If the backend does not answer, or cannot tell, the deadline still counts,
 * and the keeper enforces it. A question without an answer takes a long time, so after one, the other locks are not asked
 * for. */
static bool are_ours(void)
{
    for (size_t i = 0; i < question.count; i++) {
        struct search search = {.token = mortise_token(question.leases[i])};
        mortise_owner(question.leases[i], search.owner, sizeof search.owner);
        mortise_status status =
            mortise_holders(question.client, question.names[i], look_at_holder, &search, NULL);
        if (status == MORTISE_OK && !search.found)
            return false;
        if (status == MORTISE_UNREACHABLE || status == MORTISE_TIMEDOUT)
            break;
    }
    return true;
}

static void *ask(void *unused)
{
    (void)unused;
    question.ours = are_ours();
    close(question.ends[1]); /* the other end reads end of file: the answer is there */
    return NULL;
}

int ours_ask(const struct run *run)
{
    pthread_t thread;

    question.client = run->client;
    question.count = run->count;
    memcpy(question.names, run->names, sizeof question.names);
    memcpy(question.leases, run->leases, sizeof question.leases);
    if (pipe2(question.ends, O_CLOEXEC) != 0)
        return -1;
    if (thread_start(&thread, ask, NULL) != 0) {
        close(question.ends[0]);
        close(question.ends[1]);
        return -1;
    }
    pthread_detach(thread);
    return question.ends[0];
}

bool ours_answer(int fd)
{
    close(fd);
    return question.ours;
}
