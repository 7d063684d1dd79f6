/* fuzz_etcd.c - libFuzzer's entry to what the etcd driver reads: answers and events of the servers, and the keys and values that
 * other clients write. The first byte says which. The checks, besides not crashing: what is read points into the message, and a
 * queue that makes no sense is not believed. Tests feed it with mutate.c. */
#include "corpus.h"

#include "driver.h"
#include "queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void check_inside(struct bytes part, struct bytes whole)
{
    if (part.size > 0)
        assert(part.data >= whole.data && part.data + part.size <= whole.data + whole.size);
}

static void check_queue(const struct answer *answer)
{
    static const struct kind kinds[] = {{0}, {.shared = true}, {.shared = true, .permits = 3}};
    static const size_t ranges[] = {1, 4, 5};
    struct queue_view view;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (size_t count = 0; count <= answer->op_count; count++) {
            struct bytes key =
                answer->ops[0].count > 0 ? answer->ops[0].all[0].key : (struct bytes){0};
            bool good = queue_look(answer->ops, count, kinds[i], key, &view);
            assert(good == (count == ranges[i]));
        }
}

static void fuzz_answer(enum method method, struct bytes message)
{
    struct answer answer;
    bool is_good = answer_read(method, message, &answer);
    assert(answer.op_count <= TXN_OPS_MAX);
    check_inside(answer.token, message);
    check_inside(answer.version, message);
    for (size_t i = 0; i < answer.op_count; i++)
        for (size_t k = 0; k < answer.ops[i].count; k++) {
            mortise_info info = {.size = sizeof(info)};
            const struct kv *kv = &answer.ops[i].all[k];
            check_inside(kv->key, message);
            check_inside(kv->value, message);
            if (is_good) {
                assert(kv->key.size > 0 && kv->created > 0);
                note_holder(kv, 0, &info);
            }
        }
    if (is_good)
        check_queue(&answer);
    answer_free(&answer);
}

static void fuzz_watch(struct bytes message)
{
    struct watch_answer answer;
    if (watch_answer_read(message, &answer))
        check_inside(answer.reason, message);
    int64_t revision;
    struct bytes value;
    if (watch_deletion(message, (struct bytes){(const uint8_t *)"a", 1}, 0, &revision, &value))
        check_inside(value, message);
}

static void fuzz_name(struct bytes text)
{
    char name[MORTISE_NAME_MAX], again[ESCAPED_MAX];
    size_t length = name_read((const char *)text.data, text.size, name, sizeof(name));
    assert(length <= sizeof(name));
    if (length > 0) { /* each name has one form */
        size_t size = name_write(name, length, again);
        assert(size == text.size && memcmp(again, text.data, size) == 0);
    }
    contender_read((const char *)text.data, text.size);
}

static void fuzz_note(struct bytes value)
{
    mortise_info info = {.size = sizeof(info)};
    struct kv kv = {.key = {(const uint8_t *)"a/b", 3}, .value = value, .created = 1};
    struct kvs kvs = {.all = &kv, .count = 1};
    int64_t base;
    note_read(value, &info);
    assert(memchr(info.host, '\0', sizeof(info.host)) != NULL);
    assert(memchr(info.program, '\0', sizeof(info.program)) != NULL);
    base_read(&kvs, 7, &base);
    assert(base >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct bytes rest = {data + 1, size - 1};
    unsigned how = data[0] % (METHOD_COUNT + 2);
    if (how == METHOD_WATCH)
        fuzz_watch(rest);
    else if (how < METHOD_COUNT)
        fuzz_answer((enum method)how, rest);
    else if (how == METHOD_COUNT)
        fuzz_name(rest);
    else
        fuzz_note(rest);
    return 0;
}
