// A broker with a directory, in C++.
#include "check.hpp"

#include <cstdlib>
#include <string>

using namespace slipring;
using namespace std::chrono_literals;

static Status status_of(const BrokerOptions &options) {
    try {
        (void)Broker::open(options);
    } catch (const Error &error) {
        return error.status();
    }
    return Status::ok;
}

static void what_was_published_and_not_settled_is_there_again(const std::string &dir) {
    auto options = SubscriptionOptions().name("worker").delivery(Delivery::at_least_once);
    {
        auto broker = Broker::open(dir);
        auto sub = broker.subscribe("jobs/*", options);
        CHECK(broker.publish("jobs/mail", "one").durable == 1);
        broker.publish("jobs/mail", "two");
        CHECK(sub.recv()->ack());
        CHECK(status_of(BrokerOptions().dir(dir)) == Status::locked);
        CHECK(broker.close().store_failed == 0);
    }
    CHECK(status_of(BrokerOptions().dir(dir).shards(3)) == Status::incompatible);
    CHECK(status_of(BrokerOptions().dir(dir).segment_bytes(1)) == Status::out_of_range);
    CHECK(status_of(BrokerOptions().dir(dir).preallocate_bytes(1ull << 40)) ==
          Status::out_of_range);
    CHECK(status_of(BrokerOptions().dir(dir).reserve_bytes(~0ull)) == Status::out_of_range);
    auto settings = BrokerOptions().dir(dir).sync_every(1h).on_damage(OnDamage::skip);
    settings.reserve_bytes(1 << 20).segment_bytes(1 << 20).preallocate_bytes(0);
    auto broker = Broker::open(settings.retention(24h, 1 << 30));
    auto sub = broker.subscribe("jobs/*", options);
    CHECK(broker.publish("jobs/mail", "three").durable == 0);
    broker.flush();
    broker.set_retention("jobs/mail", 1h);
    auto two = sub.recv();
    CHECK(two->payload().text() == "two" && two->ack());
    CHECK(sub.recv()->payload().text() == "three");
}

int main() {
    char dir[] = "/tmp/slipring-durable-XXXXXX";
    CHECK(mkdtemp(dir) != nullptr);
    what_was_published_and_not_settled_is_there_again(dir);
    CHECK(std::system(("rm -r " + std::string(dir)).c_str()) == 0);
    return finish("durable-cxx");
}
