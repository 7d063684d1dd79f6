/* mortise.hpp - mortise.h for C++17: guards instead of handles, std::chrono, std::function. Header only.
 *
 * Link with libmortise as in C. mortise.h documents what the functions do, what they return and which threads may
 * call them. This header documents only what is different in C++. SPDX-License-Identifier: MIT
 *
 *     mortise::client client = mortise::client::open("/etc/mortise/mortise.conf").value();
 *     if (auto lease = client.try_acquire_for("nightly", 5s)) {
 *         if (lease->held())                   // check before each step that cannot be undone
 *             write(row, lease->token());      // pass the token along
 *         if (auto released = lease->release(); !released)
 *             undo(released.error().message);  // LOST: another holder may have overlapped
 *     } else if (!lease.error().contended())
 *         complain(lease.error().message);
 *
 * ERRORS are values; the caller may turn them into exceptions. A function that can fail returns a result<T>: it is
 * true and holds the T, or it is false and holds an `error`. `value()` returns the T or throws mortise::exception,
 * which holds the same error. Reasons: a lock that is held by another is a normal answer, not an exception; and a
 * failed *release* may mean that work must be undone, so results must not be ignored ([[nodiscard]]). A program that
 * cannot continue after an error just calls `.value()`. Functions throw nothing else except std::bad_alloc. With
 * -fno-exceptions, value() of a failure ends the program.
 *
 * GUARDS (client, lease) can be moved, not copied. A moved-from or empty guard behaves like the handle NULL (INVALID,
 * LOST, 0), but its release is INVALID. Destructors release and close, and ignore the result: call release() if the result
 * matters. A lease may outlive its client; it is lost then. As with any C++ object, only one thread at a time may use an
 * object, but several threads may call its const functions, so one client serves all threads. client::close() may also be
 * called while other threads use that client: it ends their waits. Assignment to a lease releases the old lease *after* the
 * new one was acquired.
 *
 * CALLBACKS (on_state, acquire_async) stay alive until nothing can call them any more, wherever the lease is released,
 * also inside the callback itself. They must not throw: that ends the program (std::terminate). ~lease and release()
 * wait for an on_state of that lease that runs on another thread, so do not destroy a lease under a mutex that its
 * callback takes. */
#ifndef MORTISE_MORTISE_HPP
#define MORTISE_MORTISE_HPP

#include <mortise/mortise.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mortise {

using milliseconds = std::chrono::milliseconds;

/* ---- Errors ---------------------------------------------------------------------------------- */

/* mortise_error, with its own strings. */
struct error {
    mortise_status status = MORTISE_OK;
    std::int32_t native = 0;
    bool retryable = false;
    std::string driver;
    std::string message; /* empty if there was no memory for it */

    error() = default;
    explicit error(const mortise_error &from) noexcept
        : status(from.status), native(from.native), retryable(from.retryable)
    {
        try_to([&] { driver = from.driver; });
        try_to([&] { message = from.message; });
    }
    error(mortise_status why, const char *text) noexcept : status(why)
    {
        try_to([&] { message = text; });
    }

    /* BUSY (tried once): another holder has the lock, or others wait for it already. TIMEDOUT (waited): another holder has
     * it, or the backend had not answered for this call yet; the message says which. */
    bool contended() const noexcept
    {
        return status == MORTISE_BUSY || status == MORTISE_TIMEDOUT;
    }

private:
    template <class F> static void try_to(F &&act) noexcept
    {
#if defined(__cpp_exceptions)
        try {
            act();
        } catch (const std::bad_alloc &) {
        }
#else
        act();
#endif
    }
};

/* What value() throws. Copying it does not throw. */
class exception : public std::runtime_error {
public:
    explicit exception(error why)
        : std::runtime_error(why.message), why_(std::make_shared<const error>(std::move(why)))
    {
    }
    const error &why() const noexcept { return *why_; }
    mortise_status status() const noexcept { return why_->status; }

private:
    std::shared_ptr<const error> why_;
};

namespace detail {

[[noreturn]] inline void raise(const error &why)
{
#if defined(__cpp_exceptions)
    throw exception(why);
#else
    (void)why;
    std::abort();
#endif
}

} // namespace detail

