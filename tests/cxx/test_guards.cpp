/* test_guards.cpp - mortise.hpp: clients and leases as guards, results and exceptions, durations, names. With the
 * SQLite driver. Callbacks are in test_callbacks.cpp. */
#include "cxx_test.hpp"

#include <filesystem>
#include <limits>
#include <type_traits>

using cxx_test::open;

static_assert(!std::is_copy_constructible_v<mortise::lease> &&
              !std::is_copy_assignable_v<mortise::lease>);
static_assert(std::is_nothrow_move_constructible_v<mortise::lease> &&
              std::is_nothrow_move_assignable_v<mortise::lease>);
static_assert(!std::is_copy_constructible_v<mortise::client> &&
              std::is_nothrow_move_constructible_v<mortise::client> &&
              std::is_nothrow_move_assignable_v<mortise::client>);
static_assert(!std::is_convertible_v<mortise::lease, bool> &&
              !std::is_convertible_v<mortise::result<int>, bool>);
static_assert(std::is_nothrow_copy_constructible_v<mortise::exception>);

static void test_scope()
{
    mortise::client mine = open(), other = open();
    std::uint64_t first = 0;
    {
        auto lease = mine.try_acquire("scope").value();
        first = lease.token();
        ASSERT_BOOL(lease);
        ASSERT_BOOL(lease.held());
        ASSERT_BOOL(first > 0);
        CU_ASSERT_EQUAL(lease.owner().size(), 32);
        ASSERT_BOOL(lease.remaining() > 0ms && lease.remaining() <= 30s);
        auto refused = other.try_acquire("scope");
        CU_ASSERT_FALSE(refused);
        CU_ASSERT_EQUAL(refused.status(), MORTISE_BUSY);
        ASSERT_BOOL(refused.error().contended());
        ASSERT_BOOL(refused.error().message.find("\"scope\"") != std::string::npos);
    }
    auto later = other.try_acquire("scope");
    CU_ASSERT_FATAL(static_cast<bool>(later));
    ASSERT_BOOL(later->token() > first);
    CU_ASSERT_EQUAL(later->release().status(), MORTISE_OK);
    ASSERT_BOOL(mine.try_acquire("scope").status() == MORTISE_OK);
}

