// slipring's side in C and C++: the shared library through its headers.
#include "harness.hpp"
#include "slipring.hpp"

#include <vector>

using namespace harness;

static slipring::SubscriptionOptions lossless() {
    return slipring::SubscriptionOptions()
        .delivery(slipring::Delivery::at_most_once)
        .capacity(capacity)
        .overflow(slipring::Overflow::block())
        .wait(slipring::Wait::busy_spin);
}

static slipring::Broker broker() {
    return slipring::Broker::open(slipring::BrokerOptions().memory_budget(1 << 20));
}

static void must(slipring_status status) {
    if (status != SLIPRING_OK)
        fail(slipring_status_str(status));
}

static void see(void *user, const slipring_message *messages, std::size_t count) {
    // Added up here, and not there: what is read could be that, for all that a compiler knows.
    Tally tally = *static_cast<Tally *>(user);
    for (std::size_t i = 0; i < count; ++i)
        tally.see(slipring_message_payload(&messages[i]));
    *static_cast<Tally *>(user) = tally;
}

// What a handler has seen, and whether that is all.
struct Handled {
    std::uint64_t messages;
    Tally tally;
    std::atomic<bool> done{false};
};

static std::int32_t handle(void *user, const slipring_message *messages, std::size_t count,
                           std::int32_t *) {
    auto &handled = *static_cast<Handled *>(user);
    Tally tally = handled.tally;
    for (std::size_t i = 0; i < count; ++i) {
        tally.see(slipring_message_payload(&messages[i]));
        if (tally.count == handled.messages)
            handled.done.store(true, std::memory_order_release);
    }
    handled.tally = tally;
    return SLIPRING_SUCCESS;
}

// What a thread that fills a queue and the handler that empties it have agreed on. The handler waits
// at the first message of a round until all of them are there.
struct Rounds {
    Tally tally;
    Clock::time_point began;
    std::uint64_t took_ns = 0;
    std::atomic<std::uint64_t> filled{0}, drained{0};

    // A message that is the one after those in `tally`.
    void see(Tally &seen, const slipring_message &message) {
        if (seen.count % capacity == 0)
            begin(seen.count);
        seen.see(slipring_message_payload(&message));
        if (seen.count % capacity == 0)
            end(seen);
    }
    __attribute__((cold, noinline)) void begin(std::uint64_t so_many) {
        while (filled.load(std::memory_order_acquire) <= so_many)
            sched_yield();
        began = Clock::now();
    }
    __attribute__((cold, noinline)) void end(Tally seen) {
        took_ns += ns_between(began, Clock::now());
        // In each round the payloads have the same numbers.
        seen.expect(capacity, seen.count / capacity);
        drained.store(seen.count, std::memory_order_release);
    }
    void fill_and_wait(std::uint64_t so_many) {
        filled.store(so_many, std::memory_order_release);
        while (drained.load(std::memory_order_acquire) < so_many)
            sched_yield();
    }
};

static std::int32_t drain_each(void *user, const slipring_message *message) {
    auto &rounds = *static_cast<Rounds *>(user);
    rounds.see(rounds.tally, *message);
    return SLIPRING_SUCCESS;
}

static std::int32_t drain(void *user, const slipring_message *messages, std::size_t count,
                          std::int32_t *) {
    auto &rounds = *static_cast<Rounds *>(user);
    Tally tally = rounds.tally;
    for (std::size_t i = 0; i < count; ++i)
        rounds.see(tally, messages[i]);
    rounds.tally = tally;
    return SLIPRING_SUCCESS;
}

// A broker with one worker, on the processor that is the `cpu`-th that is allowed.
static slipring::Broker broker_with_worker(std::uint32_t cpu) {
    return slipring::Broker::open(
        slipring::BrokerOptions().memory_budget(1 << 20).workers(1).pin_workers(cpu));
}

