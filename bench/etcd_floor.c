/* etcd_floor.c - bare calls, with a wait for each answer; see etcd_floor.h. The numbers of the fields are those of etcd's
 * rpc.proto and kv.proto, and only the few that are needed are written or read. */
#include "etcd_floor.h"

#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE_MAX 1024
#define PREFIX 5 /* of a gRPC message: a flag, and its length */

struct message {
    uint8_t data[MESSAGE_MAX];
    size_t size;
};

/* One call, or the watch's stream. */
struct call {
    struct message out, in;
    size_t sent;
    int32_t stream;
    bool is_stream, ended;
    int status;
    unsigned messages; /* received, and not yet awaited */
};

struct etcd_bare {
    int fd;
    nghttp2_session *session;
    char server[64];
    int64_t lease;
    struct call call, watch;
};

/* ---- messages -------------------------------------------------------------------------------------- */

static void put_byte(struct message *message, unsigned byte)
{
    if (message->size == MESSAGE_MAX)
        bench_die("a message is too long");
    message->data[message->size++] = (uint8_t)byte;
}

static void put_varint(struct message *message, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(message, (unsigned)(value & 0x7f) | 0x80);
    put_byte(message, (unsigned)value);
}

static void put_number(struct message *message, unsigned field, int64_t value)
{
    put_varint(message, field << 3);
    put_varint(message, (uint64_t)value);
}

static void put_bytes(struct message *message, unsigned field, const void *data, size_t size)
{
    put_varint(message, field << 3 | 2);
    put_varint(message, size);
    for (size_t i = 0; i < size; i++)
        put_byte(message, ((const uint8_t *)data)[i]);
}

static void put_message(struct message *message, unsigned field, const struct message *inner)
{
    put_bytes(message, field, inner->data, inner->size);
}

static uint64_t take_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    bench_die("an answer makes no sense");
}

/* Takes the number in a field, or the message in it. Returns 0 if there is none. */
static uint64_t take_field(const uint8_t *at, const uint8_t *end, unsigned wanted,
                           const uint8_t **inner, const uint8_t **inner_end)
{
    while (at < end) {
        uint64_t tag = take_varint(&at, end), value = take_varint(&at, end);
        bool is_bytes = (tag & 7) == 2;
        if (is_bytes && value > (uint64_t)(end - at))
            bench_die("an answer makes no sense");
        if (tag >> 3 == wanted) {
            if (inner != NULL)
                *inner = at, *inner_end = at + value;
            return is_bytes ? 1 : value;
        }
        if (is_bytes)
            at += value;
    }
    return 0;
}

/* ---- a call ------------------------------------------------------------------------------------------ */

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t size, void *user)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)flags;
    (void)user;
    for (size_t i = 0; i < size; i++)
        put_byte(&call->in, data[i]);
    if (call->in.size >= PREFIX &&
        call->in.size >= PREFIX + ((size_t)call->in.data[3] << 8 | call->in.data[4]))
        call->messages++;
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    (void)user;
    if (call != NULL && name_len == 11 && memcmp(name, "grpc-status", 11) == 0)
        call->status = value_len == 1 ? value[0] - '0' : 99;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)error;
    (void)user;
    if (call != NULL)
        call->ended = true;
    return 0;
}

static ssize_t read_out(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct call *call = source->ptr;
    size_t size = call->out.size - call->sent;
    (void)session;
    (void)stream;
    (void)user;
    if (size > room)
        size = room;
    memcpy(to, call->out.data + call->sent, size);
    call->sent += size;
    if (call->sent == call->out.size && !call->is_stream)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return size == 0 && call->is_stream ? NGHTTP2_ERR_DEFERRED : (ssize_t)size;
}

static void flush(struct etcd_bare *bare)
{
    const uint8_t *data;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(bare->session, &data)) > 0)
        if (send(bare->fd, data, (size_t)size, MSG_NOSIGNAL) != size)
            bench_die("send: %s", strerror(errno));
}

