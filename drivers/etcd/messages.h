/* messages.h - the messages of etcd's API (etcdserverpb) that the driver uses: writes requests, and reads answers.
 *
 * Everything that reads or writes keys is a transaction (KV/Txn), except for the delete of one key without a condition. No
 * I/O. */
#ifndef MORTISE_ETCD_MESSAGES_H
#define MORTISE_ETCD_MESSAGES_H

#include "wire.h"

enum method {
    METHOD_TXN,
    METHOD_DELETE, /* of one key */
    METHOD_GRANT,
    METHOD_KEEP_ALIVE,
    METHOD_REVOKE,
    METHOD_AUTHENTICATE,
    METHOD_STATUS,
    METHOD_MEMBERS,
    METHOD_WATCH,
    METHOD_COUNT
};

/* "/etcdserverpb.KV/Txn" */
const char *method_path(enum method method);

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* The conditions of a transaction (all must hold). */
void txn_if_created(struct writer *writer, struct bytes key,
                    int64_t revision); /* 0: there is no such key */
void txn_if_modified(struct writer *writer, struct bytes key, int64_t revision);
void txn_if_lease(struct writer *writer, struct bytes key, int64_t lease);
void txn_if_none(struct writer *writer, struct bytes begin,
                 struct bytes end); /* no key in [begin, end) */

/* Operations that are executed if the conditions hold, or if they do not. */
enum branch { BRANCH_THEN = 2, BRANCH_ELSE = 3 };

struct put {
    struct bytes key, value;
    int64_t lease;
    bool keep_value, keep_lease; /* keep what the key has */
};
void txn_put(struct writer *writer, enum branch branch, const struct put *put);

enum order { ORDER_KEYS, ORDER_OLDEST, ORDER_NEWEST }; /* the latter two by create revision */
struct range {
    struct bytes begin, end; /* [begin, end); an empty end: the key `begin` alone */
    enum order order;
    int64_t limit;    /* 0: no limit */
    int64_t made_by;  /* only keys with a create revision up to this; 0: all */
    int64_t revision; /* as of this revision; 0: now */
    bool keys_only;
};
void txn_range(struct writer *writer, enum branch branch, const struct range *range);
void txn_delete(struct writer *writer, enum branch branch, struct bytes key);

void write_delete(struct writer *writer, struct bytes key);
void write_grant(struct writer *writer, int64_t lease, int64_t ttl_s);
void write_lease(struct writer *writer, int64_t lease); /* keep-alive, revoke */
void write_user(struct writer *writer, const char *name, const char *password);
/* puts: report changes of the key, too; else only deletions. values: report what a deleted key had */
void write_watch(struct writer *writer, int64_t id, struct bytes begin, struct bytes end,
                 int64_t from_revision, bool puts, bool values);
void write_unwatch(struct writer *writer, int64_t id);

/* ---- answers: their pointers point into the message ------------------------------------------------------------ */

struct header {
    uint64_t cluster, member, term;
    int64_t revision;
};

struct kv {
    struct bytes key, value;
    int64_t created, modified, lease;
};

struct kvs {
    struct kv *all;
    size_t count;
    int64_t total; /* keys in the range, regardless of the limit */
};

#define TXN_OPS_MAX 8

struct answer {
    struct header header;
    bool done; /* txn: the conditions held */
    struct kvs ops
        [TXN_OPS_MAX]; /* txn: of each operation; delete: the one. Of a delete, `total` is how many keys there were */
    size_t op_count;
    int64_t lease, ttl_s;   /* grant, keep-alive */
    struct bytes token;     /* authenticate */
    struct bytes version;   /* status */
    bool is_learner;        /* likewise */
    struct bytes alarms[4]; /* likewise */
    size_t members;         /* members: the number of voting members */
};

enum watch_kind { WATCH_MADE, WATCH_CANCELED, WATCH_EVENTS };
struct watch_answer {
    struct header header;
    enum watch_kind kind;
    int64_t id;
    int64_t compacted;   /* canceled: the oldest revision that still exists */
    struct bytes reason; /* canceled */
    bool deleted, put;   /* events: which kinds there were */
};

/* False: the message makes no sense, or there is no memory. Call answer_free() in any case. */
bool answer_read(enum method method, struct bytes message, struct answer *answer);
void answer_free(struct answer *answer);
bool watch_answer_read(struct bytes message, struct watch_answer *answer);
/* Finds the deletion of a key at the revision `from` or later, in a message of a watch that was read before. False: there is
 * none. revision: of the deletion. value: what the key had, if the watch asked for that, and the server still has it. */
bool watch_deletion(struct bytes message, struct bytes key, int64_t from, int64_t *revision,
                    struct bytes *value);

#endif
