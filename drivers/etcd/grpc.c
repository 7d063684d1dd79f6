/* grpc.c - calls as HTTP/2 streams. See grpc.h. */
#include "grpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_WINDOW (1 << 20)
#define CONNECTION_WINDOW (4 << 20)
#define STREAM_OLD (1u << 30) /* the numbers of streams are odd, and end at 2^31 */

static void give_up(struct grpc *grpc, const char *why)
{
    if (!grpc->is_away)
        snprintf(grpc->text, sizeof(grpc->text), "%s", why);
    grpc->is_away = true;
}

/* ---- what the server sends -------------------------------------------------------------------------- */

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

static void text_take(char *text, size_t size, const uint8_t *value, size_t value_len)
{
    size_t length = value_len < size ? value_len : size - 1;
    for (size_t i = 0; i < length; i++)
        text[i] = value[i] < ' ' || value[i] >= 0x7f ? '?' : (char)value[i];
    text[length] = '\0';
}

static bool is_header(const uint8_t *name, size_t name_len, const char *text)
{
    return name_len == strlen(text) && memcmp(name, text, name_len) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    char number[16];
    (void)flags;
    (void)user;
    if (call == NULL)
        return 0;
    if (is_header(name, name_len, "grpc-status")) {
        text_take(number, sizeof(number), value, value_len);
        bool is_number = number[0] >= '0' && number[0] <= '9';
        call->status = is_number ? (int)strtol(number, NULL, 10) : GRPC_UNKNOWN;
    } else if (is_header(name, name_len, "grpc-message"))
        text_take(call->text, sizeof(call->text), value, value_len);
    else if (is_header(name, name_len, ":status") && !is_header(value, value_len, "200") &&
             call->text[0] == '\0') {
        text_take(number, sizeof(number), value, value_len);
        snprintf(call->text, sizeof(call->text), "HTTP status %s: no etcd?", number);
    }
    return 0;
}

/* Hands over all whole messages. */
static bool messages_tell(struct grpc *grpc, struct grpc_call *call)
{
    struct writer *in = &call->in;
    int32_t stream = call->stream;
    size_t at = 0;
    bool is_good = true;
    while (is_good && in->size - at >= GRPC_PREFIX) {
        const uint8_t *prefix = in->data + at;
        uint32_t size = (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 |
                        (uint32_t)prefix[3] << 8 | prefix[4];
        if (prefix[0] != 0 || size > GRPC_MESSAGE_MAX) {
            give_up(grpc, prefix[0] != 0 ? "a compressed message" : "a message is too large");
            return false;
        }
        if (in->size - at - GRPC_PREFIX < size)
            break;
        is_good = call->events->message(call, (struct bytes){prefix + GRPC_PREFIX, size});
        if (call->stream != stream) /* the call was canceled, or has another stream by now */
            return true;
        at += GRPC_PREFIX + size;
    }
    if (!is_good)
        give_up(grpc, "a message makes no sense");
    if (at > 0) {
        memmove(in->data, in->data + at, in->size - at);
        in->size -= at;
    }
    return is_good;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t size, void *user)
{
    struct grpc *grpc = user;
    struct grpc_call *call = call_of(session, stream);
    (void)flags;
    if (call == NULL)
        return 0;
    write_raw(&call->in, data, size);
    if (call->in.failed)
        give_up(grpc, "out of memory");
    return !call->in.failed && messages_tell(grpc, call) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    struct grpc_call *call = call_of(session, stream);
    (void)user;
    if (call == NULL)
        return 0;
    if (call->status == GRPC_NO_STATUS && call->text[0] == '\0')
        snprintf(call->text, sizeof(call->text), "stream reset: %s", nghttp2_http2_strerror(error));
    nghttp2_session_set_stream_user_data(session, stream, NULL);
    call->stream = 0;
    call->events->ended(call);
    return 0;
}

void grpc_ping_answer(struct grpc *grpc)
{
    if (!grpc->has_ping)
        return;
    grpc->has_ping = false;
    if (nghttp2_submit_ping(grpc->session, NGHTTP2_FLAG_ACK, grpc->ping) != 0)
        give_up(grpc, "out of memory");
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc *grpc = user;
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        give_up(grpc, "the server closes the connection (GOAWAY)");
    else if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
        grpc_ping_answer(grpc);
        memcpy(grpc->ping, frame->ping.opaque_data, sizeof(grpc->ping));
        grpc->has_ping = true;
    }
    return 0;
}

static nghttp2_session *session_new(struct grpc *grpc)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    nghttp2_session *session = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    if (nghttp2_option_new(&option) != 0) {
        nghttp2_session_callbacks_del(callbacks);
        return NULL;
    }
    nghttp2_option_set_no_auto_ping_ack(option, 1);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    if (nghttp2_session_client_new2(&session, callbacks, grpc, option) != 0)
        session = NULL;
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return session;
}

