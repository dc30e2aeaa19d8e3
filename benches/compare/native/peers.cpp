// The peers in C and C++: one publisher, several queues drained by one thread, nothing lost. The
// payload is shared by a count where the peer does not do that itself.
#include "harness.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#ifdef HAVE_ZMQ
#include <zmq.h>
#endif
#ifdef HAVE_BOOST
#include <boost/lockfree/spsc_queue.hpp>
#endif

using namespace harness;
using Shared = std::shared_ptr<const Payload>;

static Shared shared(std::uint64_t number) {
    auto payload = std::make_shared<Payload>();
    stamp(payload->bytes, number);
    return payload;
}

namespace {

// A bounded queue as one writes it in an afternoon.
class Queue {
  public:
    void push(Shared message) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return queue_.size() < capacity; });
        queue_.push_back(std::move(message));
        changed_.notify_all();
    }
    bool try_pop(Shared &message) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (queue_.empty())
            return false;
        message = std::move(queue_.front());
        queue_.pop_front();
        changed_.notify_all();
        return true;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Shared> queue_;
};

} // namespace

// `push` puts a message into one queue, and waits for room; `pop` takes one if there is one.
template <class Q, class Push, class Pop>
static std::uint64_t through(std::vector<Q> &queues, std::uint64_t messages, Processors at,
                             Push &&push, Pop &&pop) {
    Tally tally;
    auto took = pair(
        at,
        [&] {
            for (std::uint64_t next = 0; next < messages; ++next) {
                Shared message = shared(next);
                for (auto &queue : queues)
                    push(*queue, message);
            }
        },
        [&] {
            Shared message;
            while (tally.count < messages * queues.size())
                for (auto &queue : queues)
                    for (std::size_t i = 0; i < burst && pop(*queue, message); ++i)
                        tally.see(message->bytes);
        });
    tally.expect(messages, queues.size());
    return took;
}

extern "C" {

std::uint64_t native_mutex_fan_out(std::uint64_t messages, std::size_t subscribers, Processors at) {
    std::vector<std::unique_ptr<Queue>> queues;
    for (std::size_t i = 0; i < subscribers; ++i)
        queues.push_back(std::make_unique<Queue>());
    return through(
        queues, messages, at, [](Queue &queue, const Shared &message) { queue.push(message); },
        [](Queue &queue, Shared &message) { return queue.try_pop(message); });
}

#ifdef HAVE_BOOST
std::uint64_t native_boost_fan_out(std::uint64_t messages, std::size_t subscribers, Processors at) {
    using Ring = boost::lockfree::spsc_queue<Shared, boost::lockfree::capacity<capacity>>;
    std::vector<std::unique_ptr<Ring>> queues;
    for (std::size_t i = 0; i < subscribers; ++i)
        queues.push_back(std::make_unique<Ring>());
    return through(
        queues, messages, at,
        [](Ring &ring, const Shared &message) {
            while (!ring.push(message)) {
            }
        },
        [](Ring &ring, Shared &message) { return ring.pop(message); });
}

// The same, `batch` messages a call on both sides.
std::uint64_t native_boost_batches(std::uint64_t messages, std::size_t subscribers,
                                   std::size_t batch, Processors at) {
    using Ring = boost::lockfree::spsc_queue<Shared, boost::lockfree::capacity<capacity>>;
    std::vector<std::unique_ptr<Ring>> rings;
    for (std::size_t i = 0; i < subscribers; ++i)
        rings.push_back(std::make_unique<Ring>());
    Tally tally;
    auto took = pair(
        at,
        [&] {
            std::vector<Shared> all(batch);
            for (std::uint64_t next = 0; next < messages;) {
                for (auto &message : all)
                    message = shared(next++);
                for (auto &ring : rings)
                    for (std::size_t pushed = 0; pushed < batch;)
                        pushed += ring->push(all.data() + pushed, batch - pushed);
            }
        },
        [&] {
            std::vector<Shared> some(burst);
            while (tally.count < messages * subscribers)
                for (auto &ring : rings) {
                    const std::size_t count = ring->pop(some.data(), burst);
                    for (std::size_t i = 0; i < count; ++i)
                        tally.see(some[i]->bytes);
                }
        });
    tally.expect(messages, subscribers);
    return took;
}
#endif

#ifdef HAVE_ZMQ
std::uint64_t native_zmq_fan_out(std::uint64_t messages, std::size_t subscribers, Processors at) {
    void *context = zmq_ctx_new();
    void *publisher = zmq_socket(context, ZMQ_XPUB);
    int room = static_cast<int>(capacity), yes = 1;
    // Without this a publisher drops what finds no room.
    zmq_setsockopt(publisher, ZMQ_XPUB_NODROP, &yes, sizeof yes);
    zmq_setsockopt(publisher, ZMQ_SNDHWM, &room, sizeof room);
    if (zmq_bind(publisher, "inproc://bench") != 0)
        fail(zmq_strerror(zmq_errno()));
    std::vector<void *> sockets;
    for (std::size_t i = 0; i < subscribers; ++i) {
        void *socket = zmq_socket(context, ZMQ_SUB);
        zmq_setsockopt(socket, ZMQ_RCVHWM, &room, sizeof room);
        zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
        if (zmq_connect(socket, "inproc://bench") != 0)
            fail(zmq_strerror(zmq_errno()));
        // The publisher is told of every one, and so knows all before the first message.
        char subscribed[8];
        if (zmq_recv(publisher, subscribed, sizeof subscribed, 0) < 0)
            fail(zmq_strerror(zmq_errno()));
        sockets.push_back(socket);
        yes = 1;
        zmq_setsockopt(publisher, ZMQ_XPUB_VERBOSE, &yes, sizeof yes);
    }
    Tally tally;
    auto took = pair(
        at,
        [&] {
            Payload payload;
            for (std::uint64_t next = 0; next < messages; ++next) {
                stamp(payload.bytes, next);
                if (zmq_send(publisher, payload.bytes, payload_len, 0) < 0)
                    fail(zmq_strerror(zmq_errno()));
            }
        },
        [&] {
            Payload payload;
            while (tally.count < messages * subscribers)
                for (void *socket : sockets)
                    for (std::size_t i = 0; i < burst; ++i) {
                        if (zmq_recv(socket, payload.bytes, payload_len, ZMQ_DONTWAIT) < 0)
                            break;
                        tally.see(payload.bytes);
                    }
        });
    tally.expect(messages, subscribers);
    for (void *socket : sockets)
        zmq_close(socket);
    zmq_close(publisher);
    zmq_ctx_term(context);
    return took;
}
#endif

} // extern "C"
