/* witness.c - the witness of a client, and what a client does for a witness: see <mortise/witness.h>. */
#include "client/client.h"
#include "client/open.h"
#include "lock/claim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEAD_CLAIMS_MAX 16384 /* that one client releases at a time */
#define REQUIRED_MS 5000      /* how long opening waits for a witness that is required */

/* ---- the witness of a client --------------------------------------------------------------------- */

static bool kernel_has_pidfds(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd < 0)
        return errno != ENOSYS && errno != EPERM;
    close(fd);
    return true;
}

/* What the config's `witness` says. False: it is not understood. */
static bool read_setting(const char *text, struct witness_link *link, bool *off, bool *required)
{
    *off = strcmp(text, "off") == 0;
    *required = strcmp(text, "required") == 0;
    link->unused = *off ? "witness = off" : NULL;
    if (*off)
        return true;
    if (text[0] != '/') {
        if (!link_default_path(link->path))
            link->path[0] = '\0';
        return *required || strcmp(text, "auto") == 0;
    }
    link->asked_for = true;
    int length = snprintf(link->path, sizeof(link->path), "%s", text);
    return (size_t)length < sizeof(link->path);
}

/* Returns why the client cannot be witnessed; NULL: it can. */
static const char *obstacle(const struct client *client, struct witness_link *link)
{
    if (!kernel_has_pidfds())
        return "the kernel has no pidfds (Linux 5.3)";
    if (!link->given && link->path[0] == '\0')
        return "XDG_RUNTIME_DIR is too long for a socket in it";
    if (!config_for_others(client->config, link->text, sizeof(link->text))) {
        link->text[0] = '\0';
        if (link->given && !config_has_pipe(client->config)) /* it knows the configuration */
            return NULL;
        return "another process cannot open this configuration: a URL with a password, a pipe "
               "(also one for a secret), or a file that is gone; use a config file";
    }
    link->text_len = strlen(link->text);
    return NULL;
}

static mortise_status begin(struct client *client, bool required, mortise_error *error)
{
    struct witness_link *link = &client->locks.witness;
    char why[200];
    const char *no = obstacle(client, link);
    if (no != NULL && required)
        return failed(error, MORTISE_NOTSUP, "%s: [mortise] witness = required: %s",
                      config_source(client->config), no);
    if (no != NULL) {
        link->unused = no;
        own_fd_close(&link->socket);
        return MORTISE_OK;
    }
    uint64_t seed;
    random_fill(&client->locks.random, &seed, sizeof(seed));
    link->area = &client->locks.area;
    link->logs = client->pump.logs;
    link->print = config_print(client->config);
    link->crash_delay_ms = client->core_values[CORE_CRASH_DELAY].number;
    link_begin(link, seed);
    if (!required || link_await(link, clock_after_ms(clock_now(), REQUIRED_MS), why, sizeof(why)))
        return MORTISE_OK;
    return failed(error, MORTISE_UNREACHABLE, "%s: [mortise] witness = required: %s: %s",
                  config_source(client->config), link->path, why);
}

mortise_status witness_begin(struct client *client, const struct open_how *how,
                             mortise_error *error)
{
    struct witness_link *link = &client->locks.witness;
    const char *text = client->core_values[CORE_WITNESS].text;
    bool off = how->witness == WITNESS_NONE, required = false;
    client->locks.area.file.fd = link->socket.fd = -1;
    if (how->witness == WITNESS_NONE)
        link->unused = "opened without one";
    if (how->witness == WITNESS_GIVEN) {
        link->unused = "it was given";
        off = strcmp(text, "off") == 0;
        link->given = true;
        required = config_has_pipe(client->config) && strcmp(text, "required") == 0;
        link->socket = own_fd_of(how->socket);
        if (off)
            own_fd_close(&link->socket);
    } else if (!off && !read_setting(text, link, &off, &required))
        return failed(error, MORTISE_CONFIG,
                      "%s: [mortise] witness: \"%.100s\"; expected auto, required, off, or the "
                      "absolute path of a socket (at most %zu bytes)",
                      config_source(client->config), text, sizeof(link->path) - 1);
    return off ? MORTISE_OK : begin(client, required, error);
}