/* A T, or the error. Calling error() on a success, or * on a failure, is undefined behaviour. */
template <class T> class [[nodiscard]] result {
public:
    result(T value) : either_(std::in_place_index<0>, std::move(value)) {}
    result(mortise::error why) : either_(std::in_place_index<1>, std::move(why)) {}

    explicit operator bool() const noexcept { return either_.index() == 0; }
    mortise_status status() const noexcept { return *this ? MORTISE_OK : error().status; }
    const mortise::error &error() const noexcept { return *std::get_if<1>(&either_); }

    T &operator*() noexcept { return *std::get_if<0>(&either_); }
    const T &operator*() const noexcept { return *std::get_if<0>(&either_); }
    T *operator->() noexcept { return std::get_if<0>(&either_); }
    const T *operator->() const noexcept { return std::get_if<0>(&either_); }

    T &value() &
    {
        need();
        return **this;
    }
    const T &value() const &
    {
        need();
        return **this;
    }
    T value() &&
    {
        need();
        return std::move(**this);
    }

private:
    void need() const
    {
        if (!*this)
            detail::raise(error());
    }
    std::variant<T, mortise::error> either_;
};

/* Success, or the error. */
template <> class [[nodiscard]] result<void> {
public:
    result() = default;
    result(mortise::error why) : why_(std::move(why)) {}

    explicit operator bool() const noexcept { return !why_; }
    mortise_status status() const noexcept { return why_ ? why_->status : MORTISE_OK; }
    const mortise::error &error() const noexcept { return *why_; }
    void value() const
    {
        if (why_)
            detail::raise(*why_);
    }

private:
    std::optional<mortise::error> why_;
};

/* ---- A lease --------------------------------------------------------------------------------- */

/* Refers to a lease without owning it: the argument of a state callback. If the lease was released: LOST, 0, "". */
class lease_view {
public:
    lease_view() = default;
    explicit lease_view(mortise_lease *handle) noexcept : handle_(handle) {}

    mortise_lease_state state() const noexcept { return mortise_state(handle_); }
    /* Not LOST: you hold the lock at this instant. Costs one clock read. */
    bool held() const noexcept { return state() != MORTISE_STATE_LOST; }
    milliseconds remaining() const noexcept { return milliseconds(mortise_remaining_ms(handle_)); }
    std::uint64_t token() const noexcept { return mortise_token(handle_); }
    std::string owner() const
    {
        char text[MORTISE_OWNER_MAX + 1];
        std::size_t length = mortise_owner(handle_, text, sizeof(text));
        return length < sizeof(text) ? std::string(text, length) : std::string();
    }
    std::string name() const
    {
        char text[MORTISE_NAME_MAX + 1];
        std::size_t length = mortise_name(handle_, text, sizeof(text));
        return length < sizeof(text) ? std::string(text, length) : std::string();
    }
    /* For functions of mortise.h that have no C++ form. */
    mortise_lease *handle() const noexcept { return handle_; }

protected:
    mortise_lease *handle_ = nullptr;
};

using state_function = std::function<void(lease_view, mortise_lease_state)>;

namespace detail {

class named_lock;  /* sync.hpp */
class held_leases; /* the same */

/* A state function at a fixed address, for C. */
struct watcher : std::enable_shared_from_this<watcher> {
    explicit watcher(state_function told) : call(std::move(told)) {}
    state_function call;
    mortise_lease *lease = nullptr; /* of a retired one: the lease that it was for */
    watcher *next = nullptr;       /* among the retired ones */
    std::shared_ptr<watcher> self; /* while it is retired */

    /* Holds a reference, because the callback may destroy the lease. */
    static void trampoline(mortise_lease *lease, mortise_lease_state state, void *self) noexcept
    {
        std::shared_ptr<watcher> keep = static_cast<watcher *>(self)->shared_from_this();
        keep->call(lease_view(lease), state);
    }
};

/* Watchers that may not be freed yet. Lock-free, because a fork may come at any instant and the child still runs
 * destructors. */
struct watchers {
    std::atomic<watcher *> first{nullptr};

    void add(std::shared_ptr<watcher> one) noexcept
    {
        watcher *raw = one.get();
        raw->self = std::move(one);
        raw->next = first.load();
        while (!first.compare_exchange_weak(raw->next, raw)) {
        }
    }
    /* Removes all watchers, and calls keep(one) with the shared_ptr of each. */
    template <class F> void take(F &&keep) noexcept
    {
        for (watcher *each = first.exchange(nullptr), *next; each != nullptr; each = next) {
            next = each->next;
            keep(std::move(each->self));
        }
    }
};

/* Watchers of clients whose close never confirmed that no callback runs. */
inline watchers unsure_for_ever;

/* What leases share with their client. After mortise_release() has returned for a lease, its watcher is not called
 * again, with three exceptions: a release inside a callback does not wait for a call on another thread; no release waits
 * for a call that closes the client; and while the client is being closed, the release only returns INVALID. Such a watcher
 * is retired. It is freed when the library reports that its call has ended, or after the close. */
struct home {
    mortise_client *client = nullptr;
    bool lingers = false; /* the close did not wait for all callbacks */
    watchers retired;

