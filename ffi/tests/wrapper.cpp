// Everything that slipring.hpp wraps, once, with exceptions.
#include "check.hpp"

#include <array>
#include <thread>

using namespace slipring;
using namespace std::chrono_literals;

template <class F> static Error error_of(F &&call) {
    try {
        call();
    } catch (const Error &error) {
        return error;
    }
    CHECK(!"it was to throw");
    std::abort();
}

static void the_first_program() {
    auto broker = Broker::open();
    auto scores = broker.subscribe("sports/**");
    Receipt receipt = broker.publish("sports/cricket/live", "four!");
    CHECK(receipt.offset == 0 && receipt.matched == 1 && receipt.enqueued == 1);
    auto message = scores.recv();
    CHECK(message && message->topic() == "sports/cricket/live");
    CHECK(message->payload().text() == "four!" && message.lost() == 0);
}

static void everything_of_a_message() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a");
    auto topic = broker.topic("a");
    CHECK(topic.name() == "a");
    auto before = std::chrono::system_clock::now() - 1s;
    topic.publish(NewMessage("x").key("k").id("my-id").attributes({{"one", "1"}, {"two", ""}}));
    topic.publish(Bytes());
    std::optional<OwnedMessage> kept;
    {
        auto got = sub.recv();
        CHECK(got->key() == "k" && got->id() == "my-id" && got->offset() == 0);
        CHECK(got->attribute("one") == "1" && got->attribute("two") == "");
        CHECK(!got->attribute("three") && !got->attribute("\xff"));
        auto attributes = got->attributes();
        CHECK(attributes.size() == 2 && attributes[1].key() == "two");
        CHECK(attributes[0].value() == "1");
        CHECK(got->published() > before && got->partition() == 0);
        kept = got->keep();
    }
    auto empty = sub.recv();
    CHECK(!empty->key() && empty->payload().empty() && empty->attributes().empty());
    CHECK(empty->id().size() == 36);
    OwnedMessage moved = *std::move(kept);
    broker = Broker::open();
    CHECK(moved.message().payload().text() == "x" && moved.message().attribute("one") == "1");
}

static void all_ways_to_publish() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a", at_most_once().overflow(Overflow::block()).capacity(2));
    auto topic = broker.create_topic("a", 1);
    std::string text = "string";
    std::vector<std::uint8_t> bytes = {1, 2, 3};
    topic.publish(text);
    topic.publish(bytes);
    CHECK(!topic.try_publish("no room"));
    CHECK(!topic.publish_for(1ms, "no room"));
    CHECK(sub.recv()->payload().text() == "string" && sub.recv()->payload().size() == 3);
    CHECK(topic.try_publish("1") && topic.publish_for(forever, "2")->offset == 3);
    CHECK(sub.recv_batch(9).size() == 2);

    std::vector<NewMessage> batch;
    for (int i = 0; i < 3; ++i)
        batch.push_back(NewMessage("b").key("k"));
    BatchReceipt partial = topic.try_publish_batch(batch);
    CHECK(partial.published == 2 && partial.first_offset == 4);
    CHECK(sub.try_recv_batch(9).size() == 2);
    batch.resize(2);
    CHECK(topic.publish_batch(batch).enqueued == 2);
    CHECK(sub.try_recv_batch(9)[1].key() == "k");

    Loan loan = topic.loan(5, NewMessage().key("loan"));
    CHECK(loan.payload().size() == 5);
    std::copy_n("five!", 5, loan.payload().begin());
    CHECK(loan.commit().offset == 8 && loan.payload().empty());
    { auto abandoned = topic.loan(100); }
    Ticket ticket = topic.publish_ticket("t");
    CHECK(ticket.wait().offset == 9);
    CHECK(sub.recv()->payload().text() == "five!");
    CHECK(sub.recv()->payload().text() == "t");
    {
        Ticket again = topic.publish_ticket("t");
        auto receipt = again.try_receipt();
        CHECK(!receipt || receipt->offset == 10);
    }

    Loan late = topic.loan(1);
    broker.close();
    CHECK(error_of([&] { late.commit(); }).status() == Status::closed);
    CHECK(late.payload().size() == 1);
    BatchReceipt none;
    none.published = 7;
    CHECK(error_of([&] { topic.publish_batch(batch, &none); }).status() == Status::closed);
    CHECK(none.published == 0);
}

