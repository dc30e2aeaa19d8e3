// What the contenders in C and C++ share: the payload, the two threads, the check of what arrived.
#ifndef HARNESS_HPP
#define HARNESS_HPP

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <thread>

namespace harness {

constexpr std::size_t payload_len = 64;
constexpr std::size_t capacity = 1024;
// How many messages a consumer takes from one of several queues before it goes on to the next.
constexpr std::size_t burst = 64;

// The processors of the two threads.
struct Processors {
    int producer, consumer;
};

struct Payload {
    unsigned char bytes[payload_len] = {};
};

// The number at one end of a payload, its complement at the other.
inline void stamp(unsigned char *bytes, std::uint64_t number) {
    std::uint64_t complement = ~number;
    std::memcpy(bytes, &number, 8);
    std::memcpy(bytes + payload_len - 8, &complement, 8);
}

[[noreturn]] inline void fail(const char *why) {
    std::fprintf(stderr, "native contender: %s\n", why);
    std::abort();
}

// What a consumer has seen; a torn message spoils the sum.
struct Tally {
    std::uint64_t count = 0, sum = 0;

    void see(const void *payload) {
        const auto *bytes = static_cast<const unsigned char *>(payload);
        std::uint64_t number, complement;
        std::memcpy(&number, bytes, 8);
        std::memcpy(&complement, bytes + payload_len - 8, 8);
        sum += number == ~complement ? number : UINT64_MAX / 3;
        ++count;
    }
    // Whether each of `messages` was seen `copies` times.
    void expect(std::uint64_t messages, std::uint64_t copies) const {
        if (count != messages * copies || sum != messages * (messages - 1) / 2 * copies)
            fail("messages were lost, doubled or torn");
    }
};

inline void pin(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        fail("cannot pin a thread");
}

using Clock = std::chrono::steady_clock;

inline std::uint64_t ns_between(Clock::time_point from, Clock::time_point to) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

// Runs both on their processors: from the producer's first message to the consumer's last.
template <class P, class C> std::uint64_t pair(Processors at, P &&produce, C &&consume) {
    std::atomic<int> ready{0};
    auto meet = [&] {
        ++ready;
        while (ready < 2) {
        }
    };
    Clock::time_point began, ended;
    std::thread consumer([&] {
        pin(at.consumer);
        meet();
        consume();
        ended = Clock::now();
    });
    std::thread producer([&] {
        pin(at.producer);
        meet();
        began = Clock::now();
        produce();
    });
    producer.join();
    consumer.join();
    return ns_between(began, ended);
}

} // namespace harness

#endif
