/* test_trace.c - the trace observer through driver.h alone: the contents of a line, that no event is lost, and what
 * an event costs its caller. */
#include "cost.h"
#include "trace_test.h"

static void expect_line(const char *text, const char *line)
{
    char *with_end;
    CU_ASSERT_FATAL(asprintf(&with_end, "\n%s\n", line) > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, with_end));
    if (strstr(text, with_end) == NULL)
        fprintf(stderr, "    wanted: %s\n    in: %s\n", line, text);
    free(with_end);
}

static void test_lines(void)
{
    struct trace trace;
    fresh();
    OPEN(&trace, path, -1, 64);
    mortise_event event = {.size = sizeof(event),
                           .kind = MORTISE_EVENT_GRANTED,
                           .at_ns = 5000,
                           .name = "a\"b\\c\n\x7f\xc3\xa4",
                           .name_len = 9,
                           .owner = "x\xff\xed\xa0\x80\xc0\xaf",
                           .owner_len = 7,
                           .lease = 7,
                           .caller = 9,
                           .token = UINT64_MAX,
                           .deadline_ns = 6000};
    memset(&event.grant, 0xab, sizeof(event.grant));
    module->observe(trace.ctx, &event);
    const char hostile[] = "\xe2\x80\xae</script>\xe2\x80\xa8\xd8\x9c\xe2\x81\xa9'\r\xe2\x80\x93"
                           "\xc2\x80\xc2\x9b\xc2\xa0";
    event = (mortise_event){.size = sizeof(event),
                            .kind = MORTISE_EVENT_QUEUED,
                            .at_ns = 5000,
                            .name = hostile,
                            .name_len = sizeof(hostile) - 1,
                            .caller = 11,
                            .deadline_ns = INT64_MIN};
    module->observe(trace.ctx, &event);
    event = (mortise_event){.size = sizeof(event),
                            .kind = MORTISE_EVENT_FAILED,
                            .at_ns = 5001,
                            .name = "n",
                            .name_len = 1,
                            .caller = 10,
                            .deadline_ns = INT64_MIN,
                            .status = MORTISE_TIMEDOUT,
                            .mode = MORTISE_SHARED};
    module->observe(trace.ctx, &event);
    event.permits = 7;
    event.caller = 12;
    module->observe(trace.ctx, &event);
    event.caller = 13;
    event.size = offsetof(mortise_event, mode); /* of a core that knows no modes */
    module->observe(trace.ctx, &event);
    close_trace(&trace);
    char *text = test_file_read(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_EQUAL(strncmp(text, "{\"event\":\"opened\",\"at_ns\":", 26), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ",\"section\":\"trace\",\"host\":\"web3\",\"pid\":4711,"
                                        "\"program\":\"night\\\"ly\"}\n"));
    expect_line(text, "{\"event\":\"granted\",\"at_ns\":5000,\"client\":\"" CLIENT_ID
                      "\",\"name\":\"a\\\"b\\\\c\\u000a\\u007f\xc3\xa4\",\"owner\":"
                      "\"x\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\",\"owner_hex\":"
                      "\"78ffeda080c0af\",\"caller\":9,\"lease\":7,\"grant\":"
                      "\"abababababababababababababababab\",\"token\":18446744073709551615,"
                      "\"deadline_ns\":6000}");
    expect_line(text, "{\"event\":\"queued\",\"at_ns\":5000,\"client\":\"" CLIENT_ID
                      "\",\"name\":\"\\u202e</script>\\u2028\\u061c\\u2069'\\u000d\xe2\x80\x93"
                      "\\u0080\\u009b\xc2\xa0\",\"caller\":11}");
    expect_line(text,
                "{\"event\":\"failed\",\"at_ns\":5001,\"client\":\"" CLIENT_ID
                "\",\"name\":\"n\",\"mode\":\"shared\",\"caller\":10,\"status\":\"TIMEDOUT\"}");
    expect_line(text, "{\"event\":\"failed\",\"at_ns\":5001,\"client\":\"" CLIENT_ID
                      "\",\"name\":\"n\",\"mode\":\"shared\",\"permits\":7,\"caller\":12,"
                      "\"status\":\"TIMEDOUT\"}");
    expect_line(text, "{\"event\":\"failed\",\"at_ns\":5001,\"client\":\"" CLIENT_ID
                      "\",\"name\":\"n\",\"caller\":13,\"status\":\"TIMEDOUT\"}");
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ",\"events\":5,\"dropped\":0}\n"));
    free(text);
}

