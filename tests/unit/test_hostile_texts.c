/* test_hostile_texts.c - sizes and texts that a driver gets wrong, or that a hostile server chose: a record larger than its
 * buffer, a holder and a list whose texts have no end, a message that is not one printable line. */
#include "rig.h"

#include <malloc.h>

static bool answer_too_much(mortise_op *op)
{
    if (op->kind != MORTISE_OP_READ)
        return false;
    memset(op->buffer, 'r', op->buffer_size);
    op->record_size = op->buffer_size + 100000;
    op->record_version = 1;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

/* A record that claims to be larger than its buffer: nothing is read beyond the buffer. */
static void test_record_of_any_size(void)
{
    static struct rig client;
    static char record[MORTISE_RECORD_MAX + 100000];
    size_t size = sizeof(record);
    uint64_t version;
    rig_open(&client, "");
    CU_ASSERT_EQUAL(mortise_record_read(client.handle, "a", record, NULL, &version, NULL),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_record_read(client.handle, "a", record, &size, NULL, NULL),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_record_read(client.handle, "a", NULL, &size, &version, NULL),
                    MORTISE_INVALID);
    tap(&client);
    tap_answer = answer_too_much;
    CU_ASSERT_EQUAL(mortise_record_read(client.handle, "a", record, &size, &version, NULL),
                    MORTISE_OK);
    CU_ASSERT_EQUAL(size, MORTISE_RECORD_MAX);
    CU_ASSERT_EQUAL(record[MORTISE_RECORD_MAX - 1], 'r');
    CU_ASSERT_EQUAL(record[MORTISE_RECORD_MAX], '\0');
    tap_answer = NULL;
    rig_close(&client);
}

static bool answer_without_end(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    memset(op->info->name, 'n', sizeof(op->info->name));
    memset(op->info->owner, 'o', sizeof(op->info->owner));
    memset(op->info->host, 'h', sizeof(op->info->host));
    memset(op->info->program, 'p', sizeof(op->info->program));
    op->info->held = true;
    tapped_host()->complete(tapped_host(), op, MORTISE_BUSY);
    return true;
}

/* The holder of a lock, with texts that are not terminated. */
static void test_holder_without_end(void)
{
    static struct rig client;
    static struct outcome got;
    rig_open(&client, "");
    tap(&client);
    tap_answer = answer_without_end;
    want(&client, &got, "a", MORTISE_OPTIONS(.wait_ms = 100));
    advance_ms(100);
    CU_ASSERT_EQUAL(got.status, MORTISE_TIMEDOUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(got.error.message, "hhh (pid "));
    CU_ASSERT_PTR_NULL(strstr(got.error.message, "hp"));
    tap_answer = NULL;
    rig_close(&client);
}

enum { LISTED = 10000 };

/* Names of many lengths; the texts of the last one are not terminated. */
static bool answer_list(mortise_op *op)
{
    if (op->kind != MORTISE_OP_LIST)
        return false;
    for (int i = 0; i <= LISTED; i++) {
        mortise_info info = {.size = sizeof(info), .held = true, .token = (uint64_t)i, .pid = -i};
        memset(info.name, i == LISTED ? 'n' : '\0', sizeof(info.name));
        memset(info.owner, i == LISTED ? 'o' : '\0', sizeof(info.owner));
        memset(info.host, i == LISTED ? 'h' : '\0', sizeof(info.host));
        memset(info.program, i == LISTED ? 'p' : '\0', sizeof(info.program));
        if (i < LISTED)
            snprintf(info.name, sizeof(info.name), "%0*d", 5 + i % 40, i);
        if (i < LISTED)
            snprintf(info.owner, sizeof(info.owner), "owner %d", i);
        tapped_host()->emit(tapped_host(), op, &info);
    }
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

static size_t memory_in_use(void)
{
#ifdef __GLIBC__
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

struct listed {
    int count, right;
    size_t memory; /* in use during the list */
};

static bool check_listed(const mortise_info *info, void *user_data)
{
    struct listed *listed = user_data;
    int i = listed->count++;
    char name[64], owner[64];
    snprintf(name, sizeof(name), "%0*d", 5 + i % 40, i);
    snprintf(owner, sizeof(owner), "owner %d", i);
    bool last = i == LISTED;
    bool texts = last ? strlen(info->name) == sizeof(info->name) - 1 &&
                            strlen(info->owner) == sizeof(info->owner) - 1 &&
                            strlen(info->host) == sizeof(info->host) - 1 &&
                            strlen(info->program) == sizeof(info->program) - 1
                      : strcmp(info->name, name) == 0 && strcmp(info->owner, owner) == 0 &&
                            info->host[0] == '\0';
    listed->right += texts && info->held && info->token == (uint64_t)i && info->pid == -i;
    listed->memory = memory_in_use();
    return true;
}

/* A long list is complete and in order, and needs little more memory than its texts. */
static void test_long_list(void)
{
    static struct rig client;
    struct listed listed = {.count = 0};
    rig_open(&client, "");
    tap(&client);
    tap_answer = answer_list;
    size_t before = memory_in_use();
    CU_ASSERT_EQUAL(mortise_list(client.handle, NULL, check_listed, &listed, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(listed.count, LISTED + 1);
    CU_ASSERT_EQUAL(listed.right, LISTED + 1);
    CU_ASSERT(listed.memory < before + (size_t)LISTED * 250);
    tap_answer = NULL;
    rig_close(&client);
}

/* A message is one printable line, whatever a server put into it. */
static void test_message_is_one_line(void)
{
    mortise_error error;
    failed(&error, MORTISE_BACKEND,
           "a\nb\x1b \xe2\x80\xae \xe2\x80\xa8 \xe2\x81\xa6 \xd8\x9c \xc2\x85 %s",
           "\xc3\xa9\xe2\x82\xac");
    CU_ASSERT_STRING_EQUAL(error.message, "a b  ??? ??? ??? ?? ?? \xc3\xa9\xe2\x82\xac");
    /* the first and the last of each range, and their neighbours, which stay */
    failed(&error, MORTISE_BACKEND, "%s",
           "\xc2\x80\xc2\x9f \xc2\xa0 \xe2\x80\x8e\xe2\x80\x8f \xe2\x80\x8d\xe2\x80\x90 "
           "\xe2\x80\xa8\xe2\x80\xae \xe2\x80\xa7\xe2\x80\xaf \xe2\x81\xa6\xe2\x81\xa9 "
           "\xe2\x81\xa5\xe2\x81\xaa");
    CU_ASSERT_STRING_EQUAL(error.message,
                           "???? \xc2\xa0 ?????? \xe2\x80\x8d\xe2\x80\x90 "
                           "?????? \xe2\x80\xa7\xe2\x80\xaf ?????? \xe2\x81\xa5\xe2\x81\xaa");
    failed(&error, MORTISE_BACKEND, "cut: \xe2\x80");
    CU_ASSERT_STRING_EQUAL(error.message, "cut: \xe2\x80");
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a record of any size", test_record_of_any_size},
        {"a holder whose texts have no end", test_holder_without_end},
        {"a long list", test_long_list},
        {"a message is one line", test_message_is_one_line},
        CU_TEST_INFO_NULL,
    };
    return rig_run("hostile_texts", tests);
}
