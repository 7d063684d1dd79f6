/* test_etcd_grpc.c - gRPC's framing, against a server of libnghttp2 in memory: messages in pieces of every size, several in one
 * frame, ends without a status, lengths that nobody believes, GOAWAY. */
#include "etcd/grpc.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

struct call {
    struct grpc_call grpc; /* first */
    int messages, ends;
    size_t bytes;
    bool refuses; /* its messages make no sense to it */
};

static bool got_message(struct grpc_call *grpc, struct bytes message)
{
    struct call *call = (struct call *)grpc;
    call->messages++;
    call->bytes += message.size;
    return !call->refuses;
}

static void has_ended(struct grpc_call *grpc)
{
    ((struct call *)grpc)->ends++;
}

static const struct grpc_events events = {.message = got_message, .ended = has_ended};

/* A frame: its type, flags and stream. */
static void frame(struct grpc *grpc, uint8_t type, uint8_t flags, uint8_t stream,
                  const char *payload, size_t size, size_t piece)
{
    uint8_t bytes[400] = {0, (uint8_t)(size >> 8), (uint8_t)size, type, flags, 0, 0, 0, stream};
    CU_ASSERT_FATAL(size + 9 <= sizeof(bytes));
    memcpy(bytes + 9, payload, size);
    for (size_t at = 0; at < size + 9; at += piece) {
        size_t now = size + 9 - at < piece ? size + 9 - at : piece;
        uint8_t *exact = malloc(now);
        memcpy(exact, bytes + at, now);
        grpc_receive(grpc, exact, now);
        free(exact);
    }
}

#define FRAME(type, flags, stream, payload)                                                        \
    frame(&grpc, (type), (flags), (stream), (payload), sizeof(payload) - 1, piece)
#define SETTINGS FRAME(4, 0, 0, "")
#define OK_HEADERS FRAME(1, 4, 1, "\x88")
#define DATA(payload) FRAME(0, 0, 1, payload)
#define STATUS(number) FRAME(1, 5, 1, "\0\x0bgrpc-status\x01" number)
#define ONE                                                                                        \
    "\0\0\0\0\x03"                                                                                 \
    "abc"

static struct grpc grpc;

/* A call that was sent, to a server that has said hello. */
static void begin(struct call *call, size_t piece)
{
    const uint8_t *data;
    size_t mark;
    *call = (struct call){.grpc.events = &events};
    CU_ASSERT_TRUE_FATAL(grpc_open(&grpc, "127.0.0.1:1", false));
    grpc_begin(&call->grpc, &mark);
    write_raw(&call->grpc.out, "hello", 5);
    grpc_end(&call->grpc, mark);
    CU_ASSERT_EQUAL(memcmp(call->grpc.out.data, "\0\0\0\0\x05hello", 10), 0);
    CU_ASSERT_TRUE(grpc_start(&grpc, &call->grpc, "/a/b", NULL, 100));
    while (grpc_send(&grpc, &data) > 0)
        ;
    SETTINGS;
}

static void end(struct call *call)
{
    grpc_close(&grpc);
    grpc_call_free(&call->grpc);
}

static void test_pieces(void)
{
    for (size_t piece = 1; piece < 60; piece++) {
        struct call call;
        begin(&call, piece);
        OK_HEADERS;
        DATA("\0\0\0");
        DATA("\0\x03"
             "ab");
        CU_ASSERT_EQUAL(call.messages, 0);
        DATA("c" ONE ONE "\0\0\0\0\0");
        CU_ASSERT(call.messages == 4 && call.bytes == 9 && call.ends == 0);
        STATUS("0");
        CU_ASSERT(call.ends == 1 && call.grpc.status == GRPC_OK && !grpc.is_away);
        end(&call);
    }
}

