/* test_callbacks.cpp - mortise.hpp: a callback object lives as long as it can be called, and no longer, whoever ends
 * the lease, and on whatever thread. With the SQLite driver. */
#include "cxx_test.hpp"

#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using cxx_test::comes;
using cxx_test::open;

/* In place of the library's function: runs this first, once, on another thread. */
static std::function<void()> before_dispatch;

int mortise_dispatch(mortise_client *client)
{
    static const auto real =
        reinterpret_cast<int (*)(mortise_client *)>(dlsym(RTLD_NEXT, "mortise_dispatch"));
    if (auto before = std::exchange(before_dispatch, nullptr))
        std::thread(before).join();
    return real(client);
}

/* So many more calls of `new` succeed on this thread; -1: all. */
static thread_local int news_left = -1;

void *operator new(std::size_t size)
{
    void *memory = news_left == 0 ? nullptr : std::malloc(size);
    if (memory == nullptr)
        throw std::bad_alloc();
    news_left -= news_left > 0;
    return memory;
}

void operator delete(void *memory) noexcept
{
    std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept
{
    std::free(memory);
}

/* It expires very soon; then its loss is reported. */
static const mortise::options brisk = mortise::options().ttl(500ms).no_renew();

/* ---- on_state ---- */

/* What a callback has captured is destroyed with it. */
struct witness {
    std::shared_ptr<int> kept = std::make_shared<int>(1);
    std::weak_ptr<int> seen = kept;
    std::shared_ptr<int> give()
    {
        return std::move(kept);
    }
};

static void test_loss_is_told()
{
    mortise::client mine = open();
    witness memory;
    std::promise<std::uint64_t> lost;
    auto told = lost.get_future();
    auto how = brisk;
    how.on_state(
        [&lost, kept = memory.give()](mortise::lease_view lease, mortise_lease_state state) {
            if (state == MORTISE_STATE_LOST)
                lost.set_value(lease.held() ? 0 : lease.token());
        });
    auto lease = mine.try_acquire_for("told", 60s, how).value();
    how.on_state(nullptr);
    mortise::lease moved = std::move(lease); /* the callback stays with it */
    CU_ASSERT_FATAL(comes(told));
    CU_ASSERT_EQUAL(told.get(), moved.token());
    CU_ASSERT_FALSE(moved.held());
    CU_ASSERT_FALSE(memory.seen.expired());
    CU_ASSERT_EQUAL(moved.release().status(), MORTISE_LOST);
    ASSERT_BOOL(memory.seen.expired());
}

/* The lease is destroyed inside its own callback, which uses its captures after that. */
static void test_released_inside()
{
    mortise::client mine = open();
    witness memory;
    std::promise<int> lost;
    std::promise<void> had;
    auto told = lost.get_future();
    auto slot = std::make_unique<mortise::lease>();
    auto how = brisk;
    how.on_state([&, kept = memory.give()](mortise::lease_view, mortise_lease_state state) {
        if (state != MORTISE_STATE_LOST)
            return;
        had.get_future().wait(); /* it is in its slot */
        slot.reset();
        lost.set_value(*kept + 1);
    });
    *slot = mine.try_acquire_for("inside", 60s, how).value();
    how.on_state(nullptr);
    had.set_value();
    CU_ASSERT_FATAL(comes(told));
    CU_ASSERT_EQUAL(told.get(), 2);
    CU_ASSERT_EQUAL(mine.close().status(), MORTISE_OK); /* waits for the callback to return */
    ASSERT_BOOL(memory.seen.expired());
}

/* The client ends first: the lease's callback is kept as long as it could still run, and then freed. */
static void test_lease_outlives_client()
{
    witness memory;
    mortise::lease late;
    {
        mortise::client mine = open();
        late = mine.try_acquire("late",
                                mortise::options().on_state([kept = memory.give()](auto, auto) {}))
                   .value();
    }
    CU_ASSERT_FALSE(late.held());
    CU_ASSERT_EQUAL(late.release().status(), MORTISE_INVALID);
    ASSERT_BOOL(memory.seen.expired());

    witness more;
    mortise::client mine = open();
    late =
        mine.try_acquire("late", mortise::options().on_state([kept = more.give()](auto, auto) {}))
            .value();
    CU_ASSERT_EQUAL(mine.close().status(), MORTISE_OK);
    late = mortise::lease();
    CU_ASSERT_FALSE(more.seen.expired());
    mine = mortise::client();
    ASSERT_BOOL(more.seen.expired());
}

/* A loss is being reported when other threads close the client and end the lease: the handle is invalid by then, so its
 * end waits for nobody, and the callback continues with its captures. */
static void test_close_while_told()
{
    mortise::client mine = open();
    witness memory;
    std::promise<void> entered, gate;
    std::promise<int> left;
    auto told = entered.get_future(), opened = gate.get_future();
    auto done = left.get_future();
    auto how = brisk;
    how.on_state([&, kept = memory.give()](auto, mortise_lease_state state) {
        if (state != MORTISE_STATE_LOST)
            return;
        entered.set_value();
        opened.wait();
        left.set_value(*kept + 1);
    });
    auto lease = mine.try_acquire_for("cross", 60s, how).value();
    how.on_state(nullptr);
    CU_ASSERT_FATAL(comes(told));
    std::thread closer([&] { (void)mine.close(); });
    while (lease.token() != 0) /* until the close has begun and spent it */
        std::this_thread::yield();
    CU_ASSERT_EQUAL(lease.release().status(), MORTISE_INVALID);
    gate.set_value();
    CU_ASSERT_FATAL(comes(done));
    CU_ASSERT_EQUAL(done.get(), 2);
    closer.join();
    mine = mortise::client();
    ASSERT_BOOL(memory.seen.expired());
}

/* A callback of one client ends a lease of another client whose loss is being reported on another thread. Its
 * captures stay until that is over, and are destroyed with the next lease that ends. */
static void test_released_by_another_callback()
{
    mortise::client mine = open(), other = open();
    witness memory;
    std::promise<void> entered, gate;
    std::promise<mortise_status> released;
    std::promise<int> left;
    auto told = entered.get_future(), opened = gate.get_future();
    auto ended = released.get_future();
    auto done = left.get_future();
    auto how = brisk;
    how.on_state([&, kept = memory.give()](auto, mortise_lease_state state) {
        if (state != MORTISE_STATE_LOST)
            return;
        entered.set_value();
        opened.wait();
        left.set_value(*kept + 1);
    });
    auto lease = mine.try_acquire_for("a", 60s, how).value();
    how.on_state([](auto, auto) {});
    auto second = mine.try_acquire_for("b", 60s, how).value();
    CU_ASSERT_FATAL(comes(told));
    ASSERT_BOOL(
        other.acquire_async("c", [&](auto) { released.set_value(lease.release().status()); }));
    CU_ASSERT_FATAL(comes(ended)); /* it does not wait for the callback */
    CU_ASSERT_EQUAL(ended.get(), MORTISE_LOST);
    (void)second.release();
    CU_ASSERT_FALSE(memory.seen.expired());
    gate.set_value();
    CU_ASSERT_FATAL(comes(done));
    CU_ASSERT_EQUAL(done.get(), 2);
    auto next = [&] {
        (void)mine.try_acquire_for("next", 60s, how).value().release();
        return memory.seen.expired();
    };
    while (!next())
        std::this_thread::yield();
    ASSERT_BOOL(memory.seen.expired());
}

/* A callback on another dispatching thread does not return: the end of the client does not wait forever. */
static void test_bounded_end()
{
    witness memory;
    std::promise<void> entered, gate;
    auto told = entered.get_future(), opened = gate.get_future();
    mortise_client *handle;
    std::thread dispatcher;
    {
        mortise::client mine = open("close_timeout=100ms");
        handle = mine.handle();
        ASSERT_BOOL(mine.fd());
        ASSERT_BOOL(mine.acquire_async("x", [&, kept = memory.give()](auto) {
            entered.set_value();
            opened.wait();
        }));
        dispatcher = std::thread([handle] {
            while (mortise_dispatch(handle) == 0)
                std::this_thread::yield();
        });
        CU_ASSERT_FATAL(comes(told));
    }
    CU_ASSERT_FALSE(memory.seen.expired());
    gate.set_value();
    dispatcher.join();
    ASSERT_BOOL(memory.seen.expired());
    mortise_status end = mortise_close(handle, nullptr); /* it was kept for this */
    /* A busy machine may need more than 100 ms to release "x". */
    CU_ASSERT(end == MORTISE_OK || end == MORTISE_UNREACHABLE);
}

/* Another thread closes the client to the end, between a close of its destructor and the dispatch after that. So it is known that
 * no callback runs, and what a callback has captured is destroyed. */
static void test_closed_beside_the_end()
{
    witness memory;
    mortise::lease lease;
    mortise_status beside = MORTISE_CLOSING;
    {
        mortise::client mine = open();
        ASSERT_BOOL(mine.fd());
        lease = mine.try_acquire("held",
                                 mortise::options().on_state([kept = memory.give()](auto, auto) {}))
                    .value();
        ASSERT_BOOL(mine.acquire_async("x", [](auto) {})); /* a callback that waits: CLOSING */
        before_dispatch = [&beside, handle = mine.handle()] {
            while ((beside = mortise_close(handle, nullptr)) == MORTISE_CLOSING)
                mortise_dispatch(handle);
        };
    }
    CU_ASSERT(beside == MORTISE_OK || beside == MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(lease.release().status(), MORTISE_INVALID);
    ASSERT_BOOL(memory.seen.expired());
}

/* A child touches nothing of its parent, and its guards can be destroyed. */
static void test_fork()
{
    mortise::client mine = open();
    auto lease = std::make_unique<mortise::lease>(
        mine.try_acquire("forked", mortise::options().on_state([](auto, auto) {})).value());
    pid_t child = fork();
    if (child == 0) {
        bool held = lease->held();
        mortise_status status = mine.try_acquire("x").status(),
                       released = lease->release().status();
        lease.reset();
        mine = mortise::client();
        _exit(!held && status == MORTISE_FORKED && released == MORTISE_FORKED ? 0 : 1);
    }
    CU_ASSERT_FATAL(child > 0);
    int end = -1;
    while (waitpid(child, &end, 0) < 0 && errno == EINTR) {
    }
    CU_ASSERT_EQUAL(end, 0);
    ASSERT_BOOL(lease->held());
    CU_ASSERT_EQUAL(lease->release().status(), MORTISE_OK);
}

/* ---- acquire_async ---- */

static void test_async()
{
    mortise::client mine = open(), other = open();
    auto had = std::make_shared<std::promise<mortise::lease>>();
    auto comes_here = had->get_future();
    witness memory;
    auto asked = mine.acquire_async(
        "async", [had, kept = memory.give()](mortise::result<mortise::lease> got) {
            had->set_value(std::move(*got));
        });
    CU_ASSERT_EQUAL(asked.status(), MORTISE_OK);
    CU_ASSERT_FATAL(comes(comes_here));
    mortise::lease lease = comes_here.get();
    ASSERT_BOOL(lease.held());

    std::promise<mortise::error> failed;
    auto why = failed.get_future();
    auto waits = other.acquire_async("async", [&](auto got) { failed.set_value(got.error()); });
    ASSERT_BOOL(other.cancel(waits.value()));
    CU_ASSERT_FALSE(other.cancel(waits.value()));
    CU_ASSERT_FATAL(comes(why));
    CU_ASSERT_EQUAL(why.get().status, MORTISE_CANCELED);

    std::promise<mortise_status> timed;
    auto late = timed.get_future();
    ASSERT_BOOL(
        other.acquire_async_for("async", 10ms, [&](auto got) { timed.set_value(got.status()); }));
    CU_ASSERT_FATAL(comes(late));
    CU_ASSERT_EQUAL(late.get(), MORTISE_TIMEDOUT);
    CU_ASSERT_EQUAL(mine.acquire_async("x", nullptr).status(), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mine.close().status(), MORTISE_OK);
    ASSERT_BOOL(memory.seen.expired());
}

/* A lease that the callback does not keep is released, and so are those of a callback that cannot be called. */
static void test_async_unwanted()
{
    mortise::client mine = open(), other = open();
    ASSERT_BOOL(mine.acquire_async("unwanted", [](auto) {}));
    auto next = other.try_acquire_for("unwanted", 60s);
    CU_ASSERT_EQUAL(next.status(), MORTISE_OK);
    witness memory;
    std::promise<mortise_status> closed;
    auto told = closed.get_future();
    ASSERT_BOOL(mine.acquire_async(
        "unwanted", [&, kept = memory.give()](auto got) { closed.set_value(got.status()); }));
    mine = mortise::client();
    CU_ASSERT_FATAL(comes(told));
    CU_ASSERT_EQUAL(told.get(), MORTISE_CLOSED);
    ASSERT_BOOL(memory.seen.expired());
}

static void test_event_loop()
{
    enum { COUNT = 64 };
    mortise::client mine = open();
    CU_ASSERT_EQUAL(mine.dispatch().status(), MORTISE_INVALID); /* before fd() */
    int fd = mine.fd().value();
    auto here = std::this_thread::get_id();
    std::vector<mortise::lease> held;
    for (int i = 0; i < COUNT; i++)
        ASSERT_BOOL(mine.acquire_async("loop/" + std::to_string(i), [&](auto got) {
            ASSERT_BOOL(std::this_thread::get_id() == here);
            held.push_back(std::move(got).value());
        }));
    while (held.size() < COUNT) {
        struct pollfd ready = {fd, POLLIN, 0};
        CU_ASSERT_FATAL(poll(&ready, 1, 60000) == 1);
        CU_ASSERT_FATAL(static_cast<bool>(mine.dispatch()));
    }
    CU_ASSERT_EQUAL(mine.stats().value().held, COUNT);
    held.clear();
    CU_ASSERT_EQUAL(mine.stats().value().held, 0);
}

/* A release whose outcome comes later; the lease may be gone by then, and the callback owns its captures. */
static void test_release_async()
{
    mortise::client mine = open();
    std::promise<mortise_status> first, second;
    auto told = first.get_future(), told_too = second.get_future();
    {
        auto lease = mine.try_acquire("async").value();
        CU_ASSERT_EQUAL(lease.release_async(nullptr).status(), MORTISE_INVALID);
        ASSERT_BOOL(lease.held());
        CU_ASSERT_EQUAL(
            lease.release_async([&](mortise::result<void> was) { first.set_value(was.status()); })
                .status(),
            MORTISE_OK);
        CU_ASSERT_FALSE(lease);
        CU_ASSERT_EQUAL(lease.release_async([](auto) {}).status(), MORTISE_INVALID);
    }
    CU_ASSERT_FATAL(cxx_test::comes(told));
    CU_ASSERT_EQUAL(told.get(), MORTISE_OK);
    auto broken = mine.try_acquire("async").value();
    CU_ASSERT_EQUAL(mine.break_grant("async", broken.token()).status(), MORTISE_OK);
    std::string message;
    CU_ASSERT_EQUAL(broken
                        .release_async([&](mortise::result<void> was) {
                            message = was.error().message;
                            second.set_value(was.status());
                        })
                        .status(),
                    MORTISE_OK);
    CU_ASSERT_FATAL(cxx_test::comes(told_too));
    CU_ASSERT_EQUAL(told_too.get(), MORTISE_LOST);
    ASSERT_BOOL(message.find("lost before") != std::string::npos);
}

/* The callback is called, however little memory is left: to copy the error's texts would take more. */
static void test_little_memory()
{
    mortise::client mine = open(), other = open();
    int fd = mine.fd().value();
    mortise_status told = MORTISE_OK;
    auto hear = [&](int left) {
        for (told = MORTISE_OK; told == MORTISE_OK;) {
            struct pollfd ready = {fd, POLLIN, 0};
            CU_ASSERT_FATAL(poll(&ready, 1, 60000) == 1);
            news_left = left;
            bool well = static_cast<bool>(mine.dispatch());
            news_left = -1;
            CU_ASSERT_FATAL(well);
        }
        return told;
    };
    for (int left = 0; left < 4; left++) {
        auto held = other.try_acquire("little").value();
        ASSERT_BOOL(mine.acquire_async_for("little", 10ms, [&](auto got) { told = got.status(); }));
        CU_ASSERT_EQUAL(hear(left), MORTISE_TIMEDOUT);
        CU_ASSERT_EQUAL(held.release().status(), MORTISE_OK);
        auto lost = mine.try_acquire("little").value();
        CU_ASSERT_EQUAL(other.break_grant("little", lost.token()).status(), MORTISE_OK);
        ASSERT_BOOL(lost.release_async([&](auto was) { told = was.status(); }));
        CU_ASSERT_EQUAL(hear(left), MORTISE_LOST);
    }
}

int main()
{
    static const CU_TestInfo tests[] = {
        {"a loss is told", test_loss_is_told},
        {"released inside", test_released_inside},
        {"a lease outlives its client", test_lease_outlives_client},
        {"a close while it is told", test_close_while_told},
        {"released by another callback", test_released_by_another_callback},
        {"a bounded end", test_bounded_end},
        {"closed beside the end", test_closed_beside_the_end},
        {"fork", test_fork},
        {"async", test_async},
        {"async, unwanted", test_async_unwanted},
        {"an event loop", test_event_loop},
        {"an async release", test_release_async},
        {"little memory", test_little_memory},
        CU_TEST_INFO_NULL,
    };
    return cxx_test::run("callbacks", tests);
}
