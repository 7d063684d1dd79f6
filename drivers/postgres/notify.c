/* notify.c - notifications: there is a channel for each client, and the payload is the name in hex. Sends
 * notifications that go out alone, and takes those that come in. */
#include "driver.h"

#include <string.h>

#define AGAIN_NS (100 * NS_PER_MS)
#define AGAIN_STEPS 4 /* doublings, to 1.6 s */
#define TRIES_MAX 100

/* ---- texts ------------------------------------------------------------------------------------- */

static void hex(const void *bytes, size_t len, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = ((const unsigned char *)bytes)[i];
        *text++ = digits[byte >> 4];
        *text++ = digits[byte & 15];
    }
    *text = '\0';
}

void notify_channel(const struct rowlease_inbox *inbox, char *channel)
{
    memcpy(channel, "mortise_", 8);
    hex(inbox->bytes, ROWLEASE_INBOX_SIZE, channel + 8);
}

void notify_payload(const char *name, size_t name_len, char *payload)
{
    hex(name, name_len, payload);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the length; 0: it is no name. */
static size_t unhex(const char *text, char *bytes)
{
    size_t len = 0;
    while (len < MORTISE_NAME_MAX && digit(text[0]) >= 0 && digit(text[1]) >= 0) {
        bytes[len++] = (char)(digit(text[0]) << 4 | digit(text[1]));
        text += 2;
    }
    return *text == '\0' ? len : 0;
}

void notify_heard(struct driver *driver, const char *payload)
{
    char name[MORTISE_NAME_MAX];
    size_t len = unhex(payload, name);
    if (len > 0)
        locks_hear(&driver->remote.locks, name, len);
}

/* ---- one that goes out alone ----------------------------------------------------------------------- */

/* The server accepts no notification now. The waiter keeps its place, and is notified as soon as possible. */
static void failed(struct request *request, const struct fault *fault)
{
    struct sql_locks *locks = request->base.locks;
    unsigned steps = request->tries < AGAIN_STEPS ? request->tries : AGAIN_STEPS;
    if (locks->closing || (fault->flags & (FAULT_LOUD | FAULT_WAITED)) == 0 ||
        ++request->tries > TRIES_MAX) {
        statement_free(request);
        return;
    }
    statement_send(request, TEXT_NOTIFY, LANE_LAZY);
    request->not_before_ns = locks->host->now(locks->host) + locks_jitter(locks, AGAIN_NS << steps);
}

/* If the connection is lost, the waiter asks again by itself. */
static const struct handler handler = {
    .answered = statement_free, .failed = failed, .lost = statement_lost};

enum sql_notified notify_inbox(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                               const char *name, size_t name_len)
{
    char channel[CHANNEL_SIZE], payload[PAYLOAD_SIZE];
    struct request *request = statement_new((struct remote *)locks, &handler);
    if (request == NULL)
        return SQL_NOT_YET; /* the waiter asks again by itself */
    request->only_notifies = true;
    notify_channel(inbox, channel);
    notify_payload(name, name_len, payload);
    args_text(&pg_request(request)->args, channel);
    args_text(&pg_request(request)->args, payload);
    if (args_keep(&pg_request(request)->args))
        statement_send(request, TEXT_NOTIFY, LANE_LAZY);
    else
        statement_free(request);
    return SQL_NOT_YET;
}
