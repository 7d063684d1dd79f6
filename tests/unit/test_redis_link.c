/* test_redis_link.c - the connection of the Redis drivers: when it is made anew, when it is found dead, and what its owner is
 * told. Each row of the comment in link.h that another server's test can hardly cause. */
#include "redis_link_test.h"

#include <errno.h>
#include <netdb.h>

/* ---- when the next attempt is -------------------------------------------------------------------- */

/* How many connections come in so much time, if each is met by `treat`. */
static unsigned count_attempts(int64_t for_ns, void (*treat)(void))
{
    int64_t until_ns = now_ns + for_ns;
    unsigned before = server.accepted;
    while (now_ns < until_ns && server.accepted - before < 1000) {
        owner_turn(&owner);
        if (server_accept(&server)) {
            treat();
            server_hang_up(&server);
        }
        int64_t due_ns = due_of(&owner);
        if (link_is_connecting(&owner.link) || link_is_up(&owner.link))
            continue; /* it finds out that nobody is there */
        now_ns = due_ns > now_ns ? due_ns : now_ns;
    }
    return server.accepted - before;
}

static void greet_only(void)
{
    for (int i = 0; i < 4; i++) {
        owner_turn(&owner);
        server_answer(&server);
    }
    CU_ASSERT_TRUE(link_is_up(&owner.link));
}

/* A server that greets and hangs up is not stormed: the pauses grow, as after attempts that were refused. */
static void test_short_lived(void)
{
    begin();
    link_want(&owner.link);
    unsigned count = count_attempts(10000 * MS, greet_only);
    CU_ASSERT_TRUE(count >= 8 && count <= 30);
    CU_ASSERT_EQUAL(owner.ups, count);
    end();
}

/* One that has lasted, or was of use, is made anew at once. */
static void test_lasted(void)
{
    for (int of_use = 0; of_use <= 1; of_use++) {
        struct call call;
        begin();
        bring_up(&owner, &server);
        if (of_use) {
            call_put(&owner.link, &call, "PING");
            talk(&owner, &server);
            CU_ASSERT_EQUAL(call.replies, 1);
        } else
            now_ns += 1000 * MS;
        server_hang_up(&server);
        owner_turn(&owner);
        CU_ASSERT_EQUAL(owner.downs, 1);
        talk(&owner, &server);
        CU_ASSERT_TRUE(link_is_up(&owner.link));
        end();
    }
}

/* Its owner finds it of no use, although it has lasted and has answered. */
static void test_rejected(void)
{
    struct call call;
    const struct link_fault fault = {.status = MORTISE_UNREACHABLE, .text = "of no use"};
    begin();
    bring_up(&owner, &server);
    call_put(&owner.link, &call, "PING");
    talk(&owner, &server);
    CU_ASSERT_EQUAL(call.replies, 1);
    now_ns += 5000 * MS;
    link_reject(&owner.link, &fault);
    CU_ASSERT_STRING_EQUAL(owner.fault.text, "of no use");
    CU_ASSERT_TRUE(due_of(&owner) > now_ns && due_of(&owner) < now_ns + 1000 * MS);
    owner_turn(&owner);
    link_want(&owner.link); /* however much it is wanted */
    CU_ASSERT_FALSE(server_accept(&server));
    now_ns = due_of(&owner);
    owner_turn(&owner);
    server_hang_up(&server);
    CU_ASSERT_TRUE(server_accept(&server));
    end();
}

/* The server is elsewhere, as it turns out while this one is greeted and does not answer. */
static void test_left_in_greeting(void)
{
    begin();
    unsigned before = count_descriptors();
    link_want(&owner.link);
    owner_turn(&owner);
    CU_ASSERT_TRUE(server_accept(&server));
    owner_turn(&owner);
    int old = server.fd;
    link_leave(&owner.link, "it is elsewhere");
    owner_turn(&owner);
    CU_ASSERT_TRUE_FATAL(server_accept(&server)); /* without a pause */
    close(old);
    talk(&owner, &server);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    CU_ASSERT_EQUAL(owner.downs, 0);
    CU_ASSERT_EQUAL(count_descriptors(), before + 2); /* its two ends, and none of the one before */
    end();
}

/* ---- what is found dead ---------------------------------------------------------------------------- */

static void test_idle(void)
{
    begin();
    bring_up(&owner, &server);
    now_ns += 3600000 * MS;
    link_look(&owner.link);
    CU_ASSERT_TRUE(link_is_up(&owner.link)); /* it is silent, because nobody asks */
    CU_ASSERT_EQUAL(owner.downs, 0);
    server_hang_up(&server);
    link_look(&owner.link);
    CU_ASSERT_FALSE(link_is_up(&owner.link));
    CU_ASSERT_PTR_NOT_NULL(strstr(owner.fault.text, "the server closed the connection"));
    CU_ASSERT_EQUAL(due_of(&owner), now_ns);
    end();
}

