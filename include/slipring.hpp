// SPDX-License-Identifier: MIT OR Apache-2.0
//
// slipring: the publish/subscribe broker that lives inside your program. C++17, and a header alone:
// it wraps slipring.h, which is beside it, and the program links libslipring.
//
//     #include <slipring.hpp>
//
//     auto broker = slipring::Broker::open();
//     auto scores = broker.subscribe("sports/" "**");
//     broker.publish("sports/cricket/live", "four!");
//     if (auto message = scores.recv())
//         std::cout << message->topic() << ": " << message->payload().text() << '\n';
//
// TOPICS are `a/b/c`; in patterns `*` is one segment and `**` any number, anywhere. Messages come
// in order per partition. Whatever is lost is counted, exactly, and told.
//
// DELIVERY is at least once, or at most once where a subscription asks for that. At least once,
// messages are settled, and come again until they are. A handler settles by what it returns; a
// consumer that pulls says so, of one message or of many at once.
//
//     auto jobs = broker.subscribe("jobs/*", SubscriptionOptions().name("mailer"));
//     for (const auto &job : jobs)
//         if (send(job)) job.ack(); else job.nack();
//
// A message that fails too often goes to the dead letters, in `$dlq/` and the subscription's name:
// Broker::dead_letters. A subscription with a name lives as long as the broker, or its directory,
// and its consumers come and go.
//
// OWNERS are Broker, Topic, Subscription, HandlerSubscription, OwnedMessage, Letters, Acker, Loan,
// Ticket and Deduplicator. They move and are not copied; one that was moved from is only to be assigned to or
// destroyed. They may be destroyed in any order: a subscription outlives its broker, and then
// receives what is queued.
//
// VIEWS are Message, Bytes, Span, DeadLetters and std::string_view: they own nothing. A Message
// says how long it is valid; Message::keep makes it outlive that. Arguments are borrowed for the
// call alone.
//
// ERRORS are thrown as slipring::Error. With SLIPRING_NO_EXCEPTIONS defined, nothing is thrown, the
// header compiles with -fno-exceptions, and each function whose type is Returns<T> gives a
// Result<T> in place of a T. Both kinds of translation units go together in one program. What is no
// error (no message is queued, the time is over, the broker is closed) is told by what a function
// returns.
//
// THREADS. A `const` member function may be called by any number of threads at once, any other one
// by one thread at a time. Functions that can wait say so.
//
// FUNCTIONS that you give (handlers, filters, the function of a poll) may throw; no exception ever
// crosses the library. It says at each of them what then happens. They must not end their thread,
// nor `longjmp` out.
#ifndef SLIPRING_HPP
#define SLIPRING_HPP

#include "slipring.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#ifndef SLIPRING_NO_EXCEPTIONS
#include <exception>
#include <stdexcept>
#endif

#if defined(__cpp_impl_coroutine) && defined(__has_include)
#if __has_include(<coroutine>) && __has_include(<poll.h>)
// Defined where `co_await subscription.next()` is there: C++20.
#define SLIPRING_COROUTINES 1
#include <coroutine>
#include <poll.h>
#endif
#endif

