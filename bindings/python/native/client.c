/* client.c - clients, the log, and questions to the backend; see bridge.h. */
#include "slot.h"

#include <stdlib.h>
#include <string.h>

void mpy_log(int level, char *line, void *user_data); /* in Python: see build.py */

static void on_log(int level, const char *line, void *user_data)
{
    char copy[4096];
    strncpy(copy, line, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    mpy_log(level, copy, user_data);
}

/* Log lines: to stderr before the first client and after the end of the program, to Python in between. */
enum { LOG_BEFORE, LOG_ON, LOG_ENDED };
static _Atomic int log_state = LOG_BEFORE;

/* Only once, because mortise_on_log() waits for the callback, and the caller may hold a lock that a log handler in
 * Python takes. */
static void start_log(void)
{
    int before = LOG_BEFORE;
    if (!atomic_compare_exchange_strong(&log_state, &before, LOG_ON))
        return;
    mortise_on_log(on_log, NULL);
    if (atomic_load(&log_state) == LOG_ENDED) /* it was ended meanwhile */
        mortise_on_log(NULL, NULL);
}

int mpy_open(const char *where, mortise_client **client, mortise_error *error)
{
    watch_forks();
    start_log();
    return mortise_open(where, client, error);
}

int mpy_close(mortise_client *client, mortise_error *error)
{
    int status;
    while ((status = mortise_close(client, error)) == MORTISE_CLOSING) {
        int ran = mortise_dispatch(client);
        if (ran < 0 && ran != MORTISE_CLOSED) /* CLOSED: another thread has ended it meanwhile */
            break;
    }
    return status;
}

void mpy_log_off(void)
{
    atomic_store(&log_state, LOG_ENDED);
    mortise_on_log(NULL, NULL);
}

int mpy_listen(mortise_client *client)
{
    mortise_status status = MORTISE_OK;
    return mortise_fd(client, &status) < 0 ? status : MORTISE_OK;
}

/* ---- questions ---- */

int mpy_inspect(mortise_client *client, const char *name, mortise_info *info, mortise_error *error)
{
    info->size = sizeof(*info);
    return mortise_inspect(client, name, info, error);
}

struct listing {
    mortise_info *infos;
    size_t count, room;
    bool failed;
};

static bool add_info(const mortise_info *info, void *user_data)
{
    struct listing *listing = user_data;
    if (listing->count == listing->room) {
        size_t room = listing->room == 0 ? 16 : listing->room * 2;
        mortise_info *infos = reallocarray(listing->infos, room, sizeof(*infos));
        if (infos == NULL) {
            listing->failed = true;
            return false;
        }
        listing->infos = infos;
        listing->room = room;
    }
    mortise_info *copy = &listing->infos[listing->count++];
    memset(copy, 0, sizeof(*copy));
    memcpy(copy, info, info->size < sizeof(*copy) ? info->size : sizeof(*copy));
    return true;
}

int mpy_list(mortise_client *client, const char *text, bool names, mortise_info **infos,
             size_t *count, mortise_error *error)
{
    struct listing listing = {NULL, 0, 0, false};
    int status = names ? mortise_list(client, text, add_info, &listing, error)
                       : mortise_holders(client, text, add_info, &listing, error);
    if (status == MORTISE_OK && listing.failed)
        status = fail(error, MORTISE_NOMEM, "out of memory");
    if (status != MORTISE_OK) {
        free(listing.infos);
        listing = (struct listing){NULL, 0, 0, false};
    }
    *infos = listing.infos;
    *count = listing.count;
    return status;
}

void mpy_free(void *memory)
{
    free(memory);
}

int mpy_stats(mortise_client *client, mortise_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    stats->size = sizeof(*stats);
    return mortise_stats_get(client, stats);
}
