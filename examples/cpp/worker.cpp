// A worker that sends mails, and loses none: jobs are acknowledged when they are done.
//
//     c++ -std=c++17 -Iinclude examples/cpp/worker.cpp -Ltarget/release -lslipring -lpthread -o worker
//     LD_LIBRARY_PATH=target/release ./worker [directory]
//
// The subscription has a name, so the jobs are there when the worker is not; with a directory, also
// when the broker is not. The first worker stops in the middle of its work, and the next one gets
// what that had taken and not settled. A mail server that is busy is asked again later; a job that
// can never be done goes to the dead letters, where somebody looks at it, mends the address, and
// sends it back.
#include "slipring.hpp"

#include <array>
#include <iostream>
#include <string>
#include <vector>

using namespace slipring;
using namespace std::chrono_literals;

constexpr unsigned number_of_jobs = 40;

// ---- The mail server, as far as this example knows one ----

enum Answer { sent, busy, no_address };

// Some servers are busy at first. An address without a domain is one only when somebody has put the
// domain into the book.
static Answer send_mail(const Message &job, bool book_has_domain) {
    auto to = job.payload().text();
    if (to.find('@') == to.npos && !book_has_domain)
        return no_address;
    return to.find("busy") != to.npos && job.attempt() == 1 ? busy : sent;
}

// ---- The worker ----

class Worker {
  public:
    // Takes the place of whoever was the worker before.
    explicit Worker(const Broker &broker)
        : jobs_(broker.subscribe("jobs/mail", SubscriptionOptions()
                                                  .delivery(Delivery::at_least_once)
                                                  .name("mailer")
                                                  .take_over()
                                                  // Longer than a batch takes.
                                                  .visibility_timeout(60s)
                                                  .backoff(10ms, 60s))) {}

    // Takes some jobs.
    Batch take() { return jobs_.recv_batch(8); }

    // Does some, and says what became of them: three calls for all of them together.
    void do_some() {
        std::array<std::vector<Message>, 3> by_answer;
        for (Message job : take()) {
            by_answer[send_mail(job, book_has_domain)].push_back(job);
            again += job.attempt() > 1;
        }
        ack(by_answer[sent]);
        nack(by_answer[busy]);
        dead_letter(by_answer[no_address], "no such address");
        done += by_answer[sent].size();
        delayed += by_answer[busy].size();
        given_up += by_answer[no_address].size();
    }

    bool book_has_domain = false;
    std::size_t done = 0, delayed = 0, given_up = 0, again = 0;

  private:
    Subscription jobs_;
};

// ---- Who looks at dead letters ----

static void print_letters(const DeadLetters &dead_letters) {
    for (Message letter : dead_letters.list())
        std::cout << "dead letter: " << *letter.attribute(SLIPRING_DEAD_LETTER_TOPIC) << " to "
                  << letter.payload().text() << ": "
                  << *letter.attribute(SLIPRING_DEAD_LETTER_REASON) << ", attempts: "
                  << *letter.attribute(SLIPRING_DEAD_LETTER_ATTEMPTS) << '\n';
}

int main(int argc, char **argv) {
    BrokerOptions options;
    if (argc > 1)
        options.dir(argv[1]);
    std::optional<Broker> broker = Broker::open(options);
    std::optional<Worker> first(*broker);
    for (unsigned number = 1; number <= number_of_jobs; ++number)
        broker->publish("jobs/mail", (number % 7 == 0 ? "busy-" : "customer-") +
                                         std::to_string(number) +
                                         (number % 20 == 0 ? "" : "@example.org"));

    first->do_some();
    const std::size_t done_before = first->done;
    std::cout << "the first worker: " << done_before << " sent, " << first->delayed << " delayed, ";
    // It takes some more, and is gone before it has said what became of them.
    std::cout << "gone with " << first->take().size() << '\n';
    first.reset();
    if (argc > 1) { // So is the program, for all that matters.
        broker.reset();
        broker = Broker::open(options);
    }

    Worker second(*broker);
    while (done_before + second.done + second.given_up < number_of_jobs)
        second.do_some();
    std::cout << "the second worker: " << second.done << " sent, " << second.delayed
              << " delayed, " << second.given_up << " given up, " << second.again
              << " not for the first time\n";

    auto dead_letters = broker->dead_letters("$dlq/mailer");
    print_letters(dead_letters);
    second.book_has_domain = true;
    auto sent_back = dead_letters.redrive_all();
    while (done_before + second.done < number_of_jobs)
        second.do_some();
    std::cout << "sent back: " << sent_back << ", sent in all: " << done_before + second.done
              << '\n';
}
