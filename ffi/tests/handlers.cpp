// Lambdas as handlers: what they may do, what becomes of what they throw, and when they are gone.
#include "check.hpp"

#include <memory>
#include <stdexcept>
#include <thread>

using namespace slipring;
using namespace std::chrono_literals;

static void everything_is_allowed_in_a_handler() {
    auto broker = Broker::open();
    auto out = broker.subscribe("out");
    auto sub = broker.subscribe("in", [&](const Message &message) {
        auto inner = broker.subscribe("inner");
        auto topic = broker.topic("inner");
        topic.publish(message.payload());
        CHECK(inner.recv()->payload().text() == "x");
        { auto handled = broker.subscribe("inner", [](const Message &) {}); }
        CHECK(broker.metrics().subscriptions >= 3);
        broker.publish("out", "done");
    });
    CHECK(sub.id() > 0);
    broker.publish("in", "x");
    CHECK(out.recv()->payload().text() == "done");
    sub.unsubscribe();
    CHECK(broker.metrics().subscriptions == 1);
}

static void a_handler_unsubscribes_itself() {
    auto broker = Broker::open();
    Counter set, handled;
    auto alive = std::make_shared<int>(0);
    std::weak_ptr<int> gone = alive;
    std::optional<HandlerSubscription> own;
    own = broker.subscribe("in", [&, alive](const Message &) {
        set.wait_for(1);
        own.reset();
        CHECK(!gone.expired());
        handled.add();
    });
    alive.reset();
    set.add();
    broker.publish("in", "1");
    broker.publish("in", "2");
    handled.wait_for(1);
    broker.close(60s);
    CHECK(handled.value() == 1 && gone.expired());
}

static void a_handler_closes_the_broker() {
    auto broker = Broker::open();
    Counter handled;
    auto sub = broker.subscribe("in", [&](const Message &) {
        CHECK(broker.close(60s).handler_running == 1);
        handled.add();
    });
    broker.publish("in", "x");
    handled.wait_for(1);
    bool refused = false;
    try {
        broker.publish("in", "x");
    } catch (const Error &error) {
        refused = error.status() == Status::closed;
    }
    CHECK(refused);
}

static void a_handler_unsubscribes_another() {
    auto broker = Broker::open();
    Counter running, go_on, ended;
    auto other = broker.subscribe("other", [&](const Message &) {
        running.add();
        go_on.wait_for(1);
    });
    auto sub = broker.subscribe("in", [&](const Message &) {
        running.wait_for(1);
        CHECK(!other.unsubscribe_for(1ms));
        go_on.add();
        CHECK(other.unsubscribe_for(forever));
        ended.add();
    });
    broker.publish("other", "x");
    broker.publish("in", "x");
    ended.wait_for(1);
}

static void what_a_handler_throws_is_a_retry() {
    auto broker = Broker::open();
    Counter failures, lost, handled, running, go_on;
    std::vector<std::string> reasons;
    auto options = at_most_once()
                       .capacity(2)
                       .dedicated_thread()
                       .circuit_breaker(100, 1ns)
                       .on_lagged([&](std::uint64_t count) {
                           lost.add(static_cast<int>(count));
                           throw 1;
                       })
                       .on_failure([&](const Failure &failure) {
                           CHECK(failure.message.topic() == "in");
                           reasons.emplace_back(failure.reason);
                           failures.add();
                           throw std::runtime_error("also contained");
                       });
    auto sub = broker.subscribe("in", options, [&](const Message &message) {
        running.add();
        go_on.wait_for(1);
        handled.add();
        if (message.offset() == 0)
            throw std::runtime_error("on purpose");
        if (message.offset() == 1)
            throw 42;
        return message.offset() == 2 ? Handled::retry() : Handled::success();
    });
    broker.publish("in", "0");
    running.wait_for(1);
    for (int i = 1; i < 20; ++i)
        broker.publish("in", "x");
    go_on.add();
    handled.wait_for(3);
    failures.wait_for(3);
    CHECK((reasons == std::vector<std::string>{"on purpose", "an exception of an unknown type",
                                               "the handler asked for a retry"}));
    lost.wait_for(17);
    auto figures = broker.subscription_metrics(sub.id());
    CHECK(figures.handler_failures == 3 && figures.dropped_newest == 17);
    // It goes on all the same.
    int before = handled.value();
    broker.publish("in", "x");
    handled.wait_for(before + 1);
    CHECK(sub.queued() == 0);
}

