// The header without exceptions: built with SLIPRING_NO_EXCEPTIONS and -fno-exceptions.
#ifndef SLIPRING_NO_EXCEPTIONS
#error "build this with SLIPRING_NO_EXCEPTIONS"
#endif
#include "check.hpp"

#include <thread>

using namespace slipring;
using namespace std::chrono_literals;

static void results_have_a_value_or_an_error() {
    auto broker = Broker::open();
    CHECK(broker && broker.status() == Status::ok);
    auto topic = broker->topic("a");
    auto sub = broker->subscribe("a", at_most_once().capacity(2));
    CHECK(topic && sub);
    Result<Receipt> receipt = topic->publish("x");
    CHECK(receipt && receipt->offset == 0 && (*receipt).enqueued == 1);
    CHECK(topic->publish(NewMessage("y").key("k")).value().offset == 1);
    CHECK(topic->publish("lost") && sub->queued().value() == 2);
    CHECK(sub->recv()->payload().text() == "x");
    auto second = sub->try_recv();
    CHECK(second && second->key() == "k");

    auto refused = broker->topic("a//b");
    CHECK(!refused && refused.status() == Status::invalid_name);
    CHECK(refused.error().position() == 2U);
    CHECK(std::string_view(refused.error().what()).find("at byte 2") != std::string_view::npos);
    Result<void> deleted = broker->delete_topic("none");
    CHECK(!deleted && deleted.error().status() == Status::no_such_topic);
    CHECK(broker->delete_topic("a"));
    CHECK(!topic->publish("x"));

    Broker moved = *std::move(broker);
    CHECK(moved.metrics().topics == 0);
}

static void receiving_tells_errors_too() {
    Broker broker = *Broker::open();
    Subscription sub = *broker.subscribe("a");
    CHECK(broker.publish("a", "x"));
    Status inside = Status::ok;
    auto polled = sub.poll(9, [&](const Message &) { inside = sub.try_recv().status(); });
    CHECK(polled.size() == 1 && inside == Status::busy);
    broker.close();
    int count = 0;
    for (const auto &message : sub)
        count += message.payload().size() == 1;
    CHECK(count == 0 && sub.recv().status() == Status::closed);
}

static void handlers_and_filters() {
    Broker broker = *Broker::open();
    Counter handled, failed;
    auto sub = broker.subscribe(
        "a",
        at_most_once()
            .filter([](const Message &message) { return message.offset() != 1; })
            .on_failure([&](const Failure &failure) {
                CHECK(failure.reason == "not yet");
                failed.add();
            }),
        [&](const Message &message) {
            handled.add();
            return message.offset() == 0 ? Handled::retry("not yet") : Handled::success();
        });
    CHECK(sub);
    for (int i = 0; i < 3; ++i)
        CHECK(broker.publish("a", "x"));
    handled.wait_for(2);
    failed.wait_for(1);
    CHECK(sub->unsubscribe_for(forever).value());
    Counter batched;
    auto batches = broker.subscribe_batches("a", [&](Span<const Message> batch, Outcomes &) {
        batched.add(static_cast<int>(batch.size()));
    });
    CHECK(batches && broker.publish("a", "x"));
    batched.wait_for(1);
    CHECK(broker.subscribe_batches("//", [](Span<const Message>) {}).status() ==
          Status::invalid_name);
    CHECK(batches->unsubscribe_for(forever).value());
}

static void settling() {
    Broker broker = *Broker::open();
    auto options = SubscriptionOptions()
                       .delivery(Delivery::at_least_once)
                       .visibility_timeout(600s)
                       .name("s")
                       .backoff(0ns, 0ns);
    Subscription sub = *broker.subscribe("a", options);
    auto refused = broker.subscribe("a", options);
    CHECK(!refused && refused.status() == Status::name_in_use);
    for (int i = 0; i < 3; ++i)
        CHECK(broker.publish("a", "x"));
    auto batch = sub.recv_batch(3);
    AckId id = *batch[0].ack_id();
    CHECK(*AckId::parse(id.text()) == id && AckId::parse("x").status() == Status::invalid_ack_id);
    CHECK(batch[0].ack().value() && !batch[0].ack().value());
    CHECK(batch[1].extend(1ns).status() == Status::out_of_range);
    Result<Acker> acker = sub.acker();
    CHECK(acker && !acker->ack(id).value());
    CHECK(!dead_letter(batch, "no").value());
    DeadLetters letters = broker.dead_letters("$dlq/s");
    CHECK(letters.list()->size() == 2 && letters.redrive((*letters.list())[0]).value());
    CHECK(letters.purge().value() == 1 && !letters.peek(0, 99)->has_value());
    CHECK(letters.list(Filter::expression("=")).status() == Status::invalid_filter);
    CHECK(sub.seek(Start::earliest()) && sub.recv()->offset() == 0);
    CHECK(broker.describe_subscription("s")->is_online && broker.subscriptions()->size() == 1);
    CHECK(broker.seek_subscription("s", Start::now()).status() == Status::name_in_use);
    CHECK(broker.delete_subscription("s") && !broker.delete_subscription("s"));
}

std::uint32_t version_of_the_other_unit();

int main() {
    // That unit may be one with exceptions.
    CHECK(version_of_the_other_unit() == version());
    results_have_a_value_or_an_error();
    receiving_tells_errors_too();
    handlers_and_filters();
    settling();
    return finish("results");
}
