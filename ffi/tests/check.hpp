// What the tests in C++ share.
#ifndef CHECK_HPP
#define CHECK_HPP

#include "slipring.hpp"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);        \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

// Number that threads raise and wait for.
class Counter {
  public:
    void add(int more = 1) {
        std::lock_guard<std::mutex> lock(mutex_);
        value_ += more;
        changed_.notify_all();
    }
    void wait_for(int value) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return value_ >= value; });
    }
    int value() {
        std::lock_guard<std::mutex> lock(mutex_);
        return value_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int value_ = 0;
};

static inline slipring::SubscriptionOptions at_most_once() {
    return slipring::SubscriptionOptions().delivery(slipring::Delivery::at_most_once);
}

inline int finish(const char *name) {
    std::printf("%s: ok\n", name);
    return 0;
}

#endif