bool grpc_open(struct grpc *grpc, const char *authority, bool is_secure)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
    };
    *grpc = (struct grpc){.is_secure = is_secure};
    snprintf(grpc->authority, sizeof(grpc->authority), "%s", authority);
    grpc->session = session_new(grpc);
    if (grpc->session == NULL)
        return false;
    return nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(grpc->session, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW) == 0;
}

void grpc_close(struct grpc *grpc)
{
    if (grpc->session != NULL)
        nghttp2_session_del(grpc->session);
    grpc->session = NULL;
    grpc->has_ping = false;
}

bool grpc_receive(struct grpc *grpc, const uint8_t *data, size_t size)
{
    ssize_t taken = nghttp2_session_mem_recv(grpc->session, data, size);
    if (taken < 0)
        give_up(grpc, nghttp2_strerror((int)taken));
    else if (!nghttp2_session_want_read(grpc->session) &&
             !nghttp2_session_want_write(grpc->session))
        give_up(grpc, "the connection has ended (HTTP/2)");
    return !grpc->is_away;
}

ssize_t grpc_send(struct grpc *grpc, const uint8_t **data)
{
    ssize_t size = nghttp2_session_mem_send(grpc->session, data);
    if (size < 0)
        give_up(grpc, nghttp2_strerror((int)size));
    return size;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

void grpc_begin(struct grpc_call *call, size_t *mark)
{
    static const uint8_t prefix[GRPC_PREFIX] = {0};
    write_raw(&call->out, prefix, sizeof(prefix));
    *mark = call->out.size;
}

void grpc_end(struct grpc_call *call, size_t mark)
{
    if (call->out.failed)
        return;
    size_t size = call->out.size - mark;
    for (unsigned i = 1; i <= 4; i++)
        call->out.data[mark - i] = (uint8_t)(size >> (8 * (i - 1)));
}

static ssize_t read_out(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct grpc_call *call = call_of(session, stream);
    (void)source;
    (void)user;
    if (call == NULL) { /* canceled */
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return 0;
    }
    size_t size = call->out.size - call->sent;
    if (size == 0 && call->is_stream)
        return NGHTTP2_ERR_DEFERRED;
    if (size > room)
        size = room;
    memcpy(to, call->out.data + call->sent, size);
    call->sent += size;
    if (call->is_stream && call->sent == call->out.size)
        call->sent = call->out.size = 0;
    else if (!call->is_stream && call->sent == call->out.size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)size;
}

/* nghttp2 copies names and values, although it does not say const. */
static uint8_t *text_bytes(const char *text)
{
    union {
        const char *text;
        uint8_t *bytes;
    } both = {.text = text};
    return both.bytes;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){text_bytes(name), text_bytes(value), strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

bool grpc_start(struct grpc *grpc, struct grpc_call *call, const char *path, const char *token,
                int64_t timeout_ms)
{
    char timeout[32];
    nghttp2_data_provider provider = {.read_callback = read_out};
    nghttp2_nv headers[10] = {
        header(":method", "POST"),
        header(":scheme", grpc->is_secure ? "https" : "http"),
        header(":path", path),
        header(":authority", grpc->authority),
        header("te", "trailers"),
        header("content-type", "application/grpc"),
        header("user-agent", "mortise"),
        header("hasleader", "true"), /* a member without a leader refuses the call at once */
    };
    size_t count = 8;
    if (token != NULL) {
        headers[count] = header("token", token);
        headers[count++].flags = NGHTTP2_NV_FLAG_NO_INDEX;
    }
    if (timeout_ms > 0) {
        snprintf(timeout, sizeof(timeout), "%" PRId64 "m", timeout_ms);
        headers[count++] = header("grpc-timeout", timeout);
    }
    call->sent = 0;
    call->in.size = 0;
    call->status = GRPC_NO_STATUS;
    call->text[0] = '\0';
    if (call->out.failed)
        return false;
    int32_t stream = nghttp2_submit_request(grpc->session, NULL, headers, count, &provider, call);
    call->stream = stream > 0 ? stream : 0;
    return stream > 0;
}

bool grpc_is_old(const struct grpc *grpc)
{
    return nghttp2_session_get_next_stream_id(grpc->session) > STREAM_OLD;
}

bool grpc_is_spent(const struct grpc *grpc)
{
    return nghttp2_session_get_next_stream_id(grpc->session) > INT32_MAX;
}

void grpc_push(struct grpc *grpc, struct grpc_call *call)
{
    if (call->stream != 0)
        nghttp2_session_resume_data(grpc->session, call->stream);
}

void grpc_cancel(struct grpc *grpc, struct grpc_call *call)
{
    if (call->stream == 0 || grpc->session == NULL)
        return;
    nghttp2_session_set_stream_user_data(grpc->session, call->stream, NULL);
    nghttp2_submit_rst_stream(grpc->session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_CANCEL);
    call->stream = 0;
}

void grpc_call_free(struct grpc_call *call)
{
    writer_free(&call->out);
    writer_free(&call->in);
}
