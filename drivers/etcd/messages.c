/* messages.c - writes and reads etcd's messages. The numbers of the fields are those of rpc.proto and kv.proto. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#define KVS_MAX (1 << 18) /* keys in one range of an answer */

const char *method_path(enum method method)
{
    static const char *const paths[METHOD_COUNT] = {
        [METHOD_TXN] = "/etcdserverpb.KV/Txn",
        [METHOD_DELETE] = "/etcdserverpb.KV/DeleteRange",
        [METHOD_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
        [METHOD_KEEP_ALIVE] = "/etcdserverpb.Lease/LeaseKeepAlive",
        [METHOD_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
        [METHOD_AUTHENTICATE] = "/etcdserverpb.Auth/Authenticate",
        [METHOD_STATUS] = "/etcdserverpb.Maintenance/Status",
        [METHOD_MEMBERS] = "/etcdserverpb.Cluster/MemberList",
        [METHOD_WATCH] = "/etcdserverpb.Watch/Watch",
    };
    return paths[method];
}

/* ---- transactions ---------------------------------------------------------------------------------------- */

enum { TXN_COMPARE = 1 };
enum { COMPARE_TARGET = 2, COMPARE_KEY = 3, COMPARE_RANGE_END = 64 };
/* The target of a comparison, and the number of the field that it is compared with. */
enum target { TARGET_CREATED = 1, TARGET_MODIFIED = 2, TARGET_LEASE = 4 };
enum { COMPARE_CREATED = 5, COMPARE_MODIFIED = 6, COMPARE_LEASE = 8 };

static void compare(struct writer *writer, struct bytes key, struct bytes end, enum target target,
                    unsigned field, int64_t value)
{
    size_t mark = write_begin(writer, TXN_COMPARE); /* the result is 0: equal */
    write_number(writer, COMPARE_TARGET, target);
    write_bytes(writer, COMPARE_KEY, key.data, key.size);
    write_chosen(writer, field, (uint64_t)value);
    if (end.size > 0)
        write_bytes(writer, COMPARE_RANGE_END, end.data, end.size);
    write_end(writer, mark);
}

void txn_if_created(struct writer *writer, struct bytes key, int64_t revision)
{
    compare(writer, key, (struct bytes){0}, TARGET_CREATED, COMPARE_CREATED, revision);
}

void txn_if_modified(struct writer *writer, struct bytes key, int64_t revision)
{
    compare(writer, key, (struct bytes){0}, TARGET_MODIFIED, COMPARE_MODIFIED, revision);
}

void txn_if_lease(struct writer *writer, struct bytes key, int64_t lease)
{
    compare(writer, key, (struct bytes){0}, TARGET_LEASE, COMPARE_LEASE, lease);
}

void txn_if_none(struct writer *writer, struct bytes begin, struct bytes end)
{
    compare(writer, begin, end, TARGET_CREATED, COMPARE_CREATED, 0);
}

enum { OP_RANGE = 1, OP_PUT = 2, OP_DELETE = 3 };

void txn_put(struct writer *writer, enum branch branch, const struct put *put)
{
    size_t outer = write_begin(writer, branch), mark = write_begin(writer, OP_PUT);
    write_bytes(writer, 1, put->key.data, put->key.size);
    if (!put->keep_value)
        write_bytes(writer, 2, put->value.data, put->value.size);
    write_number(writer, 3, (uint64_t)put->lease);
    write_number(writer, 5, put->keep_value);
    write_number(writer, 6, put->keep_lease);
    write_end(writer, mark);
    write_end(writer, outer);
}

void txn_range(struct writer *writer, enum branch branch, const struct range *range)
{
    static const unsigned char orders[] = {
        [ORDER_KEYS] = 0, [ORDER_OLDEST] = 1, [ORDER_NEWEST] = 2};
    size_t outer = write_begin(writer, branch), mark = write_begin(writer, OP_RANGE);
    write_bytes(writer, 1, range->begin.data, range->begin.size);
    if (range->end.size > 0)
        write_bytes(writer, 2, range->end.data, range->end.size);
    write_number(writer, 3, (uint64_t)range->limit);
    write_number(writer, 4, (uint64_t)range->revision);
    write_number(writer, 5, orders[range->order]);
    write_number(writer, 6, range->order == ORDER_KEYS ? 0 : 2); /* by create revision */
    write_number(writer, 8, range->keys_only);
    write_number(writer, 13, (uint64_t)range->made_by);
    write_end(writer, mark);
    write_end(writer, outer);
}

void txn_delete(struct writer *writer, enum branch branch, struct bytes key)
{
    size_t outer = write_begin(writer, branch), mark = write_begin(writer, OP_DELETE);
    write_bytes(writer, 1, key.data, key.size);
    write_end(writer, mark);
    write_end(writer, outer);
}

/* ---- the other requests ------------------------------------------------------------------------------------- */

void write_delete(struct writer *writer, struct bytes key)
{
    write_bytes(writer, 1, key.data, key.size);
}

void write_grant(struct writer *writer, int64_t lease, int64_t ttl_s)
{
    write_number(writer, 1, (uint64_t)ttl_s);
    write_number(writer, 2, (uint64_t)lease);
}

void write_lease(struct writer *writer, int64_t lease)
{
    write_number(writer, 1, (uint64_t)lease);
}

void write_user(struct writer *writer, const char *name, const char *password)
{
    write_bytes(writer, 1, name, strlen(name));
    write_bytes(writer, 2, password, strlen(password));
}

void write_watch(struct writer *writer, int64_t id, struct bytes begin, struct bytes end,
                 int64_t from_revision, bool puts, bool values)
{
    static const uint8_t no_puts = 0;
    size_t mark = write_begin(writer, 1);
    write_bytes(writer, 1, begin.data, begin.size);
    if (end.size > 0)
        write_bytes(writer, 2, end.data, end.size);
    write_number(writer, 3, (uint64_t)from_revision);
    if (!puts)
        write_bytes(writer, 5, &no_puts, sizeof(no_puts)); /* filters, packed: NOPUT */
    write_number(writer, 6, values);
    write_number(writer, 7, (uint64_t)id);
    write_end(writer, mark);
}

void write_unwatch(struct writer *writer, int64_t id)
{
    size_t mark = write_begin(writer, 2);
    write_number(writer, 1, (uint64_t)id);
    write_end(writer, mark);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static bool header_read(struct bytes message, struct header *header)
{
    struct reader reader = reader_of(message);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.number == 1)
            header->cluster = field.value;
        else if (field.number == 2)
            header->member = field.value;
        else if (field.number == 3)
            header->revision = (int64_t)field.value;
        else if (field.number == 4)
            header->term = field.value;
    }
    return !reader.failed;
}

static bool kv_read(struct bytes message, struct kv *kv)
{
    struct reader reader = reader_of(message);
    struct field field;
    *kv = (struct kv){0};
    while (read_field(&reader, &field)) {
        if (field.number == 1)
            kv->key = field.bytes;
        else if (field.number == 2)
            kv->created = (int64_t)field.value;
        else if (field.number == 3)
            kv->modified = (int64_t)field.value;
        else if (field.number == 5)
            kv->value = field.bytes;
        else if (field.number == 6)
            kv->lease = (int64_t)field.value;
    }
    return !reader.failed && kv->key.size > 0 && kv->created > 0;
}

static size_t count_fields(struct bytes message, unsigned number)
{
    struct reader reader = reader_of(message);
    struct field field;
    size_t count = 0;
    while (read_field(&reader, &field))
        count += field.number == number && field.is_bytes;
    return count;
}

static bool range_read(struct bytes message, struct kvs *kvs)
{
    struct reader reader = reader_of(message);
    struct field field;
    size_t count = count_fields(message, 2);
    if (count > KVS_MAX)
        return false;
    kvs->all = count == 0 ? NULL : calloc(count, sizeof(*kvs->all));
    if (count > 0 && kvs->all == NULL)
        return false;
    while (read_field(&reader, &field)) {
        if (field.number == 2 && field.is_bytes) {
            if (!kv_read(field.bytes, &kvs->all[kvs->count++]))
                return false;
        } else if (field.number == 4)
            kvs->total = (int64_t)field.value;
    }
    return !reader.failed;
}

static bool deleted_read(struct bytes message, struct kvs *kvs)
{
    struct reader reader = reader_of(message);
    struct field field;
    while (read_field(&reader, &field))
        if (field.number == 2)
            kvs->total = (int64_t)field.value;
    return !reader.failed;
}

static bool op_read(struct bytes message, struct kvs *kvs)
{
    struct reader reader = reader_of(message);
    struct field field;
    bool is_good = true, is_read = false;
    while (is_good && read_field(&reader, &field)) {
        if (field.number > 3 || !field.is_bytes)
            continue;
        is_good = !is_read; /* one of them */
        is_read = true;
        if (is_good && field.number == OP_RANGE)
            is_good = range_read(field.bytes, kvs);
        else if (is_good && field.number == OP_DELETE)
            is_good = deleted_read(field.bytes, kvs);
    }
    return is_good && !reader.failed;
}

static bool txn_field(const struct field *field, struct answer *answer)
{
    if (field->number == 2)
        answer->done = field->value != 0;
    else if (field->number == 3 && field->is_bytes)
        return answer->op_count < TXN_OPS_MAX &&
               op_read(field->bytes, &answer->ops[answer->op_count++]);
    return true;
}

static void lease_field(const struct field *field, struct answer *answer)
{
    if (field->number == 2)
        answer->lease = (int64_t)field->value;
    else if (field->number == 3)
        answer->ttl_s = (int64_t)field->value;
}

static void status_field(const struct field *field, struct answer *answer)
{
    if (field->number == 2 && field->is_bytes)
        answer->version = field->bytes;
    else if (field->number == 10)
        answer->is_learner = field->value != 0;
    else if (field->number == 8 && field->is_bytes)
        for (size_t i = 0; i < sizeof(answer->alarms) / sizeof(answer->alarms[0]); i++)
            if (answer->alarms[i].size == 0) {
                answer->alarms[i] = field->bytes;
                break;
            }
}

static bool member_votes(struct bytes message)
{
    struct reader reader = reader_of(message);
    struct field field;
    bool is_learner = false;
    while (read_field(&reader, &field))
        if (field.number == 5)
            is_learner = field.value != 0;
    return !is_learner;
}

bool answer_read(enum method method, struct bytes message, struct answer *answer)
{
    struct reader reader = reader_of(message);
    struct field field;
    bool is_good = true;
    *answer = (struct answer){0};
    while (is_good && read_field(&reader, &field)) {
        if (field.number == 1)
            is_good = field.is_bytes && header_read(field.bytes, &answer->header);
        else if (method == METHOD_TXN)
            is_good = txn_field(&field, answer);
        else if (method == METHOD_DELETE && field.number == 2)
            answer->ops[0].total = (int64_t)field.value;
        else if (method == METHOD_GRANT || method == METHOD_KEEP_ALIVE)
            lease_field(&field, answer);
        else if (method == METHOD_STATUS)
            status_field(&field, answer);
        else if (method == METHOD_MEMBERS && field.number == 2 && field.is_bytes)
            answer->members += member_votes(field.bytes);
        else if (method == METHOD_AUTHENTICATE && field.number == 2 && field.is_bytes)
            answer->token = field.bytes;
    }
    return is_good && !reader.failed;
}

void answer_free(struct answer *answer)
{
    for (size_t i = 0; i < TXN_OPS_MAX; i++)
        free(answer->ops[i].all);
    *answer = (struct answer){0};
}

static bool event_read(struct bytes message, struct watch_answer *answer)
{
    struct reader reader = reader_of(message);
    struct field field;
    bool deleted = false;
    while (read_field(&reader, &field))
        if (field.number == 1)
            deleted = field.value == 1;
    answer->deleted |= deleted;
    answer->put |= !deleted;
    return !reader.failed;
}

bool watch_answer_read(struct bytes message, struct watch_answer *answer)
{
    struct reader reader = reader_of(message);
    struct field field;
    bool is_good = true, made = false, canceled = false;
    *answer = (struct watch_answer){0};
    while (is_good && read_field(&reader, &field)) {
        if (field.number == 1)
            is_good = field.is_bytes && header_read(field.bytes, &answer->header);
        else if (field.number == 2)
            answer->id = (int64_t)field.value;
        else if (field.number == 3)
            made = field.value != 0;
        else if (field.number == 4)
            canceled = field.value != 0;
        else if (field.number == 5)
            answer->compacted = (int64_t)field.value;
        else if (field.number == 6 && field.is_bytes)
            answer->reason = field.bytes;
        else if (field.number == 11 && field.is_bytes)
            is_good = event_read(field.bytes, answer);
    }
    answer->kind = canceled ? WATCH_CANCELED : made ? WATCH_MADE : WATCH_EVENTS;
    return is_good && !reader.failed;
}

bool watch_deletion(struct bytes message, struct bytes key, int64_t from, int64_t *revision,
                    struct bytes *value)
{
    struct reader reader = reader_of(message);
    struct field field, part;
    while (read_field(&reader, &field)) {
        struct kv kv = {0}, before = {0};
        bool deleted = false;
        if (field.number != 11 || !field.is_bytes)
            continue;
        struct reader event = reader_of(field.bytes);
        while (read_field(&event, &part)) {
            if (part.number == 1)
                deleted = part.value == 1;
            else if (part.number == 2 && part.is_bytes)
                kv_read(part.bytes, &kv);
            else if (part.number == 3 && part.is_bytes)
                kv_read(part.bytes, &before);
        }
        if (!deleted || kv.modified < from || kv.key.size != key.size ||
            memcmp(kv.key.data, key.data, key.size) != 0)
            continue;
        *revision = kv.modified;
        *value = before.value;
        return true;
    }
    return false;
}