static void all_ways_to_receive() {
    auto broker = Broker::open();
    auto topic = broker.topic("a");
    auto sub = broker.subscribe("a", at_most_once().capacity(4).wait(Wait::park));
    CHECK(sub.try_recv().status() == Status::empty);
    CHECK(sub.recv_for(1ms).status() == Status::timeout);
    CHECK(sub.try_recv_batch(4).status() == Status::empty && sub.recv_batch(0).empty());
    CHECK(sub.poll(4, [](const Message &) {}).status() == Status::empty);
    CHECK(!sub.wait_for(1ms));
    CHECK(sub.event_fd() >= 0 && sub.event_fd() == sub.event_fd());

    // A loss is told with what follows it, and summed up.
    for (int i = 0; i < 10; ++i)
        topic.publish(std::to_string(i));
    CHECK(sub.queued() == 4 && sub.wait_for(0ns));
    auto first = sub.recv_batch(2);
    CHECK(first.size() == 2 && first.lost() == 0 && first[0].payload().text() == "0");
    std::string seen;
    for (Message message : sub.recv_batch(9))
        seen += message.payload().text();
    CHECK(seen == "23");
    topic.publish("next");
    auto next = sub.recv();
    CHECK(next->payload().text() == "next" && next.lost() == 6 && sub.lost() == 6);

    for (int i = 0; i < 5; ++i)
        topic.publish(std::to_string(i));
    seen.clear();
    auto polled = sub.poll(9, [&](const Message &message) { seen += message.payload().text(); });
    CHECK(polled.size() == 4 && seen == "0123");
    topic.publish("x");
    polled = sub.poll(9, [&](const Message &) {});
    CHECK(polled.size() == 1 && polled.lost() == 1 && sub.lost() == 7);

    // Until the broker closes.
    topic.publish("1");
    topic.publish("2");
    CHECK(broker.close().unreceived == 2);
    int count = 0;
    for (const auto &message : sub)
        count += message.payload().text() == std::to_string(count + 1);
    CHECK(count == 2);
    auto end = sub.recv();
    CHECK(!end && end.ended() && end.status() == Status::closed);
    CHECK(to_string(end.status()) == std::string_view("the broker is closed"));
}

static void an_exception_in_a_poll_loses_nothing() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a");
    for (int i = 0; i < 3; ++i)
        broker.publish("a", "x");
    int calls = 0;
    try {
        sub.poll(9, [&](const Message &) { throw ++calls; });
        CHECK(!"it was to throw");
    } catch (int thrown) {
        CHECK(thrown == 1 && calls == 3);
    }
    CHECK(sub.try_recv().status() == Status::empty);
    // With several in a call.
    for (int i = 0; i < 100; ++i)
        broker.publish("a", "x");
    std::size_t seen = 0;
    calls = 0;
    try {
        sub.poll_batches(100, [&](Span<const Message> batch) {
            for (const Message &message : batch)
                seen += message.payload().text() == "x";
            throw ++calls;
        });
        CHECK(!"it was to throw");
    } catch (int thrown) {
        CHECK(thrown == 1 && seen == 100);
    }
    CHECK(sub.poll_batches(9, [](Span<const Message>) {}).status() == Status::empty);
    // One that destroys what it polls.
    broker.publish("a", "x");
    auto owner = std::make_unique<Subscription>(std::move(sub));
    Subscription &polled = *owner;
    CHECK(polled.poll(9, [&](const Message &message) {
                     owner.reset();
                     CHECK(message.payload().text() == "x");
                 }).size() == 1);
}

