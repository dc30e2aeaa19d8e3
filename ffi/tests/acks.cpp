// Delivery at least once in C++: what is settled how, and what comes again.
#include "check.hpp"

#include <algorithm>
#include <string>
#include <thread>
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

static SubscriptionOptions at_least_once() {
    // Longer than the slowest machine takes.
    return SubscriptionOptions().delivery(Delivery::at_least_once).visibility_timeout(600s);
}

static void messages_come_again_until_they_are_settled() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("jobs", at_least_once().visibility_timeout(10ms));
    broker.publish("jobs", "one");
    CHECK(sub.recv()->attempt() == 1);
    auto again = sub.recv();
    CHECK(again->attempt() >= 2);
    // The lease may end before the answer.
    while (!again->extend(600s))
        again = sub.recv();
    CHECK(status_of([&] { again->extend(1ms); }) == Status::out_of_range);
    auto kept = again->keep();
    CHECK(again->ack() && !again->ack() && !kept.message().ack());
    CHECK(!again->nack() && !again->nack(5s) && !again->dead_letter("late"));
    CHECK(sub.try_recv().status() == Status::empty);
    auto figures = broker.subscription_metrics(sub.id());
    CHECK(figures.acked == 1 && figures.unsettled == 0 && figures.redelivered >= 1);
}

static void batches_are_settled_in_one_call() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("jobs", at_least_once().backoff(0ns, 0ns).backoff_jitter());
    auto topic = broker.topic("jobs");
    std::vector<NewMessage> messages(10);
    topic.publish_batch(messages);
    auto batch = sub.recv_batch(10);
    CHECK(batch.size() == 10 && extend(batch, 600s));
    CHECK(batch[3].ack());
    std::vector<Status> outcomes;
    CHECK(!nack(batch, std::nullopt, &outcomes) && outcomes.size() == 10);
    for (std::size_t i = 0; i < outcomes.size(); ++i)
        CHECK(outcomes[i] == (i == 3 ? Status::stale : Status::ok));
    std::size_t seen = 0;
    while (seen < 9) {
        batch = sub.recv_batch(4);
        for (Message message : batch)
            CHECK(message.attempt() == 2);
        seen += batch.size();
        CHECK(seen < 9 ? ack(batch) : dead_letter(batch, "the last ones"));
    }
    CHECK(broker.subscription_metrics(sub.id()).unsettled == 0);
    // What has something in common.
    topic.publish_batch(messages);
    std::vector<Message> even, odd;
    for (Message message : sub.recv_batch(10))
        (message.offset() % 2 ? odd : even).push_back(message);
    CHECK(ack(even) && ack(Span<const Message>()) && nack(odd, 0ns) && !ack(odd, &outcomes));
    CHECK(outcomes == std::vector<Status>(5, Status::stale));
    CHECK(ack(sub.recv_batch(10)) && broker.subscription_metrics(sub.id()).unsettled == 0);
    // In a poll each is settled where it lies.
    topic.publish("x");
    CHECK(sub.poll(9, [](const Message &message) { CHECK(message.ack()); }).size() == 1);
    CHECK(broker.subscription_metrics(sub.id()).unsettled == 0);
}

static void ack_ids_settle_from_any_thread() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("jobs", at_least_once().name("s").backoff(0ns, 0ns));
    auto other = broker.subscribe("jobs", at_least_once());
    for (int i = 0; i < 5; ++i)
        broker.publish("jobs", "x");
    std::vector<AckId> ids;
    for (Message message : sub.recv_batch(5))
        ids.push_back(*message.ack_id());
    CHECK(AckId::parse(ids[0].text()) == ids[0] && ids[0] != ids[1]);
    CHECK(status_of([] { AckId::parse("none"); }) == Status::invalid_ack_id);
    CHECK(status_of([&] { other.acker().ack(ids[0]); }) == Status::invalid_ack_id);
    auto acker = sub.acker();
    CHECK(acker.extend(ids, 600s) && acker.extend(ids[0], 600s));
    CHECK(acker.nack(ids[0], 0ns) && acker.dead_letter(ids[1], "by id"));
    std::thread([&] { CHECK(acker.ack(ids[2])); }).join();
    std::vector<Status> outcomes;
    CHECK(!broker.acker("s").ack(ids, &outcomes));
    CHECK((outcomes == std::vector<Status>{Status::stale, Status::stale, Status::stale, Status::ok,
                                           Status::ok}));
    auto again = sub.recv();
    CHECK(again->attempt() == 2);
    std::vector<AckId> last = {*again->ack_id()};
    CHECK(acker.nack(last) && acker.nack(last) == false && !acker.dead_letter(last, "late"));
    CHECK(sub.recv()->ack() && broker.subscription_metrics(sub.id()).unsettled == 0);
    Acker moved = std::move(acker);
    CHECK(!moved.ack(last));
}