    home() = default;
    home(const home &) = delete;
    home &operator=(const home &) = delete;
    ~home()
    {
        retired.take([this](std::shared_ptr<watcher> one) {
            if (lingers)
                unsure_for_ever.add(std::move(one));
        });
    }
    /* The lease was released. over: mortise_release() recognised it. */
    void retire(std::shared_ptr<watcher> one, mortise_lease *lease, bool over) noexcept
    {
        one->lease = lease;
        if (!over || mortise_on_state_runs(client, lease))
            retired.add(std::move(one));
        if (over && retired.first.load() != nullptr) /* else the client ends with its callbacks */
            retired.take([this](std::shared_ptr<watcher> each) {
                if (mortise_on_state_runs(client, each->lease))
                    retired.add(std::move(each));
            });
    }
    /* Waits for the callbacks, but not forever: see ~client. */
    void close() noexcept
    {
        bool idle = false;
        mortise_status status;
        while ((status = mortise_close(client, nullptr)) == MORTISE_CLOSING && !idle) {
            int ran = mortise_dispatch(client);
            if (ran < 0 && ran != MORTISE_CLOSED) /* CLOSED: another thread has ended it meanwhile */
                break;
            idle = ran == 0; /* the rest runs on another thread: one more close waits for it */
        }
        lingers = status == MORTISE_CLOSING;
    }
};

inline error failure(mortise_status status, const mortise_error &why) noexcept
{
    error from(why);
    from.status = status;
    return from;
}

inline result<void> told(mortise_status status, const mortise_error &why)
{
    if (status == MORTISE_OK)
        return {};
    return failure(status, why);
}

/* Rounded up, at least 0 and at most `most`; nothing overflows. */
template <class Rep, class Period>
std::int64_t whole_ms(std::chrono::duration<Rep, Period> time, std::int64_t most) noexcept
{
    double ms = std::chrono::duration<double, std::milli>(time).count();
    if (!(ms > 0)) /* or not a number */
        return 0;
    return ms >= static_cast<double>(most) ? most : static_cast<std::int64_t>(std::ceil(ms));
}

/* The same from now to an instant. Uses floating point from the start: subtraction of time_point::min() or max()
 * overflows the clock's own type, and so does even their comparison if their type is coarser. */
template <class Clock, class Duration>
std::int64_t whole_ms_until(const std::chrono::time_point<Clock, Duration> &until, std::int64_t most)
{
    using wide = std::chrono::duration<double, std::milli>;
    return whole_ms(wide(until.time_since_epoch()) - wide(Clock::now().time_since_epoch()), most);
}

} // namespace detail

/* The right to a name; released at the end of the scope. */
class [[nodiscard]] lease : public lease_view {
public:
    lease() = default;
    lease(lease &&other) noexcept { swap(other); }
    lease &operator=(lease &&other) noexcept
    {
        lease(std::move(other)).swap(*this);
        return *this;
    }
    lease(const lease &) = delete;
    lease &operator=(const lease &) = delete;
    ~lease() { drop(); }

    /* Like mortise_downgrade(): from now on others may share the lock. */
    result<void> downgrade()
    {
        mortise_error why;
        mortise_status status = mortise_downgrade(handle_, &why);
        return detail::told(status, why);
    }

    /* Like mortise_extend(), for a lease with no_renew: it lasts for this time from now on. Rounded up to milliseconds. */
    template <class Rep, class Period> result<void> extend(std::chrono::duration<Rep, Period> time)
    {
        std::int64_t ms = detail::whole_ms(time, MORTISE_TTL_MAX_MS + 1);
        return extend_ms(ms > 0 ? ms : -1);
    }
    /* The same for the ttl that it was acquired with. */
    result<void> extend() { return extend_ms(0); }

