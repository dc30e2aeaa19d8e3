// A month of departures, published by two threads to six subscriptions at once.
//
//     c++ -std=c++17 -Iinclude examples/cpp/flights.cpp -Ltarget/release -lslipring -lpthread -o flights
//     LD_LIBRARY_PATH=target/release ./flights
//
// | subscription | what it shows                                                |
// |--------------|--------------------------------------------------------------|
// | jfk          | a handler on a pattern                                       |
// | cancelled    | a handler with a filter                                      |
// | one-topic    | a consumer that pulls, on the topic of the first line        |
// | board        | a slow consumer that wants only the newest                   |
// | on-time      | a handler that throws on departures more than two hours late |
// | late         | one that comes when all is over, and asks for the last 100   |
//
// The whole input is read first, so that the table tells of the broker and not of JSON.
#include "../c/json.h"
#include "slipring.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>

using namespace slipring;
using namespace std::chrono_literals;
using Clock = std::chrono::system_clock;

constexpr std::size_t publishers = 2;
constexpr std::size_t board_lines = 32;
constexpr auto board_period = 16ms;
constexpr long late_by_minutes = 120;

// What one subscription got, counted where it got it.
class Row {
  public:
    explicit Row(const char *name) : name_(name) {}

    void got(const Message &message) {
        std::lock_guard<std::mutex> lock(mutex_);
        ++delivered_;
        last_ = Clock::now();
        if (message.published() >= since_)
            latencies_.push_back(std::max(last_ - message.published(), Clock::duration::zero()));
    }
    void lost(std::uint64_t count, const char *because) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (count > 0)
            because_ = because;
        dropped_ += count;
    }
    void failed() {
        std::lock_guard<std::mutex> lock(mutex_);
        ++failed_;
    }

    static void print_head() {
        std::printf("%-12s %8s %9s %8s %-8s %7s %8s %8s %10s\n", "subscription", "matched",
                    "delivered", "dropped", "because", "failed", "p50 us", "p99 us", "messages/s");
    }
    void print() {
        std::sort(latencies_.begin(), latencies_.end());
        std::chrono::duration<double> took = std::max<Clock::duration>(last_ - since_, 1us);
        std::printf("%-12s %8" PRIu64 " %9" PRIu64 " %8" PRIu64 " %-8s %7" PRIu64
                    " %8s %8s %10.0f\n",
                    name_, delivered_ + dropped_, delivered_, dropped_, because_, failed_,
                    latency(50).c_str(), latency(99).c_str(),
                    static_cast<double>(delivered_) / took.count());
    }

  private:
    // The latency that `percent` of the messages did not exceed.
    std::string latency(std::size_t percent) const {
        std::size_t rank = (latencies_.size() * percent + 99) / 100;
        if (rank == 0)
            return "-";
        auto us = std::chrono::duration_cast<std::chrono::microseconds>(latencies_[rank - 1]);
        return std::to_string(us.count());
    }

    std::mutex mutex_;
    const char *name_, *because_ = "-";
    std::uint64_t delivered_ = 0, dropped_ = 0, failed_ = 0;
    // Of messages that were published after the subscription began.
    std::vector<Clock::duration> latencies_;
    Clock::time_point since_ = Clock::now(), last_ = since_;
};

// ---- The input -------------------------------------------------------------------------------

// A line of the input, ready to be published. The texts are those of the file.
struct Flight {
    std::size_t line;
    Topic topic;
    std::optional<std::string_view> key;
    std::vector<Attribute> attributes;
    std::string_view payload;
};

struct Input {
    std::vector<char> text;
    std::vector<Flight> flights;
    std::uint64_t bad_lines = 0;
};

static std::string_view view(json_slice text) { return {text.data, text.len}; }

// Calls `member(name)` for each member of an object; it reads the value.
template <class F> static void each_member(json &in, F &&member) {
    json_slice name;
    int first = 1, more;
    while ((more = json_member(&in, &name, &first)) > 0)
        member(view(name));
    if (more < 0)
        throw std::runtime_error("not JSON");
}