static void at_most_once_has_nothing_to_settle() {
    auto broker = Broker::open();
    auto sub = broker.subscribe(
        "jobs", SubscriptionOptions().delivery(Delivery::at_most_once).name("once"));
    broker.publish("jobs", "x");
    auto received = sub.recv();
    CHECK(received->attempt() == 1 && !received->ack_id());
    CHECK(status_of([&] { received->ack(); }) == Status::not_leased);
    CHECK(status_of([&] { sub.acker(); }) == Status::at_most_once);
    CHECK(status_of([&] { sub.seek(Start::earliest()); }) == Status::at_most_once);
    CHECK(status_of([&] { broker.acker("once"); }) == Status::at_most_once);
}

static void handlers_succeed_retry_or_give_up() {
    auto broker = Broker::open();
    Counter handled, failures;
    std::vector<std::string> reasons;
    auto options = at_least_once()
                       .name("worker")
                       .max_delivery_attempts(2)
                       .backoff(1ms, 1ms)
                       .on_failure([&](const Failure &failure) {
                           reasons.emplace_back(failure.reason);
                           failures.add();
                       });
    auto sub = broker.subscribe("jobs", options, [&](const Message &message) {
        CHECK(!message.ack_id());
        handled.add();
        std::string_view job = message.payload().text();
        if (job == "give up")
            return Handled::dead_letter("no such address");
        if (job == "give up silently")
            return Handled::dead_letter();
        if (job == "throw")
            throw std::runtime_error("thrown");
        if (job == "retry" && message.attempt() == 1)
            return Handled::retry("not \xff yet");
        return Handled::success();
    });
    for (const char *job : {"give up", "give up silently", "throw", "retry", "good"})
        broker.publish("jobs", job);
    handled.wait_for(7);
    failures.wait_for(5);
    // A handler's success counts some time after it has returned.
    auto figures = broker.subscription_metrics(sub.id());
    while (figures.acked + figures.dead_lettered < 5 || figures.unsettled > 0) {
        std::this_thread::yield();
        figures = broker.subscription_metrics(sub.id());
    }
    CHECK(figures.acked == 2 && figures.dead_lettered == 3 && figures.handler_failures == 5);
    sub.unsubscribe();
    std::sort(reasons.begin(), reasons.end());
    CHECK((reasons == std::vector<std::string>{"a reason that is not UTF-8", "no such address",
                                               "the handler gave up", "thrown", "thrown"}));
    auto letters = broker.dead_letters("$dlq/worker").list();
    CHECK(letters.size() == 3);
    CHECK(letters[0].attribute(SLIPRING_DEAD_LETTER_REASON) == "no such address");
    CHECK(letters[2].attribute(SLIPRING_DEAD_LETTER_REASON) == "thrown");
    CHECK(letters[2].attribute(SLIPRING_DEAD_LETTER_ATTEMPTS) == "2");
}

static void dead_letters_are_listed_sent_back_and_thrown_away() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("jobs", at_least_once().dead_letter_topic("graves"));
    auto topic = broker.topic("jobs");
    for (int i = 0; i < 6; ++i)
        topic.publish(NewMessage("x").attributes({{"kind", i % 2 ? "odd" : "even"}}));
    CHECK(dead_letter(sub.recv_batch(6), "no"));
    auto graves = broker.dead_letters("graves");
    auto odd = Filter::equals("kind", "odd");
    CHECK(graves.list().size() == 6 && graves.list(2).size() == 2 && graves.list(odd).size() == 3);
    CHECK(graves.list(Filter::expression("NOT attributes.kind = \"odd\"") && !odd).size() == 3);
    CHECK(status_of([&] { graves.list(Filter::expression("what")); }) == Status::invalid_filter);
    auto letters = graves.list(2);
    CHECK(letters[0].attribute(SLIPRING_DEAD_LETTER_TOPIC) == "jobs" && letters[0].attempt() == 1);
    auto peeked = graves.peek(letters[0].partition(), letters[0].offset());
    CHECK(peeked && peeked->message().payload().text() == "x");
    CHECK(graves.redrive(letters[0]) && !graves.redrive(letters[0]));
    CHECK(!graves.peek(letters[0].partition(), letters[0].offset()));
    CHECK(graves.redrive(letters) == 1 && graves.redrive(letters) == 0);
    CHECK(ack(sub.recv_batch(9)) && sub.try_recv().status() == Status::empty);
    CHECK(graves.redrive_all(odd) == 2 && graves.redrive_all() == 2);
    CHECK(dead_letter(sub.recv_batch(9), {}));
    broker.delete_topic("jobs");
    std::uint64_t sent = 9;
    CHECK(status_of([&] { graves.redrive(graves.list(), &sent); }) == Status::no_such_topic);
    CHECK(sent == 0 && graves.purge() == 4 && graves.list().empty());
    // Letters outlive the broker.
    auto gone = std::make_unique<Broker>(std::move(broker));
    gone.reset();
    int count = 0;
    for (Message letter : letters)
        count += letter.payload().text() == "x";
    CHECK(count == 2);
}