    /* True: this object has a lease, held or lost; it was neither moved from nor released. held() says whether you hold the
     * lock. */
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    /* Like mortise_release(); the lease is empty afterwards. */
    result<void> release() { return give_back(mortise_release); }
    /* Like mortise_release_nowait(): an acquire and a release cost one round trip. */
    result<void> release_nowait() { return give_back(mortise_release_nowait); }
    /* Like mortise_release_async(): `done` gets what release() would have returned. It is called exactly once, unless this
     * call fails. The lease is empty afterwards; after NOMEM it is unchanged. */
    result<void> release_async(std::function<void(result<void>)> done)
    {
        if (handle_ == nullptr)
            return error(MORTISE_INVALID, "there is no lease here: moved from, or released before");
        if (!done)
            return error(MORTISE_INVALID, "release_async: no callback");
        auto mine = std::make_unique<releasing>();
        mine->done = std::move(done);
        lease was = std::move(*this); /* a callback may destroy this object */
        mortise_error why;
        mortise_status status =
            mortise_release_async(was.handle_, releasing::trampoline, mine.get(), &why);
        if (status == MORTISE_NOMEM) {
            swap(was);
            return detail::told(status, why);
        }
        if (status == MORTISE_OK)
            (void)mine.release(); /* the callback owns it, and may have run already */
        was.retire(status);
        return detail::told(status, why);
    }

    void swap(lease &other) noexcept
    {
        std::swap(handle_, other.handle_);
        home_.swap(other.home_);
        watcher_.swap(other.watcher_);
    }
    friend void swap(lease &one, lease &other) noexcept { one.swap(other); }

private:
    friend class client;
    friend class leases;
    lease(mortise_lease *handle, std::shared_ptr<detail::home> home,
          std::shared_ptr<detail::watcher> told) noexcept
        : lease_view(handle), home_(std::move(home)), watcher_(std::move(told))
    {
    }

    struct releasing {
        std::function<void(result<void>)> done;

        static void trampoline(mortise_status status, const mortise_error *why, void *self) noexcept
        {
            std::unique_ptr<releasing> mine(static_cast<releasing *>(self));
            if (status == MORTISE_OK)
                mine->done(result<void>());
            else
                mine->done(detail::failure(status, *why)); /* moved: a copy may need memory */
        }
    };

    result<void> extend_ms(std::int64_t ms)
    {
        mortise_error why;
        mortise_status status = mortise_extend(handle_, ms, &why);
        return detail::told(status, why);
    }
    mortise_status end(mortise_status (*how)(mortise_lease *, mortise_error *),
                       mortise_error *why) noexcept
    {
        lease was = std::move(*this); /* outlives this object: a callback may destroy it */
        mortise_status status = how(was.handle_, why);
        was.retire(status);
        return status;
    }
    /* The handle is spent by a release that returned this. */
    void retire(mortise_status status) noexcept
    {
        mortise_lease *spent = std::exchange(handle_, nullptr);
        if (watcher_)
            home_->retire(std::move(watcher_), spent,
                          status != MORTISE_INVALID && status != MORTISE_CLOSED &&
                              status != MORTISE_FORKED);
    }
    void drop() noexcept
    {
        if (handle_ != nullptr)
            end(mortise_release, nullptr);
    }
    result<void> give_back(mortise_status (*how)(mortise_lease *, mortise_error *))
    {
        if (handle_ == nullptr)
            return error(MORTISE_INVALID, "there is no lease here: moved from, or released before");
        mortise_error why;
        mortise_status status = end(how, &why);
        return detail::told(status, why);
    }

    std::shared_ptr<detail::home> home_;
    std::shared_ptr<detail::watcher> watcher_;
};

/* The right to several names, all or none (client::acquire_all()); released at the end of the scope, all at once. */
class [[nodiscard]] leases {
public:
    leases() = default;
    leases(leases &&other) noexcept { swap(other); }
    leases &operator=(leases &&other) noexcept
    {
        leases(std::move(other)).swap(*this);
        return *this;
    }
    leases(const leases &) = delete;
    leases &operator=(const leases &) = delete;
    ~leases() { end(nullptr); }