/* The longest lines that there can be, many of them: none is cut. */
static void test_longest(void)
{
    enum { COUNT = 500 };
    struct trace trace;
    char name[MORTISE_NAME_MAX], owner[MORTISE_OWNER_MAX];
    struct story story = {0};
    fresh();
    memset(name, 0xff, sizeof(name));
    memset(owner, 0x80, sizeof(owner));
    OPEN(&trace, path, -1, 4096);
    mortise_event event = {.size = sizeof(event),
                           .kind = MORTISE_EVENT_LOST,
                           .at_ns = INT64_MAX,
                           .name = name,
                           .name_len = sizeof(name),
                           .owner = owner,
                           .owner_len = sizeof(owner),
                           .lease = UINT64_MAX,
                           .token = UINT64_MAX,
                           .deadline_ns = INT64_MAX,
                           .status = MORTISE_LOST};
    memset(&event.grant, 0xff, sizeof(event.grant));
    for (uint64_t i = 0; i < COUNT; i++) {
        event.caller = i;
        module->observe(trace.ctx, &event);
    }
    close_trace(&trace);
    read_file(&story, path);
    CU_ASSERT_EQUAL(story.lines, COUNT + 2);
    CU_ASSERT_EQUAL(story.torn, 0);
    CU_ASSERT_EQUAL(story.told_events, COUNT);
}

static void test_none_lost(void)
{
    struct trace trace;
    struct story story = {0};
    fresh();
    OPEN(&trace, path, -1, 65536);
    send_numbers(&trace, 0, 180000);
    CU_ASSERT(wait_size(path, INT64_C(180000) * 100)); /* a close does not wait for ever */
    send_numbers(&trace, 180000, 200000);
    close_trace(&trace);
    read_file(&story, path);
    expect_whole(&story, 200000);
}

/* With pauses of all lengths between the events: the writer naps, sleeps, is woken. */
static void test_woken(void)
{
    struct trace trace;
    struct story story = {0};
    uint64_t number = 0;
    fresh();
    OPEN(&trace, path, -1, 64);
    for (int round = 0; round < 30; round++) {
        int64_t before = size_of(path);
        for (int i = 0; i < round; i++)
            send_number(&trace, number++);
        if (round > 0)
            CU_ASSERT(wait_size(path, before + 60 * round));
    }
    for (int i = 0; i < 3; i++) { /* long enough for it to fall asleep */
        int64_t until = test_now_ms() + 120, before = size_of(path);
        while (test_now_ms() < until)
            poll(NULL, 0, 10);
        send_number(&trace, number++);
        CU_ASSERT(wait_size(path, before + 60));
    }
    close_trace(&trace);
    read_file(&story, path);
    expect_whole(&story, number);
}

static void test_cost(void)
{
    struct trace trace;
    fresh();
    OPEN(&trace, path, -1, 65536);
    struct cost cost = cost_begin();
    send_numbers(&trace, 0, COST_EVENTS);
    cost_end(cost);
    close_trace(&trace);
}

int main(void)
{
    static CU_TestInfo tests[] = {
        {"what a line says", test_lines},
        {"the longest lines", test_longest},
        {"no event is lost at close", test_none_lost},
        {"the writer is woken", test_woken},
        {"what an event costs", test_cost},
        CU_TEST_INFO_NULL,
    };
    return trace_run("trace", tests);
}