static void test_moves()
{
    mortise::client mine = open(), other = open();
    mortise::lease one = mine.try_acquire("one").value();
    mortise::lease moved = std::move(one);
    CU_ASSERT_FALSE(one);
    CU_ASSERT_FALSE(one.held());
    CU_ASSERT_EQUAL(one.token(), 0);
    CU_ASSERT_EQUAL(one.release().status(), MORTISE_INVALID);
    ASSERT_BOOL(moved.held());

    mortise::lease two = mine.try_acquire("two").value();
    swap(moved, two);
    moved = std::move(two); /* "two" goes back, "one" stays */
    CU_ASSERT_EQUAL(other.try_acquire("one").status(), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.try_acquire("two").status(), MORTISE_OK);

    mortise::lease &self = moved;
    moved = std::move(self);
    ASSERT_BOOL(moved.held());
    CU_ASSERT_EQUAL(moved.release_nowait().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(moved.release_nowait().status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(other.try_acquire_for("one", 60s).status(), MORTISE_OK);
}

/* A client that is moved keeps its leases; one that is assigned to is closed, and its leases are lost. */
static void test_clients()
{
    mortise::client first = open();
    auto kept = first.try_acquire("kept").value();
    mortise::client second = std::move(first);
    CU_ASSERT_FALSE(first);
    CU_ASSERT_EQUAL(first.try_acquire("x").status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(first.close().status(), MORTISE_INVALID);
    ASSERT_BOOL(kept.held());
    second = open();
    CU_ASSERT_FALSE(kept.held());
    ASSERT_BOOL(kept);
    CU_ASSERT_EQUAL(second.try_acquire("kept").status(), MORTISE_OK);
    CU_ASSERT_EQUAL(kept.release().status(), MORTISE_INVALID);

    mortise::client &self = second;
    auto still = second.try_acquire("still").value();
    second = std::move(self);
    ASSERT_BOOL(second);
    ASSERT_BOOL(still.held());
    CU_ASSERT_EQUAL(still.release().status(), MORTISE_OK);

    CU_ASSERT_EQUAL(second.close().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(second.close().status(), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(second.ping().status(), MORTISE_CLOSED);
    CU_ASSERT_FALSE(second.can(MORTISE_CAP_FENCING));
    CU_ASSERT_EQUAL(mortise::client().stats().status(), MORTISE_INVALID);
}

static void test_exceptions()
{
    mortise::client mine = open(), other = open();
    auto lease = mine.try_acquire("thrown").value();
    try {
        (void)other.try_acquire("thrown").value();
        CU_FAIL("nothing was thrown");
    } catch (const mortise::exception &problem) {
        mortise::exception copy(problem);
        CU_ASSERT_EQUAL(copy.status(), MORTISE_BUSY);
        ASSERT_BOOL(std::string(copy.what()) == problem.why().message);
        ASSERT_BOOL(copy.why().message.find("\"thrown\"") != std::string::npos);
    }
    CU_ASSERT_EQUAL(lease.release().status(), MORTISE_OK);
    try {
        lease.release().value();
        CU_FAIL("nothing was thrown");
    } catch (const std::runtime_error &problem) {
        ASSERT_BOOL(std::string(problem.what()).find("no lease") != std::string::npos);
    }
    try {
        (void)mortise::client::open("nosuchdriver:/x").value();
        CU_FAIL("nothing was thrown");
    } catch (const mortise::exception &problem) {
        CU_ASSERT_EQUAL(problem.status(), MORTISE_CONFIG);
        ASSERT_BOOL(problem.why().message.find("nosuchdriver") != std::string::npos);
    }
}

/* std::chrono's traps: what is in the past is no "forever", what is short is not nothing, what is long does not
 * overflow. */
static void test_durations()
{
    mortise::client mine = open(), other = open();
    auto lease = mine.try_acquire("time").value();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CU_ASSERT_EQUAL(other.try_acquire_for("time", -1ms).status(), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.try_acquire_for("time", -2ms).status(), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.try_acquire_for("time", std::chrono::duration<double>(nan)).status(),
                    MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.try_acquire_until("time", std::chrono::steady_clock::now() - 1h).status(),
                    MORTISE_BUSY);
    using steady = std::chrono::steady_clock;
    using hours_of_steady = std::chrono::time_point<steady, std::chrono::hours>;
    CU_ASSERT_EQUAL(other.try_acquire_until("time", steady::time_point::min()).status(),
                    MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.try_acquire_until("time", hours_of_steady::min()).status(), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other.try_acquire_for("time", 1ns).status(), MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(other.try_acquire_for("time", 1ns).error().contended(), true);
    auto late = other.try_acquire_until("time", std::chrono::system_clock::now() + 30ms);
    ASSERT_BOOL(!late && late.error().contended()); /* BUSY, if 30 ms have passed by then */
    CU_ASSERT_EQUAL(other.try_acquire_for("free", std::chrono::hours::max()).status(), MORTISE_OK);
    CU_ASSERT_EQUAL(other.try_acquire_until("free", steady::time_point::max()).status(),
                    MORTISE_OK);
    CU_ASSERT_EQUAL(other.try_acquire_until("free", hours_of_steady::max()).status(), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise::detail::whole_ms_until(steady::time_point::max(), MORTISE_WAIT_MAX_MS),
                    MORTISE_WAIT_MAX_MS);
    CU_ASSERT_EQUAL(mortise::detail::whole_ms_until(hours_of_steady::max(), MORTISE_WAIT_MAX_MS),
                    MORTISE_WAIT_MAX_MS);

    for (auto wrong : {0ms, -1ms, 49ms, 86400001ms})
        CU_ASSERT_EQUAL(mine.try_acquire("free", mortise::options().ttl(wrong)).status(),
                        MORTISE_INVALID);
    CU_ASSERT_EQUAL(
        mine.try_acquire("free", mortise::options().ttl(std::chrono::hours::max())).status(),
        MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire("free", mortise::options().max_hold(0s)).status(),
                    MORTISE_INVALID);
    auto day = mine.try_acquire("free", mortise::options().ttl(24h).no_renew());
    CU_ASSERT_FATAL(static_cast<bool>(day));
    ASSERT_BOOL(day->remaining() > 1h);
}

static void test_waits()
{
    mortise::client mine = open(), other = open();
    auto lease = mine.try_acquire("waits").value();
    auto waiter = std::async(std::launch::async, [&] {
        auto had = other.acquire_forever("waits");
        return had.status();
    });
    CU_ASSERT_EQUAL(lease.release().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(waiter.get(), MORTISE_OK);

    mortise::client once = open("wait=0");
    auto again = mine.acquire("waits").value();
    CU_ASSERT_EQUAL(once.acquire("waits").status(), MORTISE_BUSY);
    auto sent_away =
        std::async(std::launch::async, [&] { return other.acquire("waits").status(); });
    CU_ASSERT_EQUAL(other.close().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(sent_away.get(), MORTISE_CLOSED);
}

/* C would cut such a name and lock another one. */
static void test_zero_bytes()
{
    mortise::client mine = open();
    const std::string_view cut("ab\0c", 4), whole("ab");
    CU_ASSERT_EQUAL(mine.try_acquire(cut).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire("x", mortise::options().owner(cut)).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.inspect(cut).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.list(cut).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.break_grant(cut, 1).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.acquire_async(cut, [](auto) {}).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise::client::open(std::string("sqlite:/x\0y", 11)).status(),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire("").status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire(std::string(513, 'n')).status(), MORTISE_INVALID);
    auto part = mine.try_acquire(std::string_view("abc").substr(0, 2));
    CU_ASSERT_EQUAL(part.status(), MORTISE_OK);
    ASSERT_BOOL(std::string(mine.inspect(whole).value().name) == "ab");
}

static void test_owners()
{
    mortise::client mine = open();
    auto job = mortise::options().owner("job 7");
    auto one = mine.try_acquire("owned", job).value(), two = mine.try_acquire("owned", job).value();
    CU_ASSERT_EQUAL(one.token(), two.token());
    ASSERT_BOOL(two.owner() == "job 7");
    CU_ASSERT_EQUAL(mine.try_acquire("owned", mortise::options().owner_thread()).status(),
                    MORTISE_BUSY);
    CU_ASSERT_EQUAL(mine.try_acquire("owned", mortise::options().owner("")).status(),
                    MORTISE_INVALID);
    auto here = mine.try_acquire("mine", mortise::options().owner_thread()).value();
    CU_ASSERT_EQUAL(mine.try_acquire("mine", mortise::options().owner_thread()).status(),
                    MORTISE_OK);
    auto there = std::async(std::launch::async, [&] {
        return mine.try_acquire("mine", mortise::options().owner_thread()).status();
    });
    CU_ASSERT_EQUAL(there.get(), MORTISE_BUSY);
}

static void test_looks()
{
    mortise::client mine = open();
    auto two = mine.try_acquire("look/2").value(), one = mine.try_acquire("look/1").value();
    auto seen = mine.inspect("look/1").value();
    ASSERT_BOOL(seen.held);
    CU_ASSERT_EQUAL(seen.token, one.token());
    auto all = mine.list("look/").value();
    CU_ASSERT_EQUAL_FATAL(all.size(), 2);
    ASSERT_BOOL(std::string(all[0].name) == "look/1" && std::string(all[1].name) == "look/2");
    ASSERT_BOOL(mine.list("nothing/").value().empty());
    CU_ASSERT_FALSE(mine.inspect("nothing").value().held);
    CU_ASSERT_FALSE(mine.ping().value().empty());
    CU_ASSERT_EQUAL(mine.stats().value().held, 2);
    ASSERT_BOOL(mine.can(MORTISE_CAP_FENCING));
    CU_ASSERT_FALSE(mine.can(MORTISE_CAP_QUORUM));
    CU_ASSERT_EQUAL(mine.break_grant("look/1", one.token() + 1).status(), MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(mine.break_grant("nothing", 1).status(), MORTISE_LOST);
    CU_ASSERT_EQUAL(mine.break_grant("look/1", one.token()).status(), MORTISE_OK);
    CU_ASSERT_EQUAL(one.release().status(), MORTISE_LOST);
}

/* With the longest path that SQLite takes: more than half a kilobyte. */
static void test_long_ping()
{
    std::string path = cxx_test::folder;
    while (path.size() < 300)
        path += "/" + std::string(60, 'd');
    path += "/" + std::string(499 - path.size() - 3, 'd');
    std::filesystem::create_directories(path);
    path += "/l";
    auto answer = mortise::client::open("sqlite:" + path).value().ping().value();
    ASSERT_BOOL(answer.size() > 511 && answer.find(path + ", layout") != std::string::npos);
}

static void test_extend()
{
    mortise::client mine = open();
    auto brief = mine.try_acquire("brief", mortise::options().ttl(10s).no_renew()).value();
    CU_ASSERT_EQUAL(brief.name(), "brief");
    CU_ASSERT_EQUAL(brief.extend(1h).status(), MORTISE_OK);
    ASSERT_BOOL(brief.remaining() > 50min);
    CU_ASSERT_EQUAL(brief.extend().status(), MORTISE_OK); /* it gets no shorter */
    ASSERT_BOOL(brief.remaining() > 50min);
    CU_ASSERT_EQUAL(brief.extend(0s).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(brief.extend(-1s).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(brief.extend(std::chrono::hours::max()).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire("renewed").value().extend().status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(brief.release().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(brief.extend().status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(brief.name(), "");
}

int main()
{
    static const CU_TestInfo tests[] = {
        {"a scope", test_scope},
        {"moves", test_moves},
        {"clients", test_clients},
        {"exceptions", test_exceptions},
        {"durations", test_durations},
        {"waits", test_waits},
        {"zero bytes", test_zero_bytes},
        {"owners", test_owners},
        {"looks", test_looks},
        {"a long answer to a ping", test_long_ping},
        {"extend", test_extend},
        CU_TEST_INFO_NULL,
    };
    return cxx_test::run("guards", tests);
}
