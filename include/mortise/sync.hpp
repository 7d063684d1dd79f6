/* sync.hpp - a name as a mutex or a semaphore with the interface of the standard library, for std::unique_lock,
 * std::shared_lock, and code that uses such a type already. Built on mortise.hpp. SPDX-License-Identifier: MIT
 *
 *     mortise::shared_mutex table(client, "table");
 *     {
 *         std::shared_lock readers(table);          // beside other readers, on all hosts
 *     }
 *     std::unique_lock writer(table, 5s);           // alone
 *     if (writer && table.mine().held())            // check before each step that cannot be undone
 *         write(row, table.mine().token());
 *
 *     mortise::semaphore slots(client, "convert", 4);
 *     slots.acquire();                              // at most four at once, on all hosts
 *     convert(file);
 *     slots.release();
 *
 * WHAT IS DIFFERENT from a mutex in memory: a lock can be lost while you hold it (mine(), held()), and acquiring it can
 * fail. The try functions return false for BUSY and TIMEDOUT. Every other failure is thrown as mortise::exception; with
 * -fno-exceptions it ends the program. unlock() ignores the backend's answer, as ~lease does: if you must know that the
 * lock was yours until the end, use client::acquire() and lease::release().
 *
 * Several threads may use one object. The objects of one name, in this process and in others, exclude each other; the
 * object itself holds nothing in the backend until it is locked. Each lock and each permit is a lease of its own. An
 * object may outlive its client; locking it then throws CLOSED. Its destructor releases what it still holds. */
#ifndef MORTISE_SYNC_HPP
#define MORTISE_SYNC_HPP

#include <mortise/mortise.hpp>

#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>

namespace mortise {

namespace detail {

/* A client and a name, and how to acquire it. */
class named_lock {
public:
    named_lock(const client &where, std::string_view name, options how)
        : home_(where.home_), name_(name), how_(std::move(how))
    {
    }

    /* Returns an empty lease if the status is BUSY or TIMEDOUT. */
    lease acquire(std::int64_t wait_ms, const options &how) const
    {
        result<lease> got = client::acquire_at(home_, name_, wait_ms, how);
        if (!got && got.error().contended())
            return {};
        return std::move(got).value();
    }
    const options &how() const noexcept { return how_; }
    const std::string &name() const noexcept { return name_; }

private:
    std::shared_ptr<home> home_;
    std::string name_;
    options how_;
};

/* The leases that an object holds, all of one name, and the thread that acquired each. The destructor releases those that are
 * left. */
class held_leases {
public:
    /* With `postgres` and `mysql` all leases of a name are in one row. If several requests change the row at the same time, one
     * succeeds and the others try again. So releasing all at once would cost work that grows with the square of their
     * number. */
    static constexpr std::size_t released_at_once = 8;

    held_leases() = default;
    ~held_leases() { release(all_); }
    held_leases(const held_leases &) = delete;
    held_leases &operator=(const held_leases &) = delete;

    /* Returns the first failure. */
    static mortise_status release(leases &some) noexcept
    {
        return some.end(nullptr, released_at_once);
    }
    void add(lease &&one)
    {
        threads_.resize(all_.size() + 1); /* first, because it may throw */
        all_.add(std::move(one));
        threads_.back() = std::this_thread::get_id();
    }
    std::size_t size() const noexcept { return all_.size(); }
    const lease_view &operator[](std::size_t index) const noexcept { return all_[index]; }
    bool is_mine(std::size_t index) const noexcept
    {
        return threads_[index] == std::this_thread::get_id();
    }
    /* Returns the index of the first lease of this thread; size(): it has none. */
    std::size_t mine() const noexcept
    {
        std::size_t index = 0;
        while (index < size() && !is_mine(index))
            index++;
        return index;
    }
    lease take(std::size_t index) noexcept
    {
        threads_.erase(threads_.begin() + static_cast<std::ptrdiff_t>(index));
        return all_.take(index);
    }
    /* Takes `count` leases: those of this thread first, then others, the oldest first. There must be as many. */
    leases take_some(std::size_t count)
    {
        leases taken;
        taken.reserve(count); /* first, because it may throw */
        for (bool own : {true, false})
            for (std::size_t i = 0; i < size() && taken.size() < count;)
                if (is_mine(i) == own)
                    taken.add(take(i));
                else
                    i++;
        return taken;
    }

private:
    std::vector<std::thread::id> threads_;
    leases all_;
};

} // namespace detail

/* A name as a std::shared_timed_mutex. Needs the capability `shared` for the functions with "shared" in their names.
 * As with that type, a thread may hold it only once, and must unlock it before the thread ends. */
class shared_mutex {
public:
    /* how: ttl, on_state and so on, for each lease. */
    shared_mutex(const client &where, std::string_view name, options how = {})
        : alone_(where, name, options(how).shared(false)), beside_(where, name, how.shared())
    {
    }
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() { add(alone_, MORTISE_WAIT_FOREVER); }
    bool try_lock() { return add(alone_, 0); }
    template <class Rep, class Period> bool try_lock_for(std::chrono::duration<Rep, Period> time)
    {
        return add(alone_, detail::whole_ms(time, MORTISE_WAIT_MAX_MS));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &until)
    {
        return add(alone_, detail::whole_ms_until(until, MORTISE_WAIT_MAX_MS));
    }
    void unlock() noexcept { take(); }

