/* test_kinds.cpp - mortise.hpp and sync.hpp: shared leases, permits, and names as mutexes and semaphores with the
 * interface of the standard library. With the sim driver: two clients of this process contend as two processes do. */
#include "cxx_test.hpp"

#include <mortise/sync.hpp>

#include <dlfcn.h>
#include <shared_mutex>

extern "C" {
#include "sim.h"
}

static mortise::client open_sim(const std::string &query = "ttl=30s")
{
    return mortise::client::open("sim:?" + query).value();
}

/* What another thread gets, for functions that ask which thread calls. */
template <class F> static auto elsewhere(F act)
{
    return std::async(std::launch::async, act).get();
}

static void test_options()
{
    mortise::client mine = open_sim(), other = open_sim();
    auto three = mortise::options().permits(3);
    auto first = mine.try_acquire("kinds", three).value(),
         second = other.try_acquire("kinds", three).value();
    ASSERT_BOOL(second.token() > first.token());
    auto seen = mine.inspect("kinds").value();
    CU_ASSERT_EQUAL(seen.mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(seen.permits, 3);
    auto holders = mine.holders("kinds").value();
    CU_ASSERT_EQUAL_FATAL(holders.size(), 2);
    ASSERT_BOOL(holders[0].token == first.token() && holders[1].token == second.token());
    CU_ASSERT_EQUAL(mine.try_acquire("kinds", mortise::options().shared()).status(),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire("kinds").status(), MORTISE_BUSY);
    CU_ASSERT_EQUAL(first.release().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(second.release().status(), MORTISE_OK);
    ASSERT_BOOL(mine.holders("kinds").value().empty());
    CU_ASSERT_EQUAL(mine.holders(std::string_view("a\0b", 3)).status(), MORTISE_INVALID);
    auto alone = mine.try_acquire("kinds", mortise::options().permits(3).shared(false));
    CU_ASSERT_EQUAL(alone.status(), MORTISE_OK);
    CU_ASSERT_EQUAL(other.try_acquire("kinds", three).status(), MORTISE_BUSY);
}

static void test_downgrade()
{
    mortise::client mine = open_sim(), other = open_sim();
    auto beside = mortise::options().shared();
    auto lease = mine.try_acquire("down").value();
    auto reader = std::async(std::launch::async,
                             [&] { return other.acquire_forever("down", beside).status(); });
    CU_ASSERT_EQUAL(lease.downgrade().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(reader.get(), MORTISE_OK);
    ASSERT_BOOL(lease.held());
    CU_ASSERT_EQUAL(other.try_acquire("down").status(), MORTISE_BUSY);
    CU_ASSERT_EQUAL(lease.release().status(), MORTISE_OK);
    CU_ASSERT_EQUAL(lease.downgrade().status(), MORTISE_INVALID);
}

static void test_mutex()
{
    /* on a busy machine a reader may come late, and joins all the same */
    mortise::client mine = open_sim("ttl=30s&handover_window=10s"), other = open_sim();
    mortise::shared_mutex here(mine, "table"), there(other, "table");
    {
        std::shared_lock one(here), two(there);
        ASSERT_BOOL(one && two && here.mine().held());
        ASSERT_BOOL(there.mine().token() > here.mine().token());
        CU_ASSERT_FALSE(elsewhere([&] { return here.mine().held(); }));
        ASSERT_BOOL(elsewhere([&] {
            std::shared_lock three(here);
            return here.mine().held() && mine.holders("table").value().size() == 2; // it joined
        }));
        CU_ASSERT_EQUAL(mine.holders("table").value().size(), 2);
        std::unique_lock refused(there, std::try_to_lock);
        CU_ASSERT_FALSE(refused);
        std::unique_lock late(there, 10ms);
        CU_ASSERT_FALSE(late);
    }
    CU_ASSERT_FALSE(there.mine().held());
    CU_ASSERT_FALSE(mine.inspect("table").value().held);
}

static void test_writer()
{
    mortise::client mine = open_sim(), other = open_sim();
    mortise::shared_mutex here(mine, "table"), there(other, "table", mortise::options().ttl(10s));
    std::unique_lock writer(here);
    ASSERT_BOOL(here.mine().held());
    CU_ASSERT_FALSE(there.try_lock_shared());
    CU_ASSERT_FALSE(there.try_lock_shared_for(10ms));
    CU_ASSERT_FALSE(there.try_lock_shared_until(std::chrono::steady_clock::now()));
    auto reader = std::async(std::launch::async, [&] {
        std::shared_lock lock(there);
        return there.mine().held();
    });
    CU_ASSERT_EQUAL(here.downgrade().status(), MORTISE_OK);
    writer.release();
    std::shared_lock still(here, std::adopt_lock);
    ASSERT_BOOL(reader.get());
    CU_ASSERT_EQUAL(there.downgrade().status(),
                    MORTISE_INVALID); /* this thread holds nothing there */
    still.unlock();
    here.unlock(); /* not held: nothing happens */
    CU_ASSERT_FALSE(mine.inspect("table").value().held);
}

/* What a bool cannot say is thrown. */
static void test_trouble()
{
    mortise::client mine = open_sim(), bare = open_sim("without=shared");
    mortise::shared_mutex none(bare, "table");
    ASSERT_BOOL(none.try_lock());
    none.unlock();
    try {
        none.lock_shared();
        CU_FAIL("nothing was thrown");
    } catch (const mortise::exception &problem) {
        CU_ASSERT_EQUAL(problem.status(), MORTISE_NOTSUP);
    }
    try {
        mortise::semaphore zero(mine, "slots", 0);
        CU_FAIL("nothing was thrown");
    } catch (const mortise::exception &problem) {
        CU_ASSERT_EQUAL(problem.status(), MORTISE_INVALID);
    }
    mortise::shared_mutex orphan(mine, "table");
    orphan.lock();
    CU_ASSERT_EQUAL(mine.close().status(), MORTISE_OK);
    CU_ASSERT_FALSE(orphan.mine().held());
    orphan.unlock();
    try {
        orphan.lock();
        CU_FAIL("nothing was thrown");
    } catch (const mortise::exception &problem) {
        CU_ASSERT_EQUAL(problem.status(), MORTISE_CLOSED);
    }
}

static void test_semaphore()
{
    mortise::client mine = open_sim(), other = open_sim();
    mortise::semaphore there(other, "slots", 3);
    {
        mortise::semaphore here(mine, "slots", 3);
        CU_ASSERT_EQUAL(here.release(), MORTISE_INVALID);
        here.acquire();
        ASSERT_BOOL(here.try_acquire());
        ASSERT_BOOL(there.try_acquire_for(60s));
        CU_ASSERT_FALSE(here.try_acquire());
        CU_ASSERT_FALSE(there.try_acquire_for(10ms));
        CU_ASSERT_FALSE(there.try_acquire_until(std::chrono::steady_clock::now() - 1s));
        CU_ASSERT_EQUAL(here.held(), 2);
        CU_ASSERT_EQUAL(here.release(3), MORTISE_INVALID);
        CU_ASSERT_EQUAL(here.release(-1), MORTISE_INVALID);
        CU_ASSERT_EQUAL(here.held(), 2);
        auto waiter = std::async(std::launch::async, [&] {
            there.acquire();
            there.acquire();
            return there.held();
        });
        CU_ASSERT_EQUAL(here.release(2), MORTISE_OK);
        CU_ASSERT_EQUAL(waiter.get(), 3);
        CU_ASSERT_EQUAL(elsewhere([&] { return there.release(); }), MORTISE_OK);
        here.acquire();
    } /* it releases what it holds */
    ASSERT_BOOL(there.try_acquire());
    CU_ASSERT_FALSE(there.try_acquire());
    mortise::semaphore unlike(mine, "slots", 4);
    try {
        (void)unlike.try_acquire();
        CU_FAIL("nothing was thrown");
    } catch (const mortise::exception &problem) {
        CU_ASSERT_EQUAL(problem.status(), MORTISE_INVALID);
    }
    auto tokens = other.holders("slots").value();
    CU_ASSERT_EQUAL_FATAL(tokens.size(), 3);
    CU_ASSERT_EQUAL(other.break_grant("slots", tokens[0].token).status(), MORTISE_OK);
    CU_ASSERT_EQUAL(there.release(3), MORTISE_LOST);
    CU_ASSERT_FALSE(mine.inspect("slots").value().held);
}

/* Each thread hears of its own permit. */
static void test_semaphore_of_two_threads()
{
    mortise::client mine = open_sim(), other = open_sim();
    mortise::semaphore slots(mine, "pool", 2);
    slots.acquire();
    mortise_status theirs = elsewhere([&] {
        slots.acquire();
        auto holders = other.holders("pool").value();
        CU_ASSERT_EQUAL_FATAL(holders.size(), 2);
        CU_ASSERT_EQUAL(other.break_grant("pool", holders[0].token).status(), MORTISE_OK);
        return slots.release();
    });
    CU_ASSERT_EQUAL(theirs, MORTISE_OK);
    CU_ASSERT_EQUAL(slots.release(), MORTISE_LOST);
}

/* So many of the requests that `act` sends are under way together before one is answered, and no more. */
template <class F> static void goes_together(std::uint64_t requests, F act)
{
    void *library = dlopen(TEST_SIM_DIR "/sim.so", RTLD_NOW | RTLD_LOCAL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(library);
    auto sim = static_cast<const sim_api *>(dlsym(library, SIM_API_SYMBOL));
    CU_ASSERT_PTR_NOT_NULL_FATAL(sim);
    sim_rule held{};
    held.kinds = SIM_OP(MORTISE_OP_RELEASE);
    held.hold_request = true;
    int rule = sim->script(&held);
    auto done = std::async(std::launch::async, act);
    ASSERT_BOOL(sim->wait_hits(rule, requests, 20000)); /* the time only bounds failure */
    sim->end(rule);
    sim->let_go(rule);
    done.get();
    CU_ASSERT_EQUAL(sim->hits(rule), requests);
    dlclose(library);
}

/* A few at once, many by eights. */
static void test_semaphore_ends_at_once()
{
    mortise::client mine = open_sim("ttl=60s&unreachable_timeout=60s");
    auto slots = std::make_unique<mortise::semaphore>(mine, "many", 46);
    for (int i = 0; i < 46; i++)
        slots->acquire();
    goes_together(3, [&] { CU_ASSERT_EQUAL(slots->release(3), MORTISE_OK); });
    CU_ASSERT_EQUAL(slots->held(), 43);
    CU_ASSERT_EQUAL(slots->release(0), MORTISE_OK);
    goes_together(8, [&] { CU_ASSERT_EQUAL(slots->release(17), MORTISE_OK); });
    auto holders = mine.holders("many").value();
    CU_ASSERT_EQUAL_FATAL(holders.size(), 26);
    CU_ASSERT_EQUAL(mine.break_grant("many", holders[0].token).status(), MORTISE_OK);
    CU_ASSERT_EQUAL(slots->release(9), MORTISE_LOST); /* the ninth was not lost */
    CU_ASSERT_EQUAL(mine.holders("many").value().size(), 17);
    goes_together(8, [&] { slots.reset(); });
    CU_ASSERT_FALSE(mine.inspect("many").value().held);
}

static void test_mutex_ends_at_once()
{
    /* with a window of 0 the second reader does not join the first one's claim */
    mortise::client mine = open_sim("ttl=60s&unreachable_timeout=60s&handover_window=0");
    auto table = std::make_unique<mortise::shared_mutex>(mine, "table");
    table->lock_shared();
    elsewhere([&] { table->lock_shared(); });
    CU_ASSERT_EQUAL(mine.holders("table").value().size(), 2);
    goes_together(2, [&] { table.reset(); });
    CU_ASSERT_FALSE(mine.inspect("table").value().held);
}

static void test_several()
{
    mortise::client mine = open_sim(), other = open_sim();
    const std::vector<std::string> names = {"c", "a", "b"};
    {
        auto all = mine.acquire_all(names).value();
        ASSERT_BOOL(all);
        ASSERT_BOOL(all.held());
        CU_ASSERT_EQUAL_FATAL(all.size(), 3);
        CU_ASSERT_EQUAL(all[1].token(), mine.inspect("a").value().token);
        CU_ASSERT_EQUAL(other.try_acquire_all({"b", "d"}).status(), MORTISE_BUSY);
        auto late = other.try_acquire_all_for({"d", "b"}, 10ms);
        ASSERT_BOOL(!late && late.error().contended());
        CU_ASSERT_FALSE(mine.inspect("d").value().held);
        mortise::leases moved = std::move(all);
        CU_ASSERT_FALSE(all);
        CU_ASSERT_FALSE(all.held());
        CU_ASSERT_EQUAL(all.release().status(), MORTISE_INVALID);
        ASSERT_BOOL(moved.held());
    }
    auto again = other.try_acquire_all(names).value();
    CU_ASSERT_EQUAL(mine.break_grant("b", again[2].token()).status(), MORTISE_OK);
    CU_ASSERT_EQUAL(again.release().status(), MORTISE_LOST);
    ASSERT_BOOL(mine.list().value().empty());
    CU_ASSERT_EQUAL(mine.try_acquire_all({"a", "a"}).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire_all({}).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.try_acquire_all({"a", std::string("b\0c", 3)}).status(), MORTISE_INVALID);
    auto shared = mortise::options().shared();
    auto first = mine.try_acquire_all(names, shared).value(),
         second = other.try_acquire_all(names, shared).value();
    ASSERT_BOOL(first.held() && second.held());
    first = std::move(second); /* releases the first ones */
    CU_ASSERT_EQUAL(mine.holders("a").value().size(), 1);
    ASSERT_BOOL(first.held());
}

/* on_state is called for each lease, and lives as long as any of them. */
static void test_several_told()
{
    mortise::client mine = open_sim();
    auto kept = std::make_shared<int>(0);
    std::weak_ptr<int> seen = kept;
    std::promise<void> both;
    std::atomic<int> lost{0};
    auto how = mortise::options().ttl(300ms).no_renew().on_state(
        [&, kept = std::move(kept)](mortise::lease_view, mortise_lease_state state) {
            if (state == MORTISE_STATE_LOST && ++lost == 2)
                both.set_value();
        });
    auto told = both.get_future();
    auto all = mine.try_acquire_all({"x", "y"}, how).value();
    how.on_state(nullptr);
    CU_ASSERT_FATAL(cxx_test::comes(told));
    CU_ASSERT_FALSE(all.held());
    CU_ASSERT_FALSE(seen.expired());
    CU_ASSERT_EQUAL(all.release().status(), MORTISE_LOST);
    ASSERT_BOOL(seen.expired());
}

int main()
{
    static const CU_TestInfo tests[] = {
        {"options", test_options},
        {"downgrade", test_downgrade},
        {"a mutex", test_mutex},
        {"a writer", test_writer},
        {"trouble", test_trouble},
        {"a semaphore", test_semaphore},
        {"a semaphore of two threads", test_semaphore_of_two_threads},
        {"a semaphore ends at once", test_semaphore_ends_at_once},
        {"a mutex ends at once", test_mutex_ends_at_once},
        {"several names", test_several},
        {"several are told", test_several_told},
        CU_TEST_INFO_NULL,
    };
    return cxx_test::run("kinds", tests);
}