/* A firewall that resets it: here it is the kernel, because the server has not read everything. */
static void test_idle_reset(void)
{
    struct call call;
    begin();
    bring_up(&owner, &server);
    call_put(&owner.link, &call, "PING");
    owner_turn(&owner);
    server_say(&server, "+PONG\r\n"); /* before it has read the request */
    owner_turn(&owner);
    CU_ASSERT_EQUAL(call.replies, 1);
    now_ns += 3600000 * MS;
    link_look(&owner.link);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    server_hang_up(&server);
    link_look(&owner.link);
    CU_ASSERT_FALSE(link_is_up(&owner.link));
    CU_ASSERT_EQUAL(owner.fault.native, ECONNRESET);
    end();
}

/* ---- addresses ------------------------------------------------------------------------------------- */

static void answer(size_t which, const struct server *first, const struct server *then)
{
    struct addrinfo infos[2];
    const struct server *servers[2] = {first, then};
    size_t count = then != NULL ? 2 : 1;
    for (size_t i = 0; i < count; i++)
        infos[i] = (struct addrinfo){.ai_family = AF_UNIX,
                                     .ai_addr = (struct sockaddr *)(uintptr_t)&servers[i]->at,
                                     .ai_addrlen = sizeof servers[i]->at,
                                     .ai_next = i + 1 < count ? &infos[i + 1] : NULL};
    CU_ASSERT_FATAL(which < question_count);
    questions[which].resolved(NULL, questions[which].argument, infos, NULL);
}

/* The resolver does not answer: the attempt ends all the same. The next one waits for the same look-up, or begins another one
 * if it has another name; an answer that comes late for the first does not serve it. */
static void test_resolver_hangs(void)
{
    begin();
    owner.settings.endpoint = endpoint_of("one");
    link_want(&owner.link);
    CU_ASSERT_EQUAL(link_count_look_ups(&owner.link), 1);
    CU_ASSERT_EQUAL_FATAL(due_of(&owner), now_ns + CONNECT_MS * MS);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_STRING_EQUAL(owner.fault.text, "one:6379: the name was not looked up in time");
    CU_ASSERT_TRUE_FATAL(due_of(&owner) > now_ns && due_of(&owner) < now_ns + 1000 * MS);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_TRUE(link_is_connecting(&owner.link));
    CU_ASSERT_EQUAL(question_count, 1);
    owner.settings.endpoint = endpoint_of("two");
    link_leave(&owner.link, "it is elsewhere");
    CU_ASSERT_EQUAL_FATAL(question_count, 2);
    CU_ASSERT_STRING_EQUAL(questions[1].name, "two");
    CU_ASSERT_EQUAL(link_count_look_ups(&owner.link), 2);
    answer(0, &server, NULL);
    owner_turn(&owner);
    CU_ASSERT_FALSE(server_accept(&server));
    answer(1, &server, NULL);
    CU_ASSERT_EQUAL(link_count_look_ups(&owner.link), 0);
    talk(&owner, &server);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    end();
}

/* The attempt that is under way ends, and the next one begins, which is for that name. */
static void attempt_next(const char *name)
{
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_FALSE_FATAL(link_is_connecting(&owner.link));
    owner.settings.endpoint = endpoint_of(name);
    now_ns = due_of(&owner);
    owner_turn(&owner);
}

/* The resolver answers between two attempts, or in one for another name: that serves the next attempt with that name. */
static void test_resolver_slow(void)
{
    for (int other = 0; other <= 1; other++) {
        begin();
        question_count = 0;
        owner.settings.endpoint = endpoint_of("one");
        link_want(&owner.link);
        CU_ASSERT_EQUAL(question_count, 1);
        if (other) {
            attempt_next("two");
            CU_ASSERT_EQUAL_FATAL(question_count, 2);
            answer(0, &server, NULL);
            CU_ASSERT_TRUE(link_is_connecting(&owner.link));
            attempt_next("one");
        } else {
            now_ns = due_of(&owner);
            owner_turn(&owner);
            CU_ASSERT_FALSE_FATAL(link_is_connecting(&owner.link));
            answer(0, &server, NULL);
            now_ns = due_of(&owner);
        }
        talk(&owner, &server);
        CU_ASSERT_TRUE(link_is_up(&owner.link));
        CU_ASSERT_EQUAL(question_count, other ? 2 : 1);
        server_hang_up(&server); /* soon, so there is a pause; and what was found has served */
        owner_turn(&owner);
        now_ns = due_of(&owner);
        owner_turn(&owner);
        CU_ASSERT_EQUAL(question_count, other ? 3 : 2);
        end();
    }
}

/* The answer came long before the next attempt: the name may lead elsewhere by now. */
static void test_old_answer(void)
{
    begin();
    owner.settings.endpoint = endpoint_of("one");
    link_want(&owner.link);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    answer(0, &server, NULL);
    link_unwant(&owner.link);
    now_ns += 60000 * MS;
    owner_turn(&owner);
    link_want(&owner.link);
    CU_ASSERT_EQUAL_FATAL(question_count, 2);
    CU_ASSERT_FALSE(server_accept(&server));
    answer(1, &server, NULL);
    talk(&owner, &server);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    end();
}

