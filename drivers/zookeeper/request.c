/* request.c - sends requests, and carries answers and events from the library's threads into the pump. See request.h.
 *
 * A request is on its session's list from before it is sent until it is answered, so no request is lost when the library
 * drops it together with the handle. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct event {
    struct mail mail; /* first */
    int type, state;
    char path[];
};

/* ---- the mailbox: any thread --------------------------------------------------------------------- */

static void drain(void *ctx, void *argument)
{
    (void)argument;
    mail_read(ctx);
}

static void put(struct driver *driver, struct mail *mail, bool quiet)
{
    struct mailbox *box = &driver->mailbox;
    mail->next = NULL;
    pthread_mutex_lock(&box->lock);
    *box->end = mail;
    box->end = &mail->next;
    bool post = !box->posted && !quiet;
    box->posted |= post;
    pthread_cond_signal(&box->filled);
    pthread_mutex_unlock(&box->lock);
    if (post)
        driver->host->post(driver->host, drain, NULL);
}

/* *missed: an event of the present session is missing. */
static struct mail *take_all(struct driver *driver, bool *missed)
{
    struct mailbox *box = &driver->mailbox;
    pthread_mutex_lock(&box->lock);
    struct mail *first = box->first;
    *missed = driver->session != NULL && driver->session->missed;
    if (*missed)
        driver->session->missed = false;
    box->first = NULL;
    box->end = &box->first;
    box->posted = false;
    pthread_mutex_unlock(&box->lock);
    return first;
}

void mail_init(struct driver *driver)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&driver->mailbox.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&driver->mailbox.filled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    driver->mailbox.end = &driver->mailbox.first;
}

/* Frees everything in the mailbox without calling any handler. */
static void throw_away(struct driver *driver)
{
    bool missed;
    for (struct mail *mail = take_all(driver, &missed), *next; mail != NULL; mail = next) {
        next = mail->next;
        if (mail->is_event) {
            free(mail);
            continue;
        }
        struct request *request = (struct request *)mail;
        request->to.answered = NULL;
        request_end(driver, request);
    }
}

void mail_settle(struct driver *driver, int64_t timeout_ms)
{
    struct mailbox *box = &driver->mailbox;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + timeout_ms * NS_PER_MS;
    until.tv_sec += (time_t)(ns / (1000 * NS_PER_MS));
    until.tv_nsec = (long)(ns % (1000 * NS_PER_MS));
    for (int rc = 0; rc == 0;) {
        throw_away(driver);
        if (driver->session->open == 0)
            return;
        pthread_mutex_lock(&box->lock);
        while (rc == 0 && box->first == NULL)
            rc = pthread_cond_timedwait(&box->filled, &box->lock, &until);
        pthread_mutex_unlock(&box->lock);
    }
}

void mail_end(struct driver *driver)
{
    throw_away(driver);
    pthread_cond_destroy(&driver->mailbox.filled);
    pthread_mutex_destroy(&driver->mailbox.lock);
}

/* Without memory, nobody knows what the event was: perhaps that the connection was made, so that no other event follows, or
 * the end of a node that somebody waits for. The pump learns of this before it reads any later answer. */
static void miss(struct session *session)
{
    struct mailbox *box = &session->driver->mailbox;
    pthread_mutex_lock(&box->lock);
    session->missed = true;
    bool post = !box->posted;
    box->posted = true;
    pthread_mutex_unlock(&box->lock);
    if (post)
        session->driver->host->post(session->driver->host, drain, NULL);
}

static void put_event(struct session *session, int type, int state, const char *path)
{
    size_t size = path == NULL ? 1 : strlen(path) + 1;
    struct event *event = malloc(sizeof(*event) + size);
    if (event == NULL) {
        miss(session);
        return;
    }
    event->mail.session = session;
    event->mail.is_event = true;
    event->type = type;
    event->state = state;
    memcpy(event->path, path == NULL ? "" : path, size);
    put(session->driver, &event->mail, false);
}

void watch_session(zhandle_t *zh, int type, int state, const char *path, void *session)
{
    (void)zh;
    (void)path;
    if (type == ZOO_SESSION_EVENT)
        put_event(session, type, state, NULL);
}

static void watch_node(zhandle_t *zh, int type, int state, const char *path, void *session)
{
    (void)zh;
    if (type != ZOO_SESSION_EVENT)
        put_event(session, type, state, path);
}

/* ---- answers: the library's threads ---------------------------------------------------------------- */

static void answer(const void *data, int rc, const struct Stat *stat)
{
    struct request *request = (struct request *)(uintptr_t)data;
    request->rc = rc;
    if (rc == ZOK && stat != NULL)
        request->stat = *stat;
    put(request->mail.session->driver, &request->mail, request->to.quiet);
}

