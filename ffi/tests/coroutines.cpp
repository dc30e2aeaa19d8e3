// Coroutines that wait for messages: C++20.
#include "check.hpp"

#ifndef SLIPRING_COROUTINES
#error "build this as C++20"
#endif

#include <exception>
#include <thread>

using namespace slipring;
using namespace std::chrono_literals;

// A coroutine that begins at once and is destroyed with this.
class Task {
  public:
    struct promise_type {
        std::exception_ptr thrown;
        Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { thrown = std::current_exception(); }
    };

    explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
    Task(Task &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    ~Task() {
        if (handle_)
            handle_.destroy();
    }
    bool done() const { return handle_.done(); }
    std::exception_ptr thrown() const { return handle_.promise().thrown; }

  private:
    std::coroutine_handle<promise_type> handle_;
};

static Task collect(Subscription &sub, Executor &executor, std::string &text) {
    while (auto received = co_await sub.next(executor)) {
        if (received.lost() > 0)
            text += "(" + std::to_string(received.lost()) + " lost)";
        text += received->payload().text();
    }
}

static void a_coroutine_receives_until_the_broker_closes() {
    auto broker = Broker::open();
    auto a = broker.subscribe("a", at_most_once().capacity(2)), b = broker.subscribe("b");
    Poller poller;
    std::string seen_a, seen_b;
    broker.publish("a", "0");
    Task one = collect(a, poller, seen_a), two = collect(b, poller, seen_b);
    // What was queued is there without waiting.
    CHECK(seen_a == "0" && poller.run_once(0ns) == 0);
    for (int i = 1; i < 5; ++i)
        broker.publish("a", std::to_string(i));
    CHECK(poller.run_once() == 1 && seen_a == "012");
    broker.publish("a", "5");
    broker.publish("b", "x");
    CHECK(poller.run_once(1s) == 2);
    CHECK(seen_a == "012(2 lost)5" && seen_b == "x" && !one.done());
    broker.close();
    poller.run();
    CHECK(one.done() && two.done() && poller.run_once() == 0);
}

static void a_message_of_another_thread_wakes_it() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a", at_most_once().overflow(Overflow::block()));
    Poller poller;
    std::string seen;
    Task task = collect(sub, poller, seen);
    std::thread publisher([&] {
        for (int i = 0; i < 500; ++i)
            broker.publish("a", "x");
        broker.close();
    });
    poller.run();
    publisher.join();
    CHECK(task.done() && seen == std::string(500, 'x'));
}

static void one_that_ends_while_it_waits_is_forgotten() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a");
    Poller poller;
    std::string seen;
    { Task task = collect(sub, poller, seen); }
    broker.publish("a", "x");
    CHECK(poller.run_once(0ns) == 0 && seen.empty());
    CHECK(sub.try_recv()->payload().text() == "x");
}

// An executor that calls too early: the coroutine stays where it is.
class Hasty final : public Executor {
  public:
    void watch(int, Waiter &waiter) override { waiter_ = &waiter; }
    void forget(Waiter &) noexcept override { waiter_ = nullptr; }
    void call() { std::exchange(waiter_, nullptr)->readable(); }
    bool waits() const { return waiter_ != nullptr; }

  private:
    Waiter *waiter_ = nullptr;
};

static void a_call_without_a_reason_does_no_harm() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a");
    Hasty hasty;
    std::string seen;
    Task task = collect(sub, hasty, seen);
    CHECK(hasty.waits());
    hasty.call();
    CHECK(hasty.waits() && seen.empty());
    broker.publish("a", "x");
    hasty.call();
    CHECK(seen == "x" && hasty.waits());
}

static void an_error_is_thrown_where_it_is_awaited() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a");
    broker.publish("a", "x");
    Poller poller;
    std::string seen;
    sub.poll(1, [&](const Message &) {
        Task task = collect(sub, poller, seen);
        CHECK(task.done() && task.thrown());
        try {
            std::rethrow_exception(task.thrown());
        } catch (const Error &error) {
            CHECK(error.status() == Status::busy);
        }
    });
}

// One whose lease has ended is there again by itself, and the coroutine settles it.
static Task settle(Subscription &sub, Executor &executor, std::uint32_t &attempts) {
    while (auto received = co_await sub.next(executor)) {
        attempts = received->attempt();
        if (attempts > 1 && received->ack())
            co_return;
    }
}

static void the_end_of_a_lease_wakes_it() {
    auto broker = Broker::open();
    auto sub = broker.subscribe("a", SubscriptionOptions()
                                         .delivery(Delivery::at_least_once)
                                         .visibility_timeout(10ms)
                                         .max_delivery_attempts(1000));
    Poller poller;
    std::uint32_t attempts = 0;
    broker.publish("a", "x");
    Task task = settle(sub, poller, attempts);
    poller.run();
    CHECK(task.done() && !task.thrown() && attempts > 1);
    CHECK(broker.subscription_metrics(sub.id()).acked == 1);
}

int main() {
    a_coroutine_receives_until_the_broker_closes();
    a_message_of_another_thread_wakes_it();
    one_that_ends_while_it_waits_is_forgotten();
    a_call_without_a_reason_does_no_harm();
    an_error_is_thrown_where_it_is_awaited();
    the_end_of_a_lease_wakes_it();
    return finish("coroutines");
}