static void settings() {
    auto broker = Broker::open(BrokerOptions()
                                   .shards(2)
                                   .memory_budget(4 << 20)
                                   .payload_limit(1000)
                                   .default_partitions(2)
                                   .workers(1)
                                   .create_topics(false)
                                   .when_full(WhenFull::refuse));
    CHECK(error_of([&] { broker.topic("a"); }).status() == Status::no_such_topic);
    auto topic = broker.create_topic("a");
    CHECK(error_of([&] { broker.create_topic("a"); }).status() == Status::topic_exists);
    CHECK(error_of([&] { topic.publish(std::string(1001, 'x')); }).status() ==
          Status::invalid_message);
    for (int i = 0; i < 10; ++i)
        topic.publish(
            NewMessage("x").attributes({{"even", i % 2 ? "no" : "yes"}, {"odd \"\\", "o"}}));

    auto replay = [&](Start start) {
        auto sub = broker.subscribe("a", SubscriptionOptions().start(start));
        auto got = sub.try_recv();
        return got ? static_cast<int>(got->offset()) : -1;
    };
    CHECK(replay(Start::now()) == -1 && replay(Start::earliest()) == 0);
    CHECK(replay(Start::last(3)) == 7 && replay(Start::offset(5)) == 5);
    CHECK(replay(Start::time({})) == 0);

    auto options = at_most_once();
    options.start(Start::earliest()).pattern("b/*").name("my-name").overflow(Overflow::drop_oldest());
    options.filter(Filter::equals("even", "yes") && !Filter::has("test") &&
                   (Filter::prefix("odd \"\\", "o") || Filter::has("none")));
    {
        auto sub = broker.subscribe("a", options);
        CHECK(sub.recv()->offset() == 0 && sub.recv()->offset() == 2);
        CHECK(error_of([&] { (void)broker.subscribe("a", options); }).status() ==
              Status::name_in_use);
    }
    CHECK((!(!Filter::has("a")) && (Filter::has("b") || Filter::not_equals("c", "d"))).text() ==
          R"(NOT (NOT attributes:"a") AND (attributes:"b" OR attributes."c" != "d"))");
    auto sub = broker.subscribe("a", options.filter(!(!Filter::has("even"))));
    CHECK(sub.recv()->offset() == 0);

    // A function; the options can be used again, and let go of it when all are gone.
    auto asked = std::make_shared<int>(0);
    {
        SubscriptionOptions odd;
        odd.start(Start::earliest()).filter([asked](const Message &message) {
            ++*asked;
            return message.offset() % 2 == 1;
        });
        auto one = broker.subscribe("a", odd), two = broker.subscribe("a", odd);
        CHECK(one.recv()->offset() == 1 && two.recv()->offset() == 1 && *asked >= 4);
        CHECK(error_of([&] { (void)broker.subscribe("//", odd); }).position() == 0U);
    }
    // One that throws wants nothing.
    auto never = broker.subscribe(
        "a", SubscriptionOptions().filter([](const Message &) -> bool { throw 1; }));
    CHECK(topic.publish("x").enqueued == 0 && never.try_recv().status() == Status::empty);

    auto impatient = broker.subscribe(
        "a", at_most_once().capacity(1).overflow(Overflow::disconnect(0ns)));
    while (topic.publish("x").matched > 0) {
    }
    while (impatient.recv()) {
    }
    CHECK(impatient.recv().status() == Status::disconnected && impatient.recv().ended());
    CHECK(error_of([&] {
              (void)broker.subscribe("a", at_most_once().overflow(Overflow::disconnect(forever)));
          }).status() == Status::out_of_range);
}