static void answer_text(const void *data, int rc, const char *text, size_t size,
                        const struct Stat *stat)
{
    struct request *request = (struct request *)(uintptr_t)data;
    if (rc == ZOK && text != NULL) {
        request->text = malloc(size + 1);
        if (request->text == NULL)
            rc = ZSYSTEMERROR;
        else {
            memcpy(request->text, text, size);
            request->text[size] = '\0';
            request->text_size = size;
        }
    }
    answer(data, rc, stat);
}

static void on_void(int rc, const void *data)
{
    answer(data, rc, NULL);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    answer(data, rc, stat);
}

static void on_made(int rc, const char *path, const struct Stat *stat, const void *data)
{
    answer_text(data, rc, path, path == NULL ? 0 : strlen(path), stat);
}

static void on_path(int rc, const char *path, const void *data)
{
    on_made(rc, path, NULL, data);
}

static void on_data(int rc, const char *value, int length, const struct Stat *stat,
                    const void *data)
{
    answer_text(data, rc, value == NULL ? "" : value, length < 0 ? 0 : (size_t)length, stat);
}

/* Whether the list is complete: a broken answer leaves holes in it, and the library does not check that. */
static bool is_whole(const struct String_vector *strings)
{
    if (strings == NULL || strings->count <= 0)
        return true;
    for (int32_t i = 0; strings->data != NULL && i < strings->count; i++)
        if (strings->data[i] == NULL)
            return false;
    return strings->data != NULL;
}

/* The copy is one piece of memory: the pointers, then the names. */
static struct children *copy_children(const struct String_vector *strings)
{
    size_t count = strings == NULL || strings->count < 0 ? 0 : (size_t)strings->count;
    size_t size = sizeof(struct children) + count * sizeof(char *);
    for (size_t i = 0; i < count; i++)
        size += strlen(strings->data[i]) + 1;
    struct children *children = malloc(size);
    if (children == NULL)
        return NULL;
    char *to = (char *)&children->names[count];
    children->count = count;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(strings->data[i]) + 1;
        memcpy(to, strings->data[i], length);
        children->names[i] = to;
        to += length;
    }
    return children;
}

static void on_children(int rc, const struct String_vector *strings, const void *data)
{
    struct request *request = (struct request *)(uintptr_t)data;
    if (rc == ZOK && !is_whole(strings))
        rc = ZMARSHALLINGERROR;
    else if (rc == ZOK && (request->children = copy_children(strings)) == NULL)
        rc = ZSYSTEMERROR;
    answer(data, rc, NULL);
}

/* ---- sending: the pump ----------------------------------------------------------------------------- */

/* NULL: no memory. */
static char *path_of(const struct driver *driver, const char *folder, const char *node)
{
    char *path;
    int length;
    if (folder == NULL)
        length = asprintf(&path, "%s", driver->root[0] == '\0' ? "/" : driver->root);
    else
        length = asprintf(&path, "%s/%s%s%s", driver->root, folder, node == NULL ? "" : "/",
                          node == NULL ? "" : node);
    return length < 0 ? NULL : path;
}

/* Owns the path from now on. */
static struct request *begin(struct driver *driver, char *path, struct reply_to to)
{
    struct session *session = driver->session;
    struct request *request = session == NULL || path == NULL ? NULL : calloc(1, sizeof(*request));
    if (request == NULL) {
        free(path);
        return NULL;
    }
    request->mail.session = session;
    request->to = to;
    request->path = path;
    request->sent_ns = now_of(driver);
    DL_APPEND(session->requests, request);
    session->open++;
    return request;
}

/* The library may answer a request that it has refused. Such an answer goes to nobody, and the request's memory stays until
 * then, or until the session ends. Usually no answer comes (the library had no memory to note the request), so nobody waits for
 * one. */
static bool sent(struct request *request, int rc)
{
    if (rc == ZINVALIDSTATE) { /* the session has ended, and that event is on its way to the pump */
        answer(request, rc, NULL);
        return true;
    }
    if (rc == ZOK)
        return true;
    request->to.answered = NULL;
    request->refused = true;
    request->mail.session->open--;
    return false;
}

static bool create_at(struct driver *driver, char *path, const char *data, size_t size, int mode,
                      struct reply_to to)
{
    struct request *request = begin(driver, path, to);
    return request != NULL && sent(request, zoo_acreate2(driver->session->zh, path, data, (int)size,
                                                         driver->acl, mode, on_made, request));
}

bool send_create(struct driver *driver, const char *folder, const char *node, const char *data,
                 size_t size, int mode, struct reply_to to)
{
    return create_at(driver, path_of(driver, folder, node), data, size, mode, to);
}

bool send_delete(struct driver *driver, const char *folder, const char *node, struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, folder, node), to);
    return request != NULL &&
           sent(request, zoo_adelete(driver->session->zh, request->path, -1, on_void, request));
}

