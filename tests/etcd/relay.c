/* relay.c - passes calls on, and breaks some. See relay.h. */
#include "relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define GRPC_PREFIX 5

struct orders orders;

static void add(struct text *text, const void *data, size_t size)
{
    text->data = realloc(text->data, text->size + size + 1);
    if (text->data == NULL)
        abort();
    if (size > 0)
        memcpy(text->data + text->size, data, size);
    text->size += size;
}

static void add_header(struct headers *headers, const void *name, size_t name_len,
                       const void *value, size_t value_len)
{
    if (headers->count == HEADERS_MAX)
        abort();
    nghttp2_nv *nv = &headers->all[headers->count++];
    *nv = (nghttp2_nv){malloc(name_len + 1), malloc(value_len + 1), name_len, value_len, 0};
    if (nv->name == NULL || nv->value == NULL)
        abort();
    memcpy(nv->name, name, name_len);
    memcpy(nv->value, value, value_len);
}

static void forget_headers(struct headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        free(headers->all[i].name);
        free(headers->all[i].value);
    }
    headers->count = 0;
}

static void stream_free(struct stream *stream)
{
    forget_headers(&stream->asked);
    forget_headers(&stream->answered);
    forget_headers(&stream->trailers);
    free(stream->request.data);
    free(stream->answer.data);
    DL_DELETE(stream->pair->streams, stream);
    free(stream);
}

static void free_if_closed(struct stream *stream)
{
    if (stream->down == 0 && stream->up == 0)
        stream_free(stream);
}

/* ---- what is done to a call ------------------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_len = strlen(end);
    return length >= end_len && strcmp(text + length - end_len, end) == 0;
}

static void choose_rule(struct stream *stream)
{
    const struct rule *rule = &orders.rule;
    if (!orders.has_rule || rule->times <= orders.hits || !ends_with(stream->path, rule->method))
        return;
    if (rule->contains != NULL && memmem(stream->request.data, stream->request.size, rule->contains,
                                         strlen(rule->contains)) == NULL)
        return;
    orders.hits++;
    stream->is_ruled = true;
    stream->rule = *rule;
    if (orders.hits == rule->times && rule->then != NULL) {
        orders.rule = *rule->then;
        orders.hits = 0;
    }
}

static uint64_t draw(void)
{
    orders.random ^= orders.random << 13;
    orders.random ^= orders.random >> 7;
    orders.random ^= orders.random << 17;
    return orders.random;
}

static void set_length(struct text *text)
{
    size_t size = text->size - GRPC_PREFIX;
    for (unsigned i = 0; i < 4; i++)
        text->data[4 - i] = (uint8_t)(size >> (8 * i));
}

/* What is in it from there on once more. */
static void add_again(struct text *text, size_t at)
{
    size_t size = text->size - at;
    uint8_t *part = malloc(size);
    if (part == NULL)
        abort();
    memcpy(part, text->data + at, size);
    add(text, part, size);
    free(part);
}

/* The answer of one call, as a whole. */
static void make_noise(struct stream *stream)
{
    struct text *text = &stream->answer;
    if (orders.rate == 0 || draw() % orders.rate != 0 || text->size <= GRPC_PREFIX)
        return;
    size_t at = GRPC_PREFIX + draw() % (text->size - GRPC_PREFIX);
    switch (draw() % 6) {
    case 0: /* some other bytes */
        for (unsigned i = 0; i <= draw() % 3; i++)
            text->data[GRPC_PREFIX + draw() % (text->size - GRPC_PREFIX)] = (uint8_t)draw();
        return;
    case 1: /* a byte less, and the length says so */
        memmove(text->data + at, text->data + at + 1, text->size - at - 1);
        text->size--;
        set_length(text);
        return;
    case 2: /* ends early */
        text->size = at;
        set_length(text);
        return;
    case 3: /* a part twice */
        add_again(text, at);
        set_length(text);
        return;
    case 4: /* another length */
        text->data[draw() % GRPC_PREFIX] = (uint8_t)draw();
        return;
    default: /* a large number */
        memset(text->data + at, 0xff, text->size - at < 9 ? text->size - at : 9);
    }
}

/* The header of an answer is its first field; the cluster's id is in it before the member's. */
static void rename_member(struct text *text)
{
    size_t at = GRPC_PREFIX + 3; /* behind two tags and a length of one byte */
    while (at < text->size && (text->data[at] & 0x80) != 0)
        at++;
    if (at + 2 < text->size && text->data[at + 1] == 0x10)
        text->data[at + 2] ^= 1;
    else
        abort();
}

