// A broker with a directory, in C++.
#include "check.hpp"
#include "scratch.h"

#include <cstdlib>
#include <string>
#include <unistd.h>

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

static void an_old_file_is_followed_by_another(const std::string &dir) {
    TestClock clock;
    auto options = BrokerOptions().dir(dir + "/aging").segment_age(1min).clock(clock);
    auto broker = Broker::open(options);
    CHECK(broker.publish("jobs/mail", "one").durable == 1);
    clock.advance(61s);
    const std::string next = dir + "/aging/shard-000/00000000000000000001.log";
    while (access(next.c_str(), F_OK) != 0)
        ; // its thread makes it
}

static NewMessage named(const char *id) { return NewMessage(std::string_view(id)).id(id); }

static void what_is_published_again_within_the_window_is_stored_once(const std::string &dir) {
    Receipt first;
    const auto is_again = [&first](const Receipt &again) {
        return again.duplicate == 1 && again.partition == first.partition &&
               again.offset == first.offset && again.matched == 0 && again.enqueued == 0;
    };
    {
        auto broker = Broker::open(dir);
        auto topic = broker.create_topic("orders", 3);
        broker.set_dedup_window("orders", 1min);
        broker.set_retention("orders", 1h);
        first = topic.publish(named("x"));
        CHECK(first.duplicate == 0 && first.durable == 1);
        CHECK(is_again(topic.publish(named("x").key("k"))));
        CHECK(is_again(*topic.try_publish(named("x"))));
        CHECK(is_again(*topic.publish_for(1s, named("x"))));
        CHECK(is_again(topic.publish_ticket(named("x")).wait()));
        auto loan = topic.loan(1, named("x"));
        CHECK(is_again(loan.commit()));
        const NewMessage messages[] = {named("x"), named("y"), named("y")};
        const auto batch = topic.publish_batch(messages);
        CHECK(batch.published == 3 && batch.duplicates == 2);
        try {
            broker.set_dedup_window("orders", 2h); // longer than its retention
            CHECK(false);
        } catch (const Error &error) {
            CHECK(error.status() == Status::out_of_range);
        }
    }
    auto broker = Broker::open(BrokerOptions().dir(dir).dedup_window(1min, 1));
    CHECK(is_again(broker.topic("orders").publish(named("x"))));
    broker.set_dedup_window("orders", 0s);
    CHECK(broker.topic("orders").publish(named("x")).duplicate == 0);
    auto other = broker.topic("made by publishing");
    CHECK(other.publish(named("x")).duplicate == 0 && other.publish(named("x")).duplicate == 1);
    CHECK(other.publish(named("y")).duplicate == 0 && other.publish(named("x")).duplicate == 0);
}

int main() {
    char dir[SCRATCH_BYTES];
    make_scratch(dir);
    what_was_published_and_not_settled_is_there_again(dir);
    what_is_published_again_within_the_window_is_stored_once(dir);
    an_old_file_is_followed_by_another(dir);
    remove_scratch(dir);
    return finish("durable-cxx");
}
