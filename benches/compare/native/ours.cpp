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
    for (std::size_t i = 0; i < count; ++i)
        static_cast<Tally *>(user)->see(slipring_message_payload(&messages[i]));
}

// What the handler has seen, and whether that is all.
struct Handled {
    std::uint64_t messages;
    Tally tally;
    std::atomic<bool> done{false};
};

static std::int32_t handle(void *user, const slipring_message *message) {
    auto &handled = *static_cast<Handled *>(user);
    handled.tally.see(slipring_message_payload(message));
    if (handled.tally.count == handled.messages)
        handled.done.store(true, std::memory_order_release);
    return 0;
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

// One publisher, a handler; batches of 64.
std::uint64_t native_to_handler(std::uint64_t messages, Processors at) {
    auto owner = broker();
    auto topic = owner.topic("bench/topic");
    Handled handled{messages, {}};
    slipring_handler handler = {};
    slipring_handler_subscription *sub = nullptr;
    slipring_subscription_options options = {};
    must(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.capacity_messages = capacity;
    options.overflow = SLIPRING_BLOCK;
    options.wait = SLIPRING_WAIT_BUSY_SPIN;
    handler.handle = handle;
    handler.user = &handled;
    must(slipring_broker_subscribe_handler(owner.raw(), SLIPRING_TEXT("bench/*"), &options, &handler,
                                           &sub));
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

// One publisher, `subscribers` drained by one thread, one message at a time, in C++.
std::uint64_t native_fan_out(std::uint64_t messages, std::size_t subscribers, Processors at) {
    auto owner = broker();
    auto topic = owner.topic("bench/topic");
    std::vector<slipring::Subscription> subs;
    for (std::size_t i = 0; i < subscribers; ++i)
        subs.push_back(owner.subscribe("bench/*", lossless()));
    Tally tally;
    auto took = pair(
        at,
        [&] {
            Payload payload;
            for (std::uint64_t next = 0; next < messages; ++next) {
                stamp(payload.bytes, next);
                topic.publish(slipring::Bytes(payload.bytes, payload_len));
            }
        },
        [&] {
            slipring::Idle idle(slipring::Wait::busy_spin);
            while (tally.count < messages * subscribers) {
                std::size_t found = 0;
                for (auto &sub : subs)
                    found += sub.poll(burst,
                                      [&](const slipring::Message &message) {
                                          tally.see(message.payload().data());
                                      })
                                 .size();
                idle.rest(found);
            }
        });
    tally.expect(messages, subscribers);
    return took;
}

} // extern "C"
