/* consumer_cxx.cpp - consumer.c in C++, with mortise.hpp. argv[1]: the config. */
#include <mortise/mortise.hpp>

#include <iostream>

int main(int argc, char **argv)
try {
    auto client = (argc > 1 ? mortise::client::open(argv[1]) : mortise::client::open()).value();
    auto lease = client.try_acquire("consumer", mortise::options().ttl(std::chrono::seconds(20))).value();
    mortise_module_info driver{};
    driver.size = sizeof(driver);
    if (mortise_module_at(client.handle(), 0, &driver))
        std::cout << "held " << driver.path << std::endl;
    lease.release().value();
    client.close().value();
    return 0;
} catch (const mortise::exception &problem) {
    std::cerr << "consumer: " << problem.what() << std::endl;
    return 1;
}
