// redis_plus_plus.cpp - two rivals in C++, as an adapter (adapter.h): two classes of redis-plus-plus, on one server or on several.
// Both take a fresh random value for each acquire, send SET NX PX to one server after the other, and compare and delete by a script.
//
// RedLockMutexVessel: a refused try sleeps a random time, up to 200 ms or to REDIS_PLUS_PLUS_RETRY_MS. There is no limit to the number
// of tries, but an acquire that takes longer than the ttl is refused.
//
// RedMutex, with REDIS_PLUS_PLUS_CLASS=RedMutex: the class of the library's high level API. It sleeps up to 5 ms before each try, also
// before the first, and has no limit of time. It renews what it holds when half of the ttl is over: by one thread for all mutexes,
// which the library's documentation offers; by default each has a thread of its own.
//
// Each thread has its own connections. The address is 127.0.0.1:PORT,…
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sw/redis++/patterns/redlock.h>
#include <sw/redis++/redis++.h>
#include <sw/redis++/version.h>
#include <unistd.h>

extern "C" {
#include "../common.h"
#include "adapter.h"
}

namespace {

using servers = std::vector<std::shared_ptr<sw::redis::Redis>>;

constexpr std::chrono::seconds ttl{30};
std::vector<int> ports;
std::chrono::milliseconds retry_delay{200};

// What is thrown is of the server, and ends the program: figures of half a run are none.
template <typename Deed> auto sure(Deed deed)
{
    try {
        return deed();
    } catch (const std::exception &error) {
        bench_die("redis-plus-plus: %s", error.what());
    }
}

const char *open_servers(const char *where)
{
    using namespace sw::redis;
    static const std::string version = "redis-plus-plus " + std::to_string(VERSION_MAJOR) + "." +
                                       std::to_string(VERSION_MINOR) + "." + std::to_string(VERSION_PATCH);
    std::istringstream addresses(where);
    for (std::string address; std::getline(addresses, address, ',');)
        ports.push_back(std::stoi(address.substr(address.rfind(':') + 1)));
    if (const char *ms = std::getenv("REDIS_PLUS_PLUS_RETRY_MS"))
        retry_delay = std::chrono::milliseconds(std::stoi(ms));
    // The Vessel draws its pauses by rand(), and would draw the same in each process.
    srand(static_cast<unsigned>(getpid()));
    return version.c_str();
}

servers connections()
{
    servers found;
    for (int port : ports) {
        sw::redis::ConnectionOptions options;
        options.host = "127.0.0.1";
        options.port = port;
        found.push_back(std::make_shared<sw::redis::Redis>(options));
    }
    return found;
}

// ---- RedLockMutexVessel ----

struct vessel {
    sw::redis::RedLockMutexVessel mutex;
    sw::redis::RedLockMutexVessel::LockInfo held;
};

void *open_vessel(unsigned)
{
    return sure([] {
        const servers own = connections();
        return new vessel{sw::redis::RedLockMutexVessel(own.begin(), own.end()), {}};
    });
}

bool take(void *opaque, const char *name, void **held)
{
    auto *own = static_cast<vessel *>(opaque);
    own->held = sure([&] {
        return own->mutex.lock(name, sw::redis::RedLockUtils::lock_id(), ttl,
                               std::numeric_limits<int>::max(), retry_delay);
    });
    *held = own;
    return own->held.locked;
}

void give(void *opaque, const char *, void *)
{
    auto *own = static_cast<vessel *>(opaque);
    sure([&] { own->mutex.unlock(own->held); });
}

// ---- RedMutex ----

using red_mutex = std::unique_ptr<sw::redis::RedMutex>;

std::vector<red_mutex> holding;

void not_renewed(std::exception_ptr)
{
    bench_die("redis-plus-plus: a lock was not renewed");
}

red_mutex locked(const servers &on, const std::string &name, std::chrono::milliseconds lasting)
{
    // Never destroyed: its thread may be the one that ends the program.
    static const auto *watcher =
        new std::shared_ptr<sw::redis::LockWatcher>(std::make_shared<sw::redis::LockWatcher>());
    sw::redis::RedMutexOptions options;
    options.ttl = lasting;
    return sure([&] {
        auto mutex = std::make_unique<sw::redis::RedMutex>(on.begin(), on.end(), name, not_renewed,
                                                           options, *watcher);
        mutex->lock();
        return mutex;
    });
}

void *open_mutex(unsigned)
{
    return sure([] { return new servers(connections()); });
}

bool take_mutex(void *own, const char *name, void **held)
{
    *held = locked(*static_cast<servers *>(own), name, ttl).release();
    return true;
}

void give_mutex(void *, const char *, void *held)
{
    const red_mutex mutex(static_cast<sw::redis::RedMutex *>(held));
    sure([&] { mutex->unlock(); });
}

void hold_some(const char *name, unsigned count, int64_t ttl_ms)
{
    const servers own = connections();
    for (unsigned i = 0; i < count; i++)
        holding.push_back(locked(own, std::string(name) + "/" + std::to_string(i),
                                 std::chrono::milliseconds(ttl_ms)));
}

void wait_for(const char *name, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        std::thread([name = std::string(name)] {
            const red_mutex mutex = locked(connections(), name, ttl);
            sure([&] { mutex->unlock(); });
        }).detach();
}

// What still waits ends with the process.
void close_mutexes()
{
    for (const red_mutex &mutex : holding)
        sure([&] { mutex->unlock(); });
    std::_Exit(EXIT_SUCCESS);
}

} // namespace

int main(int argc, char **argv)
{
    struct adapter adapter = {};
    const char *wanted = std::getenv("REDIS_PLUS_PLUS_CLASS");
    adapter.name = "redis_plus_plus";
    adapter.open = open_servers;
    adapter.worker = open_vessel;
    adapter.take = take;
    adapter.give = give;
    if (wanted != nullptr && std::string(wanted) == "RedMutex") {
        adapter.worker = open_mutex;
        adapter.take = take_mutex;
        adapter.give = give_mutex;
        adapter.hold = hold_some;
        adapter.wait = wait_for;
        adapter.close = close_mutexes;
    }
    return adapter_main(argc, argv, &adapter);
}
