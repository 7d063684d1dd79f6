// redis_plus_plus.cpp - a rival in C++, as an adapter (adapter.h): redis-plus-plus with its RedLockMutexVessel on one server, as its
// documentation has it: a fresh random value for each acquire, SET NX PX, and a script that compares and deletes. A connection for
// each thread. A refused try sleeps a random time, up to 200 ms or to REDIS_PLUS_PLUS_RETRY_MS; of tries there are as many as it takes.
// The address is 127.0.0.1:PORT.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <string>

#include <sw/redis++/patterns/redlock.h>
#include <sw/redis++/redis++.h>
#include <sw/redis++/version.h>

extern "C" {
#include "../common.h"
#include "adapter.h"
}

namespace {

constexpr std::chrono::seconds ttl{30};
int port;
std::chrono::milliseconds retry_delay{200};

struct worker {
    sw::redis::RedLockMutexVessel mutex;
    sw::redis::RedLockMutexVessel::LockInfo held;
};

// What is thrown is of the server, and ends the program: figures of half a run are none.
template <typename Deed> auto sure(Deed deed)
{
    try {
        return deed();
    } catch (const std::exception &error) {
        bench_die("redis-plus-plus: %s", error.what());
    }
}

const char *open_server(const char *where)
{
    using namespace sw::redis;
    static const std::string version = "redis-plus-plus " + std::to_string(VERSION_MAJOR) + "." +
                                       std::to_string(VERSION_MINOR) + "." + std::to_string(VERSION_PATCH);
    const std::string address = where;
    port = std::stoi(address.substr(address.rfind(':') + 1));
    if (const char *ms = std::getenv("REDIS_PLUS_PLUS_RETRY_MS"))
        retry_delay = std::chrono::milliseconds(std::stoi(ms));
    return version.c_str();
}

void *open_worker(unsigned)
{
    return sure([] {
        sw::redis::ConnectionOptions options;
        options.host = "127.0.0.1";
        options.port = port;
        return new worker{sw::redis::RedLockMutexVessel(std::make_shared<sw::redis::Redis>(options)), {}};
    });
}

bool take(void *opaque, const char *name, void **held)
{
    auto *own = static_cast<worker *>(opaque);
    own->held = sure([&] {
        return own->mutex.lock(name, sw::redis::RedLockUtils::lock_id(), ttl,
                               std::numeric_limits<int>::max(), retry_delay);
    });
    *held = own;
    return own->held.locked;
}

void give(void *opaque, const char *, void *)
{
    auto *own = static_cast<worker *>(opaque);
    sure([&] { own->mutex.unlock(own->held); });
}

} // namespace

int main(int argc, char **argv)
{
    struct adapter adapter = {};
    adapter.name = "redis_plus_plus";
    adapter.open = open_server;
    adapter.worker = open_worker;
    adapter.take = take;
    adapter.give = give;
    return adapter_main(argc, argv, &adapter);
}