    /* True: this object has leases, held or lost; it was neither moved from nor released. */
    explicit operator bool() const noexcept { return !all_.empty(); }
    std::size_t size() const noexcept { return all_.size(); }
    /* In the order of the names that were given. */
    const lease_view &operator[](std::size_t index) const noexcept { return all_[index]; }
    /* You hold all of them at this instant. */
    bool held() const noexcept
    {
        for (const lease &one : all_)
            if (!one.held())
                return false;
        return !all_.empty();
    }
    /* Like mortise_release_many(). */
    result<void> release()
    {
        if (all_.empty())
            return error(MORTISE_INVALID, "there are no leases here: moved from, or released before");
        mortise_error why;
        mortise_status status = end(&why);
        return detail::told(status, why);
    }
    void swap(leases &other) noexcept
    {
        handles_.swap(other.handles_);
        all_.swap(other.all_);
    }

private:
    friend class client;
    friend class detail::held_leases;
    void reserve(std::size_t count)
    {
        handles_.reserve(count);
        all_.reserve(count);
    }
    void add(lease &&one)
    {
        handles_.resize(all_.size() + 1); /* first, because it may throw */
        all_.push_back(std::move(one));
        handles_.back() = all_.back().handle();
    }
    lease take(std::size_t index) noexcept
    {
        const auto place = static_cast<std::ptrdiff_t>(index);
        lease one = std::move(all_[index]);
        all_.erase(all_.begin() + place);
        handles_.erase(handles_.begin() + place);
        return one;
    }
    /* Releases the leases in their order, a limited number of them at the same time, and returns the first failure. */
    mortise_status end(mortise_error *why, std::size_t at_once = SIZE_MAX) noexcept
    {
        std::vector<mortise_lease *> handles = std::move(handles_);
        std::vector<lease> spent = std::move(all_);
        handles_.clear();
        all_.clear();
        mortise_status first = MORTISE_OK;
        for (std::size_t i = 0; i < spent.size();) {
            const std::size_t count = (std::min)(at_once, spent.size() - i);
            mortise_status status = mortise_release_many(&handles[i], count, why);
            for (const std::size_t past = i + count; i < past; i++)
                spent[i].retire(status);
            if (first == MORTISE_OK && status != MORTISE_OK) {
                first = status;
                why = nullptr; /* it describes the first failure */
            }
        }
        return first;
    }

    std::vector<mortise_lease *> handles_; /* of all_, for C: the release allocates nothing */
    std::vector<lease> all_;
};

/* ---- Options --------------------------------------------------------------------------------- */

/* options().ttl(10s).owner("job 7"): the config sets everything else. Durations are rounded up to
 * milliseconds; with a ttl or max_hold of 0 or less, the acquire returns INVALID. */
class options {
public:
    template <class Rep, class Period> options &ttl(std::chrono::duration<Rep, Period> time)
    {
        ttl_ms_ = positive(detail::whole_ms(time, MORTISE_TTL_MAX_MS + 1));
        return *this;
    }
    template <class Rep, class Period> options &max_hold(std::chrono::duration<Rep, Period> time)
    {
        max_hold_ms_ = positive(detail::whole_ms(time, MORTISE_WAIT_MAX_MS));
        return *this;
    }
    options &owner(std::string_view name)
    {
        owner_ = std::string(name);
        return *this;
    }
    /* The owner is this thread of this client: MORTISE_OWNER_THREAD. */
    options &owner_thread() { return owner(MORTISE_OWNER_THREAD); }
    /* MORTISE_SHARED: others may share the lock. */
    options &shared(bool yes = true)
    {
        mode_ = yes ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
        permits_ = yes ? permits_ : 0;
        return *this;
    }
    /* Shared, and at most this many leases hold the lock at once; 0: any number, as in C. */
    options &permits(std::uint32_t most)
    {
        permits_ = most;
        return shared();
    }
    options &no_renew(bool yes = true)
    {
        no_renew_ = yes;
        return *this;
    }
    options &on_state(state_function told)
    {
        on_state_ = std::move(told);
        return *this;
    }

private:
    friend class client;
    static std::int64_t positive(std::int64_t ms) noexcept { return ms > 0 ? ms : -1; }

    std::int64_t ttl_ms_ = 0, max_hold_ms_ = 0;
    std::optional<std::string> owner_;
    bool no_renew_ = false;
    mortise_mode mode_ = MORTISE_EXCLUSIVE;
    std::uint32_t permits_ = 0;
    state_function on_state_;
};

/* ---- A client -------------------------------------------------------------------------------- */

class [[nodiscard]] client {
public:
    using request = mortise_request;
    using acquired_function = std::function<void(result<lease>)>;

