/* test_observe.c - the events that observers get: which ones, in what order, with which fields. The config names a
 * module, and the test replaces its `observe` with its own function. */
#include "rig.h"

#define CONFIG "ttl = 3s\nobserve = ear\n"

static struct rig rig;
static struct outcome got, other;

static void start(const char *config)
{
    rig_open(&rig, config);
    CU_ASSERT_EQUAL_FATAL(rig.client->locks.observer_count, 1);
    CU_ASSERT_STRING_EQUAL(rig.client->locks.observers[0]->module.name, "ear");
    rig.client->locks.observers[0]->module.observe = see_event;
    event_count = 0;
}

#define EVENT(kind) MORTISE_EVENT_##kind

static void expect_events(int count, const mortise_event_kind *kinds)
{
    static const char *const words[] = {
#define EVENT_WORD(name, number, word) word,
        MORTISE_EVENT_MAP(EVENT_WORD)
#undef EVENT_WORD
    };
    bool same = count == event_count;
    for (int i = 0; i < count && same; i++)
        same = events[i].kind == kinds[i];
    CU_ASSERT(same);
    for (int i = 0; i < event_count && !same; i++)
        fprintf(stderr, "    seen: %s\n", words[events[i].kind]);
}

#define EXPECT_EVENTS(...)                                                                         \
    do {                                                                                           \
        static const mortise_event_kind kinds[] = {__VA_ARGS__};                                   \
        expect_events((int)(sizeof(kinds) / sizeof(kinds[0])), kinds);                             \
    } while (0)

static void test_a_life(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    uint64_t token = mortise_token(lease);
    advance_ms(1000);
    SCRIPT(.kinds = OP(RENEW), .times = 1, .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(GRANTED), EVENT(RENEWED), EVENT(SUSPECT), EVENT(RENEWED),
                  EVENT(RELEASED));
    CU_ASSERT(events[0].caller != 0 && events[0].caller == events[1].caller);
    CU_ASSERT_EQUAL(events[0].lease, 0);
    for (int i = 1; i < event_count; i++) {
        CU_ASSERT_EQUAL(events[i].lease, events[1].lease);
        CU_ASSERT_EQUAL(events[i].token, token);
        CU_ASSERT_EQUAL(memcmp(&events[i].grant, &events[1].grant, sizeof(mortise_grant_id)), 0);
        CU_ASSERT_STRING_EQUAL(events[i].name, "a");
    }
    CU_ASSERT_EQUAL(events[1].deadline_ns, START_NS + 2968 * MS);
    CU_ASSERT_EQUAL(events[2].deadline_ns, START_NS + 3968 * MS);
    CU_ASSERT_EQUAL(events[2].at_ns, START_NS + 1000 * MS);
    CU_ASSERT_EQUAL(events[3].status, MORTISE_INDETERMINATE);
    rig_close(&rig);
}

static void test_loss(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(10000);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(GRANTED), EVENT(SUSPECT), EVENT(LOST), EVENT(RELEASED));
    CU_ASSERT_EQUAL(events[3].at_ns, START_NS + 2968 * MS);
    CU_ASSERT_EQUAL(events[4].status, MORTISE_LOST);
    rig_close(&rig);
}

/* A loss that the release finds is told before it. */
static void test_loss_found_by_the_release(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    set_now(START_NS + 3000 * MS);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(GRANTED), EVENT(LOST), EVENT(RELEASED));
    rig_close(&rig);
}

static void test_waiting(void)
{
    start(CONFIG "handover_max = 0\n");
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", MORTISE_OPTIONS(.wait_ms = 100));
    advance_ms(100);
    sim->give_back("a");
    settle();
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(QUEUED), EVENT(ASKED), EVENT(QUEUED), EVENT(FAILED),
                  EVENT(GRANTED), EVENT(RELEASED));
    CU_ASSERT_EQUAL(events[0].caller, got.request);
    CU_ASSERT_EQUAL(events[1].caller, got.request);
    CU_ASSERT_EQUAL(events[4].caller, other.request);
    CU_ASSERT_EQUAL(events[4].status, MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(events[5].caller, got.request);
    rig_close(&rig);
}

/* Each wait is seen once, also that of a caller which the backend refused before. */
static void test_waiting_in_a_queue(void)
{
    start(CONFIG "[sim]\nqueue = yes\n");
    tap(&rig);
    sim->seize("a", MORTISE_NEVER);
    sim->seize("b", MORTISE_NEVER);
    SCRIPT(.name = "b", .kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE,
           .status = MORTISE_BUSY);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "b", FOREVER);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(QUEUED), EVENT(ASKED), EVENT(QUEUED));
    advance_ms(60000);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 3); /* it is in the queue */
    sim->give_back("a");
    sim->give_back("b");
    settle();
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(other.lease, NULL), MORTISE_OK);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(QUEUED), EVENT(ASKED), EVENT(QUEUED), EVENT(GRANTED),
                  EVENT(GRANTED), EVENT(RELEASED), EVENT(RELEASED));
    CU_ASSERT_EQUAL(events[1].caller, got.request);
    CU_ASSERT_EQUAL(events[3].caller, other.request);
    rig_close(&rig);
}