    void lock_shared() { add(beside_, MORTISE_WAIT_FOREVER); }
    bool try_lock_shared() { return add(beside_, 0); }
    template <class Rep, class Period>
    bool try_lock_shared_for(std::chrono::duration<Rep, Period> time)
    {
        return add(beside_, detail::whole_ms(time, MORTISE_WAIT_MAX_MS));
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &until)
    {
        return add(beside_, detail::whole_ms_until(until, MORTISE_WAIT_MAX_MS));
    }
    void unlock_shared() noexcept { take(); }

    /* Makes the calling thread's exclusive lock shared: lock(), downgrade(), unlock_shared(). See mortise_downgrade().
     * INVALID: the thread does not hold it. */
    result<void> downgrade()
    {
        mortise_error why;
        mortise_lease *held = mine().handle();
        mortise_status status = mortise_downgrade(held, &why);
        return detail::told(status, why);
    }
    /* Returns the lease of the calling thread, exclusive or shared; LOST if it holds none. */
    lease_view mine() const
    {
        std::lock_guard<std::mutex> guard(mutex_);
        const std::size_t found = held_.mine();
        return found == held_.size() ? lease_view() : lease_view(held_[found].handle());
    }
    const std::string &name() const noexcept { return alone_.name(); }

private:
    bool add(const detail::named_lock &how, std::int64_t wait_ms)
    {
        lease got = how.acquire(wait_ms, how.how());
        if (!got)
            return false;
        std::lock_guard<std::mutex> guard(mutex_);
        held_.add(std::move(got));
        return true;
    }
    void take() noexcept
    {
        lease spent; /* released after the mutex */
        std::lock_guard<std::mutex> guard(mutex_);
        const std::size_t found = held_.mine();
        if (found < held_.size())
            spent = held_.take(found);
    }

    detail::named_lock alone_, beside_;
    mutable std::mutex mutex_;
    detail::held_leases held_; /* under mutex_ */
};

/* A name as a std::counting_semaphore: at most `permits` permits are held at once, by all objects of the name in all
 * processes. All of them must give the same number (else acquire throws INVALID while another number is in force). Needs
 * the capability `permits`.
 *
 * An object releases the permits that it has acquired, at the latest in its destructor. If a process dies, its permits are
 * free again after their ttl. So, unlike with a std::counting_semaphore, a permit that was not acquired cannot be released. */
class semaphore {
public:
    /* how: ttl, on_state and so on, for each permit. */
    semaphore(const client &where, std::string_view name, std::uint32_t permits, options how = {})
        : lock_(where, name, how.permits(permits))
    {
        if (permits == 0)
            detail::raise(error(MORTISE_INVALID, "a semaphore needs at least one permit"));
    }
    semaphore(const semaphore &) = delete;
    semaphore &operator=(const semaphore &) = delete;

    static constexpr std::ptrdiff_t max() noexcept { return UINT32_MAX; }

    /* Waits without a limit. */
    void acquire() { add(MORTISE_WAIT_FOREVER); }
    bool try_acquire() { return add(0); }
    template <class Rep, class Period> bool try_acquire_for(std::chrono::duration<Rep, Period> time)
    {
        return add(detail::whole_ms(time, MORTISE_WAIT_MAX_MS));
    }
    template <class Clock, class Duration>
    bool try_acquire_until(const std::chrono::time_point<Clock, Duration> &until)
    {
        return add(detail::whole_ms_until(until, MORTISE_WAIT_MAX_MS));
    }
    /* Releases `update` of the permits that this object has: first those that this thread acquired, then others, the oldest
     * first. Releases up to eight at the same time, and returns the first failure, like mortise_release_many(). LOST: a permit
     * was not ours until the end. Any thread may call it. INVALID: the object has fewer; nothing is released. */
    mortise_status release(std::ptrdiff_t update = 1)
    {
        if (update == 0)
            return MORTISE_OK;
        leases taken = take(update);
        return taken ? detail::held_leases::release(taken) : MORTISE_INVALID;
    }
    /* How many permits this object has acquired and not released, and is sure to hold at this instant. */
    std::size_t held() const
    {
        std::lock_guard<std::mutex> guard(mutex_);
        std::size_t count = 0;
        for (std::size_t i = 0; i < held_.size(); i++)
            count += held_[i].held();
        return count;
    }
    const std::string &name() const noexcept { return lock_.name(); }

private:
    bool add(std::int64_t wait_ms)
    {
        lease got = lock_.acquire(wait_ms, lock_.how());
        if (!got)
            return false;
        std::lock_guard<std::mutex> guard(mutex_);
        held_.add(std::move(got));
        return true;
    }
    /* A thread releases its own permits first, so the thread that lost a permit gets LOST. */
    leases take(std::ptrdiff_t count)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (count < 0 || static_cast<std::size_t>(count) > held_.size())
            return {};
        return held_.take_some(static_cast<std::size_t>(count));
    }

    detail::named_lock lock_;
    mutable std::mutex mutex_;
    detail::held_leases held_; /* under mutex_ */
};

} // namespace mortise
#endif