    client() = default;
    client(client &&) = default;
    client &operator=(client &&other) noexcept
    {
        client fresh(std::move(other));
        home_.swap(fresh.home_); /* `fresh` closes the old client */
        return *this;
    }
    client(const client &) = delete;
    client &operator=(const client &) = delete;
    /* Closes the client and, with fd(), runs the remaining callbacks. Waits for a callback on another thread for
     * close_timeout at most (twice that with fd()). A callback that takes longer continues after this, with what it
     * captured, and a little memory is never freed. To find out, call close(): it returns CLOSING.
     *
     * With fd(), do not destroy a client inside a callback of another client while this one has work under way: a callback
     * may not dispatch, so callbacks that are not yet delivered are never called. Destroy it after dispatch() has returned. */
    ~client()
    {
        if (home_)
            home_->close();
    }

    /* Like mortise_open(): a file or a URL; without an argument, the default search. */
    static result<client> open() { return open_at(nullptr); }
    static result<client> open(const std::string &where)
    {
        if (has_zero(where))
            return error(MORTISE_INVALID, "mortise_open: a zero byte in the path or URL");
        return open_at(where.c_str());
    }
    /* Like mortise_close(): waiting callers return CLOSED, leases are lost. CLOSING: callbacks still run or wait; call
     * close() again to wait for them, after dispatch() if fd() is used. */
    result<void> close()
    {
        std::shared_ptr<detail::home> home = home_; /* a callback may destroy this object meanwhile */
        mortise_error why;
        mortise_status status = mortise_close(home ? home->client : nullptr, &why);
        return detail::told(status, why);
    }
    /* False: nothing was opened, or the client was moved away. */
    explicit operator bool() const noexcept { return home_ != nullptr; }

    /* Waits as the config's `wait` says. */
    result<lease> acquire(std::string_view name, const options &how = {}) const
    {
        return acquire_for_ms(name, MORTISE_WAIT_DEFAULT, how);
    }
    /* Waits without a limit, whatever the config says. */
    result<lease> acquire_forever(std::string_view name, const options &how = {}) const
    {
        return acquire_for_ms(name, MORTISE_WAIT_FOREVER, how);
    }
    /* Does not wait for a holder: returns BUSY. The backend's answer may take as long as `unreachable_timeout`. */
    result<lease> try_acquire(std::string_view name, const options &how = {}) const
    {
        return acquire_for_ms(name, 0, how);
    }
    /* Waits for at most this time, then returns TIMEDOUT. If it is 0 or less, tries once and returns BUSY. */
    template <class Rep, class Period>
    result<lease> try_acquire_for(std::string_view name, std::chrono::duration<Rep, Period> time,
                                  const options &how = {}) const
    {
        return acquire_for_ms(name, detail::whole_ms(time, MORTISE_WAIT_MAX_MS), how);
    }
    template <class Clock, class Duration>
    result<lease> try_acquire_until(std::string_view name,
                                    const std::chrono::time_point<Clock, Duration> &until,
                                    const options &how = {}) const
    {
        return acquire_for_ms(name, detail::whole_ms_until(until, MORTISE_WAIT_MAX_MS), how);
    }

    /* Like mortise_acquire_many(): all names or none. Waits as the config's `wait` says. */
    result<leases> acquire_all(const std::vector<std::string> &names, const options &how = {}) const
    {
        return acquire_all_for_ms(names, MORTISE_WAIT_DEFAULT, how);
    }
    result<leases> try_acquire_all(const std::vector<std::string> &names,
                                   const options &how = {}) const
    {
        return acquire_all_for_ms(names, 0, how);
    }
    /* The time is that for all names together. */
    template <class Rep, class Period>
    result<leases> try_acquire_all_for(const std::vector<std::string> &names,
                                       std::chrono::duration<Rep, Period> time,
                                       const options &how = {}) const
    {
        return acquire_all_for_ms(names, detail::whole_ms(time, MORTISE_WAIT_MAX_MS), how);
    }

    /* Like mortise_acquire_async(): `done` is called exactly once, unless this call fails. The callback owns the
     * lease; if it does not move the lease away, the lease is released when the callback returns, which waits for the answer:
     * in an event loop, call release_nowait(). */
    result<request> acquire_async(std::string_view name, acquired_function done,
                                  const options &how = {}) const
    {
        return start(name, MORTISE_WAIT_DEFAULT, std::move(done), how);
    }
    template <class Rep, class Period>
    result<request> acquire_async_for(std::string_view name, std::chrono::duration<Rep, Period> time,
                                      acquired_function done, const options &how = {}) const
    {
        return start(name, detail::whole_ms(time, MORTISE_WAIT_MAX_MS), std::move(done), how);
    }
    /* False: unknown, or already decided. */
    bool cancel(request which) const noexcept { return mortise_cancel(handle(), which) == MORTISE_OK; }