static void test_statuses(void)
{
    size_t piece = 500;
    struct call call;
    begin(&call, piece);
    FRAME(1, 5, 1,
          "\x88\0\x0bgrpc-status\x01"
          "8\0\x0cgrpc-message\x04"
          "full");
    CU_ASSERT(call.ends == 1 && call.grpc.status == GRPC_RESOURCE_EXHAUSTED);
    CU_ASSERT_STRING_EQUAL(call.grpc.text, "full");
    end(&call);
    begin(&call, piece);
    FRAME(1, 5, 1, "\x88\0\x0bgrpc-status\x01x"); /* no number is no success */
    CU_ASSERT(call.ends == 1 && call.grpc.status == GRPC_UNKNOWN);
    end(&call);
    begin(&call, piece);
    FRAME(1, 5, 1, "\x8d"); /* 404 */
    CU_ASSERT(call.ends == 1 && call.grpc.status == GRPC_NO_STATUS);
    CU_ASSERT_PTR_NOT_NULL(strstr(call.grpc.text, "HTTP status 404"));
    end(&call);
    begin(&call, piece);
    OK_HEADERS;
    DATA(ONE);
    FRAME(3, 0, 1, "\0\0\0\x02"); /* RST_STREAM */
    CU_ASSERT(call.ends == 1 && call.grpc.status == GRPC_NO_STATUS && call.messages == 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(call.grpc.text, "stream reset"));
    end(&call);
}

static void test_nonsense(void)
{
    size_t piece = 500;
    struct call call;
    begin(&call, piece);
    OK_HEADERS;
    DATA("\0\x01\0\0\x01"); /* a byte more than GRPC_MESSAGE_MAX */
    CU_ASSERT(grpc.is_away && call.messages == 0);
    CU_ASSERT_STRING_EQUAL(grpc.text, "a message is too large");
    end(&call);
    begin(&call, piece);
    OK_HEADERS;
    DATA("\x01\0\0\0\x01"
         "a");
    CU_ASSERT(grpc.is_away && call.messages == 0);
    end(&call);
    begin(&call, piece);
    call.refuses = true;
    OK_HEADERS;
    DATA(ONE ONE);
    CU_ASSERT(grpc.is_away && call.messages == 1);
    end(&call);
    begin(&call, piece);
    FRAME(7, 0, 0, "\0\0\0\0\0\0\0\0"); /* GOAWAY */
    CU_ASSERT(grpc.is_away && strstr(grpc.text, "GOAWAY") != NULL);
    end(&call);
}

/* What comes for a call that was canceled is dropped. */
static void test_canceled(void)
{
    size_t piece = 500;
    struct call call;
    begin(&call, piece);
    OK_HEADERS;
    grpc_cancel(&grpc, &call.grpc);
    DATA(ONE);
    STATUS("0");
    CU_ASSERT(call.messages == 0 && call.ends == 0 && !grpc.is_away);
    end(&call);
}

/* Are these the next bytes for the server? "": none are. */
static void sends(const char *wanted, size_t size)
{
    const uint8_t *data;
    ssize_t count = grpc_send(&grpc, &data);
    CU_ASSERT_EQUAL(count, (ssize_t)size);
    CU_ASSERT(count != (ssize_t)size || size == 0 || memcmp(data, wanted, size) == 0);
}

#define PONG(payload) "\0\0\x08\x06\x01\0\0\0\0" payload

/* A PING waits until it is to be answered, or until the next one comes. */
static void test_pings(void)
{
    size_t piece = 500;
    struct call call;
    const uint8_t *data;
    begin(&call, piece);
    while (grpc_send(&grpc, &data) > 0)
        ;
    FRAME(6, 0, 0, "12345678");
    FRAME(6, 1, 0, "answered"); /* an answer to none of ours */
    sends("", 0);
    FRAME(6, 0, 0, "abcdefgh");
    sends(PONG("12345678"), 17);
    sends("", 0);
    grpc_ping_answer(&grpc);
    grpc_ping_answer(&grpc);
    sends(PONG("abcdefgh"), 17);
    sends("", 0);
    CU_ASSERT_FALSE(grpc.is_away);
    end(&call);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"pieces", test_pieces},     {"statuses", test_statuses}, {"nonsense", test_nonsense},
        {"canceled", test_canceled}, {"pings", test_pings},       CU_TEST_INFO_NULL,
    };
    return suite_run("etcd grpc", tests);
}