static std::string_view read_text(json &in, const char *what) {
    json_slice text;
    if (!json_string(&in, &text))
        throw std::runtime_error(std::string(what) + " is not text");
    return view(text);
}

static std::string_view read_value(json &in) {
    json_slice value;
    if (!json_value(&in, &value))
        throw std::runtime_error("not JSON");
    return view(value);
}

static Flight read_flight(const Broker &broker, std::size_t line, json in) {
    std::optional<std::string_view> topic, key, payload;
    std::vector<Attribute> attributes;
    each_member(in, [&](std::string_view name) {
        if (name == "topic") {
            topic = read_text(in, "\"topic\"");
        } else if (name == "attributes") {
            each_member(in, [&](std::string_view attribute) {
                attributes.emplace_back(attribute, read_text(in, "an attribute"));
            });
        } else if (name == "key") {
            json rest = in;
            if (read_value(rest) == "null")
                in = rest;
            else
                key = read_text(in, "\"key\"");
        } else {
            std::string_view value = read_value(in);
            if (name == "payload")
                payload = value;
        }
    });
    if (!topic || !payload)
        throw std::runtime_error("no \"topic\" or no \"payload\"");
    return Flight{line, broker.topic(*topic), key, std::move(attributes), *payload};
}

static void name_bad_line(std::size_t line, const char *reason) {
    std::cerr << "flights: line " << line << ": " << reason << '\n';
}

// Reads all flights. A line that cannot be used is named, and left out.
static Input read_input(const Broker &broker, std::istream &file) {
    Input input;
    input.text.assign(std::istreambuf_iterator<char>(file), {});
    char *at = input.text.data(), *end = at + input.text.size();
    for (std::size_t line = 1; at < end; ++line) {
        char *next = std::find(at, end, '\n');
        if (std::string_view(at, static_cast<std::size_t>(next - at)).find_first_not_of(" \t\r") !=
            std::string_view::npos) {
            try {
                input.flights.push_back(read_flight(broker, line, json{at, next}));
            } catch (const std::runtime_error &error) {
                name_bad_line(line, error.what());
                ++input.bad_lines;
            }
        }
        at = next + 1;
    }
    return input;
}

// ---- Consumers -------------------------------------------------------------------------------

// Receives until the broker closes, waiting for each message.
static void receive_all(Subscription sub, Row &row) {
    for (const auto &message : sub)
        row.got(message);
    row.lost(sub.lost(), "expired");
}

// Takes what is queued once in a period, as a board of departures would that is drawn anew: what
// has not been shown by then and does not fit is of no interest any more.
static void show_newest(Subscription sub, Row &row) {
    for (;;) {
        auto polled = sub.poll(board_lines, [&](const Message &message) { row.got(message); });
        row.lost(polled.lost(), "overflow");
        if (polled.ended())
            return;
        std::this_thread::sleep_for(board_period);
    }
}

// Throws on a departure that was late, or that cannot be read.
static void expect_on_time(const Message &message) {
    std::string text(message.payload().text());
    json in = {text.data(), text.data() + text.size()};
    each_member(in, [&](std::string_view name) {
        std::string_view value = read_value(in);
        if (name != "delay" || value == "null")
            return;
        long minutes = std::stol(std::string(value));
        if (minutes > late_by_minutes)
            throw std::runtime_error(std::to_string(minutes) + " minutes late");
    });
}

// ---- Publishers ------------------------------------------------------------------------------

struct Published {
    std::uint64_t messages = 0, matched = 0, dropped = 0, bad_lines = 0;
};

// Publishes a share. Each topic is in one share, so that its flights keep their order.
static Published publish(const Input &input, std::size_t share) {
    Published published;
    for (const auto &flight : input.flights) {
        if (std::hash<std::string_view>()(flight.topic.name()) % publishers != share)
            continue;
        auto message = NewMessage(flight.payload).attributes(flight.attributes);
        if (flight.key)
            message.key(*flight.key);
        try {
            Receipt receipt = flight.topic.publish(message);
            ++published.messages;
            published.matched += receipt.matched;
            published.dropped += receipt.dropped;
        } catch (const Error &error) {
            if (error.status() != Status::invalid_message)
                throw;
            name_bad_line(flight.line, error.what());
            ++published.bad_lines;
        }
    }
    return published;
}

