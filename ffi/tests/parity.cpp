// What the Rust API has besides, in C++: see parity.c.
#include "check.hpp"
#include "scratch.h"

#include <string>
#include <vector>

using namespace slipring;
using namespace std::chrono_literals;

template <class F> static Status status_of(F &&call) {
    try {
        call();
    } catch (const Error &error) {
        return error.status();
    }
    return Status::ok;
}

static void a_publish_can_wait_until_it_survives(const std::string &dir) {
    auto broker = Broker::open(BrokerOptions().dir(dir).sync(Sync::os));
    auto topic = broker.topic("jobs");
    CHECK(broker.is_durable() && topic.is_durable());
    CHECK(topic.publish("one").durable == 0 && broker.shard_metrics(0).unsynced == 1);
    CHECK(topic.publish_sync("two").durable == 1 && broker.shard_metrics(0).unsynced == 0);
    CHECK(topic.publish_sync(NewMessage("three").key("k")).durable == 1);
    auto memory = Broker::open();
    auto other = memory.topic("jobs");
    CHECK(!memory.is_durable() && !other.is_durable());
    CHECK(other.publish_sync("one").durable == 0);
    memory.close();
    CHECK(status_of([&] { other.publish_sync("two"); }) == Status::closed);
}

static void batches_and_loans_wait_for_so_long() {
    auto broker = Broker::open();
    auto topic = broker.topic("a");
    auto sub = broker.subscribe("a", at_most_once().overflow(Overflow::block()).capacity(2));
    const std::vector<NewMessage> messages(3);
    CHECK(topic.publish_batch_for(1ms, messages).published == 2);
    auto loan = topic.loan(1);
    loan.payload()[0] = 'y';
    CHECK(!loan.commit_for(1ms) && loan.payload()[0] == 'y');
    CHECK(sub.recv() && sub.recv());
    CHECK(loan.commit_for(1h)->offset == 2 && loan.payload().empty());
    CHECK(sub.recv()->payload().text() == "y");
    BatchReceipt receipt = {};
    CHECK(topic.publish_batch_for(forever, Span<const NewMessage>(messages.data(), 2), &receipt)
              .published == 2);
    CHECK(receipt.published == 2);
}

static void a_receipt_has_the_id_of_its_message() {
    auto broker = Broker::open();
    auto topic = broker.topic("a");
    auto sub = broker.subscribe("a");
    const auto receipt = topic.publish("x");
    CHECK(sub.recv()->id() == topic.message_id(receipt));
    CHECK(topic.message_id(topic.publish("y")) != topic.message_id(receipt));
}

static void looking_around() {
    auto broker = Broker::open(BrokerOptions().shards(2));
    auto topic = broker.create_topic("a", 2);
    CHECK(broker.topic_config("a").retention_ns == detail::ns(24h * 7));
    broker.set_retention("a", forever, 1 << 20);
    broker.set_dedup_window("a", 1min, 9);
    const auto config = broker.topic_config("a");
    CHECK(config.retention_ns == SLIPRING_FOREVER && config.retention_bytes == 1 << 20);
    CHECK(config.dedup_window_ns == detail::ns(1min) && config.dedup_ids == 9);
    CHECK(status_of([&] { broker.topic_config("b"); }) == Status::no_such_topic);
    for (int i = 0; i < 3; ++i)
        topic.publish(NewMessage("x").id("same"));
    CHECK(broker.topic_metrics("a").published == 1 && broker.topic_metrics("a").duplicates == 2);
    CHECK(status_of([&] { broker.topic_metrics("b"); }) == Status::no_such_topic);
    CHECK(broker.shard_metrics(0).published + broker.shard_metrics(1).published == 1);
    CHECK(status_of([&] { broker.shard_metrics(2); }) == Status::out_of_range);
    CHECK(broker.subscription_ids().empty());
    auto named = broker.subscribe("a", SubscriptionOptions().name("worker"));
    auto other = broker.subscribe("a");
    CHECK(*named.name() == "worker" && !other.name());
    CHECK((broker.subscription_ids() == std::vector<std::uint64_t>{named.id(), other.id()}));
}

static void closing_tells_what_is_not_settled() {
    TestClock clock;
    auto broker = Broker::open(BrokerOptions().clock(clock));
    auto sub = broker.subscribe("a", SubscriptionOptions().name("worker"));
    broker.publish("a", "x");
    broker.publish("a", "y");
    auto letters = broker.dead_letters("$dlq/worker");
    CHECK(letters.count() == 0 && sub.recv()->dead_letter() && letters.count() == 1);
    CHECK(sub.recv() && !sub.is_due());
    clock.advance(11s);
    CHECK(sub.is_due() && broker.close().unsettled == 1);
}

static void messages_are_known_again() {
    auto broker = Broker::open();
    auto topic = broker.topic("a");
    auto sub = broker.subscribe("a", at_most_once());
    for (const char *id : {"x", "y", "x"})
        topic.publish(NewMessage("").id(id));
    Deduplicator seen(100);
    CHECK(seen.is_new(*sub.recv()) && seen.is_new(*sub.recv()));
    const auto again = sub.recv();
    CHECK(!seen.is_new(*again) && seen.size() == 2);
    seen.forget(*again);
    Deduplicator moved = std::move(seen);
    CHECK(moved.size() == 1 && moved.is_new(*again));
}

int main() {
    char dir[SCRATCH_BYTES];
    make_scratch(dir);
    a_publish_can_wait_until_it_survives(dir);
    remove_scratch(dir);
    batches_and_loans_wait_for_so_long();
    a_receipt_has_the_id_of_its_message();
    looking_around();
    closing_tells_what_is_not_settled();
    messages_are_known_again();
    return finish("parity-cxx");
}
