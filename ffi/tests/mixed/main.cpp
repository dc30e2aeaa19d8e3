// One broker, opened in C++: a producer in C, a consumer in C++ and one in Rust, in three threads.
#include "../check.hpp"

#include <thread>

extern "C" {
// producer.c: publishes the numbers below `count`, and says whether that went well.
int produce_in_c(const slipring_broker *broker, std::uint64_t count);
// consumer.rs: subscribes, says so, and adds up numbers that come in order until the broker closes.
std::uint64_t consume_in_rust(const slipring_broker *broker, void (*subscribed)(void *), void *user);
}

int main() {
    constexpr std::uint64_t count = 2000;
    auto broker = slipring::Broker::open();
    Counter subscribed;
    std::uint64_t sum_in_rust = 0, sum_in_cxx = 0;
    std::thread in_rust([&] {
        auto tell = [](void *user) { static_cast<Counter *>(user)->add(); };
        sum_in_rust = consume_in_rust(broker.raw(), tell, &subscribed);
    });
    std::thread in_cxx([&] {
        auto options = at_most_once().overflow(slipring::Overflow::block());
        auto sub = broker.subscribe("numbers/*", options);
        subscribed.add();
        std::uint64_t next = 0;
        for (const auto &message : sub) {
            CHECK(message.payload().text() == std::to_string(next));
            CHECK(message.attribute("language") == "C");
            sum_in_cxx += next++;
        }
        CHECK(sub.lost() == 0);
    });
    subscribed.wait_for(2);
    std::thread in_c([&] { CHECK(produce_in_c(broker.raw(), count)); });
    in_c.join();
    broker.close();
    in_cxx.join();
    in_rust.join();
    CHECK(sum_in_cxx == count * (count - 1) / 2 && sum_in_rust == sum_in_cxx);
    return finish("mixed");
}