static void run(std::istream &file) {
    auto broker = Broker::open();
    const Input input = read_input(broker, file);
    std::deque<Row> rows;
    auto add_row = [&](const char *name) -> Row & { return rows.emplace_back(name); };
    // Publishers wait for a subscription that is behind: it misses nothing.
    const auto once = SubscriptionOptions().delivery(Delivery::at_most_once);
    const auto lossless = SubscriptionOptions(once).overflow(Overflow::block());

    auto &jfk_row = add_row("jfk");
    auto jfk = broker.subscribe("flights/JFK/*/*", lossless,
                                [&](const Message &message) { jfk_row.got(message); });

    auto &cancelled_row = add_row("cancelled");
    auto cancelled = broker.subscribe(
        "flights/**", SubscriptionOptions(lossless).filter(Filter::equals("status", "cancelled")),
        [&](const Message &message) { cancelled_row.got(message); });

    auto &one_topic_row = add_row("one-topic");
    auto first = input.flights.empty() ? "flights/JFK/LAX/UA" : input.flights[0].topic.name();
    std::thread one_topic(
        [&, sub = broker.subscribe(first, lossless)]() mutable {
            receive_all(std::move(sub), one_topic_row);
        });

    auto &board_row = add_row("board");
    auto newest = SubscriptionOptions(once).capacity(board_lines).overflow(Overflow::drop_oldest());
    std::thread board([&, sub = broker.subscribe("**", newest)]() mutable {
        show_newest(std::move(sub), board_row);
    });

    auto &on_time_row = add_row("on-time");
    auto on_time = broker.subscribe(
        "**", SubscriptionOptions(lossless).on_failure([&](const Failure &) { on_time_row.failed(); }),
        [&](const Message &message) {
            on_time_row.got(message);
            expect_on_time(message);
        });

    auto began = std::chrono::steady_clock::now();
    std::array<Published, publishers> parts;
    std::vector<std::thread> threads;
    for (std::size_t share = 0; share < publishers; ++share)
        threads.emplace_back([&, share] { parts[share] = publish(input, share); });
    for (auto &thread : threads)
        thread.join();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;

    auto &late_row = add_row("late");
    auto late = broker.subscribe("**", SubscriptionOptions(once).start(Start::last(100)));

    // Handlers finish what is queued; consumers that pull get it, and then the stream ends.
    CloseReport left = broker.close(60s);
    receive_all(std::move(late), late_row);
    one_topic.join();
    board.join();
    if (left.unhandled > 0)
        std::cerr << "flights: " << left.unhandled << " messages were not handled in time\n";

    Row::print_head();
    for (auto &row : rows)
        row.print();
    Published all;
    for (const auto &part : parts) {
        all.messages += part.messages;
        all.matched += part.matched;
        all.dropped += part.dropped;
        all.bad_lines += part.bad_lines;
    }
    std::printf("\npublished %" PRIu64 " in %.1f ms: %.0f messages/s\n", all.messages,
                took.count() * 1e3, static_cast<double>(all.messages) / took.count());
    std::printf("receipts: matched %" PRIu64 ", dropped %" PRIu64 "\nbad lines: %" PRIu64 "\n",
                all.matched, all.dropped, all.bad_lines + input.bad_lines);
}

int main(int argc, char **argv) {
    std::string path = "examples/data/flights-2013-01.ndjson";
    if (argc == 3 && std::string_view(argv[1]) == "--file") {
        path = argv[2];
    } else if (argc != 1) {
        std::cerr << "usage: flights [--file PATH]   ('-' for the standard input)\n";
        return 2;
    }
    try {
        std::ifstream file;
        if (path != "-") {
            file.open(path, std::ios::binary);
            if (!file)
                throw std::runtime_error(path + ": cannot be read");
        }
        run(path == "-" ? std::cin : file);
    } catch (const std::exception &error) {
        std::cerr << "flights: " << error.what() << '\n';
        return 1;
    }
}