void witness_refuse(const struct open_how *how)
{
    if (how->witness == WITNESS_GIVEN)
        close(how->socket);
}

mortise_status mortise_open_witnessed(const char *where, int socket, mortise_client **handle,
                                      mortise_error *error)
{
    const struct open_how how = {.witness = WITNESS_GIVEN, .socket = socket};
    if (handle == NULL) {
        witness_refuse(&how);
        return failed(error, MORTISE_INVALID, "mortise_open_witnessed: the out-parameter is NULL");
    }
    *handle = NULL;
    return client_open(where, &how, handle, error);
}

/* ---- for a witness --------------------------------------------------------------------------------- */

mortise_status mortise_open_for_dead(const char *where, mortise_client **handle,
                                     mortise_error *error)
{
    if (handle == NULL)
        return failed(error, MORTISE_INVALID, "mortise_open_for_dead: the out-parameter is NULL");
    *handle = NULL;
    return client_open(where, &(struct open_how){.witness = WITNESS_NONE}, handle, error);
}

size_t mortise_witness_path(mortise_client *handle, char *buffer, size_t size)
{
    struct client *client;
    if (size > 0)
        buffer[0] = '\0';
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return 0;
    const struct witness_link *link = &client->locks.witness;
    int length = snprintf(buffer, size, "%s", link->unused == NULL ? link->path : link->unused);
    size_t path_length = link->unused == NULL ? (size_t)length : 0;
    client_leave(client);
    return path_length;
}

size_t mortise_witness_configured(mortise_client *handle, char *buffer, size_t size)
{
    struct client *client;
    if (size > 0)
        buffer[0] = '\0';
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return 0;
    int length = snprintf(buffer, size, "%s", client->locks.witness.path);
    client_leave(client);
    return (size_t)length;
}

uint64_t mortise_config_print(mortise_client *handle)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return 0;
    uint64_t print = config_print(client->config);
    client_leave(client);
    return print;
}

/* LEAVING: the request is not answered; ENDING: it is not undone. A claim that was left to its ttl, because repeating the undo
 * cannot help, is not in the list any more. It may be of any name (left_until_ns). */
bool mortise_has_remains(mortise_client *handle, const char *name)
{
    struct client *client;
    char full[MORTISE_NAME_MAX + 1];
    size_t length;
    bool remains = false;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return false;
    struct locks *locks = &client->locks;
    if (client_name(client, name, false, full, &length, NULL) == MORTISE_OK) {
        pthread_mutex_lock(&locks->lock);
        const struct name *found = name_find_locked(locks, full, length);
        remains = clock_now() < locks->left_until_ns;
        for (struct claim *claim = found == NULL ? NULL : found->claims; claim != NULL;
             claim = claim->next)
            remains |= claim->state == CLAIM_LEAVING || claim->state == CLAIM_ENDING;
        locks_unlock(locks, START_NOW);
    }
    client_leave(client);
    return remains;
}

/* A release whose first answer comes by a callback. The claim refers to it until then; after that, the queue of callbacks. */
struct dead_release {
    struct release_wait wait; /* first */
    struct notice notice;
    struct events *events;
    mortise_error detail, error;
};

/* client lock held */
static void told(struct release_wait *wait)
{
    struct dead_release *release = (struct dead_release *)(void *)wait;
    if (wait->taken) /* a former try may have released it: in any case, none of it is left */
        wait->status = MORTISE_NOTOWNER;
    release->notice.status = wait->status;
    if (wait->status != MORTISE_OK) {
        release->error = release->detail;
        if (release->detail.status != wait->status)
            failed(&release->error, wait->status, "%s", mortise_status_text(wait->status));
        release->notice.error = &release->error;
    }
    events_push(release->events, &release->notice);
}

