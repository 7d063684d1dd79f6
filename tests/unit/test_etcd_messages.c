/* test_etcd_messages.c - the encoding of Protocol Buffers, and etcd's messages: bytes that are known from etcd's own client, the
 * ends of numbers, messages that are cut after each byte. */
#include "etcd/messages.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static struct bytes bytes(const char *text)
{
    return (struct bytes){(const uint8_t *)text, strlen(text)};
}

#define IS(writer, text) is((writer), (text), sizeof(text) - 1)
static void is(struct writer *writer, const char *wanted, size_t size)
{
    CU_ASSERT_FALSE(writer->failed);
    CU_ASSERT_EQUAL_FATAL(writer->size, size);
    CU_ASSERT_EQUAL(memcmp(writer->data, wanted, size), 0);
    writer_free(writer);
}

/* ---- numbers -------------------------------------------------------------------------------------------- */

static void there_and_back(uint64_t number, size_t size)
{
    struct writer writer = {0};
    struct field field;
    write_chosen(&writer, 5, number);
    CU_ASSERT_EQUAL(writer.size, size + 1);
    struct reader reader = {writer.data, writer.data + writer.size, false};
    CU_ASSERT_TRUE(read_field(&reader, &field));
    CU_ASSERT(field.number == 5 && !field.is_bytes && field.value == number);
    CU_ASSERT_FALSE(read_field(&reader, &field));
    CU_ASSERT_FALSE(reader.failed);
    for (size_t cut = 1; cut < writer.size; cut++) {
        reader = (struct reader){writer.data, writer.data + cut, false};
        CU_ASSERT_FALSE(read_field(&reader, &field));
        CU_ASSERT_TRUE(reader.failed);
    }
    writer_free(&writer);
}

static void test_numbers(void)
{
    for (unsigned shift = 0; shift < 64; shift++) {
        there_and_back(UINT64_C(1) << shift, shift / 7 + 1);
        there_and_back((UINT64_C(1) << shift) - 1, shift == 0 ? 1 : (shift - 1) / 7 + 1);
    }
    there_and_back(UINT64_MAX, 10);
    there_and_back((uint64_t)INT64_C(-1), 10);
}

/* The default is left out; but not of a `oneof`. */
static void test_defaults(void)
{
    struct writer writer = {0};
    write_number(&writer, 1, 0);
    CU_ASSERT_EQUAL(writer.size, 0);
    write_chosen(&writer, 1, 0);
    IS(&writer, "\x08\0");
}

static void test_nested(void)
{
    struct writer writer = {0};
    char long_text[300];
    memset(long_text, 'x', sizeof(long_text));
    size_t outer = write_begin(&writer, 2), inner = write_begin(&writer, 3);
    write_bytes(&writer, 1, long_text, sizeof(long_text));
    write_end(&writer, inner);
    write_end(&writer, outer);
    CU_ASSERT_EQUAL(writer.size, 300 + 3 * 3);
    CU_ASSERT_EQUAL(memcmp(writer.data, "\x12\xb2\x02\x1a\xaf\x02\x0a\xac\x02xxx", 12), 0);
    writer_free(&writer);
}

#define READ_FAILS(text) read_fails((text), sizeof(text) - 1)
static void read_fails(const char *text, size_t size)
{
    struct reader reader = reader_of((struct bytes){(const uint8_t *)text, size});
    struct field field;
    while (read_field(&reader, &field))
        ;
    CU_ASSERT_TRUE(reader.failed);
}