bool send_set(struct driver *driver, const char *folder, const char *node, const char *data,
              size_t size, int version, struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, folder, node), to);
    return request != NULL && sent(request, zoo_aset(driver->session->zh, request->path, data,
                                                     (int)size, version, on_stat, request));
}

static bool get(struct driver *driver, struct request *request)
{
    return sent(request,
                zoo_awget(driver->session->zh, request->path, request->watches ? watch_node : NULL,
                          driver->session, on_data, request));
}

bool send_get(struct driver *driver, const char *folder, const char *node, struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, folder, node), to);
    return request != NULL && get(driver, request);
}

bool send_get_config(struct driver *driver, struct reply_to to)
{
    struct request *request = begin(driver, strdup("/zookeeper/config"), to);
    return request != NULL && get(driver, request);
}

bool send_get_and_watch(struct driver *driver, const char *folder, const char *node,
                        struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, folder, node), to);
    if (request == NULL)
        return false;
    request->watches = watch_fits(driver, request->path);
    if (request->watches)
        watch_note(driver, request->path);
    return get(driver, request);
}

bool node_is_watched(const struct driver *driver, const char *folder, const char *node)
{
    char *path = path_of(driver, folder, node);
    bool stands = path != NULL && watch_stands(driver, path);
    free(path);
    return stands;
}

bool send_exists(struct driver *driver, const char *folder, const char *node, struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, folder, node), to);
    return request != NULL &&
           sent(request, zoo_awexists(driver->session->zh, request->path, watch_node,
                                      driver->session, on_stat, request));
}

bool send_list(struct driver *driver, const char *folder, struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, folder, NULL), to);
    return request != NULL && sent(request, zoo_aget_children(driver->session->zh, request->path, 0,
                                                              on_children, request));
}

bool send_sync(struct driver *driver, struct reply_to to)
{
    struct request *request = begin(driver, path_of(driver, NULL, NULL), to);
    return request != NULL &&
           sent(request, zoo_async(driver->session->zh, request->path, on_path, request));
}

/* Writes to the session's own node. If that does not exist, the refusal is a transaction, too, and serves as well. */
bool send_barrier(struct driver *driver)
{
    if (driver->barrier_call == driver->calls)
        return true;
    bool is_sent = send_set(driver, "%sessions", driver->client_id, driver->note, driver->note_len,
                            -1, (struct reply_to){0});
    if (is_sent)
        driver->barrier_call = driver->calls;
    return is_sent;
}

void send_root(struct driver *driver, const char *folder)
{
    for (const char *slash = driver->root; *slash != '\0';) {
        slash += 1 + strcspn(slash + 1, "/");
        char *path = strndup(driver->root, (size_t)(slash - driver->root));
        create_at(driver, path, "", 0, ZOO_PERSISTENT, (struct reply_to){0});
    }
    if (folder != NULL)
        send_create(driver, folder, NULL, "", 0, ZOO_PERSISTENT, (struct reply_to){0});
}

/* ---- reading: the pump ----------------------------------------------------------------------------- */

void request_end(struct driver *driver, struct request *request)
{
    DL_DELETE(request->mail.session->requests, request);
    if (!request->refused)
        request->mail.session->open--;
    if (request->watches && request->mail.session == driver->session) {
        if (request->rc == ZOK)
            watch_set(driver, request->path); /* set anew, if an event has come */
        else
            watch_forget(driver, request->path);
    }
    if (request->to.answered != NULL)
        request->to.answered(driver, request);
    free(request->path);
    free(request->text);
    free(request->children);
    free(request);
}

void mail_read(struct driver *driver)
{
    bool missed;
    struct mail *first = take_all(driver, &missed);
    driver->calls++;
    if (missed) /* first: what is in the mailbox may mean something else without that event */
        driver->upcalls->event_missed(driver);
    for (struct mail *mail = first, *next; mail != NULL; mail = next) {
        next = mail->next;
        bool stale = mail->session != driver->session;
        if (!mail->is_event) {
            struct request *request = (struct request *)mail;
            if (stale)
                request->rc = ZSESSIONEXPIRED;
            else if (!fault_is_loss(request->rc) && request->rc != ZAUTHFAILED) {
                driver->refused = 0;
                driver->refused_ns = 0;
            }
            request_end(driver, request);
            continue;
        }
        struct event *event = (struct event *)mail;
        if (!stale && event->type != ZOO_SESSION_EVENT)
            watch_forget(driver, event->path);
        if (!stale && event->type == ZOO_SESSION_EVENT)
            driver->upcalls->session_event(driver, event->state);
        else if (!stale)
            driver->upcalls->node_event(driver, event->path, event->type == ZOO_DELETED_EVENT);
        free(event);
    }
    driver->upcalls->mail_is_read(driver);
}