static void looking_around() {
    auto broker = Broker::open(BrokerOptions().pinned_sequencer(0).pin_workers(0));
    broker.create_topic("a/1", 3);
    broker.create_topic("a/2");
    CHECK((broker.topics("a/*") == std::vector<std::string>{"a/1", "a/2"}));
    CHECK((broker.topics("a/*", "a/1") == std::vector<std::string>{"a/2"}));
    CHECK(broker.topics("a/*", {}, 1).size() == 1 && broker.topics("b").empty());
    CHECK(broker.describe_topic("a/1").size() == 3);
    auto sub = broker.subscribe("a/2");
    broker.publish("a/2", "x");
    CHECK(broker.metrics().published == 1 && broker.metrics().topics == 2);
    CHECK(broker.subscription_metrics(sub.id()).queued == 1);
    CHECK(error_of([&] { broker.subscription_metrics(99); }).status() ==
          Status::no_such_subscription);
    CHECK(broker.prometheus().find("slipring_topic_published_total{topic=\"a/2\"} 1\n") !=
          std::string::npos);
    broker.delete_topic("a/1");
    CHECK(error_of([&] { broker.describe_topic("a/1"); }).status() == Status::no_such_topic);
    CHECK(version() == SLIPRING_VERSION);
}

static void errors_say_what_and_where() {
    auto broker = Broker::open();
    Error name = error_of([&] { broker.topic("ab//c"); });
    CHECK(name.status() == Status::invalid_name && name.position() == 3U);
    CHECK(std::string_view(name.what()).find("at byte 3") != std::string_view::npos);
    Error filter = error_of(
        [&] { (void)broker.subscribe("a", SubscriptionOptions().filter("attributes:")); });
    CHECK(filter.status() == Status::invalid_filter && filter.position() == 11U);
    CHECK(error_of([&] { broker.topic("\xff"); }).status() == Status::not_utf8);
    CHECK(error_of([&] { Broker::open(BrokerOptions().shards(65)); }).status() ==
          Status::out_of_range);
    // What it says is not changed by a later one.
    CHECK(std::string_view(name.what()).find("at byte 3") != std::string_view::npos);
    // One that is no error has no place.
    broker.close();
    Error closed = error_of([&] { broker.topic("new"); });
    CHECK(closed.status() == Status::closed && !closed.position());
    CHECK(closed.what() == std::string_view("the broker is closed"));
}

static void owners_move() {
    auto broker = Broker::open();
    auto one = broker.subscribe("a"), two = broker.subscribe("b");
    auto id = two.id();
    one = std::move(two);
    CHECK(one.id() == id && broker.metrics().subscriptions == 1);
    Broker other = std::move(broker);
    other.publish("b", "x");
    CHECK(one.recv()->payload().text() == "x");
    std::vector<Topic> topics;
    topics.push_back(other.topic("b"));
    topics.push_back(other.topic("c"));
    std::array<NewMessage, 2> batch = {"1", "2"};
    CHECK(topics[0].publish_batch(batch).published == 2);
    CHECK(one.recv_batch(9).size() == 2);
}

static void a_consumer_in_another_thread() {
    auto broker = Broker::open();
    auto topic = broker.topic("a");
    auto sub = broker.subscribe("a", at_most_once().overflow(Overflow::block()));
    std::thread consumer([sub = std::move(sub)]() mutable {
        std::uint64_t next = 0;
        for (const auto &message : sub)
            CHECK(message.offset() == next++);
        CHECK(next == 1000 && sub.lost() == 0);
    });
    for (int i = 0; i < 1000; ++i)
        topic.publish("x");
    broker.close();
    consumer.join();
}

std::uint32_t version_of_the_other_unit();

int main() {
    CHECK(version_of_the_other_unit() == version());
    the_first_program();
    everything_of_a_message();
    all_ways_to_publish();
    all_ways_to_receive();
    an_exception_in_a_poll_loses_nothing();
    settings();
    looking_around();
    errors_say_what_and_where();
    owners_move();
    a_consumer_in_another_thread();
    return finish("wrapper");
}