/* The resolver knows no such name: that is told, and asked again after a while. */
static void test_no_such_name(void)
{
    begin();
    owner.settings.endpoint = endpoint_of("none");
    link_want(&owner.link);
    CU_ASSERT_EQUAL_FATAL(question_count, 1);
    questions[0].resolved(NULL, questions[0].argument, NULL, "no such name");
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_STRING_EQUAL(owner.fault.text, "none:6379: no such name");
    CU_ASSERT_TRUE(owner.fault.retryable);
    CU_ASSERT_TRUE_FATAL(due_of(&owner) > now_ns);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(question_count, 2);
    end();
}

/* No memory and no thread for a look-up: the same, and no answer is awaited. */
static void test_no_look_up(void)
{
    begin();
    resolver_fails = true;
    owner.settings.endpoint = endpoint_of("one");
    link_want(&owner.link);
    resolver_fails = false;
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_EQUAL(owner.fault.status, MORTISE_NOMEM);
    CU_ASSERT_EQUAL(link_count_look_ups(&owner.link), 0);
    CU_ASSERT_TRUE_FATAL(due_of(&owner) > now_ns);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(question_count, 1);
    end();
}

static unsigned sought;

static void count_seek(struct link *link, void *of)
{
    (void)link;
    (void)of;
    sought++;
}

/* Before each attempt somebody is asked where the server is. Nobody knows: a failed attempt. */
static void test_sought(void)
{
    static const struct link_callbacks callbacks = {
        .up = noted_up, .down = noted_down, .seek = count_seek};
    const struct link_fault fault = {.status = MORTISE_UNREACHABLE, .text = "nobody knows"};
    begin();
    sought = 0;
    owner.link.callbacks = &callbacks;
    link_found(&owner.link); /* nobody has asked */
    link_not_found(&owner.link, &fault);
    CU_ASSERT_EQUAL(owner.downs, 0);
    link_want(&owner.link);
    CU_ASSERT_EQUAL(sought, 1);
    CU_ASSERT_EQUAL(due_of(&owner), MORTISE_NEVER);
    owner_turn(&owner);
    CU_ASSERT_FALSE(server_accept(&server));
    link_not_found(&owner.link, &fault);
    CU_ASSERT_EQUAL(owner.downs, 1);
    CU_ASSERT_STRING_EQUAL(owner.fault.text, "nobody knows");
    CU_ASSERT_TRUE_FATAL(due_of(&owner) > now_ns && due_of(&owner) != MORTISE_NEVER);
    now_ns = due_of(&owner);
    owner_turn(&owner);
    CU_ASSERT_EQUAL(sought, 2);
    link_found(&owner.link);
    talk(&owner, &server);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    end();
}

/* A second connection goes to the address of the first, and to no other one of the name. If nobody is there, that is told. */
static void test_beside(void)
{
    struct server gone;
    struct owner beside;
    begin();
    server_start(&gone, "gone");
    server_end(&gone);
    owner.settings.endpoint = endpoint_of("name");
    owner_begin(&beside, "name");
    beside.link.beside = &owner.link;
    link_want(&owner.link);
    answer(0, &gone, &server);
    talk(&owner, &server);
    CU_ASSERT_TRUE_FATAL(link_is_up(&owner.link));
    int first = server.fd;
    bring_up(&beside, &server);
    CU_ASSERT_EQUAL(question_count, 1);
    CU_ASSERT_EQUAL(server.accepted, 2);
    close(server.listener); /* it accepts nobody any more, and keeps whom it has */
    server.listener = -1;
    server_hang_up(&server);
    owner_turn(&beside);
    owner_turn(&beside);
    CU_ASSERT_EQUAL(beside.downs, 1);
    now_ns = due_of(&beside);
    owner_turn(&beside);
    CU_ASSERT_EQUAL(beside.downs, 2);
    CU_ASSERT_EQUAL(beside.fault.native, ECONNREFUSED);
    CU_ASSERT_EQUAL(question_count, 1);
    CU_ASSERT_TRUE(link_is_up(&owner.link));
    link_close(&beside.link);
    close(first);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a server that greets and hangs up", test_short_lived},
        {"one that has lasted, or was of use", test_lasted},
        {"rejected by its owner", test_rejected},
        {"left in its greeting", test_left_in_greeting},
        {"idle, and ended", test_idle},
        {"idle, and reset", test_idle_reset},
        {"the resolver does not answer", test_resolver_hangs},
        {"the resolver is slow", test_resolver_slow},
        {"an answer is old", test_old_answer},
        {"no such name", test_no_such_name},
        {"no look-up is possible", test_no_look_up},
        {"sought before each attempt", test_sought},
        {"beside another connection", test_beside},
        CU_TEST_INFO_NULL,
    };
    return link_tests_run("redis_link", tests);
}