static uint8_t *bytes_of(const char *text)
{
    return (uint8_t *)(uintptr_t)text; /* nghttp2 copies it, although it does not say const */
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){bytes_of(name), bytes_of(value), strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

static void begin(struct etcd_bare *bare, struct call *call, const char *path,
                  const struct message *request)
{
    const nghttp2_nv headers[] = {
        header(":method", "POST"), header(":scheme", "http"),
        header(":path", path),     header(":authority", bare->server),
        header("te", "trailers"),  header("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_out};
    call->out.size = call->in.size = call->sent = 0;
    call->ended = false;
    call->status = -1;
    call->messages = 0;
    put_byte(&call->out, 0);
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(&call->out, (unsigned)(request->size >> shift) & 0xff);
    for (size_t i = 0; i < request->size; i++)
        put_byte(&call->out, request->data[i]);
    call->stream = nghttp2_submit_request(bare->session, NULL, headers,
                                          sizeof(headers) / sizeof(headers[0]), &provider, call);
    if (call->stream < 0)
        bench_die("%s: %s", path, nghttp2_strerror(call->stream));
    flush(bare);
}

/* Reads once, and sends the answers that HTTP/2 requires. */
static void receive(struct etcd_bare *bare)
{
    uint8_t buffer[16384];
    ssize_t size = recv(bare->fd, buffer, sizeof(buffer), 0);
    if (size <= 0)
        bench_die("the server has closed the connection");
    if (nghttp2_session_mem_recv(bare->session, buffer, (size_t)size) != size)
        bench_die("no HTTP/2");
    flush(bare);
}

static void finish(struct etcd_bare *bare)
{
    while (!bare->call.ended)
        receive(bare);
    if (bare->call.status != 0)
        bench_die("gRPC status %d", bare->call.status);
}

static void ask(struct etcd_bare *bare, const char *path, const struct message *request)
{
    begin(bare, &bare->call, path, request);
    finish(bare);
}

/* ---- what is asked ------------------------------------------------------------------------------------ */

void etcd_grant(struct etcd_bare *bare, int64_t ttl_s)
{
    struct message request = {.size = 0};
    const struct message *in = &bare->call.in;
    put_number(&request, 1, ttl_s);
    ask(bare, "/etcdserverpb.Lease/LeaseGrant", &request);
    bare->lease = (int64_t)take_field(in->data + PREFIX, in->data + in->size, 2, NULL, NULL);
}

int64_t etcd_put(struct etcd_bare *bare, const char *key)
{
    static const char value[] = "mortise/1 0 1795000000000\nlocalhost\n12345\netcd";
    struct message compare = {.size = 0}, put = {.size = 0}, op = {.size = 0}, txn = {.size = 0};
    const struct message *in = &bare->call.in;
    const uint8_t *at = NULL, *end = NULL;
    put_number(&compare, 2, 1); /* the create revision is 0 */
    put_bytes(&compare, 3, key, strlen(key));
    put_number(&compare, 5, 0);
    put_bytes(&put, 1, key, strlen(key));
    put_bytes(&put, 2, value, sizeof(value) - 1);
    put_number(&put, 3, bare->lease);
    put_message(&op, 2, &put);
    put_message(&txn, 1, &compare);
    put_message(&txn, 2, &op);
    ask(bare, "/etcdserverpb.KV/Txn", &txn);
    if (take_field(in->data + PREFIX, in->data + in->size, 2, NULL, NULL) != 1 ||
        take_field(in->data + PREFIX, in->data + in->size, 1, &at, &end) != 1)
        bench_die("%s is there already", key);
    return (int64_t)take_field(at, end, 3, NULL, NULL);
}

void etcd_delete_begin(struct etcd_bare *bare, const char *key)
{
    struct message request = {.size = 0};
    put_bytes(&request, 1, key, strlen(key));
    begin(bare, &bare->call, "/etcdserverpb.KV/DeleteRange", &request);
}

void etcd_finish(struct etcd_bare *bare)
{
    finish(bare);
}

void etcd_delete(struct etcd_bare *bare, const char *key)
{
    etcd_delete_begin(bare, key);
    finish(bare);
}

/* The stream is made anew for each watch, before the timed part. */
void etcd_watch(struct etcd_bare *bare, const char *key, int64_t revision)
{
    struct message create = {.size = 0}, request = {.size = 0};
    if (bare->watch.stream > 0) {
        nghttp2_submit_rst_stream(bare->session, NGHTTP2_FLAG_NONE, bare->watch.stream,
                                  NGHTTP2_CANCEL);
        for (flush(bare); !bare->watch.ended;)
            receive(bare);
    }
    put_bytes(&create, 1, key, strlen(key));
    put_number(&create, 3, revision + 1);
    put_bytes(&create, 5, "\0", 1); /* no puts */
    put_message(&request, 1, &create);
    bare->watch.is_stream = true;
    begin(bare, &bare->watch, "/etcdserverpb.Watch/Watch", &request);
    etcd_await_event(bare); /* the message that the watch was made */
}

void etcd_await_event(struct etcd_bare *bare)
{
    while (bare->watch.messages == 0)
        receive(bare);
    bare->watch.messages = 0;
    bare->watch.in.size = 0;
}

/* ---- the connection -------------------------------------------------------------------------------------- */

struct etcd_bare *etcd_connect(const char *server)
{
    struct etcd_bare *bare = calloc(1, sizeof(*bare));
    struct sockaddr_in address = {.sin_family = AF_INET};
    nghttp2_session_callbacks *callbacks;
    char host[32];
    unsigned port;
    int on = 1;
    if (bare == NULL || sscanf(server, "%31[0-9.]:%u", host, &port) != 2 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1)
        bench_die("not HOST:PORT: %s", server);
    snprintf(bare->server, sizeof(bare->server), "%s", server);
    address.sin_port = htons((uint16_t)port);
    bare->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(bare->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(bare->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        bench_die("%s: %s", server, strerror(errno));
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        bench_die("out of memory");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    if (nghttp2_session_client_new(&bare->session, callbacks, bare) != 0 ||
        nghttp2_submit_settings(bare->session, NGHTTP2_FLAG_NONE, NULL, 0) != 0)
        bench_die("out of memory");
    nghttp2_session_callbacks_del(callbacks);
    flush(bare);
    return bare;
}

void etcd_close(struct etcd_bare *bare)
{
    nghttp2_session_del(bare->session);
    close(bare->fd);
    free(bare);
}
