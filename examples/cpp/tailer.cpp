// Follows a log with epoll: one thread reads lines and publishes each to a topic by its level, an
// event loop prints what is worth it.
//
//     c++ -std=c++17 -Iinclude examples/cpp/tailer.cpp -Ltarget/release -lslipring -lpthread -o tailer
//     LD_LIBRARY_PATH=target/release ./tailer < /var/log/some.log
//
// A line is `LEVEL text`; the loop wants `log/WARN`, `log/ERROR` and nothing of the rest.
#include "slipring.hpp"

#include <cerrno>
#include <iostream>
#include <string>
#include <sys/epoll.h>
#include <system_error>
#include <thread>
#include <unistd.h>

using namespace slipring;

// Publishes the lines of standard input, and closes the broker behind the last.
static void read_lines(const Broker &broker) {
    std::string line;
    while (std::getline(std::cin, line)) {
        std::string level = line.substr(0, line.find(' '));
        if (level.empty())
            continue;
        try {
            broker.publish("log/" + level, line);
        } catch (const Error &error) { // A line that begins with what is no topic.
            std::cerr << "skipped: " << error.what() << '\n';
        }
    }
    broker.close();
}

static int checked(int result, const char *what) {
    if (result < 0)
        throw std::system_error(errno, std::generic_category(), what);
    return result;
}

int main() {
    auto broker = Broker::open();
    auto alarms = broker.subscribe("log/WARN", SubscriptionOptions()
                                                   .pattern("log/ERROR")
                                                   .delivery(Delivery::at_most_once)
                                                   .overflow(Overflow::drop_oldest()));

    int epoll = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    epoll_event event = {};
    event.events = EPOLLIN;
    checked(epoll_ctl(epoll, EPOLL_CTL_ADD, alarms.event_fd(), &event), "epoll_ctl");

    std::thread reader([&] { read_lines(broker); });
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
            checked(-1, "epoll_wait");
        // Level-triggered: one batch at a time, and back to the loop.
        auto batch = alarms.try_recv_batch(64);
        for (Message message : batch)
            std::cout << message.payload().text() << '\n';
        if (batch.ended())
            break;
    }
    reader.join();
    std::cout << alarms.lost() << " lines lost\n";
    close(epoll);
}