static void test_nonsense(void)
{
    struct reader reader = reader_of((struct bytes){(const uint8_t *)"\x0d"
                                                                     "1234\x09"
                                                                     "12345678",
                                                    14});
    struct field field;
    READ_FAILS("\x00\x01");                                         /* field 0 */
    READ_FAILS("\x0b\x01");                                         /* a group */
    READ_FAILS("\x0a\x05xxxx");                                     /* a text that is cut */
    READ_FAILS("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01xxxx"); /* longer than memory */
    READ_FAILS("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"); /* eleven bytes */
    READ_FAILS("\x09xxxxxxx");                                      /* seven of eight */
    READ_FAILS("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01");     /* no such field */
    CU_ASSERT(read_field(&reader, &field) &&
              field.number == 1); /* types that nothing here has are skipped */
    CU_ASSERT(read_field(&reader, &field) && field.number == 1);
    CU_ASSERT_FALSE(reader.failed);
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

static void test_requests(void)
{
    struct writer writer = {0};
    write_grant(&writer, 7, 2);
    IS(&writer, "\x08\x02\x10\x07");
    write_lease(&writer, 300);
    IS(&writer, "\x08\xac\x02");
    write_user(&writer, "me", "");
    IS(&writer, "\x0a\x02me\x12\0");
    write_unwatch(&writer, 5);
    IS(&writer, "\x12\x02\x08\x05");
    write_watch(&writer, 5, bytes("a"), (struct bytes){0}, 9, false, false);
    IS(&writer, "\x0a\x0a\x0a\x01"
                "a\x18\x09\x2a\x01\0\x38\x05");
    write_watch(&writer, 5, bytes("a"), bytes("b"), 9, true, true);
    IS(&writer, "\x0a\x0c\x0a\x01"
                "a\x12\x01"
                "b\x18\x09\x30\x01\x38\x05");
    write_delete(&writer, bytes("k"));
    IS(&writer, "\x0a\x01k");
}

static void test_transactions(void)
{
    struct writer writer = {0};
    txn_if_created(&writer, bytes("k"), 0); /* "there is no such key" must be said */
    IS(&writer, "\x0a\x07\x10\x01\x1a\x01k\x28\0");
    txn_if_modified(&writer, bytes("k"), 3);
    IS(&writer, "\x0a\x07\x10\x02\x1a\x01k\x30\x03");
    txn_if_lease(&writer, bytes("k"), 3);
    IS(&writer, "\x0a\x07\x10\x04\x1a\x01k\x40\x03");
    txn_if_none(&writer, bytes("a"), bytes("b"));
    IS(&writer, "\x0a\x0b\x10\x01\x1a\x01"
                "a\x28\0\x82\x04\x01"
                "b");
    txn_put(&writer, BRANCH_THEN,
            &(struct put){.key = bytes("k"), .value = bytes("v"), .lease = 9});
    IS(&writer, "\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x09");
    txn_put(&writer, BRANCH_ELSE,
            &(struct put){.key = bytes("k"), .keep_value = true, .keep_lease = true});
    IS(&writer, "\x1a\x09\x12\x07\x0a\x01k\x28\x01\x30\x01");
    txn_range(&writer, BRANCH_THEN,
              &(struct range){.begin = bytes("a"),
                              .end = bytes("b"),
                              .order = ORDER_NEWEST,
                              .limit = 2,
                              .made_by = 5,
                              .keys_only = true});
    IS(&writer, "\x12\x12\x0a\x10\x0a\x01"
                "a\x12\x01"
                "b\x18\x02\x28\x02\x30\x02\x40\x01\x68\x05");
    txn_range(&writer, BRANCH_THEN, &(struct range){.begin = bytes("a"), .revision = 4});
    IS(&writer, "\x12\x07\x0a\x05\x0a\x01"
                "a\x20\x04");
    txn_delete(&writer, BRANCH_THEN, bytes("k"));
    IS(&writer, "\x12\x05\x1a\x03\x0a\x01k");
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

#define HEADER "\x0a\x08\x08\x05\x10\x06\x18\x07\x20\x02"
#define KEY "\x12\x0e\x0a\x01k\x10\x03\x18\x04\x20\x01\x2a\x01v\x30\x09"
#define TXN HEADER "\x10\x01\x1a\x14\x0a\x12" KEY "\x20\x07\x1a\x04\x1a\x02\x10\x02"

/* In memory of its exact size, so that a sanitizer sees what is read behind it. */
static bool read_part(enum method method, const char *text, size_t size, struct answer *answer,
                      uint8_t **copy)
{
    *copy = malloc(size + 1);
    memcpy(*copy, text, size);
    return answer_read(method, (struct bytes){*copy, size}, answer);
}

/* A put of "k", deletions of "j" and "k" (which had "v", and the revision 4), in one message. */
static void test_deletions(void)
{
    static const char events[] = "\x5a\x07\x12\x05\x0a\x01k\x18\x05"
                                 "\x5a\x09\x08\x01\x12\x05\x0a\x01j\x18\x06"
                                 "\x5a\x19\x08\x01\x12\x05\x0a\x01k\x18\x07"
                                 "\x1a\x0e\x0a\x01k\x10\x03\x18\x04\x20\x01\x2a\x01v\x30\x09";
    int64_t revision = 0;
    struct bytes value, message = {(const uint8_t *)events, sizeof(events) - 1};
    CU_ASSERT_TRUE(watch_deletion(message, bytes("k"), 7, &revision, &value));
    CU_ASSERT(revision == 7 && value.size == 1 && value.data[0] == 'v');
    CU_ASSERT_TRUE(watch_deletion(message, bytes("j"), 6, &revision, &value));
    CU_ASSERT(revision == 6 && value.size == 0);
    CU_ASSERT_FALSE(watch_deletion(message, bytes("k"), 8, &revision, &value));
    CU_ASSERT_FALSE(watch_deletion(message, bytes("i"), 0, &revision, &value));
    message.size = 9;
    CU_ASSERT_FALSE(watch_deletion(message, bytes("k"), 0, &revision, &value));
}

static void test_txn_answer(void)
{
    uint8_t *copy;
    struct answer answer;
    CU_ASSERT_TRUE(read_part(METHOD_TXN, TXN, sizeof(TXN) - 1, &answer, &copy));
    CU_ASSERT(answer.header.cluster == 5 && answer.header.member == 6);
    CU_ASSERT(answer.header.revision == 7 && answer.header.term == 2);
    CU_ASSERT(answer.done && answer.op_count == 2);
    CU_ASSERT(answer.ops[0].count == 1 && answer.ops[0].total == 7);
    const struct kv *kv = answer.ops[0].all;
    CU_ASSERT(kv->key.size == 1 && kv->key.data[0] == 'k' && kv->value.data[0] == 'v');
    CU_ASSERT(kv->created == 3 && kv->modified == 4 && kv->lease == 9);
    CU_ASSERT_EQUAL(answer.ops[1].total, 2);
    answer_free(&answer);
    free(copy);
    for (size_t cut = 0; cut < sizeof(TXN) - 1; cut++) { /* between fields it is another message */
        read_part(METHOD_TXN, TXN, cut, &answer, &copy);
        CU_ASSERT(answer.op_count <= 2);
        answer_free(&answer);
        free(copy);
    }
}

#define ANSWER(method, text) read_part((method), (text), sizeof(text) - 1, &answer, &copy)
#define NINE(text) text text text text text text text text text

static void test_answers(void)
{
    uint8_t *copy;
    struct answer answer;
    CU_ASSERT(ANSWER(METHOD_GRANT, HEADER "\x10\x09\x18\x02"));
    CU_ASSERT(answer.lease == 9 && answer.ttl_s == 2);
    free(copy);
    CU_ASSERT(ANSWER(METHOD_KEEP_ALIVE, HEADER "\x10\x09"));
    CU_ASSERT(answer.lease == 9 && answer.ttl_s == 0);
    free(copy);
    CU_ASSERT(ANSWER(METHOD_AUTHENTICATE, HEADER "\x12\x05token"));
    CU_ASSERT(answer.token.size == 5 && memcmp(answer.token.data, "token", 5) == 0);
    free(copy);
    CU_ASSERT(ANSWER(METHOD_STATUS, HEADER "\x12\x05"
                                           "3.4.1\x50\x01"));
    CU_ASSERT(answer.version.size == 5 && answer.is_learner);
    free(copy);
    CU_ASSERT(ANSWER(METHOD_DELETE, HEADER "\x10\x01"));
    CU_ASSERT_EQUAL(answer.ops[0].total, 1);
    answer_free(&answer);
    free(copy);
    CU_ASSERT_FALSE(
        ANSWER(METHOD_TXN, HEADER NINE("\x1a\0"))); /* more operations than were asked for */
    answer_free(&answer);
    free(copy);
    CU_ASSERT_FALSE(
        ANSWER(METHOD_TXN, HEADER "\x1a\x06\x0a\x04\x12\x02\x10\x03")); /* a key without a name */
    answer_free(&answer);
    free(copy);
    CU_ASSERT_FALSE(ANSWER(METHOD_TXN, HEADER "\x1a\x04\x0a\0\x0a\0")); /* two in one */
    answer_free(&answer);
    free(copy);
}

#define WATCHED(text)                                                                              \
    watch_answer_read((struct bytes){(const uint8_t *)(text), sizeof(text) - 1}, &answer)

static void test_watch_answers(void)
{
    struct watch_answer answer;
    CU_ASSERT(WATCHED(HEADER "\x10\x03\x18\x01") && answer.kind == WATCH_MADE && answer.id == 3);
    CU_ASSERT(WATCHED(HEADER "\x10\x03\x20\x01\x28\x09\x32\x03why"));
    CU_ASSERT(answer.kind == WATCH_CANCELED && answer.compacted == 9 && answer.reason.size == 3);
    CU_ASSERT(WATCHED(HEADER "\x10\x03\x5a\x02\x08\x01"));
    CU_ASSERT(answer.kind == WATCH_EVENTS && answer.deleted && !answer.put);
    CU_ASSERT(WATCHED(HEADER "\x10\x03\x5a\x02\x08\x01\x5a\0") && answer.deleted && answer.put);
    CU_ASSERT(WATCHED(HEADER "\x10\x03") && !answer.deleted && !answer.put); /* progress */
    CU_ASSERT_FALSE(WATCHED(HEADER "\x10\x03\x5a\x02\x08"));
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"numbers", test_numbers},
        {"defaults", test_defaults},
        {"nested", test_nested},
        {"nonsense", test_nonsense},
        {"requests", test_requests},
        {"transactions", test_transactions},
        {"a transaction's answer", test_txn_answer},
        {"other answers", test_answers},
        {"events", test_watch_answers},
        {"deletions", test_deletions},
        CU_TEST_INFO_NULL,
    };
    return suite_run("etcd messages", tests);
}