/* ---- towards the driver ------------------------------------------------------------------------------ */

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct stream *stream = source->ptr;
    size_t size = stream->answer.size - stream->answer.at;
    (void)user;
    if (size == 0 && !stream->is_done)
        return NGHTTP2_ERR_DEFERRED;
    size = size < room ? size : room;
    memcpy(to, stream->answer.data + stream->answer.at, size);
    stream->answer.at += size;
    if (stream->is_done && stream->answer.at == stream->answer.size) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, stream->trailers.all, stream->trailers.count);
    }
    return (ssize_t)size;
}

static void begin_answer(struct stream *stream)
{
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_answer};
    stream->has_begun = true;
    nghttp2_submit_response(stream->pair->down, stream->down, stream->answered.all,
                            stream->answered.count, &provider);
}

/* They are all of the answer. */
static void answer_headers(struct stream *stream)
{
    nghttp2_submit_response(stream->pair->down, stream->down, stream->answered.all,
                            stream->answered.count, NULL);
}

static void answer_status(struct stream *stream)
{
    char number[16];
    const struct rule *rule = &stream->rule;
    forget_headers(&stream->answered);
    add_header(&stream->answered, ":status", 7, "200", 3);
    add_header(&stream->answered, "content-type", 12, "application/grpc", 16);
    add_header(&stream->answered, "grpc-status", 11, number,
               (size_t)snprintf(number, sizeof number, "%d", rule->status));
    add_header(&stream->answered, "grpc-message", 12, rule->text, strlen(rule->text));
    answer_headers(stream);
}

/* The server has answered a call as a whole. */
static void answer_call(struct stream *stream)
{
    struct pair *pair = stream->pair;
    stream->is_done = true;
    if (stream->down == 0)
        return;
    if (stream->is_ruled)
        switch (stream->rule.fault) {
        case LOSE:
            pair->ends = true;
            return;
        case RESET:
            nghttp2_submit_rst_stream(pair->down, NGHTTP2_FLAG_NONE, stream->down,
                                      NGHTTP2_INTERNAL_ERROR);
            return;
        case REFUSE:
            answer_status(stream);
            return;
        case GO_AWAY:
            nghttp2_submit_goaway(pair->down, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
            stream->no_more = true;
            return;
        case HOLD:
            stream->is_held = true;
            return;
        case OTHER_MEMBER:
            rename_member(&stream->answer);
            break;
        default:
            break;
        }
    make_noise(stream);
    if (stream->trailers.count ==
        0) /* the status came with the headers, and there is nothing else */
        answer_headers(stream);
    else
        begin_answer(stream);
}

/* ---- towards the server ------------------------------------------------------------------------------ */

static ssize_t read_request(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                            uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct stream *stream = source->ptr;
    size_t size = stream->request.size - stream->request.at;
    (void)session;
    (void)id;
    (void)user;
    if (size == 0 && !stream->asked_all)
        return NGHTTP2_ERR_DEFERRED;
    size = size < room ? size : room;
    memcpy(to, stream->request.data + stream->request.at, size);
    stream->request.at += size;
    if (stream->asked_all && stream->request.at == stream->request.size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)size;
}

static void ask_server(struct stream *stream)
{
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_request};
    stream->up = nghttp2_submit_request(stream->pair->up, NULL, stream->asked.all,
                                        stream->asked.count, &provider, stream);
}

static void take_call(struct stream *stream)
{
    choose_rule(stream);
    if (stream->is_ruled && stream->rule.fault == DROP)
        stream->pair->ends = true;
    else if (stream->is_ruled && stream->rule.fault == REFUSE_NOT)
        answer_status(stream);
    else if (stream->is_ruled && stream->rule.fault == DELAY)
        stream->is_delayed = true;
    else
        ask_server(stream);
}

/* ---- what comes ----------------------------------------------------------------------------------------- */

static int down_begins(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct pair *pair = user;
    if (nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) != NULL)
        return 0;
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        abort();
    stream->pair = pair;
    stream->down = frame->hd.stream_id;
    DL_APPEND(pair->streams, stream);
    nghttp2_session_set_stream_user_data(session, stream->down, stream);
    return 0;
}