    /* mortise_fd() and mortise_dispatch(), for event loops. */
    result<int> fd() const
    {
        mortise_status status = MORTISE_OK;
        int fd = mortise_fd(handle(), &status);
        if (fd < 0)
            return error(status, mortise_status_text(status));
        return fd;
    }
    result<int> dispatch() const
    {
        int count = mortise_dispatch(handle());
        mortise_status status = static_cast<mortise_status>(count < 0 ? count : MORTISE_OK);
        if (count < 0)
            return error(status, mortise_status_text(status));
        return count;
    }

    result<mortise_info> inspect(std::string_view name) const
    {
        const std::string text(name);
        if (has_zero(text))
            return zero_in_name();
        mortise_info info{};
        info.size = sizeof(info);
        mortise_error why;
        mortise_status status = mortise_inspect(handle(), text.c_str(), &info, &why);
        if (status != MORTISE_OK)
            return detail::failure(status, why);
        return info;
    }
    result<std::vector<mortise_info>> list(std::string_view prefix = {}) const
    {
        return listed(mortise_list, prefix);
    }
    /* Like mortise_holders(): each lease that holds the name, in the order of their tokens. */
    result<std::vector<mortise_info>> holders(std::string_view name) const
    {
        return listed(mortise_holders, name);
    }
    /* Like mortise_break(). */
    result<void> break_grant(std::string_view name, std::uint64_t token) const
    {
        const std::string text(name);
        if (has_zero(text))
            return zero_in_name();
        mortise_error why;
        mortise_status status = mortise_break(handle(), text.c_str(), token, &why);
        return detail::told(status, why);
    }
    result<std::string> ping() const
    {
        char text[MORTISE_PING_SIZE];
        mortise_error why;
        mortise_status status = mortise_ping(handle(), text, sizeof(text), &why);
        if (status != MORTISE_OK)
            return detail::failure(status, why);
        return std::string(text);
    }
    result<mortise_stats> stats() const
    {
        mortise_stats stats{};
        stats.size = sizeof(stats);
        mortise_status status = mortise_stats_get(handle(), &stats);
        if (status != MORTISE_OK)
            return error(status, mortise_status_text(status));
        return stats;
    }
    bool can(mortise_capability what) const noexcept
    {
        return (mortise_capabilities(handle()) & static_cast<std::uint32_t>(what)) != 0;
    }

    /* For functions of mortise.h that have no C++ form. NULL if empty. */
    mortise_client *handle() const noexcept { return home_ ? home_->client : nullptr; }

private:
    friend class detail::named_lock;
    explicit client(std::shared_ptr<detail::home> home) noexcept : home_(std::move(home)) {}

    static bool has_zero(const std::string &text) noexcept
    {
        return text.find('\0') != std::string::npos;
    }
    /* C would take only the part before the zero byte as the name, and lock something else. */
    static error zero_in_name() { return error(MORTISE_INVALID, "a zero byte in the name of a lock"); }

    static result<client> open_at(const char *where)
    {
        auto home = std::make_shared<detail::home>();
        mortise_error why;
        mortise_status status = mortise_open(where, &home->client, &why);
        if (status != MORTISE_OK)
            return detail::failure(status, why);
        return client(std::move(home));
    }

    /* The arguments of one acquire, for C. */
    struct call {
        call(std::string_view lock, std::int64_t wait_ms, const options &how) : name(lock)
        {
            if (how.on_state_)
                told = std::make_shared<detail::watcher>(how.on_state_);
            c.size = sizeof(c);
            c.wait_ms = wait_ms;
            c.ttl_ms = how.ttl_ms_;
            c.max_hold_ms = how.max_hold_ms_;
            c.no_renew = how.no_renew_;
            c.mode = how.mode_;
            c.permits = how.permits_;
            c.owner = how.owner_ ? how.owner_->c_str() : nullptr;
            c.on_state = told ? detail::watcher::trampoline : nullptr;
            c.user_data = told.get();
            zero = has_zero(name) || (how.owner_ && has_zero(*how.owner_));
        }
        std::string name;
        std::shared_ptr<detail::watcher> told;
        mortise_options c{};
        bool zero;
    };