static bool is_sound(const mortise_witness_slot *slot)
{
    bool known = slot->state == MORTISE_WITNESS_ASKED || slot->state == MORTISE_WITNESS_HELD;
    return known && slot->name_len > 0 && slot->name_len <= MORTISE_NAME_MAX &&
           memchr(slot->name, 0, slot->name_len) == NULL && slot->owner_len <= MORTISE_OWNER_MAX &&
           memchr(slot->owner, 0, slot->owner_len) == NULL && slot->ttl_ms >= MORTISE_TTL_MIN_MS &&
           slot->ttl_ms <= MORTISE_TTL_MAX_MS &&
           (slot->flags & ~(uint32_t)(MORTISE_WITNESS_SHARED | MORTISE_WITNESS_EITHER)) == 0;
}

/* Makes the claim as if it were this client's own. NULL: no memory. */
static struct claim *adopt_locked(struct locks *locks, const mortise_witness_slot *slot)
{
    struct claim *claim = claim_new_locked(locks, slot->owner, slot->owner_len);
    if (claim == NULL)
        return NULL;
    struct name *name = name_get_locked(locks, slot->name, slot->name_len);
    if (name == NULL) {
        claim_discard_locked(claim);
        return NULL;
    }
    claim_use_locked(claim, name);
    name_put_locked(locks, name);
    memcpy(claim->id.bytes, slot->grant, sizeof(claim->id.bytes));
    claim->ttl_ms = (uint32_t)slot->ttl_ms;
    claim->mode = (slot->flags & MORTISE_WITNESS_SHARED) != 0 ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
    claim->permits = slot->permits;
    claim->downgrade =
        (slot->flags & MORTISE_WITNESS_EITHER) != 0 ? DOWNGRADE_MAYBE : DOWNGRADE_NONE;
    claim->maybe = slot->state == MORTISE_WITNESS_ASKED;
    claim->foreign = true;
    return claim;
}

static mortise_status release_dead(struct client *client, const mortise_witness_slot *slot,
                                   struct dead_release *release, mortise_error *error)
{
    struct locks *locks = &client->locks;
    pthread_mutex_lock(&locks->lock);
    bool closing = locks->closing, busy = locks->outstanding >= DEAD_CLAIMS_MAX;
    struct claim *claim = closing || busy ? NULL : adopt_locked(locks, slot);
    if (claim != NULL) {
        claim_end_locked(claim, clock_now());
        claim_attend_locked(claim, &release->wait);
    }
    locks_unlock(locks, START_DETACHED);
    if (claim != NULL)
        return MORTISE_OK;
    if (busy)
        return failed(error, MORTISE_BUSY, "release: too many are under way");
    return closing ? failed(error, MORTISE_CLOSED, "the client was closed: open another one")
                   : failed(error, MORTISE_NOMEM, "release: out of memory");
}

static struct dead_release *release_new(struct client *client, mortise_release_callback callback,
                                        void *user_data)
{
    if (!watchdog_ready(&client->locks) || !events_ready(&client->events))
        return NULL;
    struct dead_release *release = calloc(1, sizeof(*release));
    if (release == NULL)
        return NULL;
    release->wait =
        (struct release_wait){.error = &release->detail, .told = told, .until_ns = MORTISE_NEVER};
    release->notice =
        (struct notice){.on_released = callback, .user_data = user_data, .owned = release};
    release->events = &client->events;
    return release;
}

mortise_status mortise_release_dead(mortise_client *handle, const mortise_witness_slot *slot,
                                    mortise_release_callback callback, void *user_data,
                                    mortise_error *error)
{
    struct client *client;
    if (slot == NULL || callback == NULL || !is_sound(slot))
        return failed(error, MORTISE_INVALID, "mortise_release_dead: a field is out of range");
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct dead_release *release = release_new(client, callback, user_data);
    if (release == NULL)
        status = failed(error, MORTISE_NOMEM, "release: out of memory or threads");
    else if ((status = release_dead(client, slot, release, error)) != MORTISE_OK)
        free(release);
    client_leave(client);
    return status;
}