// A handler of either kind: `Handler` is its struct, which `begin` takes.
template <class Handler, class Function, class Begin>
static slipring_handler_subscription *subscribe(const slipring::Broker &owner, Function function,
                                                void *user, Begin begin) {
    slipring_subscription_options options = {};
    must(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.capacity_messages = capacity;
    options.overflow = SLIPRING_BLOCK;
    options.wait = SLIPRING_WAIT_BUSY_SPIN;
    slipring_handler_subscription *sub = nullptr;
    Handler handler = {};
    handler.handle = function;
    handler.user = user;
    must(begin(owner.raw(), SLIPRING_TEXT("bench/*"), &options, &handler, &sub));
    return sub;
}

static slipring_handler_subscription *
subscribe(const slipring::Broker &owner, slipring_batch_handler_fn function, void *user) {
    return subscribe<slipring_batch_handler>(owner, function, user,
                                             slipring_broker_subscribe_batch_handler);
}

static slipring_handler_subscription *
subscribe(const slipring::Broker &owner, slipring_handler_fn function, void *user) {
    return subscribe<slipring_handler>(owner, function, user, slipring_broker_subscribe_handler);
}

extern "C" {

// The C ABI on one thread: fills the queue, `batch` messages a call, empties it by polls, and so on.
// Times of both sides, in nanoseconds.
void native_boundary(std::uint64_t messages, std::size_t batch, std::uint64_t *publish_ns,
                     std::uint64_t *poll_ns) {
    auto owner = broker();
    slipring_topic *topic = nullptr;
    auto sub = slipring_subscription_options();
    slipring_subscription *raw = nullptr;
    must(slipring_subscription_options_init(&sub, sizeof sub));
    sub.delivery = SLIPRING_AT_MOST_ONCE;
    sub.capacity_messages = capacity;
    sub.overflow = SLIPRING_BLOCK;
    must(slipring_broker_subscribe(owner.raw(), SLIPRING_TEXT("bench/*"), &sub, &raw));
    must(slipring_broker_topic(owner.raw(), SLIPRING_TEXT("bench/topic"), &topic));
    std::vector<Payload> payloads(batch);
    std::vector<slipring_new_message> all(batch, slipring_new_message());
    for (std::size_t i = 0; i < batch; ++i) {
        all[i].payload = payloads[i].bytes;
        all[i].payload_len = payload_len;
    }
    Tally tally;
    *publish_ns = *poll_ns = 0;
    std::uint64_t next = 0;
    while (next < messages) {
        auto began = Clock::now();
        for (std::size_t filled = 0; filled < capacity; filled += batch) {
            for (std::size_t i = 0; i < batch; ++i)
                stamp(payloads[i].bytes, next++);
            if (batch == 1)
                must(slipring_topic_publish(topic, payloads[0].bytes, payload_len, nullptr));
            else
                must(slipring_topic_publish_batch(topic, all.data(), batch, nullptr));
        }
        auto full = Clock::now();
        for (std::size_t taken = 0, count = 0; taken < capacity; taken += count)
            must(slipring_subscription_poll(raw, 256, see, &tally, &count));
        *publish_ns += ns_between(began, full);
        *poll_ns += ns_between(full, Clock::now());
    }
    tally.expect(next, 1);
    slipring_subscription_free(&raw);
    slipring_topic_free(&topic);
}

// A handler on the processor of the calling thread, which fills its queue: the time that it takes to
// empty it. With a `batch` of 1 it is called with each message.
std::uint64_t native_drain_by_handler(std::uint64_t messages, std::size_t batch) {
    auto owner = broker_with_worker(0);
    auto topic = owner.topic("bench/topic");
    Rounds rounds;
    auto *sub = batch == 1 ? subscribe(owner, drain_each, &rounds) : subscribe(owner, drain, &rounds);
    std::vector<Payload> payloads(64);
    std::vector<slipring::NewMessage> all;
    for (const auto &payload : payloads)
        all.emplace_back(slipring::Bytes(payload.bytes, payload_len));
    for (std::uint64_t filled = 0; filled < messages;) {
        for (std::uint64_t next = 0; next < capacity;) {
            for (auto &payload : payloads)
                stamp(payload.bytes, next++);
            topic.publish_batch(all);
        }
        rounds.fill_and_wait(filled += capacity);
    }
    slipring_handler_subscription_free(&sub);
    return rounds.took_ns;
}

// One publisher, a handler on another processor; batches of 64 for both.
std::uint64_t native_to_handler(std::uint64_t messages, Processors at) {
    auto owner = broker_with_worker(1);
    auto topic = owner.topic("bench/topic");
    Handled handled{messages, {}};
    auto *sub = subscribe(owner, handle, &handled);
    std::uint64_t took = 0;
    std::thread producer([&] {
        pin(at.producer);
        std::vector<Payload> payloads(64);
        std::vector<slipring::NewMessage> batch;
        for (const auto &payload : payloads)
            batch.emplace_back(slipring::Bytes(payload.bytes, payload_len));
        auto began = Clock::now();
        for (std::uint64_t next = 0; next < messages;) {
            for (auto &payload : payloads)
                stamp(payload.bytes, next++);
            topic.publish_batch(batch);
        }
        while (!handled.done.load(std::memory_order_acquire)) {
        }
        took = ns_between(began, Clock::now());
    });
    producer.join();
    slipring_handler_subscription_free(&sub);
    handled.tally.expect(messages, 1);
    return took;
}

// One publisher, `subscribers` drained by one thread, in C++; `batch` messages a publish.
std::uint64_t native_fan_out(std::uint64_t messages, std::size_t subscribers, std::size_t batch,
                             Processors at) {
    auto owner = broker();
    auto topic = owner.topic("bench/topic");
    std::vector<slipring::Subscription> subs;
    for (std::size_t i = 0; i < subscribers; ++i)
        subs.push_back(owner.subscribe("bench/*", lossless()));
    std::vector<Payload> payloads(batch);
    std::vector<slipring::NewMessage> all;
    for (const auto &payload : payloads)
        all.emplace_back(slipring::Bytes(payload.bytes, payload_len));
    Tally tally;
    auto took = pair(
        at,
        [&] {
            for (std::uint64_t next = 0; next < messages;) {
                for (auto &payload : payloads)
                    stamp(payload.bytes, next++);
                if (batch == 1)
                    topic.publish(slipring::Bytes(payloads[0].bytes, payload_len));
                else
                    topic.publish_batch(all);
            }
        },
        [&] {
            slipring::Idle idle(slipring::Wait::busy_spin);
            while (tally.count < messages * subscribers) {
                std::size_t found = 0;
                for (auto &sub : subs)
                    found += sub.poll_batches(burst,
                                              [&](slipring::Span<const slipring::Message> batch) {
                                                  Tally so_far = tally;
                                                  for (const auto &message : batch)
                                                      so_far.see(message.payload().data());
                                                  tally = so_far;
                                              })
                                 .size();
                idle.rest(found);
            }
        });
    tally.expect(messages, subscribers);
    return took;
}

} // extern "C"
