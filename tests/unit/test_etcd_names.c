/* test_etcd_names.c - keys, endpoints, the text in keys, and who blocks whom, without a server. */
#include "etcd/driver.h"
#include "etcd/queue.h"
#include "lib/host_text.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------- */

static void there_and_back(const char *name, size_t name_len, const char *wanted)
{
    char escaped[ESCAPED_MAX], again[MORTISE_NAME_MAX];
    size_t length = name_write(name, name_len, escaped);
    if (wanted != NULL)
        CU_ASSERT_STRING_EQUAL(escaped, wanted);
    CU_ASSERT_EQUAL(name_read(escaped, length, again, sizeof(again)), name_len);
    CU_ASSERT_EQUAL(memcmp(name, again, name_len), 0);
    CU_ASSERT(memchr(escaped, '/', length) == NULL);
}

static void test_names(void)
{
    char all[MORTISE_NAME_MAX], name[MORTISE_NAME_MAX];
    there_and_back("nightly", 7, "nightly");
    there_and_back("a/b", 3, "a%2Fb");
    there_and_back("100%", 4, "100%25");
    there_and_back("\xff\x01 \x7f", 4, "%FF%01%20%7F");
    for (int c = 1; c < 256; c++) {
        memset(all, c, sizeof(all));
        there_and_back(all, 1, NULL);
        there_and_back(all, sizeof(all), NULL);
    }
    CU_ASSERT_EQUAL(name_read("%sessions", 9, name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_read("%tokens", 7, name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_read("%41", 3, name, sizeof(name)), 0); /* "A" has one form */
    CU_ASSERT_EQUAL(name_read("%2f", 3, name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_read("a%2", 3, name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_read("abc", 3, name, 2), 0);
}

static struct contender read_back(struct kind kind, const char *wanted)
{
    char text[CONTENDER_MAX];
    struct key_id id = {.instance = {0x01, 0xab}, .series = 0x1000002, .slot = 63};
    size_t length = contender_write(kind, &id, text);
    CU_ASSERT_STRING_EQUAL(text, wanted);
    return contender_read(text, length);
}

#define HEX "01ab000000000000000000000200003f"

static void test_contenders(void)
{
    struct contender contender = read_back((struct kind){0}, HEX);
    CU_ASSERT(!contender.kind.shared && strcmp(contender.id, HEX) == 0);
    contender = read_back((struct kind){.shared = true}, "s0-" HEX);
    CU_ASSERT(contender.kind.shared && contender.kind.permits == 0);
    contender = read_back((struct kind){.shared = true, .permits = UINT32_MAX}, "s4294967295-" HEX);
    CU_ASSERT(contender.kind.permits == UINT32_MAX && strcmp(contender.id, HEX) == 0);
    static const char *const others[] = {
        "694d8a5b1c2d3e4f", "s-" HEX, "s4294967296-" HEX, "s1-", "s1" HEX,
        "sx-" HEX,          "",       "s 1-" HEX};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        contender = contender_read(others[i], strlen(others[i]));
        CU_ASSERT(!contender.kind.shared && contender.id[0] == '\0');
    }
    size_t length;
    const char *last = key_last((struct bytes){(const uint8_t *)"a/b/cd", 6}, &length);
    CU_ASSERT(length == 2 && last[0] == 'c');
}

/* ---- endpoints --------------------------------------------------------------------------------------------- */

static void one(const char *text, const char *host, const char *port, const char *shown)
{
    struct endpoints endpoints;
    const char *problem;
    CU_ASSERT_TRUE_FATAL(endpoints_read(&endpoints, text, &problem));
    CU_ASSERT_EQUAL(endpoints.count, 1);
    CU_ASSERT_STRING_EQUAL(endpoints.all[0].host, host);
    CU_ASSERT_STRING_EQUAL(endpoints.all[0].port, port);
    CU_ASSERT_STRING_EQUAL(endpoints.all[0].text, shown);
}

/* Valid until the next call. */
static const char *shown_of(const char *text)
{
    static char shown[64];
    size_t length;
    const char *from = host_text_shown(text, &length);
    snprintf(shown, sizeof shown, "%.*s", (int)length, from);
    return shown;
}

static void test_endpoints(void)
{
    struct endpoints endpoints;
    const char *problem;
    char many[40 * ENDPOINTS_MAX] = "";
    one("etcd1", "etcd1", "2379", "etcd1:2379");
    one(" 10.0.0.1:99 ,", "10.0.0.1", "99", "10.0.0.1:99");
    one("::1", "::1", "2379", "[::1]:2379");
    one("[::1]", "::1", "2379", "[::1]:2379");
    one("[fe80::1%eth0]:7", "fe80::1%eth0", "7", "[fe80::1%eth0]:7");
    one("fe80::1%eth0", "fe80::1%eth0", "2379", "[fe80::1%eth0]:2379");
    one("::ffff:10.0.0.1", "::ffff:10.0.0.1", "2379", "[::ffff:10.0.0.1]:2379");
    CU_ASSERT_TRUE(endpoints_read(&endpoints, "a,b:1, c", &problem));
    CU_ASSERT_EQUAL(endpoints.count, 3);
    static const char *const wrong[] = {
        "a,b:x",      ":1",  "a:0",   "a:65536", "a:",      "[::1",  "[::1]x", "[]:1", "a:-1",
        "http://a:1", "a/b", "u:p@a", "u:p@a:1", "[u@a]:1", "x:y:z", "[[a]:1", "a?p=q"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        CU_ASSERT(!endpoints_read(&endpoints, wrong[i], &problem) && problem != NULL);
    CU_ASSERT_FALSE_FATAL(endpoints_read(&endpoints, "a,u:p@b:1, v:q@c:2", &problem));
    CU_ASSERT_STRING_EQUAL(shown_of(problem), "c:2");
    CU_ASSERT_FALSE_FATAL(endpoints_read(&endpoints, "a,b:x", &problem));
    CU_ASSERT_STRING_EQUAL(shown_of(problem), "b:x");
    CU_ASSERT_STRING_EQUAL(shown_of("http://u:p?w@a:1/?password=p"), "");
    CU_ASSERT_STRING_EQUAL(shown_of("http://a:1/?password=p"), "http://a:1/");
    CU_ASSERT_STRING_EQUAL(shown_of("http://a:1/?password=p@ss"), "");
    CU_ASSERT(!endpoints_read(&endpoints, " , ", &problem) && problem == NULL);
    for (int i = 0; i <= ENDPOINTS_MAX; i++)
        memcpy(many + 2 * i, "a,", 3);
    CU_ASSERT(!endpoints_read(&endpoints, many, &problem) && problem == NULL);
}

/* ---- the text in keys ---------------------------------------------------------------------------------------- */

#define GRANT "01ab0000000000000000000000000000"

static void test_notes(void)
{
    static struct driver driver = {.note = "host\n4711\nprogram"};
    char data[DATA_MAX];
    mortise_grant_id grant = {{0x01, 0xab}};
    mortise_info info = {.size = sizeof(info)};
    driver.note_len = strlen(driver.note);
    size_t size = note_write(&driver, &grant, 12, note_time_ms(), false, data);
    CU_ASSERT_EQUAL(note_read(bytes_of(data, size), &info), 12);
    CU_ASSERT(strcmp(info.host, "host") == 0 && info.pid == 4711);
    CU_ASSERT(strcmp(info.program, "program") == 0 && info.mode != MORTISE_SHARED);
    CU_ASSERT_STRING_EQUAL(info.owner, GRANT);
    size = note_write(&driver, &grant, INT64_MAX, 1, true, data);
    CU_ASSERT_EQUAL(note_read(bytes_of(data, size), &info), INT64_MAX);
    CU_ASSERT_EQUAL(info.mode, MORTISE_SHARED);
    static const char *const others[] = {"",
                                         "mortise/2 1 1 " GRANT "\n",
                                         "mortise/1 -1 1 " GRANT "\n",
                                         "mortise/1 x",
                                         "mortise/1 1 1",
                                         "mortise/1 1 1\n",
                                         "mortise/1 1 1 " GRANT,
                                         "mortise/1 1 1 " GRANT "0\n",
                                         "mortise/1 1 -1 " GRANT "\n",
                                         "somebody"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        CU_ASSERT_EQUAL(note_read(bytes_of(others[i], strlen(others[i])), &info), -1);
}

static void base_is(const char *text, enum base_kind wanted, int64_t wanted_base)
{
    struct kv kv = {.value = bytes_of(text, strlen(text))};
    struct kvs kvs = {.all = &kv, .count = 1};
    int64_t base;
    CU_ASSERT_EQUAL(base_read(&kvs, 0xabc, &base), wanted);
    CU_ASSERT_EQUAL(base, wanted_base);
}

static void test_bases(void)
{
    char data[DATA_MAX];
    data[base_write(INT64_MAX, 0xabc, data)] = '\0';
    base_is(data, BASE_GOOD, INT64_MAX);
    base_is("5 abc", BASE_GOOD, 5);
    base_is("5 abd", BASE_OTHER_CLUSTER, 5);
    base_is("", BASE_NONSENSE, 0);
    base_is("5", BASE_NONSENSE, 0);
    base_is("-5 abc", BASE_NONSENSE, 0);
    base_is("9223372036854775808 abc", BASE_NONSENSE, 0);
    base_is("5 abcx", BASE_NONSENSE, 5);
    int64_t base;
    CU_ASSERT_EQUAL(base_read(&(struct kvs){0}, 1, &base), BASE_NONE);
}

/* ---- who blocks whom -------------------------------------------------------------------------------------------- */

static struct kv kv_of(const char *key, int64_t created, const char *value)
{
    return (struct kv){.key = bytes_of(key, strlen(key)),
                       .created = created,
                       .value = bytes_of(value, strlen(value))};
}

static void test_exclusive_queue(void)
{
    struct queue_view view;
    struct kv keys[] = {kv_of("n/" HEX, 5, ""), kv_of("n/other", 4, "")};
    struct kvs both = {keys, 2, 2}, own = {keys, 1, 1};
    CU_ASSERT_TRUE(queue_look(&own, 1, (struct kind){0}, keys[0].key, &view));
    CU_ASSERT(view.before == NULL && view.crowd == NULL);
    CU_ASSERT_TRUE(queue_look(&both, 1, (struct kind){0}, keys[0].key, &view));
    CU_ASSERT(view.before == &keys[1] && view.is_second);
    struct kv three[] = {keys[0], keys[1], kv_of("n/third", 3, "")};
    CU_ASSERT_TRUE(queue_look(&(struct kvs){three, 3, 3}, 1, (struct kind){0}, keys[0].key, &view));
    CU_ASSERT(view.before == &three[1] && !view.is_second);
    CU_ASSERT_FALSE(queue_look(&both, 0, (struct kind){0}, keys[0].key, &view));
    CU_ASSERT_FALSE(queue_look(&both, 2, (struct kind){0}, keys[0].key, &view));
}

#define OPENED "mortise/1 0 1 " GRANT "\nhost\n1\nprogram\nshared"

static void test_shared_queue(void)
{
    struct queue_view view;
    struct kind shared = {.shared = true}, three = {.shared = true, .permits = 3};
    struct kv own = kv_of("n/s0-" HEX, 9, ""), writer = kv_of("n/w", 4, ""),
              opened = kv_of("n/w", 4, OPENED),
              crowd[] = {kv_of("n/s3-" HEX, 9, ""), kv_of("n/s3-a", 3, ""), kv_of("n/s3-b", 2, ""),
                         kv_of("n/s3-c", 1, "")},
              first = kv_of("n/s3-ffffffffffffffffffffffffffffffff", 1, "");
    struct kvs none_before[] = {{0}, {&own, 1, 1}, {0}, {0}};
    CU_ASSERT_TRUE(queue_look(none_before, 4, shared, own.key, &view));
    CU_ASSERT(view.before == NULL && view.other_permits == NULL);
    struct kvs behind_writer[] = {{&writer, 1, 1}, {&own, 1, 1}, {0}, {0}};
    CU_ASSERT_TRUE(queue_look(behind_writer, 4, shared, own.key, &view));
    CU_ASSERT_PTR_EQUAL(view.before, &writer);
    struct kvs behind_opened[] = {{&opened, 1, 1}, {&own, 1, 1}, {0}, {0}};
    CU_ASSERT_TRUE(queue_look(behind_opened, 4, shared, own.key, &view));
    CU_ASSERT(view.before == NULL && view.crowd == NULL && view.other_permits == NULL);
    struct kvs other[] = {{0}, {&first, 1, 1}, {0}, {&first, 1, 1}};
    CU_ASSERT_TRUE(queue_look(other, 4, shared, own.key, &view));
    CU_ASSERT(view.other_permits == &first && view.before == NULL);
    struct kvs full[] = {{0}, {&first, 1, 1}, {0}, {0}, {crowd, 4, 4}};
    CU_ASSERT_TRUE(queue_look(full, 5, three, crowd[0].key, &view));
    CU_ASSERT_PTR_EQUAL(view.crowd, &full[4]);
    struct kvs room[] = {{0}, {&first, 1, 1}, {0}, {0}, {crowd, 3, 3}};
    CU_ASSERT_TRUE(queue_look(room, 5, three, crowd[0].key, &view));
    CU_ASSERT_PTR_NULL(view.crowd);
    CU_ASSERT_FALSE(queue_look(room, 4, three, crowd[0].key, &view));
    CU_ASSERT_FALSE(queue_look(none_before, 5, shared, own.key, &view));
}

/* The first one has the same number of permits, or was exclusive; one between it and the own has another number. */
static void test_other_permits_between(void)
{
    struct queue_view view;
    struct kind shared = {.shared = true}, three = {.shared = true, .permits = 3};
    struct kv own = kv_of("n/s0-" HEX, 9, ""), reader = kv_of("n/s0-a", 1, ""),
              opened = kv_of("n/w", 1, OPENED), writer = kv_of("n/w", 8, ""),
              two = kv_of("n/s2-a", 5, ""), four = kv_of("n/s4-a", 6, ""),
              crowd[] = {kv_of("n/s3-" HEX, 9, ""),
                         kv_of("n/s3-ffffffffffffffffffffffffffffffff", 1, "")};
    struct kvs behind_reader[] = {{0}, {&reader, 1, 1}, {0}, {&two, 1, 1}};
    CU_ASSERT_TRUE(queue_look(behind_reader, 4, shared, own.key, &view));
    CU_ASSERT(view.before == &two && view.is_stranger && view.other_permits == NULL);
    CU_ASSERT_PTR_EQUAL(view.somebody, &reader);
    struct kvs behind_opened[] = {{&opened, 1, 1}, {&two, 1, 1}, {0}, {&two, 1, 1}};
    CU_ASSERT_TRUE(queue_look(behind_opened, 4, shared, own.key, &view));
    CU_ASSERT(view.before == &two && view.is_stranger && view.other_permits == NULL);
    CU_ASSERT_PTR_EQUAL(view.somebody, &opened);
    struct kvs behind_both[] = {{0}, {&crowd[1], 1, 1}, {&two, 1, 1}, {&four, 1, 1}, {crowd, 2, 2}};
    CU_ASSERT_TRUE(queue_look(behind_both, 5, three, crowd[0].key, &view));
    CU_ASSERT(view.before == &four && view.crowd == NULL);
    four.created = 4;
    CU_ASSERT_TRUE(queue_look(behind_both, 5, three, crowd[0].key, &view));
    CU_ASSERT_PTR_EQUAL(view.before, &two);
    struct kvs behind_writer[] = {{&writer, 1, 1}, {&reader, 1, 1}, {0}, {&two, 1, 1}};
    CU_ASSERT_TRUE(queue_look(behind_writer, 4, shared, own.key, &view));
    CU_ASSERT(view.before == &writer && !view.is_stranger);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"names", test_names},
        {"contenders", test_contenders},
        {"endpoints", test_endpoints},
        {"notes", test_notes},
        {"bases", test_bases},
        {"exclusive", test_exclusive_queue},
        {"shared", test_shared_queue},
        {"another number of permits in between", test_other_permits_between},
        CU_TEST_INFO_NULL,
    };
    return suite_run("etcd names", tests);
}