static int down_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                       void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    (void)user;
    if (stream == NULL)
        return 0;
    add_header(&stream->asked, name, name_len, value, value_len);
    if (name_len == 5 && memcmp(name, ":path", 5) == 0)
        snprintf(stream->path, sizeof stream->path, "%.*s", (int)value_len, (const char *)value);
    return 0;
}

static int down_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                     size_t size, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)flags;
    (void)user;
    if (stream == NULL)
        return 0;
    add(&stream->request, data, size);
    if (stream->is_watch && stream->up > 0)
        nghttp2_session_resume_data(stream->pair->up, stream->up);
    return 0;
}

static int down_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)user;
    if (stream == NULL || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    stream->asked_all = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS && ends_with(stream->path, "Watch/Watch")) {
        stream->is_watch = true;
        ask_server(stream);
    } else if (stream->asked_all && !stream->is_watch)
        take_call(stream);
    return 0;
}

static int down_closes(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)error;
    (void)user;
    if (stream == NULL)
        return 0;
    stream->down = 0;
    if (stream->up > 0)
        nghttp2_submit_rst_stream(stream->pair->up, NGHTTP2_FLAG_NONE, stream->up, NGHTTP2_CANCEL);
    free_if_closed(stream);
    return 0;
}

static int up_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    (void)user;
    if (stream != NULL)
        add_header(frame->headers.cat == NGHTTP2_HCAT_RESPONSE ? &stream->answered
                                                               : &stream->trailers,
                   name, name_len, value, value_len);
    return 0;
}

static int up_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)flags;
    (void)user;
    if (stream == NULL)
        return 0;
    add(&stream->answer, data, size);
    if (stream->is_watch && stream->has_begun && stream->down != 0)
        nghttp2_session_resume_data(stream->pair->down, stream->down);
    return 0;
}

static int up_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)user;
    if (stream != NULL && stream->is_watch && stream->down != 0 && !stream->has_begun &&
        frame->hd.type == NGHTTP2_HEADERS)
        begin_answer(stream);
    return 0;
}

static int up_closes(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)error;
    (void)user;
    if (stream == NULL)
        return 0;
    stream->up = 0;
    if (stream->down == 0)
        free_if_closed(stream);
    else if (!stream->is_watch)
        answer_call(stream);
    else {
        stream->is_done = true;
        nghttp2_session_resume_data(stream->pair->down, stream->down);
    }
    return 0;
}

/* ---- for middle.c ----------------------------------------------------------------------------------------- */

bool relay_begin(struct pair *pair)
{
    nghttp2_session_callbacks *down, *up;
    if (nghttp2_session_callbacks_new(&down) != 0 || nghttp2_session_callbacks_new(&up) != 0)
        return false;
    nghttp2_session_callbacks_set_on_begin_headers_callback(down, down_begins);
    nghttp2_session_callbacks_set_on_header_callback(down, down_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(down, down_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(down, down_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(down, down_closes);
    nghttp2_session_callbacks_set_on_header_callback(up, up_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(up, up_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(up, up_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(up, up_closes);
    bool made = nghttp2_session_server_new(&pair->down, down, pair) == 0 &&
                nghttp2_session_client_new(&pair->up, up, pair) == 0 &&
                nghttp2_submit_settings(pair->down, NGHTTP2_FLAG_NONE, NULL, 0) == 0 &&
                nghttp2_submit_settings(pair->up, NGHTTP2_FLAG_NONE, NULL, 0) == 0;
    nghttp2_session_callbacks_del(down);
    nghttp2_session_callbacks_del(up);
    return made;
}

void relay_end(struct pair *pair)
{
    nghttp2_session_del(pair->down);
    nghttp2_session_del(pair->up);
    while (pair->streams != NULL)
        stream_free(pair->streams);
}

void relay_obey(struct pair *pair)
{
    struct stream *stream, *next;
    DL_FOREACH_SAFE (pair->streams, stream, next) {
        bool may_pass = !orders.has_rule || orders.passes;
        if (stream->is_held && may_pass && stream->down != 0) {
            stream->is_held = false;
            begin_answer(stream);
        }
        if (stream->is_delayed && may_pass && stream->down != 0) {
            stream->is_delayed = false;
            ask_server(stream);
        }
        if (stream->is_watch && orders.wants_reset && stream->down != 0) {
            orders.resets++;
            nghttp2_submit_rst_stream(pair->down, NGHTTP2_FLAG_NONE, stream->down,
                                      NGHTTP2_INTERNAL_ERROR);
        }
        pair->ends |= stream->no_more; /* GOAWAY is sent before that */
    }
}