static void unsubscribing_waits_for_a_running_handler() {
    auto broker = Broker::open();
    Counter running, go_on, handled;
    auto alive = std::make_shared<int>(0);
    std::weak_ptr<int> gone = alive;
    auto sub = broker.subscribe("in", [&, alive](const Message &) {
        running.add();
        go_on.wait_for(1);
        handled.add();
    });
    alive.reset();
    broker.publish("in", "x");
    running.wait_for(1);
    CHECK(!sub.unsubscribe_for(5ms) && !gone.expired());
    std::thread helper([&] { go_on.add(); });
    sub.unsubscribe();
    CHECK(handled.value() == 1 && gone.expired());
    helper.join();
}

static void a_handler_that_only_moves_is_let_go_of_when_subscribing_fails() {
    auto broker = Broker::open();
    auto counted = std::make_shared<int>(0);
    std::weak_ptr<int> gone = counted;
    auto handler = [counted = std::move(counted), only = std::make_unique<int>(7)](
                       const Message &) { CHECK(*only == 7); };
    bool refused = false;
    try {
        (void)broker.subscribe("a//b", std::move(handler));
    } catch (const Error &error) {
        refused = error.status() == Status::invalid_name && error.position() == 2U;
    }
    CHECK(refused && gone.expired());
}

static void detached_handlers_run_until_the_broker_closes() {
    auto broker = Broker::open();
    Counter handled;
    broker.subscribe("in", [&](const Message &) { handled.add(); }).detach();
    broker.publish("in", "x");
    handled.wait_for(1);
    broker.close(60s);
}

static void a_filter_may_not_call_the_broker() {
    auto broker = Broker::open();
    int refused = 0;
    auto other = broker.subscribe("none", [](const Message &) {});
    auto options = SubscriptionOptions().filter([&](const Message &) {
        try {
            broker.publish("in", "x");
        } catch (const Error &error) {
            refused += error.status() == Status::inside_filter;
        }
        try {
            (void)broker.subscribe("in");
        } catch (const Error &error) {
            refused += error.status() == Status::inside_filter;
        }
        try {
            other.unsubscribe_for(0ns);
        } catch (const Error &error) {
            refused += error.status() == Status::inside_filter;
        }
        broker.close();
        return true;
    });
    auto sub = broker.subscribe("in", options);
    broker.publish("in", "x");
    CHECK(sub.recv() && refused == 3);
}

static void a_poll_holds_its_subscription() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("in");
    broker.publish("in", "x");
    bool refused = false;
    auto polled = sub.poll(9, [&](const Message &) {
        broker.publish("other", "x");
        CHECK(sub.id() > 0);
        try {
            (void)sub.try_recv();
        } catch (const Error &error) {
            refused = error.status() == Status::busy;
        }
    });
    CHECK(polled.size() == 1 && refused);
}

static void events_of_one_broker_are_told() {
    std::mutex mutex;
    std::vector<std::pair<Level, std::string>> events;
    Counter failed;
    {
        BrokerOptions options;
        options.log(Level::info, [&](Level level, std::string_view text) {
            std::lock_guard<std::mutex> lock(mutex);
            events.emplace_back(level, text);
            throw std::runtime_error("contained");
        });
        auto told = Broker::open(options), silent = Broker::open();
        for (const Broker *broker : {&told, &silent}) {
            auto sub = broker->subscribe(
                "in", at_most_once().on_failure([&](const Failure &) { failed.add(); }),
                [](const Message &) { throw 1; });
            broker->publish("in", "x");
            failed.wait_for(broker == &told ? 1 : 2);
        }
        silent.close();
    }
    std::lock_guard<std::mutex> lock(mutex);
    CHECK(events.size() == 2 && events[0].first == Level::warn && events[1].first == Level::info);
    CHECK(events[0].second.find("a handler failed") == 0);
    CHECK(events[0].second.find("topic=\"in\"") != std::string::npos);
    CHECK(events[1].second.find("broker closed") == 0);
}