    result<lease> acquire_for_ms(std::string_view name, std::int64_t wait_ms, const options &how) const
    {
        return acquire_at(home_, name, wait_ms, how);
    }
    static result<lease> acquire_at(const std::shared_ptr<detail::home> &home, std::string_view name,
                                    std::int64_t wait_ms, const options &how)
    {
        call wanted(name, wait_ms, how);
        if (wanted.zero)
            return zero_in_name();
        mortise_lease *got = nullptr;
        mortise_error why;
        mortise_status status = mortise_acquire(home ? home->client : nullptr, wanted.name.c_str(),
                                                &wanted.c, &got, &why);
        if (status != MORTISE_OK)
            return detail::failure(status, why);
        return lease(got, home, std::move(wanted.told));
    }

    result<leases> acquire_all_for_ms(const std::vector<std::string> &names, std::int64_t wait_ms,
                                      const options &how) const
    {
        call wanted("", wait_ms, how);
        std::vector<const char *> texts;
        for (const std::string &name : names) {
            wanted.zero = wanted.zero || has_zero(name);
            texts.push_back(name.c_str());
        }
        if (wanted.zero)
            return zero_in_name();
        /* Allocate all memory first: leases that are held must not be lost because memory is short. */
        leases got;
        got.handles_.resize(names.size());
        got.all_.reserve(names.size());
        std::vector<std::shared_ptr<detail::watcher>> told(names.size());
        for (auto &one : told)
            if (wanted.told) /* each lease retires its own watcher, which keeps the common one */
                one = std::make_shared<detail::watcher>(
                    [common = wanted.told](lease_view, mortise_lease_state) {});
        mortise_error why;
        mortise_status status = mortise_acquire_many(handle(), texts.data(), texts.size(), &wanted.c,
                                                     got.handles_.data(), &why);
        if (status != MORTISE_OK) {
            got.handles_.clear();
            return detail::failure(status, why);
        }
        for (std::size_t i = 0; i < names.size(); i++)
            got.all_.push_back(lease(got.handles_[i], home_, std::move(told[i])));
        return got;
    }

    struct pending {
        acquired_function done;
        std::shared_ptr<detail::home> home;
        std::shared_ptr<detail::watcher> told;

        static void trampoline(mortise_status status, mortise_lease *got, const mortise_error *why,
                               void *self) noexcept
        {
            std::unique_ptr<pending> mine(static_cast<pending *>(self));
            if (status == MORTISE_OK)
                mine->done(lease(got, std::move(mine->home), std::move(mine->told)));
            else
                mine->done(detail::failure(status, *why)); /* moved: a copy may need memory */
        }
    };

    result<request> start(std::string_view name, std::int64_t wait_ms, acquired_function done,
                          const options &how) const
    {
        call wanted(name, wait_ms, how);
        if (wanted.zero)
            return zero_in_name();
        if (!done)
            return error(MORTISE_INVALID, "acquire_async: no callback");
        auto mine = std::make_unique<pending>();
        mine->done = std::move(done);
        mine->home = home_;
        mine->told = std::move(wanted.told);
        request which = 0;
        mortise_error why;
        mortise_status status =
            mortise_acquire_async(handle(), wanted.name.c_str(), &wanted.c, pending::trampoline,
                                  mine.get(), &which, &why);
        if (status != MORTISE_OK)
            return detail::failure(status, why);
        (void)mine.release(); /* the callback owns it, and may have run already */
        return which;
    }

    struct listing {
        std::vector<mortise_info> found;
        std::exception_ptr problem;

        static bool add(const mortise_info *info, void *self) noexcept
        {
            auto *all = static_cast<listing *>(self);
            mortise_info one{}; /* of this header's size; the library's may be another */
            std::memcpy(&one, info, (std::min)(info->size, sizeof(one)));
            one.size = sizeof(one);
#if defined(__cpp_exceptions)
            try {
                all->found.push_back(one);
            } catch (...) {
                all->problem = std::current_exception();
                return false;
            }
#else
            all->found.push_back(one);
#endif
            return true;
        }
    };

    result<std::vector<mortise_info>>
    listed(mortise_status (*ask)(mortise_client *, const char *, mortise_list_callback, void *,
                                 mortise_error *),
           std::string_view name) const
    {
        const std::string text(name);
        if (has_zero(text))
            return zero_in_name();
        listing all;
        mortise_error why;
        mortise_status status = ask(handle(), text.c_str(), listing::add, &all, &why);
#if defined(__cpp_exceptions)
        if (all.problem)
            std::rethrow_exception(all.problem);
#endif
        if (status != MORTISE_OK)
            return detail::failure(status, why);
        return std::move(all.found);
    }

    std::shared_ptr<detail::home> home_;
};

} // namespace mortise
#endif