/* The release is seen before the hand-over: at no instant are two leases of the name held. */
static void test_hand_over(void)
{
    start(CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    EXPECT_EVENTS(EVENT(ASKED), EVENT(GRANTED), EVENT(ASKED), EVENT(QUEUED), EVENT(RELEASED),
                  EVENT(HANDED_OVER), EVENT(RELEASED));
    CU_ASSERT_EQUAL(events[4].lease, events[1].lease);
    CU_ASSERT_NOT_EQUAL(events[5].lease, events[1].lease);
    CU_ASSERT_EQUAL(events[5].caller, got.request);
    CU_ASSERT_EQUAL(events[5].token, events[1].token);
    CU_ASSERT_EQUAL(memcmp(&events[5].grant, &events[1].grant, sizeof(mortise_grant_id)), 0);
    CU_ASSERT_EQUAL(events[6].lease, events[5].lease);
    rig_close(&rig);
}

static void test_tries_and_cancels(void)
{
    start(CONFIG);
    sim->seize("a", MORTISE_NEVER);
    want(&rig, &got, "a", TRY);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", TRY); /* refused here, without asking */
    mortise_cancel(rig.handle, got.request);
    settle();
    EXPECT_EVENTS(EVENT(ASKED), EVENT(FAILED), EVENT(ASKED), EVENT(QUEUED), EVENT(ASKED),
                  EVENT(FAILED), EVENT(FAILED));
    CU_ASSERT_EQUAL(events[1].status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(events[5].status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(events[5].caller, other.request);
    CU_ASSERT_EQUAL(events[6].status, MORTISE_CANCELED);
    sim->give_back("a");
    rig_close(&rig);
}

static void test_close(void)
{
    start(CONFIG);
    take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    event_count = 0;
    rig_close(&rig);
    EXPECT_EVENTS(EVENT(FAILED), EVENT(RELEASED)); /* nothing is handed to who has to go too */
    CU_ASSERT_EQUAL(events[0].status, MORTISE_CLOSED);
}

/* Each lease that was granted or handed over ends once; each caller that asked comes to one outcome. */
static void test_every_story_ends(void)
{
    enum { CALLERS = 60 };
    struct outcome outcomes[CALLERS];
    int granted[CALLERS * 4] = {0}, asked[CALLERS * 4] = {0};
    start(CONFIG);
    for (int i = 0; i < CALLERS; i++)
        want(&rig, &outcomes[i], i % 3 ? "a" : "b", MORTISE_OPTIONS(.wait_ms = 50 * (i % 7)));
    for (int step = 0; step < 100; step++) {
        for (int i = 0; i < CALLERS; i++)
            if (outcomes[i].lease != NULL && (i + step) % 4 == 0) {
                mortise_release_nowait(outcomes[i].lease, NULL);
                outcomes[i].lease = NULL;
            }
        advance_ms(10);
    }
    for (int i = 0; i < event_count; i++) {
        const struct seen_event *event = &events[i];
        CU_ASSERT_FATAL(event->lease < CALLERS * 4 && event->caller < CALLERS * 4);
        asked[event->caller] += event->kind == EVENT(ASKED);
        asked[event->caller] -= event->kind == EVENT(GRANTED) ||
                                event->kind == EVENT(HANDED_OVER) || event->kind == EVENT(FAILED);
        granted[event->lease] += event->kind == EVENT(GRANTED) || event->kind == EVENT(HANDED_OVER);
        granted[event->lease] -= event->kind == EVENT(RELEASED);
    }
    for (int i = 0; i < CALLERS * 4; i++) {
        CU_ASSERT_EQUAL(asked[i], 0);
        CU_ASSERT_EQUAL(granted[i], 0);
    }
    CU_ASSERT(event_count < EVENTS_MAX);
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a life", test_a_life},
        {"a loss", test_loss},
        {"a loss found by the release", test_loss_found_by_the_release},
        {"waiting", test_waiting},
        {"waiting in the backend's queue", test_waiting_in_a_queue},
        {"a hand-over", test_hand_over},
        {"tries and cancels", test_tries_and_cancels},
        {"close", test_close},
        {"every story ends", test_every_story_ends},
        CU_TEST_INFO_NULL,
    };
    return rig_run("observe", tests);
}