static void batches_are_handled_together() {
    auto broker = Broker::open();
    Counter go_on, handled, failures, several;
    std::vector<std::string> reasons;
    auto options = at_most_once().on_failure([&](const Failure &failure) {
        reasons.push_back(std::string(failure.message.payload().text()) + ": " +
                          std::string(failure.reason));
        failures.add();
    });
    auto sub = broker.subscribe_batches(
        "in", options, [&](Span<const Message> batch, Outcomes &outcomes) -> Handled {
            go_on.wait_for(1);
            CHECK(batch.size() == outcomes.size() && !batch.empty());
            if (batch.size() > 1)
                several.add();
            bool throws = false;
            for (std::size_t i = 0; i < batch.size(); ++i) {
                const auto text = batch[i].payload().text();
                if (text == "gives up")
                    outcomes.set(i, Handled::dead_letter("not a number"));
                else if (text == "not text")
                    outcomes.set(i, Handled::retry("\xff"));
                else if (text == "succeeds")
                    outcomes.set(i, Handled::success());
                else if (text == "throws")
                    throws = true;
            }
            outcomes.set(batch.size(), Handled::retry("beyond"));
            handled.add(static_cast<int>(batch.size()));
            if (throws)
                throw std::runtime_error("on purpose");
            return Handled::success();
        });
    broker.publish("in", "first");
    for (const char *text : {"gives up", "succeeds", "not text"})
        broker.publish("in", text);
    go_on.add();
    handled.wait_for(4);
    failures.wait_for(2);
    CHECK((reasons == std::vector<std::string>{"gives up: not a number",
                                               "not text: a reason that is not UTF-8"}));
    broker.publish("in", "throws");
    handled.wait_for(5);
    failures.wait_for(3);
    CHECK(reasons[2] == "throws: on purpose");
    CHECK(several.value() > 0 && broker.subscription_metrics(sub.id()).handler_failures == 3);
}

static void what_a_batch_handler_throws_brings_its_batch_again() {
    auto broker = Broker::open();
    Counter done;
    std::size_t attempts = 0;
    auto alive = std::make_unique<int>(0);
    auto sub = broker.subscribe_batches(
        "in", SubscriptionOptions().backoff(0ns, 0ns).max_delivery_attempts(65535),
        [&, alive = std::move(alive)](Span<const Message> batch) {
            for (const Message &message : batch) {
                attempts += message.attempt();
                if (message.attempt() == 1)
                    throw 1;
            }
            done.add(static_cast<int>(batch.size()));
        });
    for (int i = 0; i < 100; ++i)
        broker.publish("in", "x");
    done.wait_for(100);
    sub.unsubscribe();
    CHECK(done.value() == 100 && attempts >= 200);
    // One that returns something is a handler too.
    auto another = broker.subscribe_batches(
        "in", [&](Span<const Message>) { return done.add(), Handled::success(); });
    broker.publish("in", "x");
    done.wait_for(101);
}

int main() {
    batches_are_handled_together();
    what_a_batch_handler_throws_brings_its_batch_again();
    everything_is_allowed_in_a_handler();
    a_handler_unsubscribes_itself();
    a_handler_closes_the_broker();
    a_handler_unsubscribes_another();
    what_a_handler_throws_is_a_retry();
    unsubscribing_waits_for_a_running_handler();
    a_handler_that_only_moves_is_let_go_of_when_subscribing_fails();
    detached_handlers_run_until_the_broker_closes();
    a_filter_may_not_call_the_broker();
    a_poll_holds_its_subscription();
    events_of_one_broker_are_told();
    return finish("handlers");
}
