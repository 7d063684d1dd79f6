/* templates.cpp - instantiates each template of mortise.hpp and sync.hpp for some type. Compiled only, as strict C++,
 * with exceptions and without: a compiler hardly checks a template that nobody uses. Knows no behaviour. */
#include <mortise/sync.hpp> /* alone, and twice: the header is enough by itself */
#include <mortise/sync.hpp>

template class mortise::result<int>;
template class mortise::result<std::string>;
template class mortise::result<std::vector<mortise_info>>;
template class mortise::result<mortise::lease>; // moved only

using short_time = std::chrono::duration<int, std::milli>;
using long_time = std::chrono::duration<double, std::ratio<3600>>;
template std::int64_t mortise::detail::whole_ms(long_time, std::int64_t) noexcept;

static int use(mortise::client &client)
{
    mortise::options how;
    how.ttl(short_time(1)).ttl(long_time(1)).max_hold(short_time(1)).max_hold(long_time(1));
    mortise::lease one = client.try_acquire_for("one", short_time(1), how).value();
    mortise::result<mortise::lease> two = client.try_acquire_for("two", long_time(1));
    client.try_acquire_until("three", std::chrono::steady_clock::now()).value().release().value();
    mortise::lease four =
        client.try_acquire_until("four", std::chrono::system_clock::now(), how).value();
    mortise::leases all = client.try_acquire_all_for({"seven", "eight"}, long_time(1), how).value();
    const auto done = [](mortise::result<mortise::lease> got) { (void)got; };
    return client.acquire_async_for("five", short_time(1), done).value() ==
           client.acquire_async_for("six", long_time(1), done, how).value();
}

static bool use_sync(const mortise::client &client)
{
    mortise::shared_mutex table(client, "table");
    mortise::semaphore slots(client, "slots", 4);
    const auto soon = std::chrono::steady_clock::now();
    const auto then = std::chrono::system_clock::now();
    return table.try_lock_for(short_time(1)) || table.try_lock_until(soon) ||
           table.try_lock_shared_for(long_time(1)) || table.try_lock_shared_until(then) ||
           slots.try_acquire_for(long_time(1)) || slots.try_acquire_until(soon);
}

int main()
{
    mortise::client client = mortise::client::open().value();
    return use(client) + use_sync(client);
}