static void named_subscriptions_outlive_their_consumers() {
    auto broker = Broker::open();
    auto options = at_least_once().name("s").pattern("other/**").max_outstanding(10);
    CHECK(broker.subscriptions().empty());
    {
        auto first = broker.subscribe("jobs", options);
        broker.publish("jobs", "1");
        broker.publish("jobs", "2");
        CHECK(first.recv()->payload().text() == "1");
        CHECK(status_of([&] { (void)broker.subscribe("jobs", options); }) == Status::name_in_use);
        auto second = broker.subscribe("jobs", SubscriptionOptions(options).take_over());
        CHECK(first.recv().status() == Status::disconnected);
        auto received = second.recv();
        CHECK(received->payload().text() == "1" && received->attempt() == 2 && received->ack());
    }
    auto known = broker.describe_subscription("s");
    CHECK(known.name == "s" && known.delivery == Delivery::at_least_once && !known.is_online);
    CHECK((known.patterns == std::vector<std::string>{"jobs", "other/**"}) && known.unsettled == 0);
    CHECK((broker.subscriptions() == std::vector<std::string>{"s"}));
    broker.publish("jobs", "3");
    {
        auto back = broker.subscribe("jobs", options);
        CHECK(broker.describe_subscription("s").is_online);
        CHECK(back.recv()->payload().text() == "2");
        CHECK(status_of([&] { broker.seek_subscription("s", Start::now()); }) ==
              Status::name_in_use);
    }
    broker.seek_subscription("s", Start::earliest());
    auto back = broker.subscribe("jobs", options);
    CHECK(back.recv()->payload().text() == "1");
    back.seek(Start::offset(2));
    CHECK(back.recv()->payload().text() == "3");
    back.seek(Start::now());
    CHECK(back.try_recv().status() == Status::empty);
    broker.delete_subscription("s");
    CHECK(back.recv().status() == Status::disconnected && broker.subscriptions().empty());
    CHECK(status_of([&] { broker.describe_subscription("s"); }) == Status::no_such_subscription);
    CHECK(status_of([&] { broker.delete_subscription("s"); }) == Status::no_such_subscription);
}

static void later_messages_of_a_key_wait_unless_they_may_overtake() {
    auto broker = Broker::open();
    auto options = at_least_once().backoff(3600s, 3600s);
    auto waiting = broker.subscribe("jobs", options);
    auto overtaking = broker.subscribe("jobs", options.keys_overtake());
    auto topic = broker.topic("jobs");
    topic.publish(NewMessage("k1").key("k"));
    CHECK(waiting.recv()->nack() && overtaking.recv()->nack());
    topic.publish(NewMessage("k2").key("k"));
    topic.publish(NewMessage("j1").key("j"));
    CHECK(waiting.recv()->payload().text() == "j1");
    CHECK(waiting.try_recv().status() == Status::empty);
    CHECK(overtaking.recv()->payload().text() == "k2");
}

int main() {
    messages_come_again_until_they_are_settled();
    batches_are_settled_in_one_call();
    ack_ids_settle_from_any_thread();
    at_most_once_has_nothing_to_settle();
    handlers_succeed_retry_or_give_up();
    dead_letters_are_listed_sent_back_and_thrown_away();
    named_subscriptions_outlive_their_consumers();
    later_messages_of_a_key_wait_unless_they_may_overtake();
    return finish("acks-cxx");
}