namespace slipring {

// What a program sees of one kind of translation unit has other names than what it sees of the
// other.
#ifdef SLIPRING_NO_EXCEPTIONS
inline namespace results {
#else
inline namespace exceptions {
#endif

// ---- What went wrong, and what did not -------------------------------------------------------

// Outcomes. The positive ones are no errors.
enum class Status : std::int32_t {
    ok = SLIPRING_OK,
    empty = SLIPRING_EMPTY,
    lagged = SLIPRING_LAGGED,
    timeout = SLIPRING_TIMEOUT,
    closed = SLIPRING_CLOSED,
    would_block = SLIPRING_WOULD_BLOCK,
    disconnected = SLIPRING_DISCONNECTED,
    stale = SLIPRING_STALE,
    invalid_argument = SLIPRING_EINVAL,
    not_utf8 = SLIPRING_EUTF8,
    invalid_name = SLIPRING_ENAME,
    invalid_filter = SLIPRING_EFILTER,
    invalid_message = SLIPRING_EMESSAGE,
    no_such_topic = SLIPRING_ENOTOPIC,
    topic_deleted = SLIPRING_EDELETED,
    topic_exists = SLIPRING_EEXIST,
    full = SLIPRING_EFULL,
    no_memory = SLIPRING_ENOMEM,
    inside_filter = SLIPRING_EFILTERING,
    forked = SLIPRING_EFORKED,
    name_in_use = SLIPRING_EINUSE,
    out_of_range = SLIPRING_ERANGE,
    no_thread = SLIPRING_ETHREAD,
    no_descriptor = SLIPRING_ESYSTEM,
    busy = SLIPRING_EBUSY,
    no_such_subscription = SLIPRING_ENOSUBSCRIPTION,
    panic = SLIPRING_EPANIC,
    at_most_once = SLIPRING_EATMOSTONCE,
    not_leased = SLIPRING_ENOTLEASED,
    invalid_ack_id = SLIPRING_EACKID,
    store = SLIPRING_ESTORE,
    locked = SLIPRING_ELOCKED,
    incompatible = SLIPRING_EINCOMPATIBLE,
    damaged = SLIPRING_EDAMAGED,
};

// A status in words; static text.
inline const char *to_string(Status status) noexcept {
    return slipring_status_str(static_cast<std::int32_t>(status));
}

// Version of the library that is linked, to be compared with SLIPRING_VERSION.
inline std::uint32_t version() noexcept { return slipring_version(); }

// An error: its status, its text (`what()`) and, where it is about a place, that place.
class Error
#ifndef SLIPRING_NO_EXCEPTIONS
    : public std::runtime_error
#endif
{
  public:
    // The error of the call that has just returned `status` to this thread.
    explicit Error(Status status)
#ifndef SLIPRING_NO_EXCEPTIONS
        : std::runtime_error(text_of(status)),
#else
        : text_(text_of(status)),
#endif
          status_(status) {
        std::size_t position = slipring_last_error_position();
        if (static_cast<std::int32_t>(status) < 0 && position != SIZE_MAX)
            position_ = position;
    }

    Status status() const noexcept { return status_; }

    // The byte of a text at which it breaks the rules: of a name, a pattern or a filter.
    std::optional<std::size_t> position() const noexcept { return position_; }

#ifdef SLIPRING_NO_EXCEPTIONS
    const char *what() const noexcept { return text_.c_str(); }
#endif

  private:
    static std::string text_of(Status status) {
        if (static_cast<std::int32_t>(status) >= 0)
            return to_string(status);
        std::string text(slipring_last_error(nullptr, 0), '\0');
        slipring_last_error(text.data(), text.size() + 1);
        return text;
    }

#ifdef SLIPRING_NO_EXCEPTIONS
    std::string text_;
#endif
    Status status_;
    std::optional<std::size_t> position_;
};

#ifdef SLIPRING_NO_EXCEPTIONS

// A value, or the error that there is instead.
//
//     auto broker = slipring::Broker::open();
//     if (!broker)
//         return fail(broker.error().what());
//     broker->publish("a", "b");
//
// To ask for what is not there ends the program with a message.
template <class T> class [[nodiscard]] Result {
  public:
    Result(T value) : either_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : either_(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const noexcept { return either_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    T &value() & { return *must(std::get_if<0>(&either_)); }
    const T &value() const & { return *must(std::get_if<0>(&either_)); }
    T &&value() && { return std::move(*must(std::get_if<0>(&either_))); }
    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T &&operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }

    const Error &error() const { return *must(std::get_if<1>(&either_)); }
    // Status::ok where there is a value.
    Status status() const noexcept { return has_value() ? Status::ok : error().status(); }

  private:
    template <class P> static P *must(P *there) {
        if (there == nullptr) {
            std::fputs("slipring::Result: there is none\n", stderr);
            std::abort();
        }
        return there;
    }

    std::variant<T, Error> either_;
};

// Nothing, or an error.
template <> class [[nodiscard]] Result<void> : public Result<std::monostate> {
  public:
    Result() : Result<std::monostate>(std::monostate()) {}
    Result(Error error) : Result<std::monostate>(std::move(error)) {}
};

template <class T> using Returns = Result<T>;

#else

// What a function that can fail returns: a T, an error being thrown. (A Result<T> with
// SLIPRING_NO_EXCEPTIONS.)
template <class T> using Returns = T;

#endif

// ---- Views -----------------------------------------------------------------------------------

// Some Ts that belong to somebody else, one behind the other.
template <class T> class Span {
  public:
    using value_type = std::remove_cv_t<T>;

    constexpr Span() noexcept = default;
    constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t N> constexpr Span(T (&array)[N]) noexcept : data_(array), size_(N) {}
    // Of what has `data()` and `size()`: a vector, an array, a std::span.
    template <class C,
              class = std::enable_if_t<
                  std::is_convertible_v<decltype(std::declval<C &>().data()), T *> &&
                  std::is_convertible_v<decltype(std::declval<C &>().size()), std::size_t>>>
    constexpr Span(C &&container) noexcept : data_(container.data()), size_(container.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t index) const { return data_[index]; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

// Bytes that belong to somebody else. Made of texts too: "four!" has five.
class Bytes : public Span<const std::uint8_t> {
  public:
    constexpr Bytes() noexcept = default;
    constexpr Bytes(const std::uint8_t *data, std::size_t size) noexcept : Span(data, size) {}
    Bytes(const void *data, std::size_t size) noexcept
        : Span(static_cast<const std::uint8_t *>(data), size) {}
    Bytes(std::string_view text) noexcept
        : Bytes(static_cast<const void *>(text.data()), text.size()) {}
    Bytes(const std::string &text) noexcept : Bytes(std::string_view(text)) {}
    Bytes(const char *text) noexcept : Bytes(std::string_view(text)) {}
    constexpr Bytes(Span<const std::uint8_t> bytes) noexcept : Span(bytes) {}
    Bytes(const std::vector<std::uint8_t> &bytes) noexcept : Bytes(bytes.data(), bytes.size()) {}

    // The same bytes, seen as text.
    std::string_view text() const noexcept {
        return std::string_view(reinterpret_cast<const char *>(data()), size());
    }
};

// An attribute of a message: text, borrowed.
class Attribute {
  public:
    Attribute() noexcept : Attribute("", "") {}
    Attribute(std::string_view key, std::string_view value) noexcept
        : raw_{{key.data(), key.size()}, {value.data(), value.size()}} {}

    std::string_view key() const noexcept { return {raw_.key.data, raw_.key.len}; }
    std::string_view value() const noexcept { return {raw_.value.data, raw_.value.len}; }

  private:
    slipring_attribute raw_;
};
static_assert(sizeof(Attribute) == sizeof(slipring_attribute) &&
                  std::is_standard_layout_v<Attribute>,
              "arrays of these cross as arrays of those");

using Receipt = slipring_receipt;            // What became of a published message.
using BatchReceipt = slipring_batch_receipt; // What became of a batch.
using CloseReport = slipring_close_report;   // What closing left.
using Partition = slipring_partition;        // A partition of a topic.
using TopicConfig = slipring_topic_config;   // Settings of a topic.
using Metrics = slipring_metrics;            // Figures of a broker.
using ShardMetrics = slipring_shard_metrics; // Figures of a shard.
using TopicMetrics = slipring_topic_metrics; // Figures of a topic.
using SubscriptionMetrics = slipring_subscription_metrics; // Figures of a subscription.

// Times. `forever` is no limit; what is negative is no time at all.
using Nanoseconds = std::chrono::nanoseconds;
inline constexpr Nanoseconds forever = Nanoseconds::max();

namespace detail {

inline std::uint64_t ns(Nanoseconds time) noexcept {
    if (time == forever)
        return SLIPRING_FOREVER;
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

inline slipring_text_view view(std::string_view text) noexcept {
    // NULL would be "none".
    return {text.data() == nullptr ? "" : text.data(), text.size()};
}

inline std::string_view text(slipring_text_view view) noexcept { return {view.data, view.len}; }

inline Status status(slipring_status status) noexcept { return static_cast<Status>(status); }

template <class T> Returns<T> fail(slipring_status raw) {
#ifdef SLIPRING_NO_EXCEPTIONS
    return Error(status(raw));
#else
    throw Error(status(raw));
#endif
}

// What `make` makes, if the call went well.
template <class T, class F> Returns<T> give(slipring_status raw, F &&make) {
    if (raw != SLIPRING_OK)
        return fail<T>(raw);
    return make();
}

// The same, and nothing where it ended with `none`, which is no error.
template <class T, class F>
Returns<std::optional<T>> give_unless(slipring_status none, slipring_status raw, F &&make) {
    if (raw == none)
        return std::optional<T>();
    return give<std::optional<T>>(raw, [&] { return std::optional<T>(make()); });
}

// What `call` writes, if it goes well.
template <class T, class F> Returns<T> fetch(F &&call) {
    T value = {};
    slipring_status raw = call(&value);
    return give<T>(raw, [&] { return value; });
}

// The same, and nothing where it ends with `none`, which is no error.
template <class T, class F>
Returns<std::optional<T>> fetch_unless(slipring_status none, F &&call) {
    T value = {};
    slipring_status raw = call(&value);
    return give_unless<T>(none, raw, [&] { return value; });
}

inline Returns<void> check(slipring_status raw) {
    if (raw != SLIPRING_OK)
        return fail<void>(raw);
    return Returns<void>();
}

// Calls `call`; `caught` is told the text of what it threw.
template <class F, class C> auto contained(F &&call, C &&caught) noexcept -> decltype(call()) {
#ifdef SLIPRING_NO_EXCEPTIONS
    (void)caught;
    return call();
#else
    try {
        return call();
    } catch (const std::exception &exception) {
        return caught(exception.what());
    } catch (...) {
        return caught("an exception of an unknown type");
    }
#endif
}

// The owner of a handle of the C ABI.
template <class T, void (*Free)(T **)> class Handle {
  public:
    Handle() noexcept = default;
    explicit Handle(T *raw) noexcept : raw_(raw) {}
    Handle(Handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept {
        if (this != &other) {
            Free(&raw_);
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle() { Free(&raw_); }

    T *get() const noexcept { return raw_; }
    // The variable, for functions that take it.
    T **out() noexcept { return &raw_; }

  private:
    T *raw_ = nullptr;
};

inline std::string take(slipring_text *text) {
    Handle<slipring_text, slipring_text_free> owner(text);
    slipring_text_view view = {nullptr, 0};
    slipring_text_get(owner.get(), &view);
    return view.data == nullptr ? std::string() : std::string(view.data, view.len);
}

// The lines of a text, each of which ends in a newline.
inline std::vector<std::string> take_lines(slipring_text *text) {
    const std::string all = take(text);
    std::vector<std::string> lines;
    for (std::size_t at = 0, end; at < all.size(); at = end + 1) {
        end = all.find('\n', at);
        lines.push_back(all.substr(at, end - at));
    }
    return lines;
}

// Settles `len` messages with `call`: whether that had an effect on all of them.
template <class F>
Returns<bool> settle(std::size_t len, std::vector<Status> *outcomes, F &&call) {
    std::vector<slipring_status> raw(outcomes == nullptr ? 0 : len, SLIPRING_OK);
    slipring_status all = call(outcomes == nullptr ? nullptr : raw.data());
    if (outcomes != nullptr) {
        outcomes->clear();
        for (slipring_status outcome : raw)
            outcomes->push_back(status(outcome));
    }
    if (all == SLIPRING_STALE)
        return false;
    return give<bool>(all, [] { return true; });
}

inline std::uint64_t delay(std::optional<Nanoseconds> delay) noexcept {
    return delay ? ns(*delay) : SLIPRING_BACKOFF;
}

} // namespace detail

// ---- Messages --------------------------------------------------------------------------------

class OwnedMessage;

// Names one delivery of one message to one subscription: by it, and an Acker, the message can be
// settled from anywhere. A value.
class AckId {
  public:
    // As text: 48 characters of `[0-9a-f]`.
    std::string text() const {
        char text[64];
        return std::string(text, slipring_ack_id_text(&raw_, text, sizeof text));
    }
    // Of its text. Errors: invalid_ack_id, not_utf8.
    static Returns<AckId> parse(std::string_view text) {
        AckId id;
        return detail::give<AckId>(slipring_ack_id_parse(text.data(), text.size(), &id.raw_),
                                   [&] { return id; });
    }

    friend bool operator==(const AckId &left, const AckId &right) noexcept {
        return std::memcmp(&left.raw_, &right.raw_, sizeof left.raw_) == 0;
    }
    friend bool operator!=(const AckId &left, const AckId &right) noexcept {
        return !(left == right);
    }

  private:
    friend class Message;
    AckId() noexcept = default;
    slipring_ack_id raw_ = {};
};
static_assert(sizeof(AckId) == sizeof(slipring_ack_id) && std::is_standard_layout_v<AckId>,
              "arrays of these cross as arrays of those");

// A message where it lies; reading it copies nothing. Copies of this are as good, and valid as
// long: until the function returns that it was given to, or until the subscription that it was
// received from receives, polls or waits again, or is destroyed. Other threads may read it
// meanwhile.
class Message {
  public:
    explicit Message(const slipring_message &raw) noexcept : raw_(raw) {}

    Bytes payload() const noexcept {
        return Bytes(slipring_message_payload(&raw_), slipring_message_payload_len(&raw_));
    }
    std::string_view topic() const noexcept { return detail::text(slipring_message_topic(&raw_)); }
    // The ordering key, if it has one.
    std::optional<std::string_view> key() const noexcept {
        slipring_text_view key = slipring_message_key(&raw_);
        if (key.data == nullptr)
            return std::nullopt;
        return detail::text(key);
    }
    // Position in the partition, from 0.
    std::uint64_t offset() const noexcept { return slipring_message_offset(&raw_); }
    // Number of the partition, unique in the broker.
    std::uint32_t partition() const noexcept { return slipring_message_partition(&raw_); }
    // When it was published, to the microsecond.
    std::chrono::system_clock::time_point published() const noexcept {
        auto us = static_cast<std::int64_t>(slipring_message_published_us(&raw_));
        auto since = std::chrono::microseconds(us);
        return std::chrono::system_clock::time_point(
            std::chrono::duration_cast<std::chrono::system_clock::duration>(since));
    }

    // The value of an attribute, if it has one of that name.
    std::optional<std::string_view> attribute(std::string_view name) const noexcept {
        slipring_text_view value = {nullptr, 0};
        if (slipring_message_attribute(&raw_, name.data(), name.size(), &value) != SLIPRING_OK)
            return std::nullopt;
        return detail::text(value);
    }

    // All attributes, in the order in which they were published.
    std::vector<Attribute> attributes() const {
        std::size_t count = 0;
        slipring_message_attributes(&raw_, nullptr, 0, &count);
        std::vector<Attribute> attributes(count);
        auto *raw = reinterpret_cast<slipring_attribute *>(attributes.data());
        slipring_message_attributes(&raw_, raw, attributes.size(), nullptr);
        return attributes;
    }

    // The publisher's own id, or a UUID made of the message's place.
    std::string id() const {
        char id[256];
        return std::string(id, slipring_message_id(&raw_, id, sizeof id));
    }

    // Which delivery of the message to this subscription this is, from 1. Always 1 where messages
    // are delivered at most once.
    std::uint32_t attempt() const noexcept { return slipring_message_attempt(&raw_); }

    // The following settle a message that was received, or kept, from a subscription that delivers
    // at least once, from any thread; what a handler has got is settled by what that returns. They
    // give false, and have done nothing, where the lease is over: its time has passed, the message
    // was settled or given back, or it has expired. That is harmless. Errors: not_leased,
    // inside_filter, forked.
    //
    // The functions of the same names settle many in one call: `ack(batch)`.

    // It is done with: its subscription does not get it again.
    Returns<bool> ack() const;

    // It has failed, and is delivered again after `delay`, at most 24 hours, or as the
    // subscription's backoff has it; or goes to the dead letters, if this was its last attempt.
    // Errors: those, out_of_range, and those of `dead_letter`.
    Returns<bool> nack(std::optional<Nanoseconds> delay = std::nullopt) const;

    // The lease ends so long from now, 10 ms to 600 s, instead of when it would have. Errors:
    // those, and out_of_range.
    Returns<bool> extend(Nanoseconds by) const;

    // Gives up on it: it goes to the dead letters with this reason, of which the first 1024 bytes
    // are kept. Errors: those, not_utf8, and why the dead letter could not be stored: then it is
    // not settled. Waits at most 100 ms, for subscriptions to dead letters that block.
    Returns<bool> dead_letter(std::string_view reason = {}) const;

    // What names this delivery, if it is to be settled.
    std::optional<AckId> ack_id() const noexcept {
        AckId id;
        if (slipring_ack_ids(&raw_, 1, &id.raw_) != SLIPRING_OK)
            return std::nullopt;
        return id;
    }

    // Keeps it past the time for which it is valid, without copying it: 64 KiB of memory around it,
    // or the message alone if it is larger, stay until the last one kept of them is destroyed.
    Returns<OwnedMessage> keep() const;

    const slipring_message &raw() const noexcept { return raw_; }

  private:
    friend class Subscription;
    slipring_message raw_;
};
static_assert(sizeof(Message) == sizeof(slipring_message) && std::is_standard_layout_v<Message>,
              "arrays of these cross as arrays of those");

namespace detail {
// Where there is no message.
inline slipring_message no_message() noexcept {
    static const slipring_record record = {0, 0, 0, 0, 0, 0};
    return slipring_message{&record, nullptr};
}
inline const slipring_message *raw(Span<const Message> messages) noexcept {
    return reinterpret_cast<const slipring_message *>(messages.data());
}
inline Span<const Message> span(const slipring_message *messages, std::size_t count) noexcept {
    return Span<const Message>(reinterpret_cast<const Message *>(messages), count);
}
} // namespace detail

// The following settle messages in one call: a batch, or a vector of those that have something in
// common. See Message for what each does. All are tried. They give whether that had an effect on
// all of them; what became of each is in `outcomes` then, in their order.

inline Returns<bool> ack(Span<const Message> messages, std::vector<Status> *outcomes = nullptr) {
    return detail::settle(messages.size(), outcomes, [&](slipring_status *each) {
        return slipring_ack(detail::raw(messages), messages.size(), each);
    });
}
inline Returns<bool> nack(Span<const Message> messages,
                          std::optional<Nanoseconds> delay = std::nullopt,
                          std::vector<Status> *outcomes = nullptr) {
    return detail::settle(messages.size(), outcomes, [&](slipring_status *each) {
        return slipring_nack(detail::raw(messages), messages.size(), detail::delay(delay), each);
    });
}
inline Returns<bool> extend(Span<const Message> messages, Nanoseconds by,
                            std::vector<Status> *outcomes = nullptr) {
    return detail::settle(messages.size(), outcomes, [&](slipring_status *each) {
        return slipring_extend(detail::raw(messages), messages.size(), detail::ns(by), each);
    });
}
inline Returns<bool> dead_letter(Span<const Message> messages, std::string_view reason,
                                 std::vector<Status> *outcomes = nullptr) {
    return detail::settle(messages.size(), outcomes, [&](slipring_status *each) {
        return slipring_dead_letter(detail::raw(messages), messages.size(), reason.data(),
                                    reason.size(), each);
    });
}

inline Returns<bool> Message::ack() const { return slipring::ack({this, 1}); }
inline Returns<bool> Message::nack(std::optional<Nanoseconds> delay) const {
    return slipring::nack({this, 1}, delay);
}
inline Returns<bool> Message::extend(Nanoseconds by) const {
    return slipring::extend({this, 1}, by);
}
inline Returns<bool> Message::dead_letter(std::string_view reason) const {
    return slipring::dead_letter({this, 1}, reason);
}

// A message that was kept: it outlives the subscription and the broker.
class OwnedMessage {
  public:
    // The message; valid as long as this is, also when this is moved.
    Message message() const noexcept {
        slipring_message raw = detail::no_message();
        slipring_kept_message(handle_.get(), &raw);
        return Message(raw);
    }

  private:
    friend class DeadLetters;
    friend class Message;
    explicit OwnedMessage(slipring_kept *raw) noexcept : handle_(raw) {}
    detail::Handle<slipring_kept, slipring_kept_free> handle_;
};

inline Returns<OwnedMessage> Message::keep() const {
    slipring_kept *kept = nullptr;
    return detail::give<OwnedMessage>(slipring_message_keep(&raw_, &kept),
                                      [&] { return OwnedMessage(kept); });
}

// A message to be published. Everything in it is borrowed, so publish it in the same expression, or
// see to it that what it was made of still lives.
//
//     topic.publish(NewMessage("98.4").key("plant-7").attributes({{"severity", "high"}}));
class NewMessage {
  public:
    NewMessage(Bytes bytes = Bytes()) noexcept
        : raw_{bytes.data(), bytes.size(), {nullptr, 0}, {nullptr, 0}, nullptr, 0} {}
    template <class T, class = std::enable_if_t<std::is_convertible_v<const T &, Bytes> &&
                                                !std::is_same_v<T, Bytes>>>
    NewMessage(const T &bytes) noexcept : NewMessage(Bytes(bytes)) {}

    // Messages with the same ordering key share a partition and keep their order. Up to 1024 bytes.
    NewMessage &key(std::string_view text) noexcept {
        raw_.key = detail::view(text);
        return *this;
    }
    // An id of your own, 1 to 255 bytes. Without one, a UUID is made of the message's place.
    NewMessage &id(std::string_view text) noexcept {
        raw_.id = detail::view(text);
        return *this;
    }
    // Up to 100 attributes with different names of 1 to 256 bytes, and values of up to 1024.
    NewMessage &attributes(Span<const Attribute> all) noexcept {
        raw_.attributes = reinterpret_cast<const slipring_attribute *>(all.data());
        raw_.attributes_len = all.size();
        return *this;
    }
    // The same; the list lives until the end of the expression.
    NewMessage &attributes(std::initializer_list<Attribute> all) noexcept {
        return attributes(Span<const Attribute>(std::data(all), all.size()));
    }

    const slipring_new_message &raw() const noexcept { return raw_; }

  private:
    slipring_new_message raw_;
};

static_assert(sizeof(NewMessage) == sizeof(slipring_new_message) &&
                  std::is_standard_layout_v<NewMessage>,
              "arrays of these cross as arrays of those");

// ---- Settings --------------------------------------------------------------------------------

// What a publish does when the memory budget is used up: the oldest messages expire (`expire`), or
// it is refused with Status::full while the oldest are still queued for somebody (`refuse`).
enum class WhenFull : std::uint32_t { expire = SLIPRING_EXPIRE, refuse = SLIPRING_REFUSE };

// When a message that was published counts as stored, in a broker with a directory. A killed
// process loses nothing under any of them; they differ in what a power cut may take.
enum class Sync : std::uint32_t {
    always = SLIPRING_SYNC_ALWAYS,     // When the disk has it; those who wait share one sync.
    interval = SLIPRING_SYNC_INTERVAL, // When the system has it; the disk follows at an interval.
    os = SLIPRING_SYNC_OS,             // When the system has it; it decides when the disk follows.
};

// Where the end of a log has other bytes than were written, its shard can only be read (`refuse`),
// or goes on behind that (`skip`), which reading tells of as a loss.
enum class OnDamage : std::uint32_t {
    refuse = SLIPRING_DAMAGE_REFUSE,
    skip = SLIPRING_DAMAGE_SKIP,
};

// How much an event of a broker matters.
enum class Level : std::uint32_t {
    error = SLIPRING_LOG_ERROR, // Something is wrong that nobody else is told of.
    warn = SLIPRING_LOG_WARN,   // A handler has failed, a subscription was disconnected.
    info = SLIPRING_LOG_INFO,   // Life and death of a broker.
    debug = SLIPRING_LOG_DEBUG, // Losses.
    trace = SLIPRING_LOG_TRACE, // Everything.
};

// A clock for tests, which stands still until it is told to move: leases, pauses and retention end
// without waiting. Brokers that have it go on with it when it is gone.
//
//     TestClock clock;
//     auto broker = Broker::open(BrokerOptions().clock(clock));
//     clock.advance(std::chrono::seconds(10));
class TestClock {
  public:
    TestClock() noexcept { slipring_test_clock_new(handle_.out()); }
    // Moves it forward and wakes who waits for it.
    void advance(Nanoseconds by) const noexcept {
        slipring_test_clock_advance(handle_.get(), detail::ns(by));
    }

  private:
    friend class BrokerOptions;
    detail::Handle<slipring_test_clock, slipring_test_clock_free> handle_;
};

// Settings of a broker; those that are not set have their defaults.
//
//     auto broker = Broker::open(BrokerOptions().shards(4).memory_budget(256 << 20));
class BrokerOptions {
  public:
    BrokerOptions() { slipring_broker_options_init(&raw_, sizeof raw_); }

    // A directory, which is made if need be: what is published, topics, and named subscriptions
    // that deliver at least once are kept there, and are there again when it is opened the next
    // time, also after a crash. It belongs to one broker at a time. Default: a broker in memory.
    BrokerOptions &dir(std::string path) {
        dir_ = std::move(path);
        return *this;
    }
    // When a message counts as stored there. Default Sync::always.
    BrokerOptions &sync(Sync when) noexcept {
        raw_.sync = static_cast<std::uint32_t>(when);
        return *this;
    }
    // When the operating system has it; the disk follows at this interval.
    BrokerOptions &sync_every(Nanoseconds interval) noexcept {
        raw_.sync_interval_ns = detail::ns(interval);
        return sync(Sync::interval);
    }
    // What to do where the end of a log has other bytes than were written: default
    // OnDamage::refuse.
    BrokerOptions &on_damage(OnDamage what) noexcept {
        raw_.on_damage = static_cast<std::uint32_t>(what);
        return *this;
    }
    // How long messages of topics that are created by publishing are kept there, and how many bytes
    // of each topic (0: any number). Default 7 days, and any number.
    BrokerOptions &retention(Nanoseconds age, std::uint64_t bytes = 0) noexcept {
        raw_.retention_ns = detail::ns(age);
        raw_.retention_bytes = bytes;
        return *this;
    }
    // Topics that are created by publishing: see Broker::set_dedup_window. Default: none.
    BrokerOptions &dedup_window(Nanoseconds window, std::uint64_t ids = 0) noexcept {
        raw_.dedup_window_ns = detail::ns(window);
        raw_.dedup_ids = ids;
        return *this;
    }
    // Bytes that are kept free on the disk for what must go on when it is full: opening,
    // acknowledging, deleting. 0 (nothing) to 2^40; on a small disk, at most an eighth of it. Default
    // 64 MiB.
    BrokerOptions &reserve_bytes(std::uint64_t bytes) noexcept {
        raw_.reserve_bytes = bytes;
        return *this;
    }
    // Bytes after which a shard begins another file: 64 KiB to 1 GiB. What expires gives its room
    // back by whole files. Default 64 MiB; on a small disk, an eighth of it for all shards.
    BrokerOptions &segment_bytes(std::uint64_t bytes) noexcept {
        raw_.segment_bytes = bytes;
        return *this;
    }
    // Bytes of a file that are reserved on the disk at once: 0 to 1 GiB. Default 32 MiB; on a small
    // disk, an eighth of it for all shards.
    BrokerOptions &preallocate_bytes(std::uint64_t bytes) noexcept {
        raw_.preallocate_bytes = bytes;
        return *this;
    }
    // Age at which a shard begins another file there, so that what is in one can expire though little
    // is published. Default 21 hours.
    BrokerOptions &segment_age(Nanoseconds age) noexcept {
        raw_.segment_age_ns = detail::ns(age);
        return *this;
    }
    // How many shards put messages in order independently of each other: 1 to 64. Default: 1, or as
    // many as the directory was made with, which is refused under another number.
    BrokerOptions &shards(std::uint32_t count) noexcept {
        raw_.shards = count;
        return *this;
    }
    // Bytes for messages, over all shards: at least 256 KiB a shard. Default 64 MiB.
    BrokerOptions &memory_budget(std::uint64_t bytes) noexcept {
        raw_.memory_budget_bytes = bytes;
        return *this;
    }
    // Bytes that a payload may have, up to 64 MiB. Default 10 MiB.
    BrokerOptions &payload_limit(std::uint64_t bytes) noexcept {
        raw_.payload_limit_bytes = bytes;
        return *this;
    }
    // Partitions of topics that are created by publishing: 1 to 1024. Default 1.
    BrokerOptions &default_partitions(std::uint32_t count) noexcept {
        raw_.default_partitions = count;
        return *this;
    }
    // Delivery workers, which are started with the first handler: 1 to 256. Default: as many as
    // CPUs, and at most 4.
    BrokerOptions &workers(std::uint32_t count) noexcept {
        raw_.workers = count;
        return *this;
    }
    // Pins delivery workers to the allowed CPUs from this index on.
    BrokerOptions &pin_workers(std::uint32_t first_cpu) noexcept {
        raw_.pin_workers = 1;
        raw_.workers_first_cpu = first_cpu;
        return *this;
    }
    // Whether publishing to a topic that does not exist creates it. Default true.
    BrokerOptions &create_topics(bool yes) noexcept {
        raw_.create_topics = yes ? 1 : 0;
        return *this;
    }
    // Default WhenFull::expire.
    BrokerOptions &when_full(WhenFull what) noexcept {
        raw_.when_full = static_cast<std::uint32_t>(what);
        return *this;
    }
    // A thread per shard, pinned to the allowed CPUs from this index on, puts messages in order.
    // Default: the publishers do that.
    BrokerOptions &pinned_sequencer(std::uint32_t first_cpu) noexcept {
        raw_.sequencer = SLIPRING_PINNED;
        raw_.sequencer_first_cpu = first_cpu;
        return *this;
    }
    // The clock of the broker, which must live until it is opened. Default: the machine's.
    BrokerOptions &clock(const TestClock &clock) noexcept {
        raw_.clock = clock.handle_.get();
        return *this;
    }
    // Tells `told(Level, std::string_view)` the events of this broker up to `most`; never a
    // message. Nothing of it is set for the process.
    //
    // It is called where the event happens, on any thread and on several at a time, also while a
    // shard is held: it must be quick, and what it calls of the broker is refused with
    // Status::inside_filter. What it throws is dropped. It is let go of some time after the broker
    // and all that came from it are gone.
    BrokerOptions &log(Level most, std::function<void(Level, std::string_view)> told) {
        raw_.log_level = static_cast<std::uint32_t>(most);
        told_ = std::move(told);
        return *this;
    }

  private:
    friend class Broker;
    using Told = std::function<void(Level, std::string_view)>;

    static void tell(void *user, std::uint32_t level, const char *text, std::size_t len) noexcept {
        detail::contained(
            [&] { (*static_cast<Told *>(user))(Level(level), std::string_view(text, len)); },
            [](const char *) {});
    }

    // For one call, which uses up the log's copy and needs the path.
    slipring_broker_options raw() const {
        slipring_broker_options raw = raw_;
        if (dir_) {
            raw.dir = dir_->data();
            raw.dir_len = dir_->size();
        }
        if (told_) {
            raw.log_fn = tell;
            raw.log_user = new Told(told_);
            raw.log_user_free = [](void *user) { delete static_cast<Told *>(user); };
        }
        return raw;
    }

    slipring_broker_options raw_ = {};
    std::optional<std::string> dir_;
    Told told_;
};

// When a message counts as delivered.
enum class Delivery : std::uint32_t {
    // When it is acknowledged, goes to the dead letters, or has expired from memory: until then it
    // is delivered again, after a time or a failure. Nothing is dropped while a queue is full: the
    // subscription reads the log until it has caught up.
    at_least_once = SLIPRING_AT_LEAST_ONCE,
    // When it is handed over. What happens while a queue is full, its Overflow says.
    at_most_once = SLIPRING_AT_MOST_ONCE,
};

// What happens to messages while a subscription's queue is full, where they are delivered at most
// once. What is dropped is told.
class Overflow {
  public:
    // The new message is dropped. The default.
    static Overflow drop_newest() noexcept { return Overflow(SLIPRING_DROP_NEWEST, forever); }
    // The oldest message that is queued is dropped.
    static Overflow drop_oldest() noexcept { return Overflow(SLIPRING_DROP_OLDEST, forever); }
    // The publisher waits until there is room; after `timeout` the message is dropped.
    static Overflow block(Nanoseconds timeout = forever) noexcept {
        return Overflow(SLIPRING_BLOCK, timeout);
    }
    // New messages are dropped, and a subscription whose queue has been full for longer than
    // `after`, which has a limit, is disconnected.
    static Overflow disconnect(Nanoseconds after) noexcept {
        return Overflow(SLIPRING_DISCONNECT, after);
    }

  private:
    friend class SubscriptionOptions;
    Overflow(slipring_overflow what, Nanoseconds time) noexcept : what_(what), time_(time) {}
    slipring_overflow what_;
    Nanoseconds time_;
};

// Where a new subscription begins, or goes on when it seeks.
class Start {
  public:
    // With the first message published after subscribing has returned. The default.
    static Start now() noexcept { return Start(SLIPRING_START_NOW, 0); }
    // With the oldest message still retained.
    static Start earliest() noexcept { return Start(SLIPRING_START_EARLIEST, 0); }
    // With the last `count` retained messages that match.
    static Start last(std::uint64_t count) noexcept { return Start(SLIPRING_START_LAST, count); }
    // In every matching partition, with the message at this offset.
    static Start offset(std::uint64_t at) noexcept { return Start(SLIPRING_START_OFFSET, at); }
    // With the first message published at or after this time.
    static Start time(std::chrono::system_clock::time_point at) noexcept {
        auto since = std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch());
        return Start(SLIPRING_START_TIME,
                     since.count() < 0 ? 0 : static_cast<std::uint64_t>(since.count()));
    }

  private:
    friend class Broker;
    friend class Subscription;
    friend class SubscriptionOptions;
    Start(slipring_start what, std::uint64_t value) noexcept : what_(what), value_(value) {}
    slipring_start what_;
    std::uint64_t value_;
};

// How a consumer waits for the next message: spinning as long as that has lately been worth it
// (`adaptive`, the default), always (`busy_spin`), giving the core away again and again (`yield`),
// or not at all (`park`).
enum class Wait : std::uint32_t {
    adaptive = SLIPRING_WAIT_ADAPTIVE,
    busy_spin = SLIPRING_WAIT_BUSY_SPIN,
    yield = SLIPRING_WAIT_YIELD,
    park = SLIPRING_WAIT_PARK,
};

// Which messages are wanted, told by their attributes: the typed form of the expressions that
// SubscriptionOptions::filter takes as text.
//
//     Filter::equals("region", "IN") && !Filter::has("test")
class Filter {
  public:
    // That have this attribute, also an empty one.
    static Filter has(std::string_view name) { return Filter("attributes:" + quoted(name)); }
    // Whose attribute is exactly this.
    static Filter equals(std::string_view name, std::string_view value) {
        return Filter("attributes." + quoted(name) + " = " + quoted(value));
    }
    // That have no such attribute, or another value of it.
    static Filter not_equals(std::string_view name, std::string_view value) {
        return Filter("attributes." + quoted(name) + " != " + quoted(value));
    }
    // That match an expression.
    static Filter expression(std::string_view text) {
        return Filter("(" + std::string(text) + ")");
    }
    // Whose attribute begins with this.
    static Filter prefix(std::string_view name, std::string_view start) {
        return Filter("hasPrefix(attributes." + quoted(name) + ", " + quoted(start) + ")");
    }

    friend Filter operator&&(const Filter &left, const Filter &right) {
        return Filter(left.operand(Joint::and_) + " AND " + right.operand(Joint::and_),
                      Joint::and_);
    }
    friend Filter operator||(const Filter &left, const Filter &right) {
        return Filter(left.operand(Joint::or_) + " OR " + right.operand(Joint::or_), Joint::or_);
    }
    friend Filter operator!(const Filter &filter) {
        return Filter("NOT " + filter.operand(Joint::not_), Joint::not_);
    }

    // The expression.
    const std::string &text() const noexcept { return text_; }

  private:
    enum class Joint { none, not_, and_, or_ };

    explicit Filter(std::string text, Joint joint = Joint::none)
        : text_(std::move(text)), joint_(joint) {}

    // As an operand of `outer`: AND and OR do not mix without parentheses, nor does NOT repeat.
    std::string operand(Joint outer) const {
        bool alone = joint_ == Joint::none || (joint_ == Joint::not_ && outer != Joint::not_) ||
                     (joint_ == outer && outer != Joint::not_);
        return alone ? text_ : "(" + text_ + ")";
    }

    static std::string quoted(std::string_view text) {
        std::string quoted = "\"";
        for (char byte : text) {
            if (byte == '"' || byte == '\\')
                quoted += '\\';
            quoted += byte;
        }
        return quoted + '"';
    }

    std::string text_;
    Joint joint_;
};

// A message that a handler has failed on.
struct Failure {
    Message message;         // The message.
    std::string_view reason; // What the exception said, or the reason that the handler returned.
};

// Settings of a subscription; those that are not set have their defaults. They can be used for any
// number of subscriptions.
//
//     broker.subscribe("plant/*/temperature", SubscriptionOptions()
//                                                 .filter(R"(attributes.severity = "high")")
//                                                 .max_delivery_attempts(3));
class SubscriptionOptions {
  public:
    SubscriptionOptions() { slipring_subscription_options_init(&raw_, sizeof raw_); }

    // One more pattern. A message that several patterns match comes once.
    SubscriptionOptions &pattern(std::string_view text) {
        patterns_.emplace_back(text);
        return *this;
    }
    // A name, unique in the broker: 1 to 255 of `[A-Za-z0-9._~+%-]`. Default: none.
    //
    // A subscription that has a name and delivers at least once lives as long as the broker, or its
    // directory: when it is destroyed it goes on without a consumer, and the next that subscribes
    // under the name gets all that was published in between, as far as memory retains it, and all
    // that was not settled. It goes on where it was, and keeps the filter and the other settings that
    // it was made with: to ask for another value is refused, but a default asks for nothing.
    SubscriptionOptions &name(std::string_view text) {
        name_ = std::string(text);
        return *this;
    }
    // Messages that can be queued, from each shard: 1 to 2^24. Default 1024.
    SubscriptionOptions &capacity(std::uint64_t messages) noexcept {
        raw_.capacity_messages = messages;
        return *this;
    }
    // Default Delivery::at_least_once.
    SubscriptionOptions &delivery(Delivery mode) noexcept {
        raw_.delivery = static_cast<std::uint32_t>(mode);
        return *this;
    }
    // Default Overflow::drop_newest(). Another is only for Delivery::at_most_once, and refused as
    // Code::out_of_range without it.
    SubscriptionOptions &overflow(Overflow what) noexcept {
        raw_.overflow = what.what_;
        raw_.overflow_ns = detail::ns(what.time_);
        return *this;
    }
    // Default Start::now().
    SubscriptionOptions &start(Start where) noexcept {
        raw_.start = where.what_;
        raw_.start_value = where.value_;
        return *this;
    }
    // Default Wait::adaptive.
    SubscriptionOptions &wait(Wait how) noexcept {
        raw_.wait = static_cast<std::uint32_t>(how);
        return *this;
    }
    // Only messages whose attributes match this expression, in the language of Google Pub/Sub's
    // filters: `attributes.region = "IN" AND NOT attributes:test`. It is asked on the publishing
    // side, before the queue is touched.
    SubscriptionOptions &filter(std::string_view expression) {
        filter_ = std::string(expression);
        return *this;
    }
    SubscriptionOptions &filter(const Filter &expression) { return filter(expression.text()); }
    // Only messages for which `wanted(const Message &)` says true; not together with an expression.
    //
    // It is called by publishing threads, and in a replay by those that subscribe or receive, by
    // several at a time, while a shard is held: it must be quick, and what it calls of the broker
    // is refused with Status::inside_filter. If it throws, the message is not wanted.
    template <class F, class = std::enable_if_t<std::is_invocable_r_v<bool, F &, const Message &>>>
    SubscriptionOptions &filter(F wanted) {
        wanted_ = std::move(wanted);
        return *this;
    }

    // The following are for Delivery::at_least_once.

    // How long the consumer has to settle a message before it is delivered again: 10 ms to 600 s.
    // Default 10 s. Message::extend is for one; a handler has its message for as long as it runs.
    SubscriptionOptions &visibility_timeout(Nanoseconds time) noexcept {
        raw_.visibility_timeout_ns = detail::ns(time);
        return *this;
    }
    // How long a message that failed waits: `min` before its second attempt, then doubled each
    // time, up to `max`, which is at most 24 hours. Default 100 ms and 60 s.
    SubscriptionOptions &backoff(Nanoseconds min, Nanoseconds max) noexcept {
        raw_.backoff_min_ns = detail::ns(min);
        raw_.backoff_max_ns = detail::ns(max);
        return *this;
    }
    // Each of these pauses is shortened by a random part of up to a half.
    SubscriptionOptions &backoff_jitter() noexcept {
        raw_.backoff_jitter = 1;
        return *this;
    }
    // How often a message is delivered before it goes to the dead letters: 1 to 65535. Default 5.
    SubscriptionOptions &max_delivery_attempts(std::uint32_t count) noexcept {
        raw_.max_delivery_attempts = count;
        return *this;
    }
    // Messages that can be received and not settled: 1 to 2^24. At the limit, none is delivered
    // until one is settled. Default 65536.
    SubscriptionOptions &max_outstanding(std::uint64_t messages) noexcept {
        raw_.max_outstanding = messages;
        return *this;
    }
    // Messages overtake an earlier one of the same ordering key that has failed. Otherwise they
    // wait until that is settled.
    SubscriptionOptions &keys_overtake() noexcept {
        raw_.keys_overtake = 1;
        return *this;
    }
    // The topic that dead letters go to, made if need be. Default: `$dlq/` and the name, or
    // `unnamed-` and the subscription's number where it has none.
    SubscriptionOptions &dead_letter_topic(std::string_view topic) {
        dead_letter_topic_ = std::string(topic);
        return *this;
    }
    // Takes the place of the consumer that the subscription of this name has, which gets
    // Status::disconnected; what that has not settled is delivered anew. Otherwise: name_in_use.
    SubscriptionOptions &take_over() noexcept {
        raw_.take_over = 1;
        return *this;
    }

    // The following are for handlers.

    // A thread of its own instead of the shared workers.
    SubscriptionOptions &dedicated_thread() noexcept {
        raw_.dedicated_thread = 1;
        return *this;
    }
    // After so many failures in a row deliveries pause for `cool_down`; then one is tried.
    SubscriptionOptions &circuit_breaker(std::uint32_t failures, Nanoseconds cool_down) noexcept {
        raw_.breaker_failures = failures;
        raw_.breaker_cool_down_ns = detail::ns(cool_down);
        return *this;
    }
    // Is told how many messages were lost, between the calls of the handler where they are missing.
    SubscriptionOptions &on_lagged(std::function<void(std::uint64_t)> told) {
        lagged_ = std::move(told);
        return *this;
    }
    // Is told of every failure of the handler, after it was counted.
    SubscriptionOptions &on_failure(std::function<void(const Failure &)> told) {
        failed_ = std::move(told);
        return *this;
    }

  private:
    friend class Broker;
    using Wanted = std::function<bool(const Message &)>;

    static std::int32_t is_wanted(void *user, const slipring_message *message) noexcept {
        return detail::contained(
            [&]() -> std::int32_t { return (*static_cast<Wanted *>(user))(Message(*message)); },
            [](const char *) -> std::int32_t { return 0; });
    }

    // For one call, which uses up the filter's copy. `patterns` is what it points to.
    slipring_subscription_options raw(std::vector<slipring_text_view> &patterns) const {
        slipring_subscription_options raw = raw_;
        for (const auto &pattern : patterns_)
            patterns.push_back(detail::view(pattern));
        raw.patterns = patterns.data();
        raw.patterns_len = patterns.size();
        if (name_) {
            raw.name = name_->data();
            raw.name_len = name_->size();
        }
        if (filter_) {
            raw.filter = filter_->data();
            raw.filter_len = filter_->size();
        }
        if (dead_letter_topic_) {
            raw.dead_letter_topic = dead_letter_topic_->data();
            raw.dead_letter_topic_len = dead_letter_topic_->size();
        }
        if (wanted_) {
            raw.filter_fn = is_wanted;
            raw.filter_user = new Wanted(wanted_);
            raw.filter_user_free = [](void *user) { delete static_cast<Wanted *>(user); };
        }
        return raw;
    }

    slipring_subscription_options raw_ = {};
    std::vector<std::string> patterns_;
    std::optional<std::string> name_, filter_, dead_letter_topic_;
    Wanted wanted_;
    std::function<void(std::uint64_t)> lagged_;
    std::function<void(const Failure &)> failed_;
};

// ---- Publishing ------------------------------------------------------------------------------

// Space for a payload in the memory of the broker, to be written in place. One that is destroyed
// without a commit publishes nothing and delays nobody.
class Loan {
  public:
    // What it holds at first is unspecified.
    Span<std::uint8_t> payload() const noexcept { return payload_; }

    // Publishes the message, which gets its place in the order now. Waits as Topic::publish does.
    // The loan is used up; after an error it stays as it was, unless the message was published and
    // what has failed is to make it survive.
    Returns<Receipt> commit() {
        Receipt receipt = {};
        const slipring_status status = slipring_loan_commit(handle_.out(), &receipt);
        forget();
        return detail::give<Receipt>(status, [&] { return receipt; });
    }

    // The same, waiting at most so long for subscriptions that block: nothing if there still was no
    // room, and the loan stays as it was.
    Returns<std::optional<Receipt>> commit_for(Nanoseconds timeout) {
        Receipt receipt = {};
        const slipring_status status =
            slipring_loan_commit_timeout(handle_.out(), detail::ns(timeout), &receipt);
        forget();
        return detail::give_unless<Receipt>(SLIPRING_TIMEOUT, status, [&] { return receipt; });
    }

  private:
    friend class Topic;
    // What is used up has no payload.
    void forget() noexcept {
        if (handle_.get() == nullptr)
            payload_ = Span<std::uint8_t>();
    }
    Loan(slipring_loan *raw, std::uint8_t *payload, std::size_t size) noexcept
        : handle_(raw), payload_(payload, size) {}
    detail::Handle<slipring_loan, slipring_loan_abort> handle_;
    Span<std::uint8_t> payload_;
};

// The receipt of a message that is being published. If it is destroyed, the message is published
// all the same.
class Ticket {
  public:
    // The receipt, if the message has been published. Does not wait.
    Returns<std::optional<Receipt>> try_receipt() {
        return detail::fetch_unless<Receipt>(SLIPRING_EMPTY, [&](Receipt *receipt) {
            return slipring_ticket_try(handle_.get(), receipt);
        });
    }
    // Waits for the receipt, which uses up the ticket.
    Returns<Receipt> wait() {
        return detail::fetch<Receipt>(
            [&](Receipt *receipt) { return slipring_ticket_wait(handle_.out(), receipt); });
    }

  private:
    friend class Topic;
    explicit Ticket(slipring_ticket *raw) noexcept : handle_(raw) {}
    detail::Handle<slipring_ticket, slipring_ticket_free> handle_;
};

// A topic to publish to. All threads may use it at once, and handlers too. Publishers that stay
// hold on to one instead of looking it up by name every time.
class Topic {
  public:
    std::string_view name() const noexcept {
        slipring_text_view name = {nullptr, 0};
        slipring_topic_name(handle_.get(), &name);
        return detail::text(name);
    }

    // Publishes a message, whose bytes are copied. Waits only if a subscription with
    // Overflow::block has no room, and, for the time of another publish, if somebody else publishes
    // to the same shard. Errors: closed, invalid_message, not_utf8, topic_deleted, full, no_memory,
    // inside_filter, forked; nothing was published then. In a directory also store, after which the
    // message may have been published, if a write failed.
    Returns<Receipt> publish(Bytes payload) const {
        return detail::fetch<Receipt>([&](Receipt *receipt) {
            return slipring_topic_publish(handle_.get(), payload.data(), payload.size(), receipt);
        });
    }
    template <class T, class = std::enable_if_t<std::is_convertible_v<const T &, Bytes>>>
    Returns<Receipt> publish(const T &payload) const {
        return publish(Bytes(payload));
    }
    Returns<Receipt> publish(const NewMessage &message) const {
        return detail::fetch<Receipt>([&](Receipt *receipt) {
            return slipring_topic_publish_message(handle_.get(), &message.raw(), receipt);
        });
    }

    // The same without ever waiting: nothing if it had to.
    Returns<std::optional<Receipt>> try_publish(const NewMessage &message) const {
        return detail::fetch_unless<Receipt>(SLIPRING_WOULD_BLOCK, [&](Receipt *receipt) {
            return slipring_topic_try_publish(handle_.get(), &message.raw(), receipt);
        });
    }

    // The same, waiting at most so long for subscriptions that block: nothing if there still was no
    // room.
    Returns<std::optional<Receipt>> publish_for(Nanoseconds timeout,
                                                const NewMessage &message) const {
        return detail::fetch_unless<Receipt>(SLIPRING_TIMEOUT, [&](Receipt *receipt) {
            return slipring_topic_publish_timeout(handle_.get(), &message.raw(),
                                                  detail::ns(timeout), receipt);
        });
    }

    // Publishes a message and waits until it survives a power cut, whatever BrokerOptions::sync says.
    // In memory that is at once, and the receipt says that it does not. Errors and waiting: as
    // `publish`.
    Returns<Receipt> publish_sync(const NewMessage &message) const {
        return detail::fetch<Receipt>([&](Receipt *receipt) {
            return slipring_topic_publish_sync(handle_.get(), &message.raw(), receipt);
        });
    }

    // Publishes messages in order, in one call. All of them are checked before the first is
    // published. Waits as `publish` does. After an error `partial` says how many were published,
    // always the first ones.
    Returns<BatchReceipt> publish_batch(Span<const NewMessage> messages,
                                        BatchReceipt *partial = nullptr) const {
        return batch(&slipring_topic_publish_batch, messages, partial);
    }

    // The same without ever waiting: `published` is less than was given where it had to.
    Returns<BatchReceipt> try_publish_batch(Span<const NewMessage> messages,
                                            BatchReceipt *partial = nullptr) const {
        return batch(&slipring_topic_try_publish_batch, messages, partial);
    }

    // The same, waiting for each message at most so long for subscriptions that block: `published`
    // is less than was given where there still was no room.
    Returns<BatchReceipt> publish_batch_for(Nanoseconds timeout, Span<const NewMessage> messages,
                                            BatchReceipt *partial = nullptr) const {
        const auto call = [timeout](const slipring_topic *topic, const slipring_new_message *all,
                                    std::size_t count, BatchReceipt *receipt) {
            return slipring_topic_publish_batch_timeout(topic, all, count, detail::ns(timeout),
                                                        receipt);
        };
        return batch(call, messages, partial);
    }

    // Whether the messages go into a directory: then publishing may wait for the disk.
    bool is_durable() const noexcept { return slipring_topic_is_durable(handle_.get()) != 0; }

    // The id of the message that this receipt of the topic is for: a UUID made of its place. A
    // message that was given an id of its own has that one instead.
    std::string message_id(const Receipt &receipt) const {
        char id[64];
        return std::string(id, slipring_topic_message_id(handle_.get(), receipt.partition,
                                                         receipt.offset, id, sizeof id));
    }

    // Space for a payload of `size` bytes, to be written in place and then committed. `head` has
    // the key, the id and the attributes; its payload is ignored. Does not wait.
    Returns<Loan> loan(std::size_t size, const NewMessage &head = NewMessage()) const {
        slipring_loan *loan = nullptr;
        std::uint8_t *payload = nullptr;
        return detail::give<Loan>(
            slipring_topic_loan(handle_.get(), &head.raw(), size, &loan, &payload),
            [&] { return Loan(loan, payload, size); });
    }

    // Publishes without waiting for its turn: the receipt can be had from the ticket later. Meant
    // for BrokerOptions::pinned_sequencer, where it makes publishing cost a copy.
    Returns<Ticket> publish_ticket(const NewMessage &message) const {
        slipring_ticket *ticket = nullptr;
        return detail::give<Ticket>(
            slipring_topic_publish_ticket(handle_.get(), &message.raw(), &ticket),
            [&] { return Ticket(ticket); });
    }

  private:
    friend class Broker;
    explicit Topic(slipring_topic *raw) noexcept : handle_(raw) {}

    template <class F>
    Returns<BatchReceipt> batch(F &&call, Span<const NewMessage> messages,
                                BatchReceipt *partial) const {
        BatchReceipt receipt = {};
        auto *raw = reinterpret_cast<const slipring_new_message *>(messages.data());
        slipring_status status = call(handle_.get(), raw, messages.size(), &receipt);
        if (partial != nullptr)
            *partial = receipt;
        const bool is_short = status == SLIPRING_WOULD_BLOCK || status == SLIPRING_TIMEOUT;
        return detail::give<BatchReceipt>(is_short ? SLIPRING_OK : status,
                                          [&] { return receipt; });
    }

    detail::Handle<slipring_topic, slipring_topic_free> handle_;
};

// ---- Receiving -------------------------------------------------------------------------------

namespace detail {

// How a call that receives went.
class Outcome {
  public:
    // ok; empty or timeout if there is none now; closed or disconnected if there will be none any
    // more. An error with SLIPRING_NO_EXCEPTIONS only: otherwise it was thrown.
    Status status() const noexcept { return detail::status(raw_); }

    // Whether nothing will come any more: the broker is closed, or the subscription disconnected,
    // and everything queued was delivered.
    bool ended() const noexcept { return raw_ == SLIPRING_CLOSED || raw_ == SLIPRING_DISCONNECTED; }

    // How many messages were lost right before this.
    std::uint64_t lost() const noexcept { return lost_; }

    explicit operator bool() const noexcept { return raw_ == SLIPRING_OK; }

  protected:
    // Throws what is an error.
    void check() const {
#ifndef SLIPRING_NO_EXCEPTIONS
        if (raw_ < 0)
            throw Error(status());
#endif
    }

    slipring_status raw_ = SLIPRING_EMPTY;
    std::uint64_t lost_ = 0;
};

// Some messages, one behind the other.
class Messages {
  public:
    class Iterator {
      public:
        using value_type = Message;
        using difference_type = std::ptrdiff_t;
        using reference = Message;
        using pointer = void;
        using iterator_category = std::input_iterator_tag;

        Message operator*() const noexcept { return Message(*raw_); }
        Iterator &operator++() noexcept {
            ++raw_;
            return *this;
        }
        Iterator operator++(int) noexcept { return Iterator(raw_++); }
        bool operator==(const Iterator &other) const noexcept { return raw_ == other.raw_; }
        bool operator!=(const Iterator &other) const noexcept { return raw_ != other.raw_; }

      private:
        friend class Messages;
        explicit Iterator(const slipring_message *raw) noexcept : raw_(raw) {}
        const slipring_message *raw_;
    };

    const Message *data() const noexcept { return reinterpret_cast<const Message *>(messages_); }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    Message operator[](std::size_t index) const noexcept { return Message(messages_[index]); }
    Iterator begin() const noexcept { return Iterator(messages_); }
    Iterator end() const noexcept { return Iterator(messages_ + size_); }

  protected:
    const slipring_message *messages_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace detail

// What receiving gave: a message, or the reason why there is none.
//
//     while (auto received = subscription.recv())
//         use(*received);
class [[nodiscard]] Received : public detail::Outcome {
  public:
    const Message &operator*() const noexcept { return message_; }
    const Message *operator->() const noexcept { return &message_; }

  private:
    friend class Subscription;
    Message message_{detail::no_message()};
};

// What receiving several gave: messages, or the reason why there are none.
//
//     ack(subscription.recv_batch(64)); // settles all of them in one call
class [[nodiscard]] Batch : public detail::Outcome, public detail::Messages {
  private:
    friend class Subscription;
};

// Settles messages of one subscription by their ack ids. All threads may use it at once. It does
// not keep the subscription.
//
// See Message for what the functions do, and `ack` of many for what they give. Errors: as there,
// and invalid_ack_id.
class Acker {
  public:
    Returns<bool> ack(Span<const AckId> ids, std::vector<Status> *outcomes = nullptr) const {
        return detail::settle(ids.size(), outcomes, [&](slipring_status *raw) {
            return slipring_acker_ack(handle_.get(), data(ids), ids.size(), raw);
        });
    }
    Returns<bool> nack(Span<const AckId> ids, std::optional<Nanoseconds> delay = std::nullopt,
                       std::vector<Status> *outcomes = nullptr) const {
        return detail::settle(ids.size(), outcomes, [&](slipring_status *raw) {
            return slipring_acker_nack(handle_.get(), data(ids), ids.size(), detail::delay(delay),
                                       raw);
        });
    }
    Returns<bool> extend(Span<const AckId> ids, Nanoseconds by,
                         std::vector<Status> *outcomes = nullptr) const {
        return detail::settle(ids.size(), outcomes, [&](slipring_status *raw) {
            return slipring_acker_extend(handle_.get(), data(ids), ids.size(), detail::ns(by), raw);
        });
    }
    Returns<bool> dead_letter(Span<const AckId> ids, std::string_view reason,
                              std::vector<Status> *outcomes = nullptr) const {
        return detail::settle(ids.size(), outcomes, [&](slipring_status *raw) {
            return slipring_acker_dead_letter(handle_.get(), data(ids), ids.size(), reason.data(),
                                              reason.size(), raw);
        });
    }

    // The same for one.
    Returns<bool> ack(const AckId &id) const { return ack(one(id)); }
    Returns<bool> nack(const AckId &id, std::optional<Nanoseconds> delay = std::nullopt) const {
        return nack(one(id), delay);
    }
    Returns<bool> extend(const AckId &id, Nanoseconds by) const { return extend(one(id), by); }
    Returns<bool> dead_letter(const AckId &id, std::string_view reason) const {
        return dead_letter(one(id), reason);
    }

  private:
    friend class Broker;
    friend class Subscription;
    explicit Acker(slipring_acker *raw) noexcept : handle_(raw) {}
    static Span<const AckId> one(const AckId &id) noexcept { return {&id, 1}; }
    static const slipring_ack_id *data(Span<const AckId> ids) noexcept {
        return reinterpret_cast<const slipring_ack_id *>(ids.data());
    }
    detail::Handle<slipring_acker, slipring_acker_free> handle_;
};

// How many messages a poll has handed out.
class Polled : public detail::Outcome {
  public:
    std::size_t size() const noexcept { return size_; }

  private:
    friend class Subscription;
    std::size_t size_ = 0;
};

// What a thread does between rounds in which it polls several subscriptions: one that looks all the
// time slows down who publishes, and one that looks rarely is late. It never parks.
//
//     slipring::Idle idle;
//     for (;;) {
//         std::size_t found = 0;
//         for (auto &subscription : subscriptions)
//             found += subscription.poll(64, use).size();
//         idle.rest(found);
//     }
class Idle {
  public:
    explicit Idle(Wait wait = Wait::adaptive) noexcept {
        slipring_idle_new(static_cast<std::uint32_t>(wait), handle_.out());
    }

    // A round has found `count` messages: pauses for microseconds if that was none.
    void rest(std::size_t count) noexcept { slipring_idle_rest(handle_.get(), count); }

  private:
    detail::Handle<slipring_idle, slipring_idle_free> handle_;
};

// Knows the last messages again by their ids: for consumers that get messages at least once and want
// to act on each but once. 25 bytes or so a message.
//
//     slipring::Deduplicator seen(100000);
//     for (const auto &message : subscription)
//         if (seen.is_new(message))
//             act_on(message);
class Deduplicator {
  public:
    // Knows the last `capacity` messages, at least one.
    explicit Deduplicator(std::size_t capacity) noexcept {
        slipring_deduplicator_new(capacity, handle_.out());
    }

    // Whether the message is none of those it knows. It knows it from now on. To be asked before
    // acting; a message that could not be acted on is to be forgotten.
    bool is_new(const Message &message) noexcept {
        std::int32_t is_new = 1;
        slipring_deduplicator_is_new(handle_.get(), &message.raw(), &is_new);
        return is_new != 0;
    }

    // Forgets the message, so that it is new again.
    void forget(const Message &message) noexcept {
        slipring_deduplicator_forget(handle_.get(), &message.raw());
    }

    // How many messages it knows.
    std::size_t size() noexcept {
        std::size_t len = 0;
        slipring_deduplicator_len(handle_.get(), &len);
        return len;
    }

  private:
    detail::Handle<slipring_deduplicator, slipring_deduplicator_free> handle_;
};

#ifdef SLIPRING_COROUTINES

// A coroutine that waits for a message.
class Waiter {
  public:
    // To be called when the descriptor is readable, in the thread in which the coroutine is to go
    // on. Returns when it has ended or waits again; the Waiter may be gone then.
    virtual void readable() = 0;

  protected:
    ~Waiter() = default;
};

// Where coroutines wait: what connects an event loop of yours with `co_await subscription.next()`.
class Executor {
  public:
    // Has `waiter.readable()` called, once, when `fd` is readable: from the event loop, not from
    // inside this call.
    virtual void watch(int fd, Waiter &waiter) = 0;
    // The coroutine is gone: forgets a waiter that was given to `watch` and not called since.
    virtual void forget(Waiter &waiter) noexcept = 0;

  protected:
    ~Executor() = default;
};

// An executor for programs that have no event loop: it waits in poll(2), in the thread that calls
// it. One thread at a time may use it and the coroutines that wait in it.
class Poller final : public Executor {
  public:
    Poller() = default;
    Poller(const Poller &) = delete;
    Poller &operator=(const Poller &) = delete;

    // Waits at most so long for one of the descriptors, and lets those coroutines go on whose
    // descriptor is readable. Returns how many; 0 also if none is waiting.
    std::size_t run_once(Nanoseconds timeout = forever) {
        std::vector<pollfd> polled;
        for (const auto &watched : watched_)
            polled.push_back({watched.first, POLLIN, 0});
        if (polled.empty() || ::poll(polled.data(), polled.size(), milliseconds(timeout)) <= 0)
            return 0;
        std::vector<Waiter *> ready;
        for (std::size_t i = 0; i < polled.size(); ++i)
            if (polled[i].revents != 0)
                ready.push_back(watched_[i].second);
        // One that goes on may end others: each is looked up again.
        std::size_t count = 0;
        for (Waiter *waiter : ready)
            if (take(*waiter)) {
                waiter->readable();
                ++count;
            }
        return count;
    }

    // Runs until no coroutine is waiting any more.
    void run() {
        while (!watched_.empty())
            run_once();
    }

    void watch(int fd, Waiter &waiter) override { watched_.emplace_back(fd, &waiter); }
    void forget(Waiter &waiter) noexcept override { take(waiter); }

  private:
    bool take(const Waiter &waiter) noexcept {
        for (auto at = watched_.begin(); at != watched_.end(); ++at)
            if (at->second == &waiter) {
                watched_.erase(at);
                return true;
            }
        return false;
    }

    static int milliseconds(Nanoseconds timeout) noexcept {
        constexpr std::int64_t most = 1 << 30;
        if (timeout == forever)
            return -1;
        std::int64_t ms = (timeout.count() < 0 ? 0 : timeout.count()) / 1'000'000;
        return static_cast<int>(ms < most ? ms + (timeout.count() % 1'000'000 > 0 ? 1 : 0) : most);
    }

    std::vector<std::pair<int, Waiter *>> watched_;
};

#endif

// A subscription whose messages are fetched by its owner, one thread at a time. It ends when this
// is destroyed.
//
//     for (const auto &message : subscription) // until the broker closes
//         use(message);
class Subscription {
  public:
    // Number of the subscription, unique in the broker.
    std::uint64_t id() const noexcept { return slipring_subscription_id(handle_.get()); }

    // Its name, if it has one.
    std::optional<std::string_view> name() const noexcept {
        slipring_text_view name = {nullptr, 0};
        slipring_subscription_name(handle_.get(), &name);
        if (name.data == nullptr)
            return std::nullopt;
        return detail::text(name);
    }

    // Messages queued and not received. What was published before the subscription began, or
    // before it last sought, may not be counted yet.
    Returns<std::uint64_t> queued() {
        return detail::fetch<std::uint64_t>([&](std::uint64_t *queued) {
            return slipring_subscription_queued(handle_.get(), queued);
        });
    }

    // Whether a message that was received before is due to be received again. Then the next call
    // that receives may have to give up on it, and so to wait a little (100 ms at most) where
    // somebody who subscribes to dead letters blocks. Errors: busy.
    Returns<bool> is_due() {
        std::int32_t is_due = 0;
        const slipring_status status = slipring_subscription_is_due(handle_.get(), &is_due);
        return detail::give<bool>(status, [&] { return is_due != 0; });
    }

    // How many messages were lost in all, as far as this has come.
    std::uint64_t lost() const noexcept { return lost_; }

    // Receives the next message, waiting for it; none only if the stream has ended. A loss is told
    // with what follows it: Received::lost. The message is valid until the next call that
    // receives, polls or waits. Errors: busy, inside_filter, forked.
    Received recv() { return receive(&slipring_subscription_recv); }

    // The same if a message is queued; else the status is empty. Does not wait.
    Received try_recv() { return receive(&slipring_subscription_try_recv); }

    // The same, waiting for at most so long; else the status is timeout.
    Received recv_for(Nanoseconds timeout) {
        return receive([&](slipring_subscription *raw, slipring_message *message) {
            return slipring_subscription_recv_timeout(raw, detail::ns(timeout), message);
        });
    }

    // Receives up to `most` messages, at least one, waiting for that. All are valid as one is that
    // `recv` gives.
    Batch recv_batch(std::size_t most) {
        return receive_batch(&slipring_subscription_recv_batch, most);
    }

    // The same for what is queued; else the status is empty. Does not wait.
    Batch try_recv_batch(std::size_t most) {
        return receive_batch(&slipring_subscription_try_recv_batch, most);
    }

    // Calls `function(const Message &)` with up to `most` messages that are queued, where they lie,
    // without waiting: the fastest way to receive. Each message is valid until the function
    // returns, which may call the broker and destroy this, but not receive from it (busy).
    //
    // All of them are handed to it also if it throws; the first exception is thrown at the end.
    template <class F> Polled poll(std::size_t most, F &&function) {
        Polling<F> polling{function};
        return poll_with(most, &Polling<F>::each, polling);
    }

    // The same with several messages in a call, at least one: `function(Span<const Message>)`, so
    // that it can have in its own variables what it makes of them.
    template <class F> Polled poll_batches(std::size_t most, F &&function) {
        Polling<F> polling{function};
        return poll_with(most, &Polling<F>::some, polling);
    }

    // Waits until there is something to receive, or to be told by a call that receives.
    Returns<void> wait() {
        return detail::check(slipring_subscription_wait(handle_.get(), SLIPRING_FOREVER));
    }

    // The same for at most so long: whether there is something.
    Returns<bool> wait_for(Nanoseconds timeout) {
        slipring_status status = slipring_subscription_wait(handle_.get(), detail::ns(timeout));
        if (status == SLIPRING_TIMEOUT)
            return false;
        return detail::give<bool>(status, [] { return true; });
    }

    // Goes on elsewhere, which may lie before what was received: that is delivered anew. All that
    // was received and not settled is forgotten, and its ack ids and ackers are stale. Errors:
    // at_most_once, closed, busy, inside_filter, forked.
    Returns<void> seek(Start where) {
        return detail::check(slipring_subscription_seek(
            handle_.get(), static_cast<std::uint32_t>(where.what_), where.value_));
    }

    // What settles its messages by their ack ids, until it seeks. Errors: at_most_once, busy.
    Returns<Acker> acker() {
        slipring_acker *acker = nullptr;
        return detail::give<Acker>(slipring_subscription_acker(handle_.get(), &acker),
                                   [&] { return Acker(acker); });
    }

    // A descriptor that is readable exactly while something can be received: for poll(2), epoll(7)
    // and event loops. Level-triggered; not to be read from or closed. It stays the same, and valid
    // as long as this is.
    Returns<int> event_fd() {
        return detail::fetch<int>(
            [&](int *fd) { return slipring_subscription_event_fd(handle_.get(), fd); });
    }

    // Receives one message after the other, waiting for each, until the stream has ended. `lost`
    // then has what was lost on the way.
    class Iterator {
      public:
        const Message &operator*() const noexcept { return *received_; }
        const Message *operator->() const noexcept { return &*received_; }
        Iterator &operator++() {
            received_ = subscription_->recv();
            return *this;
        }
        // At the end. What is compared with does not matter: there is one end.
        bool operator!=(std::nullptr_t) const noexcept { return static_cast<bool>(received_); }

      private:
        friend class Subscription;
        explicit Iterator(Subscription &subscription)
            : subscription_(&subscription), received_(subscription.recv()) {}
        Subscription *subscription_;
        Received received_;
    };
    Iterator begin() { return Iterator(*this); }
    std::nullptr_t end() const noexcept { return nullptr; }

#ifdef SLIPRING_COROUTINES

    // The next message, waited for by a coroutine, as `recv` gives it:
    //
    //     while (auto received = co_await subscription.next(executor))
    //         use(*received);
    //
    // Nothing is started for that: the coroutine goes on in the thread in which the executor calls
    // it, with the subscription's descriptor (`event_fd`).
    class Next final : public Waiter {
      public:
        Next(const Next &) = delete;
        Next &operator=(const Next &) = delete;
        ~Next() {
            if (waiting_)
                executor_.forget(*this);
        }

        bool await_ready() { return try_now(); }
        void await_suspend(std::coroutine_handle<> coroutine) {
            coroutine_ = coroutine;
            watch();
        }
        Received await_resume() {
            received_.check();
            return received_;
        }
        void readable() override {
            waiting_ = false;
            if (try_now())
                coroutine_.resume();
            else
                watch();
        }

      private:
        friend class Subscription;
        Next(Subscription &subscription, Executor &executor)
            : subscription_(subscription), executor_(executor) {}

        // Whether there is something to go on with.
        bool try_now() {
            std::uint64_t lost = received_.lost_;
            received_ = subscription_.receive_once(&slipring_subscription_try_recv);
            received_.lost_ += lost;
            if (received_.raw_ == SLIPRING_EMPTY && fd_ < 0) {
                slipring_status status =
                    slipring_subscription_event_fd(subscription_.handle_.get(), &fd_);
                if (status != SLIPRING_OK)
                    received_.raw_ = status;
            }
            return received_.raw_ != SLIPRING_EMPTY;
        }
        void watch() {
            waiting_ = true;
            executor_.watch(fd_, *this);
        }

        Subscription &subscription_;
        Executor &executor_;
        Received received_;
        std::coroutine_handle<> coroutine_;
        int fd_ = -1;
        bool waiting_ = false;
    };
    [[nodiscard]] Next next(Executor &executor) { return Next(*this, executor); }

#endif

  private:
    friend class Broker;
    explicit Subscription(slipring_subscription *raw) noexcept : handle_(raw) {}

    // Calls `call` until it tells no loss. It may destroy this, if it tells none.
    template <class R, class F> void until_not_lagged(R &result, F &&call) {
        while ((result.raw_ = call(handle_.get())) == SLIPRING_LAGGED) {
            std::uint64_t lost = slipring_subscription_lost(handle_.get());
            result.lost_ += lost;
            lost_ += lost;
        }
    }

    template <class F> Received receive_once(F &&call) {
        Received received;
        until_not_lagged(received, [&](slipring_subscription *raw) {
            return call(raw, &received.message_.raw_);
        });
        return received;
    }

    template <class F> Received receive(F &&call) {
        Received received = receive_once(call);
        received.check();
        return received;
    }

    template <class F> Batch receive_batch(F &&call, std::size_t most) {
        Batch batch;
        until_not_lagged(batch, [&](slipring_subscription *raw) {
            return call(raw, most, &batch.messages_, &batch.size_);
        });
        batch.check();
        return batch;
    }

    template <class F> struct Polling {
        std::remove_reference_t<F> &function;
#ifndef SLIPRING_NO_EXCEPTIONS
        std::exception_ptr thrown = nullptr;
#endif

        static void each(void *user, const slipring_message *messages,
                         std::size_t count) noexcept {
            auto &polling = *static_cast<Polling *>(user);
            for (std::size_t i = 0; i < count; ++i)
                polling.call(Message(messages[i]));
        }
        static void some(void *user, const slipring_message *messages,
                         std::size_t count) noexcept {
            static_cast<Polling *>(user)->call(detail::span(messages, count));
        }
        template <class T> void call(const T &messages) noexcept {
            detail::contained([&] { function(messages); },
                              [&](const char *) {
#ifndef SLIPRING_NO_EXCEPTIONS
                                  if (!thrown)
                                      thrown = std::current_exception();
#endif
                              });
        }
    };

    template <class P>
    Polled poll_with(std::size_t most, slipring_messages_fn function, P &polling) {
        Polled polled;
        until_not_lagged(polled, [&](slipring_subscription *raw) {
            return slipring_subscription_poll(raw, most, function, &polling, &polled.size_);
        });
#ifndef SLIPRING_NO_EXCEPTIONS
        if (polling.thrown)
            std::rethrow_exception(polling.thrown);
#endif
        polled.check();
        return polled;
    }

    detail::Handle<slipring_subscription, slipring_subscription_free> handle_;
    std::uint64_t lost_ = 0;
};

namespace detail {
template <class F> struct Handling;

// Why the handler that is running fails: with the message at `index`, or with all.
inline void because(std::string_view reason, const std::size_t *index = nullptr) noexcept {
    auto tell = [&](std::string_view text) {
        return index == nullptr ? slipring_handler_reason(text.data(), text.size())
                                : slipring_handler_reason_at(*index, text.data(), text.size());
    };
    if (tell(reason) == SLIPRING_EUTF8)
        tell("a reason that is not UTF-8");
}
} // namespace detail

// What a handler makes of a message. One that returns nothing has succeeded; one that throws wants
// a retry, because of what the exception says.
//
// All but success is counted as a failure, and told to SubscriptionOptions::on_failure; where
// messages are delivered at most once, that is all it does.
class Handled {
  public:
    // It is done with.
    static Handled success() noexcept { return Handled(SLIPRING_SUCCESS, std::string()); }
    // It is to be delivered again after the subscription's backoff, unless this was its last
    // attempt; then it goes to the dead letters.
    static Handled retry(std::string reason = "the handler asked for a retry") noexcept {
        return Handled(SLIPRING_RETRY, std::move(reason));
    }
    // It goes to the dead letters.
    static Handled dead_letter(std::string reason = "the handler gave up") noexcept {
        return Handled(SLIPRING_DEAD_LETTER, std::move(reason));
    }

    const std::string &reason() const noexcept { return reason_; }

  private:
    friend class Outcomes;
    template <class F> friend struct detail::Handling;
    Handled(slipring_handled what, std::string reason) noexcept
        : what_(what), reason_(std::move(reason)) {}
    slipring_handled what_;
    std::string reason_;
};

// What a batch handler makes of each of its messages, for as long as it runs. A message of which it
// says nothing is as what it returns, or throws, says of all.
class Outcomes {
  public:
    // How many messages.
    std::size_t size() const noexcept { return size_; }

    // What it makes of the message at `index`, which is below `size()`; the last one counts.
    void set(std::size_t index, const Handled &handled) noexcept {
        if (index >= size_)
            return;
        if (handled.what_ != SLIPRING_SUCCESS)
            detail::because(handled.reason_, &index);
        raw_[index] = handled.what_;
    }

  private:
    template <class F> friend struct detail::Handling;
    Outcomes(std::int32_t *raw, std::size_t size) noexcept : raw_(raw), size_(size) {}
    std::int32_t *raw_;
    std::size_t size_;
};

// A subscription whose messages go to a handler. It ends when this is destroyed: the handler does
// not run any more then, and is not called again.
//
// Destroying it waits for a running handler, except from inside that handler itself and from inside
// a filter. Two handlers that end each other at the same time would wait for ever:
// `unsubscribe_for` has a limit.
class [[nodiscard]] HandlerSubscription {
  public:
    // Number of the subscription, unique in the broker.
    std::uint64_t id() const noexcept { return slipring_handler_subscription_id(handle_.get()); }

    // Messages queued and not handed to the handler yet.
    Returns<std::uint64_t> queued() const {
        return detail::fetch<std::uint64_t>([&](std::uint64_t *queued) {
            return slipring_handler_subscription_queued(handle_.get(), queued);
        });
    }

    // Ends it now, as destroying it does. What was queued is thrown away.
    void unsubscribe() noexcept { slipring_handler_subscription_free(handle_.out()); }

    // The same, waiting for a running handler for at most so long: whether it has ended. If not, it
    // is not called again, and this is to be destroyed later. Errors: inside_filter.
    Returns<bool> unsubscribe_for(Nanoseconds timeout) {
        slipring_status status =
            slipring_handler_subscription_unsubscribe(handle_.out(), detail::ns(timeout));
        if (status == SLIPRING_TIMEOUT)
            return false;
        return detail::give<bool>(status, [] { return true; });
    }

    // Lets the handler run until the broker closes.
    void detach() noexcept { slipring_handler_subscription_detach(handle_.out()); }

  private:
    friend class Broker;
    explicit HandlerSubscription(slipring_handler_subscription *raw) noexcept : handle_(raw) {}
    detail::Handle<slipring_handler_subscription, slipring_handler_subscription_free> handle_;
};

namespace detail {

// What a handler's subscription owns; its functions are called one at a time.
template <class F> struct Handling {
    F handle;
    std::function<void(std::uint64_t)> lagged;
    std::function<void(const Failure &)> failed;

    static void set_handle(slipring_handler &raw) noexcept { raw.handle = &on_message; }
    static void set_handle(slipring_batch_handler &raw) noexcept { raw.handle = &on_messages; }

    static std::int32_t on_message(void *user, const slipring_message *message) noexcept {
        return contained([&] { return answer(user, Message(*message)); }, gave_up);
    }
    static std::int32_t on_messages(void *user, const slipring_message *messages, std::size_t count,
                                    std::int32_t *handled) noexcept {
        const Span<const Message> batch = span(messages, count);
        return contained(
            [&] {
                if constexpr (std::is_invocable_v<F &, Span<const Message>, Outcomes &>) {
                    Outcomes outcomes(handled, count);
                    return answer(user, batch, outcomes);
                } else {
                    return answer(user, batch);
                }
            },
            gave_up);
    }
    template <class... Args> static std::int32_t answer(void *user, Args &&...args) {
        auto &handle = static_cast<Handling *>(user)->handle;
        if constexpr (std::is_void_v<std::invoke_result_t<F &, Args &&...>>) {
            handle(std::forward<Args>(args)...);
            return SLIPRING_SUCCESS;
        } else {
            const Handled handled = handle(std::forward<Args>(args)...);
            if (handled.what_ != SLIPRING_SUCCESS)
                because(handled.reason_);
            return handled.what_;
        }
    }
    static std::int32_t gave_up(const char *what) noexcept {
        because(what);
        return SLIPRING_RETRY;
    }
    static void on_lagged(void *user, std::uint64_t lost) noexcept {
        contained([&] { static_cast<Handling *>(user)->lagged(lost); }, [](const char *) {});
    }
    static void on_failed(void *user, const slipring_message *message, std::int32_t,
                          const char *reason, std::size_t reason_len) noexcept {
        auto &self = *static_cast<Handling *>(user);
        contained(
            [&] {
                self.failed(Failure{Message(*message), std::string_view(reason, reason_len)});
            },
            [](const char *) {});
    }
};

template <class F, class... Args> constexpr bool answers() {
    if constexpr (std::is_invocable_v<F &, Args...>) {
        using R = std::invoke_result_t<F &, Args...>;
        return std::is_void_v<R> || std::is_same_v<R, Handled>;
    }
    return false;
}
template <class F> constexpr bool is_handler() { return answers<F, const Message &>(); }
template <class F> constexpr bool is_batch_handler() {
    return answers<F, Span<const Message>, Outcomes &>() || answers<F, Span<const Message>>();
}

} // namespace detail

// ---- Names and dead letters ------------------------------------------------------------------

// What is known of a subscription that has a name.
struct SubscriptionDescription {
    std::string name;                  // Its name.
    std::vector<std::string> patterns; // Its patterns.
    Delivery delivery;                 // When a message counts as delivered.
    bool is_online;                    // Whether it has a consumer.
    std::uint64_t queued;              // Messages that were not taken yet.
    std::uint64_t unsettled;           // Messages that were taken and are not settled.
};

// Dead letters that were listed together: messages that are kept. They outlive the broker.
class Letters : public detail::Messages {
  private:
    friend class DeadLetters;
    explicit Letters(slipring_letters *raw) noexcept : handle_(raw) {
        slipring_letters_get(raw, &messages_, &size_);
    }
    detail::Handle<slipring_letters, slipring_letters_free> handle_;
};

// The dead letters in one topic: what subscriptions have given up on. Each is the message as it
// was, with attributes that say where it is from and why: those whose names are
// SLIPRING_DEAD_LETTER_ macros. From Broker::dead_letters, and to be used while that broker lives.
//
// Listing reads through the logs of the topic's shards. Errors: not_utf8, invalid_filter,
// inside_filter, forked; for what sends back also those of Topic::publish.
class DeadLetters {
  public:
    // The first `most` letters that were neither sent back nor thrown away, in order by partition
    // and offset.
    Returns<Letters> list(std::size_t most = SIZE_MAX) const { return list_by(nullptr, most); }
    // The same of those whose attributes match.
    Returns<Letters> list(const Filter &filter, std::size_t most = SIZE_MAX) const {
        return list_by(&filter, most);
    }

    // The letter at this place, if it is in the list.
    Returns<std::optional<OwnedMessage>> peek(std::uint32_t partition, std::uint64_t offset) const {
        slipring_kept *letter = nullptr;
        slipring_status status = slipring_broker_dead_letter(broker_, topic_.data(), topic_.size(),
                                                             partition, offset, &letter);
        return detail::give_unless<OwnedMessage>(SLIPRING_EMPTY, status,
                                                 [&] { return OwnedMessage(letter); });
    }

    // How many letters there are.
    Returns<std::uint64_t> count() const {
        return detail::fetch<std::uint64_t>([&](std::uint64_t *count) {
            return slipring_broker_dead_letters_count(broker_, topic_.data(), topic_.size(),
                                                      count);
        });
    }

    // Publishes a letter to the topic that its message was from, as it was, and takes it out of the
    // list. False if it is not there any more.
    Returns<bool> redrive(const Message &letter) const {
        std::uint64_t sent = 0;
        slipring_status status = slipring_broker_redrive(broker_, topic_.data(), topic_.size(),
                                                         &letter.raw(), 1, &sent);
        return detail::give<bool>(status, [&] { return sent == 1; });
    }
    // The same for several, as those that were listed, in one call; how many were sent. After an
    // error `partial` says that: the first ones.
    Returns<std::uint64_t> redrive(Span<const Message> letters,
                                   std::uint64_t *partial = nullptr) const {
        std::uint64_t sent = 0;
        slipring_status status =
            slipring_broker_redrive(broker_, topic_.data(), topic_.size(), detail::raw(letters),
                                    letters.size(), &sent);
        if (partial != nullptr)
            *partial = sent;
        return detail::give<std::uint64_t>(status, [&] { return sent; });
    }
    // The same for all in the list; how many were sent.
    Returns<std::uint64_t> redrive_all() const { return redrive_by(nullptr); }
    // The same for those whose attributes match.
    Returns<std::uint64_t> redrive_all(const Filter &filter) const { return redrive_by(&filter); }

    // Throws all away; how many.
    Returns<std::uint64_t> purge() const {
        return detail::fetch<std::uint64_t>([&](std::uint64_t *purged) {
            return slipring_broker_purge_dead_letters(broker_, topic_.data(), topic_.size(),
                                                      purged);
        });
    }

  private:
    friend class Broker;
    DeadLetters(slipring_broker *broker, std::string_view topic) : broker_(broker), topic_(topic) {}

    static const char *data(const Filter *filter) noexcept {
        return filter == nullptr ? nullptr : filter->text().data();
    }
    static std::size_t size(const Filter *filter) noexcept {
        return filter == nullptr ? 0 : filter->text().size();
    }
    Returns<Letters> list_by(const Filter *filter, std::size_t most) const {
        slipring_letters *letters = nullptr;
        slipring_status status =
            slipring_broker_dead_letters(broker_, topic_.data(), topic_.size(), data(filter),
                                         size(filter), most, &letters);
        return detail::give<Letters>(status, [&] { return Letters(letters); });
    }
    Returns<std::uint64_t> redrive_by(const Filter *filter) const {
        return detail::fetch<std::uint64_t>([&](std::uint64_t *sent) {
            return slipring_broker_redrive_all(broker_, topic_.data(), topic_.size(), data(filter),
                                               size(filter), sent);
        });
    }

    slipring_broker *broker_;
    std::string topic_;
};

// ---- The broker ------------------------------------------------------------------------------

// A broker inside this process. All threads may use it at once, and handlers too. It closes when it
// is destroyed; topics and subscriptions may live longer.
class Broker {
  public:
    // Opens a broker in the directory `dir`, with the default settings. Errors: as below.
    static Returns<Broker> open(std::string dir) {
        return open(BrokerOptions().dir(std::move(dir)));
    }

    // Opens a broker, in memory or in the directory of its options. Errors: out_of_range,
    // no_thread; for a directory locked, incompatible, damaged, full, store.
    static Returns<Broker> open(const BrokerOptions &options = BrokerOptions()) {
        slipring_broker *broker = nullptr;
        slipring_broker_options raw = options.raw();
        return detail::give<Broker>(slipring_broker_open(&raw, &broker),
                                    [&] { return Broker(broker); });
    }

    // Closes the broker: stops intake, gives handlers so long to handle what is queued, and stops
    // all threads. Publishers and consumers that wait wake with Status::closed; what is queued for
    // subscriptions that are pulled can still be received. A named subscription in a directory hands
    // nothing over any more and refuses acknowledgements with Status::closed. Closing again does
    // nothing. May be called from inside a handler, which then is not waited for.
    CloseReport close(Nanoseconds deadline = Nanoseconds::zero()) const noexcept {
        CloseReport report = {};
        slipring_broker_close(handle_.get(), detail::ns(deadline), &report);
        return report;
    }

    // Whether it has a directory: then publishing may wait for the disk.
    bool is_durable() const noexcept { return slipring_broker_is_durable(handle_.get()) != 0; }

    // Makes everything that has been published and settled survive a power cut. In memory it does
    // nothing. Errors: store, full, inside_filter, forked.
    Returns<void> flush() const {
        return detail::check(slipring_broker_flush(handle_.get()));
    }

    // Says how long messages of the topic `name` are kept in the directory from now on, and how
    // many bytes (0: any number). Errors: not_utf8, no_such_topic, out_of_range (less than the dedup
    // window), store, full, inside_filter, forked.
    Returns<void> set_retention(std::string_view name, Nanoseconds age,
                                std::uint64_t bytes = 0) const {
        return detail::check(slipring_broker_set_retention(handle_.get(), name.data(), name.size(),
                                                           detail::ns(age), bytes));
    }
    // Says that a message is not stored again in the topic `name` if its id was published there
    // less than `window` ago: its receipt is that of the first one, with `duplicate`. 0 stores
    // everything, which is the default; 1 ms at least, and the topic's retention at most. `ids` is
    // how many ids are known at most (0: any number); each costs about 100 bytes for as long as it
    // counts. Errors: not_utf8, no_such_topic, out_of_range, store, full, inside_filter, forked.
    Returns<void> set_dedup_window(std::string_view name, Nanoseconds window,
                                   std::uint64_t ids = 0) const {
        return detail::check(slipring_broker_set_dedup_window(
            handle_.get(), name.data(), name.size(), detail::ns(window), ids));
    }

    // The topic `name`, to publish to; creates it, if the broker does that. Errors: not_utf8,
    // invalid_name, no_such_topic, closed, inside_filter, forked.
    Returns<Topic> topic(std::string_view name) const {
        slipring_topic *topic = nullptr;
        return detail::give<Topic>(
            slipring_broker_topic(handle_.get(), name.data(), name.size(), &topic),
            [&] { return Topic(topic); });
    }

    // Creates the topic `name`. Errors: those, topic_exists, out_of_range.
    Returns<Topic> create_topic(std::string_view name, std::uint32_t partitions = 1) const {
        slipring_topic *topic = nullptr;
        return detail::give<Topic>(slipring_broker_create_topic(handle_.get(), name.data(),
                                                                name.size(), partitions, &topic),
                                   [&] { return Topic(topic); });
    }

    // Deletes the topic `name`: publishing to it is refused, and its messages are not replayed any
    // more. What is queued already is still delivered.
    Returns<void> delete_topic(std::string_view name) const {
        return detail::check(slipring_broker_delete_topic(handle_.get(), name.data(), name.size()));
    }

    // Names of up to `most` topics that match `pattern`, in order, from the one after `after` on.
    Returns<std::vector<std::string>> topics(std::string_view pattern, std::string_view after = {},
                                             std::size_t most = SIZE_MAX) const {
        slipring_text *names = nullptr;
        slipring_status status = slipring_broker_topics(
            handle_.get(), pattern.data(), pattern.size(),
            after.empty() ? nullptr : after.data(), after.size(), most, &names);
        return detail::give<std::vector<std::string>>(
            status, [&] { return detail::take_lines(names); });
    }

    // The partitions of the topic `name`.
    Returns<std::vector<Partition>> describe_topic(std::string_view name) const {
        std::vector<Partition> partitions;
        std::size_t count = 0;
        slipring_status status;
        do {
            partitions.resize(count);
            status = slipring_broker_describe_topic(handle_.get(), name.data(), name.size(),
                                                    partitions.data(), partitions.size(), &count);
        } while (status == SLIPRING_OK && count > partitions.size());
        return detail::give<std::vector<Partition>>(status, [&] { return std::move(partitions); });
    }

    // The settings of the topic `name`. Errors: not_utf8, no_such_topic, inside_filter, forked.
    Returns<TopicConfig> topic_config(std::string_view name) const {
        return detail::fetch<TopicConfig>([&](TopicConfig *config) {
            return slipring_broker_topic_config(handle_.get(), name.data(), name.size(), config,
                                                sizeof *config);
        });
    }

    // Publishes one message to the topic `name`. Publishers that stay hold on to a Topic. Errors
    // and waiting: as `topic` and Topic::publish.
    Returns<Receipt> publish(std::string_view name, Bytes payload) const {
        return detail::fetch<Receipt>([&](Receipt *receipt) {
            return slipring_broker_publish(handle_.get(), name.data(), name.size(), payload.data(),
                                           payload.size(), receipt);
        });
    }

    // Subscribes to `pattern`; the messages are pulled. Every publish that starts after this has
    // returned sees the subscription. Errors: closed, not_utf8, invalid_name (a pattern, or the
    // subscription's name), invalid_filter, name_in_use, out_of_range, inside_filter, forked.
    [[nodiscard]] Returns<Subscription>
    subscribe(std::string_view pattern,
              const SubscriptionOptions &options = SubscriptionOptions()) const {
        std::vector<slipring_text_view> patterns;
        slipring_subscription_options raw = options.raw(patterns);
        slipring_subscription *subscription = nullptr;
        return detail::give<Subscription>(
            slipring_broker_subscribe(handle_.get(), pattern.data(), pattern.size(), &raw,
                                      &subscription),
            [&] { return Subscription(subscription); });
    }

    // Subscribes to `pattern`; `handler(const Message &)` is called with every message, possibly
    // before this has returned: one at a time, in order, on a delivery worker or a thread of its
    // own. It returns nothing, or a Handled. It may do everything with the broker: publish,
    // subscribe, unsubscribe itself and others, close it.
    //
    // An exception counts as Handled::retry, because of what it says, and harms nobody. The handler
    // is destroyed once it is not called any more: before HandlerSubscription is, except from
    // inside a handler, itself or another. Errors: as above, and no_thread.
    template <class F, class = std::enable_if_t<detail::is_handler<std::decay_t<F>>()>>
    [[nodiscard]] Returns<HandlerSubscription>
    subscribe(std::string_view pattern, const SubscriptionOptions &options, F &&handler) const {
        return run<slipring_handler>(pattern, options, std::forward<F>(handler),
                                     slipring_broker_subscribe_handler);
    }
    template <class F, class = std::enable_if_t<detail::is_handler<std::decay_t<F>>()>>
    [[nodiscard]] Returns<HandlerSubscription> subscribe(std::string_view pattern,
                                                         F &&handler) const {
        return subscribe(pattern, SubscriptionOptions(), std::forward<F>(handler));
    }

    // The same with several messages in a call: those that are queued, up to 64, never waited for.
    // `handler(Span<const Message>)` returns nothing, or a Handled, which is for all of them;
    // `handler(Span<const Message>, Outcomes &)` can say of some what it makes of them, and what it
    // returns, or throws, is for the others.
    //
    //     broker.subscribe_batches("rows/*", [&](Span<const Message> rows, Outcomes &outcomes) {
    //         for (std::size_t at : table.insert(rows))
    //             outcomes.set(at, Handled::dead_letter("not a row"));
    //     });
    //
    // Each that has failed is a failure of its own, also for a circuit breaker. All of them are the
    // handler's until it returns, also if it unsubscribes. Several can have the same ordering key:
    // those behind one that fails were handled before that comes again. Otherwise, and for errors,
    // as `subscribe`.
    template <class F, class = std::enable_if_t<detail::is_batch_handler<std::decay_t<F>>()>>
    [[nodiscard]] Returns<HandlerSubscription> subscribe_batches(std::string_view pattern,
                                                                 const SubscriptionOptions &options,
                                                                 F &&handler) const {
        return run<slipring_batch_handler>(pattern, options, std::forward<F>(handler),
                                           slipring_broker_subscribe_batch_handler);
    }
    template <class F, class = std::enable_if_t<detail::is_batch_handler<std::decay_t<F>>()>>
    [[nodiscard]] Returns<HandlerSubscription> subscribe_batches(std::string_view pattern,
                                                                 F &&handler) const {
        return subscribe_batches(pattern, SubscriptionOptions(), std::forward<F>(handler));
    }

    // Names of the subscriptions that have one, in order. Errors: inside_filter, forked.
    Returns<std::vector<std::string>> subscriptions() const {
        slipring_text *names = nullptr;
        return detail::give<std::vector<std::string>>(
            slipring_broker_subscriptions(handle_.get(), &names),
            [&] { return detail::take_lines(names); });
    }

    // What is known of the subscription of this name. Errors: no_such_subscription, not_utf8,
    // inside_filter, forked.
    Returns<SubscriptionDescription> describe_subscription(std::string_view name) const {
        slipring_subscription_description raw = {};
        slipring_text *patterns = nullptr;
        slipring_status status = slipring_broker_describe_subscription(
            handle_.get(), name.data(), name.size(), &raw, sizeof raw, &patterns);
        return detail::give<SubscriptionDescription>(status, [&] {
            return SubscriptionDescription{std::string(name), detail::take_lines(patterns),
                                           Delivery(raw.delivery), raw.is_online != 0,
                                           raw.queued, raw.unsettled};
        });
    }

    // Deletes the subscription of this name, with all that it has not settled. Its consumer gets
    // Status::disconnected; a handler is unsubscribed, and may run to its end. Errors: as above.
    Returns<void> delete_subscription(std::string_view name) const {
        return detail::check(
            slipring_broker_delete_subscription(handle_.get(), name.data(), name.size()));
    }

    // Lets the subscription of this name, which has no consumer at the moment, go on elsewhere: see
    // Subscription::seek. Errors: as above, name_in_use (it has a consumer), at_most_once.
    Returns<void> seek_subscription(std::string_view name, Start where) const {
        return detail::check(slipring_broker_seek_subscription(
            handle_.get(), name.data(), name.size(), static_cast<std::uint32_t>(where.what_),
            where.value_));
    }

    // What settles messages of the subscription of this name by their ack ids, until it gets
    // another consumer or seeks. Errors: as above, and at_most_once.
    Returns<Acker> acker(std::string_view name) const {
        slipring_acker *acker = nullptr;
        return detail::give<Acker>(
            slipring_broker_acker(handle_.get(), name.data(), name.size(), &acker),
            [&] { return Acker(acker); });
    }

    // The dead letters in this topic: `$dlq/` and a subscription's name, where that did not ask for
    // another. A view of the broker, which is to live longer.
    DeadLetters dead_letters(std::string_view topic) const {
        return DeadLetters(handle_.get(), topic);
    }

    // Figures of the broker, over all its shards.
    Metrics metrics() const noexcept {
        Metrics metrics = {};
        slipring_broker_metrics(handle_.get(), &metrics, sizeof metrics);
        return metrics;
    }

    // Figures of a shard, of which there are Metrics::shards. Errors: out_of_range.
    Returns<ShardMetrics> shard_metrics(std::uint32_t shard) const {
        return detail::fetch<ShardMetrics>([&](ShardMetrics *metrics) {
            return slipring_broker_shard_metrics(handle_.get(), shard, metrics, sizeof *metrics);
        });
    }

    // Figures of the topic `name`. Errors: not_utf8, no_such_topic, inside_filter, forked.
    Returns<TopicMetrics> topic_metrics(std::string_view name) const {
        return detail::fetch<TopicMetrics>([&](TopicMetrics *metrics) {
            return slipring_broker_topic_metrics(handle_.get(), name.data(), name.size(), metrics,
                                                 sizeof *metrics);
        });
    }

    // The numbers of all subscriptions, in the order in which they were made. Errors: inside_filter,
    // forked.
    Returns<std::vector<std::uint64_t>> subscription_ids() const {
        std::vector<std::uint64_t> ids;
        std::size_t count = 0;
        slipring_status status;
        do {
            ids.resize(count);
            status = slipring_broker_subscription_ids(handle_.get(), ids.data(), ids.size(),
                                                      &count);
        } while (status == SLIPRING_OK && count > ids.size());
        return detail::give<std::vector<std::uint64_t>>(status, [&] {
            ids.resize(count);
            return std::move(ids);
        });
    }

    // Figures of the subscription with this number. Errors: no_such_subscription, inside_filter,
    // forked.
    Returns<SubscriptionMetrics> subscription_metrics(std::uint64_t id) const {
        return detail::fetch<SubscriptionMetrics>([&](SubscriptionMetrics *metrics) {
            return slipring_broker_subscription_metrics(handle_.get(), id, metrics,
                                                        sizeof *metrics);
        });
    }

    // All figures in the Prometheus text exposition format, version 0.0.4.
    Returns<std::string> prometheus() const {
        slipring_text *text = nullptr;
        return detail::give<std::string>(slipring_broker_prometheus(handle_.get(), &text),
                                         [&] { return detail::take(text); });
    }

    // The handle, for the functions of slipring.h; it stays this one's.
    slipring_broker *raw() const noexcept { return handle_.get(); }

  private:
    explicit Broker(slipring_broker *raw) noexcept : handle_(raw) {}

    // Subscribes with a handler of either kind.
    template <class Raw, class F, class C>
    Returns<HandlerSubscription> run(std::string_view pattern, const SubscriptionOptions &options,
                                     F &&function, C &&call) const {
        using Handling = detail::Handling<std::decay_t<F>>;
        auto handling = std::make_unique<Handling>(
            Handling{std::forward<F>(function), options.lagged_, options.failed_});
        Raw handler = {};
        Handling::set_handle(handler);
        handler.lagged = options.lagged_ ? &Handling::on_lagged : nullptr;
        handler.failed = options.failed_ ? &Handling::on_failed : nullptr;
        handler.user_free = [](void *user) { delete static_cast<Handling *>(user); };
        std::vector<slipring_text_view> patterns;
        slipring_subscription_options raw = options.raw(patterns);
        handler.user = handling.release();
        slipring_handler_subscription *subscription = nullptr;
        return detail::give<HandlerSubscription>(call(handle_.get(), pattern.data(), pattern.size(),
                                                      &raw, &handler, &subscription),
                                                 [&] { return HandlerSubscription(subscription); });
    }

    detail::Handle<slipring_broker, slipring_broker_free> handle_;
};

} // inline namespace
} // namespace slipring

#endif
