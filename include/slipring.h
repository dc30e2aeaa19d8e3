// SPDX-License-Identifier: MIT OR Apache-2.0
//
// slipring: the publish/subscribe broker that lives inside your program. The C ABI.
//
//     slipring_broker *broker = NULL;
//     slipring_subscription *scores = NULL;
//     slipring_message message;
//     slipring_broker_open(NULL, &broker);
//     slipring_broker_subscribe(broker, SLIPRING_TEXT("sports/" "**"), NULL, &scores);
//     slipring_broker_publish(broker, SLIPRING_TEXT("sports/cricket"), SLIPRING_BYTES("four!"), NULL);
//     if (slipring_subscription_recv(scores, &message) == SLIPRING_OK)
//         printf("%.*s\n", (int)slipring_message_payload_len(&message),
//                (const char *)slipring_message_payload(&message));
//     slipring_subscription_free(&scores);
//     slipring_broker_free(&broker);
//
// TOPICS are `a/b/c`; in patterns `*` is one segment and `**` any number, anywhere. Messages come in
// order per partition. Whatever is lost is counted, exactly, and told.
//
// DELIVERY is at least once, or at most once where a subscription asks for that
// (`slipring_subscription_options.delivery`). At least once, each delivery of a message is a lease, which ends
// after a time, and the message comes again until it is settled. A handler settles it by what it
// returns. Who pulls calls `slipring_ack`, `slipring_nack`, `slipring_extend` or `slipring_dead_letter`
// with the messages, one or an array of them in one call; or keeps their ack ids, which are values, and
// settles from elsewhere with a `slipring_acker`. A message that fails too often goes to the dead
// letters, a topic of their own (`slipring_broker_dead_letters`), from which it can be sent back. A
// subscription with a name lives as long as the broker, or its directory, and its consumers come and
// go.
//
//     slipring_subscription_options options;
//     slipring_subscription_options_init(&options, sizeof options);
//     options.max_delivery_attempts = 3;
//     ...
//     while (slipring_subscription_recv_batch(jobs, 64, &messages, &count) == SLIPRING_OK) {
//         do_all(messages, count);
//         slipring_ack(messages, count, NULL);
//     }
//
// RESULTS. A function that can fail returns a `slipring_status`: 0 for success, positive for an
// outcome that is no error, negative for an error, whose text is then the thread's last error
// (`slipring_last_error`). The comment of a function lists what it returns besides, without the prefix
// SLIPRING_; EPANIC is possible everywhere and is a bug of the library. Results are written on success
// only, and a pointer for a result may be NULL only where that is said.
//
// HANDLES are opaque and belong to who got them. What ends one, mostly a `_free` function, takes the
// address of the variable and sets it to NULL; for `_free`, `_abort` and `_detach`, NULL, or a variable
// that is NULL, is no error. A handle must not be used after it was freed, nor be freed while a call is
// using it, except where its comment allows that. Handles may be freed in any order.
//
// TEXTS AND BYTES are a pointer and a length. Texts are UTF-8 and need not end in NUL; what the
// library hands out as a view does not end in NUL. What is handed in is borrowed for the call alone.
//
// THREADS. A function that takes a `const` pointer to a handle may be called on that handle by any
// number of threads at once; one that takes a pointer that is not `const` by one at a time. The last
// error belongs to its thread. Functions that can wait say so.
//
// CALLBACKS must return: no `longjmp`, no thread exit, no C++ exception out of them. User data comes
// with a function that lets go of it, which is called exactly once.
//
// FORK. In the child of a fork, a broker that was opened before refuses everything with EFORKED.
//
// The library does nothing to the process: no signal handlers, no output, except for the message of a
// Rust panic on standard error, and it never ends the process.
//
// Made by `cargo xtask header`: do not edit.


#ifndef SLIPRING_H
#define SLIPRING_H

#include <stddef.h>
#include <stdint.h>

// Version of this header; `slipring_version()` is that of the library.
#define SLIPRING_VERSION_MAJOR 0
#define SLIPRING_VERSION_MINOR 1
#define SLIPRING_VERSION_PATCH 0
#define SLIPRING_VERSION_STRING "0.1.0"
#define SLIPRING_VERSION                                                                    \
    ((SLIPRING_VERSION_MAJOR + 0u) << 16 | (SLIPRING_VERSION_MINOR + 0u) << 8 |             \
     (SLIPRING_VERSION_PATCH + 0u))

// Times are in nanoseconds.
#define SLIPRING_FOREVER UINT64_MAX
#define SLIPRING_MILLISECONDS(n) ((uint64_t)(n) * 1000000u)
#define SLIPRING_SECONDS(n) ((uint64_t)(n) * 1000000000u)

// For `slipring_nack`: as long as the subscription's backoff has it.
#define SLIPRING_BACKOFF UINT64_MAX

// What a batch handler makes of one of its messages: what it returns.
#define SLIPRING_AS_RETURNED INT32_MIN

// Attributes of a dead letter: the subscription that gave up on it, topic, partition and offset of
// the message, how often it was delivered, and why it was given up.
#define SLIPRING_DEAD_LETTER_SUBSCRIPTION "dead-letter-subscription"
#define SLIPRING_DEAD_LETTER_TOPIC "dead-letter-topic"
#define SLIPRING_DEAD_LETTER_PARTITION "dead-letter-partition"
#define SLIPRING_DEAD_LETTER_OFFSET "dead-letter-offset"
#define SLIPRING_DEAD_LETTER_ATTEMPTS "dead-letter-attempts"
#define SLIPRING_DEAD_LETTER_REASON "dead-letter-reason"

// The two arguments, pointer and length, of a literal as a text, and as bytes.
#define SLIPRING_TEXT(literal) ("" literal), (sizeof(literal) - 1)
#define SLIPRING_BYTES(literal) ((const uint8_t *)("" literal)), (sizeof(literal) - 1)


// What a function returns that can fail: 0 for success, positive for an outcome that is no error,
// negative for an error, which also sets the thread's last error. Numbers are never reused.
enum slipring_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    SLIPRING_OK = 0,
    // There is none now: no message queued, no such attribute, no receipt yet.
    SLIPRING_EMPTY = 1,
    // Messages were lost at this place of the stream; `slipring_subscription_lost` has the number.
    // The next call goes on behind them.
    SLIPRING_LAGGED = 2,
    // The time given is over.
    SLIPRING_TIMEOUT = 3,
    // The broker is closed; when receiving, everything queued was delivered.
    SLIPRING_CLOSED = 4,
    // It would have to wait.
    SLIPRING_WOULD_BLOCK = 5,
    // The subscription's queue stayed full for longer than it allows (`SLIPRING_DISCONNECT`), and
    // everything queued was delivered; or another consumer has taken its place, or it was deleted.
    SLIPRING_DISCONNECTED = 6,
    // The lease on a message is over, and nothing was done: its time has passed, the message was
    // settled, given back or delivered anew, it has expired, or its subscription has ended.
    SLIPRING_STALE = 7,
    // An argument is NULL, not aligned, or a length that cannot be.
    SLIPRING_EINVAL = -1,
    // A text is not UTF-8.
    SLIPRING_EUTF8 = -2,
    // A topic name or pattern breaks the rules.
    SLIPRING_ENAME = -3,
    // A filter expression cannot be read.
    SLIPRING_EFILTER = -4,
    // A message breaks a limit.
    SLIPRING_EMESSAGE = -5,
    // There is no such topic.
    SLIPRING_ENOTOPIC = -6,
    // The topic was deleted.
    SLIPRING_EDELETED = -7,
    // The topic exists.
    SLIPRING_EEXIST = -8,
    // The memory budget is used up by messages that are still queued.
    SLIPRING_EFULL = -9,
    // The system has no memory left.
    SLIPRING_ENOMEM = -10,
    // The call came from inside a filter function.
    SLIPRING_EFILTERING = -11,
    // The process has forked since the broker was opened, and this is the child.
    SLIPRING_EFORKED = -12,
    // A subscription of this name exists, and has a consumer, or other patterns, or another way of
    // delivery.
    SLIPRING_EINUSE = -13,
    // A setting or number is out of its range.
    SLIPRING_ERANGE = -14,
    // A thread could not be started.
    SLIPRING_ETHREAD = -15,
    // The system has no descriptor left.
    SLIPRING_ESYSTEM = -16,
    // Another call on this handle is running: in another thread, or around this one.
    SLIPRING_EBUSY = -17,
    // There is no such subscription.
    SLIPRING_ENOSUBSCRIPTION = -18,
    // A bug in the library: it panicked, and the panic was caught.
    SLIPRING_EPANIC = -19,
    // Only a subscription that delivers at least once can do that.
    SLIPRING_EATMOSTONCE = -20,
    // There is no lease on the message: it was delivered at most once, or went to a handler, whose
    // result settles it.
    SLIPRING_ENOTLEASED = -21,
    // It is no ack id, or one of another subscription.
    SLIPRING_EACKID = -22,
    // The store did not do its part: the disk refused, or a write failed before. The last error
    // says more. After a failed write the broker takes no more until it is opened anew.
    SLIPRING_ESTORE = -23,
    // The directory belongs to another broker, of this process or another.
    SLIPRING_ELOCKED = -24,
    // The directory is no broker's, or that of a later version, or a part of it is missing.
    SLIPRING_EINCOMPATIBLE = -25,
    // The directory has other bytes than were written.
    SLIPRING_EDAMAGED = -26,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_status slipring_status;
#else
typedef int32_t slipring_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a publish does when the memory budget is used up.
enum slipring_when_full
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The oldest messages expire; who had not read them is told how many were lost.
    SLIPRING_EXPIRE = 0,
    // The publish is refused (EFULL) while the oldest messages are still queued for somebody.
    SLIPRING_REFUSE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_when_full slipring_when_full;
#else
typedef uint32_t slipring_when_full;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Who puts a shard's messages in order and hands them to subscriptions.
enum slipring_sequencer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The publishers themselves.
    SLIPRING_PUBLISHERS = 0,
    // A thread per shard, pinned to allowed CPUs from `sequencer_first_cpu` on.
    SLIPRING_PINNED = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_sequencer slipring_sequencer;
#else
typedef uint32_t slipring_sequencer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// When a message counts as delivered.
enum slipring_delivery
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // When it is acknowledged, goes to the dead letters, or has expired from memory: until then it
    // is delivered again, after a time or a failure. Nothing is dropped while a queue is full: the
    // subscription reads the log until it has caught up.
    SLIPRING_AT_LEAST_ONCE = 0,
    // When it is handed over. What happens while a queue is full, `overflow` says.
    SLIPRING_AT_MOST_ONCE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_delivery slipring_delivery;
#else
typedef uint32_t slipring_delivery;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// When a message that was published counts as stored, in a broker with a directory. Under none of
// them does a killed process lose anything; they differ in what a power cut may take.
enum slipring_sync
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // When the disk has it. Whoever waits at the same time shares one sync.
    SLIPRING_SYNC_ALWAYS = 0,
    // When the operating system has it; the disk follows every `sync_interval_ns`.
    SLIPRING_SYNC_INTERVAL = 1,
    // When the operating system has it; it decides when the disk follows.
    SLIPRING_SYNC_OS = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_sync slipring_sync;
#else
typedef uint32_t slipring_sync;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What to do where the end of a log has other bytes than were written.
enum slipring_on_damage
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The shard can only be read: publishing to it fails with ESTORE.
    SLIPRING_DAMAGE_REFUSE = 0,
    // It goes on behind it. The damage stays as it is, and reading tells of it as a loss.
    SLIPRING_DAMAGE_SKIP = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_on_damage slipring_on_damage;
#else
typedef uint32_t slipring_on_damage;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What happens to messages while a subscription's queue is full, where they are delivered at most
// once. Whatever is dropped is told as an exact number, in stream order.
enum slipring_overflow
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The new message is dropped.
    SLIPRING_DROP_NEWEST = 0,
    // The oldest message that is queued is dropped.
    SLIPRING_DROP_OLDEST = 1,
    // The publisher waits until there is room; after `overflow_ns` the message is dropped.
    SLIPRING_BLOCK = 2,
    // New messages are dropped, and a subscription whose queue has been full for longer than
    // `overflow_ns` is disconnected.
    SLIPRING_DISCONNECT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_overflow slipring_overflow;
#else
typedef uint32_t slipring_overflow;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where a new subscription begins, or goes on when it seeks.
enum slipring_start
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // With the first message published after subscribing has returned.
    SLIPRING_START_NOW = 0,
    // With the oldest message still retained.
    SLIPRING_START_EARLIEST = 1,
    // With the last `start_value` retained messages that match.
    SLIPRING_START_LAST = 2,
    // In every matching partition, with the message at the offset `start_value`.
    SLIPRING_START_OFFSET = 3,
    // With the first message published at or after `start_value`, in microseconds since the Unix
    // epoch.
    SLIPRING_START_TIME = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_start slipring_start;
#else
typedef uint32_t slipring_start;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a consumer waits for the next message.
enum slipring_wait_strategy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Spins as long as that has lately been worth it, then yields, then parks.
    SLIPRING_WAIT_ADAPTIVE = 0,
    // Spins and never gives the core away.
    SLIPRING_WAIT_BUSY_SPIN = 1,
    // Spins a little, then yields to other threads again and again.
    SLIPRING_WAIT_YIELD = 2,
    // Parks at once.
    SLIPRING_WAIT_PARK = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_wait_strategy slipring_wait_strategy;
#else
typedef uint32_t slipring_wait_strategy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How much an event matters.
enum slipring_log_level
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Something is wrong that nobody else is told of.
    SLIPRING_LOG_ERROR = 1,
    // A handler has failed, a subscription was disconnected, a setting could not be kept.
    SLIPRING_LOG_WARN = 2,
    // Life and death of a broker.
    SLIPRING_LOG_INFO = 3,
    // Losses.
    SLIPRING_LOG_DEBUG = 4,
    // Everything.
    SLIPRING_LOG_TRACE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_log_level slipring_log_level;
#else
typedef uint32_t slipring_log_level;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a handler makes of a message. All but success counts as a failure; where messages are
// delivered at most once, that is all it does.
enum slipring_handled
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // It is done with.
    SLIPRING_SUCCESS = 0,
    // It is to be delivered again after the subscription's backoff, unless this was its last
    // attempt; then it goes to the dead letters. Any number that is not listed here is the same.
    SLIPRING_RETRY = 1,
    // It goes to the dead letters.
    SLIPRING_DEAD_LETTER = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_handled slipring_handled;
#else
typedef int32_t slipring_handled;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What the `meta` of a `slipring_record` says.
enum slipring_record_meta
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // These bits are the length of the extension, in units of 8 bytes.
    SLIPRING_RECORD_EXTENSION = 16777215,
    // The extension has a key: 16 bits of length, little-endian, and text. The first part.
    SLIPRING_RECORD_KEY = 16777216,
    // It has an id: the same. Behind the key.
    SLIPRING_RECORD_ID = 33554432,
    // It has attributes: 16 bits of how many, and for each 16 bits of its name's length, 16 of its
    // value's, and both texts. Behind the id.
    SLIPRING_RECORD_ATTRIBUTES = 67108864,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum slipring_record_meta slipring_record_meta;
#else
typedef uint32_t slipring_record_meta;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Settles messages of one subscription by their ack ids. Usable from all threads at once. It does
// not keep the subscription. Free it with `slipring_acker_free`.
typedef struct slipring_acker slipring_acker;

// A broker inside this process. Usable from all threads at once, and from inside handlers. Free it
// with `slipring_broker_free`.
typedef struct slipring_broker slipring_broker;

// Knows the last messages again by their ids: for consumers that get messages at least once and want
// to act on each but once. 25 bytes or so a message; every call is O(1). One call at a time may use
// it, and another gets EBUSY. Free it with `slipring_deduplicator_free`.
typedef struct slipring_deduplicator slipring_deduplicator;

// A subscription whose messages go to a handler. Usable from all threads at once; it ends once,
// with `slipring_handler_subscription_free` or `slipring_handler_subscription_detach`.
typedef struct slipring_handler_subscription slipring_handler_subscription;

// What a thread that polls several subscriptions in turn does between the rounds: one that looks all
// the time slows down who publishes, and one that looks rarely is late. One call at a time may use
// it, and another gets EBUSY. Free it with `slipring_idle_free`.
typedef struct slipring_idle slipring_idle;

// A message that was kept: it outlives the subscription and the broker. Usable from all threads at
// once. Free it with `slipring_kept_free`.
typedef struct slipring_kept slipring_kept;

// Dead letters that were listed together: messages that are kept. They outlive the broker. Usable
// from all threads at once. Free them with `slipring_letters_free`.
typedef struct slipring_letters slipring_letters;

// Space for a payload in the memory of the broker. It may move between threads; one uses it at a
// time. Ends with `slipring_loan_commit` or `slipring_loan_abort`.
typedef struct slipring_loan slipring_loan;

// A subscription whose messages are fetched by its owner. It may move between threads; it is one
// consumer, so one call at a time may use it, and another gets EBUSY. Free it with
// `slipring_subscription_free`.
typedef struct slipring_subscription slipring_subscription;

// A clock for tests, which stands still until it is told to move: leases, pauses and retention end
// without waiting. It is given to a broker as `slipring_broker_options.clock`. Usable from all threads
// at once. Free it with `slipring_test_clock_free`.
typedef struct slipring_test_clock slipring_test_clock;

// A text made by the library. Free it with `slipring_text_free`.
typedef struct slipring_text slipring_text;

// The receipt of a message that is being published. Usable from one thread at a time. Free it with
// `slipring_ticket_free`, or let `slipring_ticket_wait` do that.
typedef struct slipring_ticket slipring_ticket;

// A topic to publish to. Usable from all threads at once, and from inside handlers. Free it with
// `slipring_topic_free`, which leaves the topic itself as it is.
typedef struct slipring_topic slipring_topic;

// Is told an event of the broker: how much it matters, a `slipring_log_level`, and what it was, as
// text that does not end in NUL.
typedef void (*slipring_log_fn)(void *user, uint32_t level, const char *text, size_t text_len);

// Lets go of user data.
typedef void (*slipring_user_free_fn)(void *user);

// Settings of a broker. Fill it with `slipring_broker_options_init` first.
typedef struct slipring_broker_options {
    // Set by `slipring_broker_options_init`.
    uint32_t struct_size;
    // How many shards put messages in order independently of each other: 1 to 64. Default 0: 1, or
    // as many as the directory was made with, which is refused under another number.
    uint32_t shards;
    // Memory for messages, over all shards: at least 256 KiB a shard. Default 64 MiB.
    uint64_t memory_budget_bytes;
    // Bytes that a payload may have, up to 64 MiB. Default 10 MiB.
    uint64_t payload_limit_bytes;
    // Partitions of topics that are created by publishing: 1 to 1024. Default 1.
    uint32_t default_partitions;
    // Delivery workers, which are started with the first handler: 1 to 256. Default 0: as many as
    // CPUs, and at most 4.
    uint32_t workers;
    // Not 0: publishing to a topic that does not exist creates it. Default 1.
    uint32_t create_topics;
    // A `slipring_when_full`. Default SLIPRING_EXPIRE.
    uint32_t when_full;
    // A `slipring_sequencer`. Default SLIPRING_PUBLISHERS.
    uint32_t sequencer;
    // For SLIPRING_PINNED: index into the allowed CPUs.
    uint32_t sequencer_first_cpu;
    // Not 0: delivery workers are pinned to allowed CPUs from `workers_first_cpu` on. Default 0.
    uint32_t pin_workers;
    // Index into the allowed CPUs.
    uint32_t workers_first_cpu;
    // Is told the events of this broker: failures of handlers, disconnected subscriptions, its
    // end, and what else nobody is told of; never a message. Default NULL.
    //
    // It is called where the event happens, on any thread and on several at a time, also while a
    // shard is held: it must be quick, and calls of the broker from inside it are refused with
    // EFILTERING. It may be called until `log_user_free` is.
    slipring_log_fn log_fn;
    // Handed to `log_fn`.
    void *log_user;
    // Lets go of `log_user`; may be NULL. Called exactly once for every open call that was given
    // it, also where that fails, and after the last call of `log_fn`: on any thread, some time
    // after the broker and all handles that came from it are gone. It must not call the broker
    // either.
    slipring_user_free_fn log_user_free;
    // A `slipring_log_level`: what matters less is not told. Default SLIPRING_LOG_INFO.
    uint32_t log_level;
    // For a directory: a `slipring_sync`. Default SLIPRING_SYNC_ALWAYS.
    uint32_t sync;
    // A directory, which is made if need be: what is published, topics, and named subscriptions that
    // deliver at least once are kept there, and are there again when it is opened the next time, also
    // after a crash. It belongs to one broker at a time. Default NULL: a broker in memory.
    const char *dir;
    // Its length in bytes.
    size_t dir_len;
    // For SLIPRING_SYNC_INTERVAL. Default 100 ms.
    uint64_t sync_interval_ns;
    // How long messages of topics that are created by publishing are kept in the directory;
    // SLIPRING_FOREVER for ever. Default 7 days.
    uint64_t retention_ns;
    // How many bytes of them are kept, for each topic. Default 0: any number.
    uint64_t retention_bytes;
    // For a directory: a `slipring_on_damage`. Default SLIPRING_DAMAGE_REFUSE.
    uint32_t on_damage;
    // Not used: 0.
    uint32_t reserved;
    // For topics that are created by publishing: see `slipring_broker_set_dedup_window`. Default 0.
    uint64_t dedup_window_ns;
    // Likewise. Default 0.
    uint64_t dedup_ids;
    // For a directory: bytes that are kept free on the disk for what must go on when it is full:
    // opening, acknowledging, deleting. 0 to 2^40; 0 keeps nothing. They are taken with the first
    // message; on a small disk, at most an eighth of it. Default 64 MiB.
    uint64_t reserve_bytes;
    // For a directory: bytes after which a shard begins another file, 64 KiB to 1 GiB; on a small disk
    // at most an eighth of it, for all shards. What expires gives its room back by whole files.
    // Default 64 MiB.
    uint64_t segment_bytes;
    // For a directory: bytes of a file that are reserved on the disk at once, 0 to 1 GiB; on a small
    // disk at most an eighth of it, for all shards. With as many as a file has and
    // SLIPRING_SYNC_ALWAYS, they are written with zeros ahead, which makes syncs of much at once
    // faster and a new directory slower. Default 32 MiB.
    uint64_t preallocate_bytes;
    // For a directory: age at which a shard begins another file, so that what is in one can expire
    // though little is published. Default 21 hours.
    uint64_t segment_age_ns;
    // For tests: the clock of the broker, which moves when it is told to; it may be freed before the
    // broker. Default NULL: the machine's.
    const struct slipring_test_clock *clock;
} slipring_broker_options;

// A text: UTF-8, not ending in NUL.
typedef struct slipring_text_view {
    // Its first byte; NULL where there is no text.
    const char *data;
    // Its length in bytes.
    size_t len;
} slipring_text_view;

// How a message lies in memory, and in the files of a directory: this, the extension (key, id and
// attributes), and the payload. For the functions that read a message; laid out for ever.
typedef struct slipring_record {
    // Position in the partition.
    uint64_t offset;
    // When it was published: microseconds since the Unix epoch.
    uint64_t published_us;
    // Number of the partition.
    uint32_t partition;
    // For the library.
    uint32_t sequence_low;
    // Bytes of the payload.
    uint32_t payload_len;
    // The `slipring_record_meta`.
    uint32_t meta;
} slipring_record;

// A message where it lies: reading it, with the `slipring_message_` functions, copies nothing. Valid
// as long as the function says that it came from; `slipring_message_keep` makes it outlive that. A
// copy of this struct is as good as the struct, and lives as long. It will not grow, so that arrays of
// it can cross. Other threads may read it meanwhile.
typedef struct slipring_message {
    // Where it lies.
    const struct slipring_record *record;
    // How it was delivered; for the library.
    const void *delivery;
} slipring_message;

// Says whether a message is wanted: not 0 for yes.
typedef int32_t (*slipring_filter_fn)(void *user, const struct slipring_message *message);

// Settings of a subscription. Fill it with `slipring_subscription_options_init` first.
typedef struct slipring_subscription_options {
    // Set by `slipring_subscription_options_init`.
    uint32_t struct_size;
    // A `slipring_overflow`. Default SLIPRING_DROP_NEWEST. Another is only for
    // SLIPRING_AT_MOST_ONCE, and ERANGE without it.
    uint32_t overflow;
    // For SLIPRING_BLOCK and SLIPRING_DISCONNECT. Default SLIPRING_FOREVER, which
    // SLIPRING_DISCONNECT does not take.
    uint64_t overflow_ns;
    // Messages that can be queued, from each shard: 1 to 2^24. Default 1024.
    uint64_t capacity_messages;
    // A `slipring_start`. Default SLIPRING_START_NOW.
    uint32_t start;
    // A `slipring_wait_strategy`. Default SLIPRING_WAIT_ADAPTIVE.
    uint32_t wait;
    // What `start` says.
    uint64_t start_value;
    // A name, unique in the broker: 1 to 255 of `[A-Za-z0-9._~+%-]`. Default NULL: none.
    //
    // A subscription that has a name and delivers at least once lives as long as the broker, or its
    // directory: when its handle is freed it goes on without a consumer, and the next that
    // subscribes under the name gets all that was published in between, as far as it is retained,
    // and all that was not settled. It goes on where it was, whatever start is asked for, and keeps
    // the filter and the other settings that it was made with: to ask for another value is refused
    // with EINUSE, but a default asks for nothing.
    const char *name;
    // Its length.
    size_t name_len;
    // More patterns. A message that several patterns match comes once. Default NULL.
    const struct slipring_text_view *patterns;
    // How many.
    size_t patterns_len;
    // Only messages whose attributes match this expression are wanted. Default NULL: all.
    const char *filter;
    // Its length.
    size_t filter_len;
    // Only messages for which this function says so are wanted; not together with `filter`.
    // Default NULL.
    //
    // It is called on publishing threads, and in a replay on those that subscribe or receive, on
    // several at a time, while a shard is held: it must be quick, and calls of the broker from
    // inside it are refused with EFILTERING. It may be called until `filter_user_free` is.
    slipring_filter_fn filter_fn;
    // Handed to `filter_fn`.
    void *filter_user;
    // Lets go of `filter_user`; may be NULL. Called exactly once for every subscribe call that was
    // given it, also where that fails, and after the last call of `filter_fn`: on any thread, some
    // time after the subscription is gone. It must not call the broker either.
    slipring_user_free_fn filter_user_free;
    // For handlers. Not 0: a thread of its own instead of the shared workers. Default 0.
    uint32_t dedicated_thread;
    // For handlers: consecutive failures after which deliveries pause. Default 0: never.
    uint32_t breaker_failures;
    // How long they pause before one is tried.
    uint64_t breaker_cool_down_ns;
    // A `slipring_delivery`. Default SLIPRING_AT_LEAST_ONCE, for which is what follows.
    uint32_t delivery;
    // Not 0: takes the place of the consumer that the subscription `name` has, which gets
    // DISCONNECTED; what that has not settled is delivered anew, and a handler in its place is
    // unsubscribed. Default 0: EINUSE.
    uint32_t take_over;
    // How long the consumer has to settle a message before it is delivered again: 10 ms to 600 s.
    // Default 10 s. `slipring_extend` is for one message; a handler has its message for as long as
    // it runs.
    uint64_t visibility_timeout_ns;
    // How long a message that failed waits for its second attempt. Doubled for each one after that.
    // Default 100 ms.
    uint64_t backoff_min_ns;
    // What that is doubled up to, at most 24 hours. Default 60 s.
    uint64_t backoff_max_ns;
    // Not 0: each of these pauses is shortened by a random part of up to a half. Default 0.
    uint32_t backoff_jitter;
    // How often a message is delivered before it goes to the dead letters: 1 to 65535. Default 5.
    uint32_t max_delivery_attempts;
    // Messages that can be received and not settled: 1 to 2^24, some 40 bytes each. At the limit,
    // none is delivered until one is settled. Default 65536.
    uint64_t max_outstanding;
    // Not 0: messages overtake an earlier one of the same ordering key that has failed. Default 0:
    // they wait until that is settled.
    uint32_t keys_overtake;
    // Not used: 0.
    uint32_t reserved;
    // The topic that dead letters go to, made if need be. Default NULL: `$dlq/` and `name`, or
    // `unnamed-` and the subscription's number where it has none.
    const char *dead_letter_topic;
    // Its length.
    size_t dead_letter_topic_len;
} slipring_subscription_options;

// What closing left. It will not grow.
typedef struct slipring_close_report {
    // Messages that were queued for handlers and not handled in time. They are lost, but those of a
    // named subscription in a directory, which come when that is opened again.
    uint64_t unhandled;
    // Messages that are queued for subscriptions that are pulled. They can still be received, but
    // those of a named subscription in a directory, which come when that is opened again.
    uint64_t unreceived;
    // 1 if a handler was still running. It runs to its end, and is then not called again.
    uint32_t handler_running;
    // 1 if the directory could not be closed in order. What was acknowledged is on the disk as far as
    // the receipts said; what was settled last may be delivered again.
    uint32_t store_failed;
    // Messages that were delivered and are not settled: failed and waiting for another attempt, or
    // not acknowledged yet. What has been received can still be acknowledged, but in a directory:
    // there it is delivered again when that is opened again.
    uint64_t unsettled;
} slipring_close_report;

// A partition of a topic. It will not grow.
typedef struct slipring_partition {
    // The offset that its next message gets: as many were published.
    uint64_t next_offset;
    // Its number, unique in the broker.
    uint32_t id;
    // The shard that it lives on.
    uint32_t shard;
} slipring_partition;

// Settings of a topic. It may grow: say its size.
typedef struct slipring_topic_config {
    // How long its messages are kept in the directory; SLIPRING_FOREVER for ever.
    uint64_t retention_ns;
    // How many bytes of them are kept; 0 for any number.
    uint64_t retention_bytes;
    // For how long an id that was published counts: see `slipring_broker_set_dedup_window`. 0 if none
    // does.
    uint64_t dedup_window_ns;
    // How many such ids do at most; 0 for any number.
    uint64_t dedup_ids;
} slipring_topic_config;

// What became of a published message. It will not grow.
typedef struct slipring_receipt {
    // Position in the partition.
    uint64_t offset;
    // Subscriptions that it was for.
    uint64_t matched;
    // Of those, how many it was queued for.
    uint64_t enqueued;
    // Messages dropped to the account of this publish: this one where a queue was full, or older
    // ones that it displaced.
    uint64_t dropped;
    // Number of the partition, unique in the broker.
    uint32_t partition;
    // 1 if it would survive a power cut. A broker in memory says 0.
    uint16_t durable;
    // 1 if a message with its id was published within the topic's dedup window before, so that it was
    // not stored again: see `slipring_broker_set_dedup_window`. Then this is where that one is, and
    // nothing came to any subscription.
    uint16_t duplicate;
} slipring_receipt;

// An attribute of a message.
typedef struct slipring_attribute {
    // 1 to 256 bytes.
    struct slipring_text_view key;
    // Up to 1024 bytes.
    struct slipring_text_view value;
} slipring_attribute;

// A message to be published. Everything in it is borrowed for the call alone. All zeroes is a
// message without anything. It will not grow, so that arrays of it can cross.
typedef struct slipring_new_message {
    // Opaque bytes; may be NULL if `payload_len` is 0.
    const uint8_t *payload;
    // Bytes of the payload.
    size_t payload_len;
    // Ordering key, up to 1024 bytes: messages with the same key share a partition and keep their
    // order. `data` NULL: none.
    struct slipring_text_view key;
    // An id of the publisher's own, 1 to 255 bytes. `data` NULL: one is derived from the place.
    struct slipring_text_view id;
    // Up to 100 attributes with different keys; may be NULL if there are none.
    const struct slipring_attribute *attributes;
    // How many attributes.
    size_t attributes_len;
} slipring_new_message;

// What became of a batch. It will not grow.
typedef struct slipring_batch_receipt {
    // Messages published: always the first ones of the batch.
    size_t published;
    // Offset of the first that was stored, if any was.
    uint64_t first_offset;
    // Sum over the messages of the subscriptions that each was for.
    uint64_t matched;
    // Of those, how often one was queued.
    uint64_t enqueued;
    // Messages dropped to the account of this batch.
    uint64_t dropped;
    // Partition of the first that was stored, if any was.
    uint32_t first_partition;
    // 1 if all that was published would survive a power cut. A broker in memory says 0.
    uint16_t durable;
    // How many of those published were not stored because they were published before, in an earlier
    // call or in this one. UINT16_MAX stands for that many or more.
    uint16_t duplicates;
} slipring_batch_receipt;

// Is called with an array of messages, at least one, which are valid until it returns.
//
// A function that is called by the library must return: it must not `longjmp`, end its thread or
// let a C++ exception out.
typedef void (*slipring_messages_fn)(void *user,
                                     const struct slipring_message *messages,
                                     size_t count);

// Names one delivery of one message to one subscription: by it, and a `slipring_acker`, the message
// can be settled from anywhere. A value: it may be copied, compared byte by byte and stored. It
// will not grow, so that arrays of it can cross.
typedef struct slipring_ack_id {
    // Opaque.
    uint8_t bytes[24];
} slipring_ack_id;

// Handles a message: returns a `slipring_handled`, or any other number if it failed.
typedef int32_t (*slipring_handler_fn)(void *user, const struct slipring_message *message);

// Is told how many messages were lost before the next one.
typedef void (*slipring_lagged_fn)(void *user, uint64_t lost);

// Is told of a message that the handler failed on, what it returned, and why: as text that does
// not end in NUL, what it has told `slipring_handler_reason`.
typedef void (*slipring_failed_fn)(void *user,
                                   const struct slipring_message *message,
                                   int32_t returned,
                                   const char *reason,
                                   size_t reason_len);

// A handler: functions, and the user data that is handed to them.
//
// Guarantees: the functions are called one at a time, in the order of the messages, on a delivery
// worker or the handler's own thread, not always the same one. None of them is called any more
// when unsubscribing has returned. `user_free` is called exactly once, after the last of them, on
// any thread: also if subscribing fails, and before unsubscribing returns, except from inside a
// handler. From inside the handler itself it follows when that has returned; from inside another
// one it may follow a little later, so that it can wait for that one.
//
// From inside the functions everything is allowed: publish, subscribe, unsubscribe this or another
// subscription, close or free the broker.
typedef struct slipring_handler {
    // Handles a message. Not NULL.
    slipring_handler_fn handle;
    // Is told of messages that were lost, between the calls of `handle` where they are missing.
    // May be NULL.
    slipring_lagged_fn lagged;
    // Is told of every failure, after it was counted. May be NULL.
    slipring_failed_fn failed;
    // Handed to the functions.
    void *user;
    // Lets go of `user`. May be NULL.
    slipring_user_free_fn user_free;
} slipring_handler;

// Handles an array of messages, at least one, which are valid until it returns. What it makes of each
// is a `slipring_handled`: what it has written to the message's place in `handled`, which has as many,
// or what it returns, where that is SLIPRING_AS_RETURNED, as all of them are before the call. Any other
// number is a failure.
typedef int32_t (*slipring_batch_handler_fn)(void *user,
                                             const struct slipring_message *messages,
                                             size_t count,
                                             int32_t *handled);

// A handler that is called with several messages at once: those that are queued for it, up to 64, never
// waited for. Otherwise as `slipring_handler`.
//
// What `handle` makes of each message, it says of each, or of all of them at once: see
// `slipring_batch_handler_fn`. Each that has failed is a failure of its own, is told to `failed`, and
// counts for the circuit breaker, in their order. Their places in the queue are free when `handle` is
// called, and all of them are its own until it returns, also if it unsubscribes. Several can have the
// same ordering key: those behind one that fails were handled before that comes again. Not more come at
// once than `max_outstanding`, and one alone while a circuit breaker tries whether the handler has
// recovered, or where the process may have died of it before.
typedef struct slipring_batch_handler {
    // Handles messages. Not NULL.
    slipring_batch_handler_fn handle;
    // As in `slipring_handler`.
    slipring_lagged_fn lagged;
    // As in `slipring_handler`.
    slipring_failed_fn failed;
    // Handed to the functions.
    void *user;
    // Lets go of `user`. May be NULL.
    slipring_user_free_fn user_free;
} slipring_batch_handler;

// What is known of a subscription that has a name. It may grow: say its size.
typedef struct slipring_subscription_description {
    // Messages that were not taken yet.
    uint64_t queued;
    // Messages that were taken and are not settled, those that wait for another attempt included.
    uint64_t unsettled;
    // A `slipring_delivery`.
    uint32_t delivery;
    // 1 if it has a consumer.
    uint32_t is_online;
} slipring_subscription_description;

// Figures of a broker. It may grow: say its size.
typedef struct slipring_metrics {
    // Bytes of message memory in use: retained, queued or kept by somebody.
    uint64_t chunk_bytes;
    // The memory budget.
    uint64_t budget_bytes;
    // Messages published.
    uint64_t published;
    // Messages that are retained, and can be replayed.
    uint64_t retained;
    // Bytes that hold them.
    uint64_t retained_bytes;
    // Messages that have expired from memory.
    uint64_t expired;
    // Bytes of the index from sequence to message.
    uint64_t index_bytes;
    // How many shards.
    uint64_t shards;
    // How many topics.
    uint64_t topics;
    // How many subscriptions.
    uint64_t subscriptions;
    // Bytes of messages in the directory, without room that is reserved there. Like those that
    // follow, 0 in memory.
    uint64_t stored_bytes;
    // Messages in the directory.
    uint64_t stored;
    // Messages that a power cut would take now: published, and not synced.
    uint64_t unsynced;
} slipring_metrics;

// Figures of a shard. It may grow: say its size.
typedef struct slipring_shard_metrics {
    // Messages published to it.
    uint64_t published;
    // Messages that are retained, and can be replayed.
    uint64_t retained;
    // Bytes that hold them.
    uint64_t retained_bytes;
    // Messages that have expired from memory.
    uint64_t expired;
    // Bytes of the index from sequence to message.
    uint64_t index_bytes;
    // Bytes of messages in the directory, without room that is reserved there. Like those that
    // follow, 0 in memory.
    uint64_t stored_bytes;
    // Messages in the directory.
    uint64_t stored;
    // Messages that a power cut would take now: published, and not synced.
    uint64_t unsynced;
} slipring_shard_metrics;

// Figures of a topic. It may grow: say its size.
typedef struct slipring_topic_metrics {
    // Messages published to it.
    uint64_t published;
    // Messages that were not stored because they were published before, within its dedup window,
    // counted since the broker began. They are not among `published`.
    uint64_t duplicates;
} slipring_topic_metrics;

// Figures of a subscription. It may grow: say its size. At rest, `matched + replayed = delivered +
// dropped_newest + dropped_oldest + dropped_timeout + expired + discarded + queued`.
typedef struct slipring_subscription_metrics {
    // Its number.
    uint64_t id;
    // Messages published since it began that it wanted.
    uint64_t matched;
    // Messages from before it began that it was to get.
    uint64_t replayed;
    // Messages handed to the consumer or handler.
    uint64_t delivered;
    // Dropped on arrival because the queue was full.
    uint64_t dropped_newest;
    // Dropped from the queue to make room.
    uint64_t dropped_oldest;
    // Dropped after their publisher had waited long enough.
    uint64_t dropped_timeout;
    // Expired from memory before they were delivered.
    uint64_t expired;
    // Thrown away when the subscription ended.
    uint64_t discarded;
    // Queued now.
    uint64_t queued;
    // How far it is behind the end of the logs while it catches up.
    uint64_t lag;
    // The oldest message queued is not older than this, in microseconds; UINT64_MAX if none is.
    uint64_t oldest_age_us;
    // Messages that the handler failed on.
    uint64_t handler_failures;
    // The handler's circuit breaker: 0 closed, 1 open, 2 half open.
    uint64_t breaker;
    // Messages that were delivered and are not settled, those that wait for another attempt or for
    // an earlier one of their key included. Like those that follow, 0 where messages are delivered
    // at most once.
    uint64_t unsettled;
    // Messages that were acknowledged, or that the handler has succeeded with.
    uint64_t acked;
    // Deliveries after the first of a message. They are not among `delivered`.
    uint64_t redelivered;
    // Messages that went to the dead letters.
    uint64_t dead_lettered;
    // Messages that expired from memory after they were delivered, and before they were settled.
    uint64_t expired_unsettled;
    // Messages that the handler panicked on, if it was written in Rust.
    uint64_t handler_panics;
    // Messages that the filter function panicked on, if it was written in Rust.
    uint64_t filter_panics;
} slipring_subscription_metrics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Fills the options of a broker with the defaults; `struct_size` is `sizeof *options`. Errors:
// EINVAL, also for a size that this library does not know. Does not wait.
slipring_status slipring_broker_options_init(struct slipring_broker_options *options,
                                             size_t struct_size);

// Fills the options of a subscription with the defaults; `struct_size` is `sizeof *options`.
// Errors: EINVAL, also for a size that this library does not know. Does not wait.
slipring_status slipring_subscription_options_init(struct slipring_subscription_options *options,
                                                   size_t struct_size);

// A clock that stands at the present time. Errors: EINVAL. Does not wait.
slipring_status slipring_test_clock_new(struct slipring_test_clock **clock);

// Moves it forward and wakes who waits for it. It stops 584 years after it was made. Errors: EINVAL.
// Does not wait.
slipring_status slipring_test_clock_advance(const struct slipring_test_clock *clock,
                                            uint64_t by_ns);

// Frees it and sets the pointer to NULL; brokers that have the clock go on with it. NULL, or a
// pointer to NULL, is no error.
void slipring_test_clock_free(struct slipring_test_clock **clock);

// Opens a broker: in memory, or in the directory that `options` name. `options` may be NULL for the
// defaults. Errors: EINVAL, ERANGE, ETHREAD; for a directory ELOCKED, EINCOMPATIBLE, EDAMAGED, EFULL,
// ESTORE. Does not wait in memory; in a directory it recovers what a crash has left.
slipring_status slipring_broker_open(const struct slipring_broker_options *options,
                                     struct slipring_broker **broker);

// 1 if the broker has a directory, so that publishing may wait for the disk; 0 if not, or if `broker`
// is NULL. Does not wait.
int32_t slipring_broker_is_durable(const struct slipring_broker *broker);

// Makes everything that has been published and settled survive a power cut. In memory it does
// nothing. Errors: EINVAL, ESTORE, EFULL, EFILTERING, EFORKED. Waits for the disk.
slipring_status slipring_broker_flush(const struct slipring_broker *broker);

// Closes the broker: stops intake, gives handlers `deadline_ns` to handle what is queued, and
// stops all threads. Publishers and consumers that wait wake with CLOSED; what is queued for
// subscriptions that are pulled can still be received. A named subscription in a directory hands
// nothing over any more and refuses acknowledgements with CLOSED: what it has not settled comes when
// that is opened again. `report` may be NULL.
//
// May be called from inside a handler, which then is not waited for. Closing again does nothing,
// and neither does closing from inside a filter function. Errors: EINVAL. Waits for handlers.
slipring_status slipring_broker_close(const struct slipring_broker *broker,
                                      uint64_t deadline_ns,
                                      struct slipring_close_report *report);

// Frees the handle and sets the pointer to NULL; the broker closes as with `slipring_broker_close`
// and no time to wait. Topics and subscriptions may be freed later. NULL, or a pointer to NULL, is
// no error.
void slipring_broker_free(struct slipring_broker **broker);

// The topic `name`, to publish to; creates it, if the broker does that. Errors: EINVAL, EUTF8,
// ENAME, ENOTOPIC, CLOSED, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_topic(const struct slipring_broker *broker,
                                      const char *name,
                                      size_t name_len,
                                      struct slipring_topic **topic);

// Creates the topic `name` with `partitions` partitions, 1 to 1024. `topic` may be NULL. Errors:
// those of `slipring_broker_topic`, EEXIST, ERANGE. Does not wait.
slipring_status slipring_broker_create_topic(const struct slipring_broker *broker,
                                             const char *name,
                                             size_t name_len,
                                             uint32_t partitions,
                                             struct slipring_topic **topic);

// Says how long messages of the topic `name` are kept in the directory from now on: `retention_ns`, or
// SLIPRING_FOREVER, and `retention_bytes`, or 0 for any number. Errors: EINVAL, EUTF8, ENOTOPIC,
// ERANGE (less than the dedup window), ESTORE, EFULL, EFILTERING, EFORKED. Waits for the disk.
slipring_status slipring_broker_set_retention(const struct slipring_broker *broker,
                                              const char *name,
                                              size_t name_len,
                                              uint64_t retention_ns,
                                              uint64_t retention_bytes);

// Says that a message is not stored again in the topic `name` if its id was published there less than
// `window_ns` ago: its receipt is that of the first one, with `duplicate`. 0 stores everything, which
// is the default; 1 ms at least, rounded up to whole ones, and the topic's retention at most. Messages
// without an id are not concerned, and what was refused does not count.
//
// `ids` is how many ids are known at most, the latest; 0 for any number. Each costs about 100 bytes of
// memory for as long as it counts. In a directory they are found again when it is opened, which reads
// what was published within the window. Errors: EINVAL, EUTF8, ENOTOPIC, ERANGE, ESTORE, EFULL,
// EFILTERING, EFORKED. Waits for the disk.
slipring_status slipring_broker_set_dedup_window(const struct slipring_broker *broker,
                                                 const char *name,
                                                 size_t name_len,
                                                 uint64_t window_ns,
                                                 uint64_t ids);

// Deletes the topic `name`: handles to it refuse to publish (EDELETED), and its messages are not
// replayed any more. What is queued already is still delivered. Errors: EINVAL, EUTF8, ENOTOPIC,
// EFILTERING, EFORKED.
slipring_status slipring_broker_delete_topic(const struct slipring_broker *broker,
                                             const char *name,
                                             size_t name_len);

// Names of up to `most` topics that match `pattern`, in order, from the one after `after` on
// (NULL: from the first), each ending in a newline, which no name contains. Errors: EINVAL, EUTF8,
// ENAME, EFILTERING, EFORKED.
slipring_status slipring_broker_topics(const struct slipring_broker *broker,
                                       const char *pattern,
                                       size_t pattern_len,
                                       const char *after,
                                       size_t after_len,
                                       size_t most,
                                       struct slipring_text **names);

// The partitions of the topic `name`: writes up to `partitions_len` of them to `partitions`, which
// may be NULL if that is 0, and how many there are to `count`, which may be NULL. Errors: EINVAL,
// EUTF8, ENOTOPIC, EFILTERING, EFORKED.
slipring_status slipring_broker_describe_topic(const struct slipring_broker *broker,
                                               const char *name,
                                               size_t name_len,
                                               struct slipring_partition *partitions,
                                               size_t partitions_len,
                                               size_t *count);

// The settings of the topic `name`. `config_size` is `sizeof *config`; more than this library knows is
// EINVAL. Errors: EINVAL, EUTF8, ENOTOPIC, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_topic_config(const struct slipring_broker *broker,
                                             const char *name,
                                             size_t name_len,
                                             struct slipring_topic_config *config,
                                             size_t config_size);

// Publishes one message of bytes alone to the topic `name`. Publishers that stay hold on to a
// topic instead of looking it up every time. Errors and waiting: as `slipring_broker_topic` and
// `slipring_topic_publish`.
slipring_status slipring_broker_publish(const struct slipring_broker *broker,
                                        const char *name,
                                        size_t name_len,
                                        const uint8_t *payload,
                                        size_t payload_len,
                                        struct slipring_receipt *receipt);

// The topic's name; it lives as long as the handle. Errors: EINVAL. Does not wait.
slipring_status slipring_topic_name(const struct slipring_topic *topic,
                                    struct slipring_text_view *name);

// Publishes one message of bytes alone, which are copied. `receipt` may be NULL.
//
// Waits only if a subscription with SLIPRING_BLOCK has no room, and, for the time of another
// publish, if somebody else publishes to the same shard. Errors: CLOSED, EINVAL, EMESSAGE (too
// large), EDELETED, EFULL, ENOMEM, EFILTERING, EFORKED; nothing was published then. In a directory also
// ESTORE, after which the message may have been published, if a write failed.
slipring_status slipring_topic_publish(const struct slipring_topic *topic,
                                       const uint8_t *payload,
                                       size_t payload_len,
                                       struct slipring_receipt *receipt);

// The same for a message with a key, an id or attributes. Errors: those, and EUTF8.
slipring_status slipring_topic_publish_message(const struct slipring_topic *topic,
                                               const struct slipring_new_message *message,
                                               struct slipring_receipt *receipt);

// The same without ever waiting: WOULD_BLOCK if it had to.
slipring_status slipring_topic_try_publish(const struct slipring_topic *topic,
                                           const struct slipring_new_message *message,
                                           struct slipring_receipt *receipt);

// The same, waiting for at most `timeout_ns` for subscriptions that block: TIMEOUT if there still
// was no room.
slipring_status slipring_topic_publish_timeout(const struct slipring_topic *topic,
                                               const struct slipring_new_message *message,
                                               uint64_t timeout_ns,
                                               struct slipring_receipt *receipt);

// The same, waiting until the message survives a power cut, whatever `slipring_broker_options.sync`
// says. In memory that is at once, and the receipt says that it does not.
slipring_status slipring_topic_publish_sync(const struct slipring_topic *topic,
                                            const struct slipring_new_message *message,
                                            struct slipring_receipt *receipt);

// Publishes an array of messages in order, in one call. All of them are checked before the first
// is published. Waits as `slipring_topic_publish` does.
//
// Errors as `slipring_topic_publish_message`: the batch ended early, and `receipt`, which may be
// NULL, says how many were published. It is written in these cases too, but not where an argument
// was wrong (EINVAL, EUTF8): nothing was published then.
slipring_status slipring_topic_publish_batch(const struct slipring_topic *topic,
                                             const struct slipring_new_message *messages,
                                             size_t messages_len,
                                             struct slipring_batch_receipt *receipt);

// The same without ever waiting: WOULD_BLOCK if it had to.
slipring_status slipring_topic_try_publish_batch(const struct slipring_topic *topic,
                                                 const struct slipring_new_message *messages,
                                                 size_t messages_len,
                                                 struct slipring_batch_receipt *receipt);

// The same, waiting for at most `timeout_ns` for subscriptions that block, for each message: TIMEOUT
// if there still was no room.
slipring_status slipring_topic_publish_batch_timeout(const struct slipring_topic *topic,
                                                     const struct slipring_new_message *messages,
                                                     size_t messages_len,
                                                     uint64_t timeout_ns,
                                                     struct slipring_batch_receipt *receipt);

// 1 if the topic's messages go into a directory, so that publishing may wait for the disk; 0 if not,
// or if `topic` is NULL. Does not wait.
int32_t slipring_topic_is_durable(const struct slipring_topic *topic);

// Copies the id of the topic's message at `offset` of `partition`, as its receipt has them, to
// `buffer`, ending in NUL, and returns its length without the NUL, which may be more than fits: a
// UUID made of that place, of 36 characters. A message that was given an id of its own has that one
// instead. 0 if `topic` is NULL. Does not wait.
size_t slipring_topic_message_id(const struct slipring_topic *topic,
                                 uint32_t partition,
                                 uint64_t offset,
                                 char *buffer,
                                 size_t buffer_len);

// Frees the handle and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
void slipring_topic_free(struct slipring_topic **topic);

// Publishes one message without waiting for its turn: the receipt can be had from the ticket
// later. Meant for SLIPRING_PINNED, where it makes publishing cost a copy. Tickets of one thread
// are published in order. Errors as `slipring_topic_loan`; other reasons are told by the ticket.
slipring_status slipring_topic_publish_ticket(const struct slipring_topic *topic,
                                              const struct slipring_new_message *message,
                                              struct slipring_ticket **ticket);

// The receipt, if the message has been published; EMPTY if not yet. `receipt` may be NULL. Errors:
// why it was not published, a subscription that blocks being WOULD_BLOCK. Does not wait.
slipring_status slipring_ticket_try(const struct slipring_ticket *ticket,
                                    struct slipring_receipt *receipt);

// Waits for the receipt, frees the ticket and sets the pointer to NULL, also in case of an error,
// which is why the message was not published. `receipt` may be NULL.
slipring_status slipring_ticket_wait(struct slipring_ticket **ticket,
                                     struct slipring_receipt *receipt);

// Frees a ticket, whose message is published all the same, and sets the pointer to NULL. NULL, or
// a pointer to NULL, is no error.
void slipring_ticket_free(struct slipring_ticket **ticket);

// Space for a payload of `payload_len` bytes, to be written to `*payload` and then committed. What
// it holds at first is unspecified. `head` may be NULL, or has the key, the id and the attributes;
// its payload is ignored.
//
// The message gets its place in the order when it is committed; until then the loan delays nobody.
// `*payload` is valid until the loan is committed or aborted. Errors: CLOSED, EINVAL, EUTF8,
// EMESSAGE, EFULL (loans and kept messages take too much), ENOMEM, EFILTERING, EFORKED. Does not
// wait.
slipring_status slipring_topic_loan(const struct slipring_topic *topic,
                                    const struct slipring_new_message *head,
                                    size_t payload_len,
                                    struct slipring_loan **loan,
                                    uint8_t **payload);

// Publishes the message, which is read where it was written, frees the loan and sets the pointer
// to NULL. `receipt` may be NULL. Waits as `slipring_topic_publish` does.
//
// Errors as `slipring_topic_publish`: where nothing was published the loan then stays as it was, to
// be committed again or aborted. Otherwise it is freed, as after a success.
slipring_status slipring_loan_commit(struct slipring_loan **loan, struct slipring_receipt *receipt);

// The same, waiting for at most `timeout_ns` for subscriptions that block: TIMEOUT if there still was
// no room, and the loan stays as it was.
slipring_status slipring_loan_commit_timeout(struct slipring_loan **loan,
                                             uint64_t timeout_ns,
                                             struct slipring_receipt *receipt);

// Gives the space back, publishes nothing and sets the pointer to NULL. NULL, or a pointer to
// NULL, is no error.
void slipring_loan_abort(struct slipring_loan **loan);

// Subscribes to `pattern`; the messages are pulled. Every publish that starts after this has
// returned sees the subscription. `options` may be NULL for the defaults.
//
// Options with a `filter_fn` are used up by the call, also if it fails: they must not be given
// again with the same `filter_user`. Errors: CLOSED, EINVAL, EUTF8, ENAME (a pattern, or the
// subscription's name), EFILTER, EINUSE, ERANGE, EFILTERING, EFORKED.
slipring_status slipring_broker_subscribe(const struct slipring_broker *broker,
                                          const char *pattern,
                                          size_t pattern_len,
                                          const struct slipring_subscription_options *options,
                                          struct slipring_subscription **subscription);

// Unsubscribes, frees the handle and sets the pointer to NULL; messages received from it are gone,
// unless they were kept. One that has a name and delivers at least once is not unsubscribed, but
// goes on without a consumer: see `slipring_subscription_options.name`. If a call is using it, in another thread or around this one, that happens
// when that call returns. NULL, or a pointer to NULL, is no error.
void slipring_subscription_free(struct slipring_subscription **subscription);

// Number of the subscription, unique in the broker; 0 if `subscription` is NULL. May be called
// while another call is using the handle. Does not wait.
uint64_t slipring_subscription_id(const struct slipring_subscription *subscription);

// The subscription's name, which lives as long as the handle; `data` is NULL if it has none. May be
// called while another call is using the handle. Errors: EINVAL. Does not wait.
slipring_status slipring_subscription_name(const struct slipring_subscription *subscription,
                                           struct slipring_text_view *name);

// How many messages were lost at the last SLIPRING_LAGGED that this subscription has returned; 0
// if `subscription` is NULL. May be called while another call is using the handle. Does not wait.
uint64_t slipring_subscription_lost(const struct slipring_subscription *subscription);

// Messages queued and not received. What was published before the subscription began, or before it
// last sought, may not be counted yet: whether there is something, receiving tells. Errors: EINVAL,
// EBUSY. Does not wait.
slipring_status slipring_subscription_queued(struct slipring_subscription *subscription,
                                             uint64_t *queued);

// Sets `*is_due` to 1 if a message that was received before is due to be received again. Then the next
// call that receives may have to give up on it, and so to wait a little (100 ms at most) where
// somebody who subscribes to dead letters blocks. Errors: EINVAL, EBUSY. Does not wait.
slipring_status slipring_subscription_is_due(struct slipring_subscription *subscription,
                                             int32_t *is_due);

// Receives the next message, waiting for it as the subscription's wait strategy has it. It is
// valid until the next call that receives, polls or waits on the subscription, or frees it.
//
// Errors: LAGGED (the next call goes on), CLOSED, DISCONNECTED, EINVAL, EBUSY, EFILTERING,
// EFORKED.
slipring_status slipring_subscription_recv(struct slipring_subscription *subscription,
                                           struct slipring_message *message);

// Receives the next message if one is queued, else EMPTY. Errors: as `slipring_subscription_recv`.
// Does not wait.
slipring_status slipring_subscription_try_recv(struct slipring_subscription *subscription,
                                               struct slipring_message *message);

// Receives the next message, waiting for at most `timeout_ns`, else TIMEOUT. Errors: as
// `slipring_subscription_recv`.
slipring_status slipring_subscription_recv_timeout(struct slipring_subscription *subscription,
                                                   uint64_t timeout_ns,
                                                   struct slipring_message *message);

// Receives up to `most` messages, at least one, waiting for that as `slipring_subscription_recv`
// does: sets `*messages` to an array of `*count` of them, which are valid as that one is. EMPTY if
// `most` is 0. Errors: as `slipring_subscription_recv`; a loss behind the first message is told by
// the next call.
slipring_status slipring_subscription_recv_batch(struct slipring_subscription *subscription,
                                                 size_t most,
                                                 const struct slipring_message **messages,
                                                 size_t *count);

// The same for what is queued now; EMPTY if nothing is. Does not wait.
slipring_status slipring_subscription_try_recv_batch(struct slipring_subscription *subscription,
                                                     size_t most,
                                                     const struct slipring_message **messages,
                                                     size_t *count);

// Calls `function` with up to `most` messages that are queued now, in place and without waiting,
// and sets `*count`, which may be NULL, to how many. The fastest way to receive. Each call is with
// some of them, in order, which are valid until it returns.
//
// The function may call the broker, and free this subscription; a call that receives from it gets
// EBUSY. EMPTY if nothing is queued. Errors: as `slipring_subscription_recv`; a loss behind the
// first message is told by the next call.
slipring_status slipring_subscription_poll(struct slipring_subscription *subscription,
                                           size_t most,
                                           slipring_messages_fn function,
                                           void *user,
                                           size_t *count);

// Waits for at most `timeout_ns`, or SLIPRING_FOREVER, until a message is queued or there is
// something else to tell by the next call that receives; else TIMEOUT. Errors: EINVAL, EBUSY,
// EFILTERING, EFORKED.
slipring_status slipring_subscription_wait(struct slipring_subscription *subscription,
                                           uint64_t timeout_ns);

// Goes on elsewhere, `start` being a `slipring_start` and `start_value` what that says: it may lie
// before what was received, which then is delivered anew. All that was received and not settled is
// forgotten, and its ack ids and ackers are stale; messages received are gone, unless they were
// kept. Errors: CLOSED, EINVAL, EBUSY, ERANGE, EATMOSTONCE, EFILTERING, EFORKED.
slipring_status slipring_subscription_seek(struct slipring_subscription *subscription,
                                           uint32_t start,
                                           uint64_t start_value);

// A descriptor that is readable exactly while something can be received: for `poll`, `epoll` and
// event loops. Level-triggered; do not read from it or close it. It stays the same, and valid as
// long as the subscription. Errors: EINVAL, EBUSY, ESYSTEM. Does not wait.
slipring_status slipring_subscription_event_fd(struct slipring_subscription *subscription, int *fd);

// A waiter that has found nothing yet. `wait` is a `slipring_wait_strategy`; it never parks, since it
// does not know what to be woken by. Errors: EINVAL, ERANGE. Does not wait.
slipring_status slipring_idle_new(uint32_t wait,
                                  struct slipring_idle **idle);

// A round has found `count` messages: pauses if that was none, for as long as that has lately been
// worth it, which is microseconds. Errors: EINVAL, EBUSY.
slipring_status slipring_idle_rest(struct slipring_idle *idle, size_t count);

// Frees it and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
void slipring_idle_free(struct slipring_idle **idle);

// The name of its topic; it lives as long as the message. `data` is NULL if `message` is NULL. Does
// not wait.
struct slipring_text_view slipring_message_topic(const struct slipring_message *message);

// Which delivery of the message to this subscription this is, from 1. Always 1 where messages are
// delivered at most once. 0 if `message` is NULL. Does not wait.
uint32_t slipring_message_attempt(const struct slipring_message *message);

// The value of the attribute `key`; it lives as long as the message. SLIPRING_EMPTY if it has
// none. Errors: EINVAL, EUTF8. Does not wait.
slipring_status slipring_message_attribute(const struct slipring_message *message,
                                           const char *key,
                                           size_t key_len,
                                           struct slipring_text_view *value);

// All attributes, in the order in which they were published: writes up to `attributes_len` of them
// to `attributes`, which may be NULL if that is 0, and how many the message has to `count`, which
// may be NULL. They live as long as the message. Errors: EINVAL. Does not wait.
slipring_status slipring_message_attributes(const struct slipring_message *message,
                                            struct slipring_attribute *attributes,
                                            size_t attributes_len,
                                            size_t *count);

// Copies the message's id to `buffer`, ending in NUL, and returns its length without the NUL,
// which may be more than fits: the publisher's own id, or a UUID made of the message's place. 256
// bytes are always enough. 0 if `message` is NULL. Does not wait.
size_t slipring_message_id(const struct slipring_message *message, char *buffer, size_t buffer_len);

// Keeps a message past the call that it came with, without copying it: 64 KiB of memory around it,
// or the message alone if it is larger, stay until the last one kept of them is freed. Errors:
// EINVAL. Does not wait.
slipring_status slipring_message_keep(const struct slipring_message *message,
                                      struct slipring_kept **kept);

// The message that was kept; it lives as long as the handle. Errors: EINVAL. Does not wait.
slipring_status slipring_kept_message(const struct slipring_kept *kept,
                                      struct slipring_message *message);

// Frees a kept message and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
void slipring_kept_free(struct slipring_kept **kept);

// Knows no message yet, and from now on the last `capacity` ones, at least one. Errors: EINVAL. Does
// not wait.
slipring_status slipring_deduplicator_new(size_t capacity,
                                          struct slipring_deduplicator **deduplicator);

// Sets `*is_new` to 1 if the message is none of those it knows, and to 0 if it is; it knows it from
// now on. To be asked before acting; a message that could not be acted on is to be forgotten, so that
// it is new when it comes again. Errors: EINVAL, EBUSY. Does not wait.
slipring_status slipring_deduplicator_is_new(struct slipring_deduplicator *deduplicator,
                                             const struct slipring_message *message,
                                             int32_t *is_new);

// Forgets the message, so that it is new again. Errors: EINVAL, EBUSY. Does not wait.
slipring_status slipring_deduplicator_forget(struct slipring_deduplicator *deduplicator,
                                             const struct slipring_message *message);

// How many messages it knows. Errors: EINVAL, EBUSY. Does not wait.
slipring_status slipring_deduplicator_len(struct slipring_deduplicator *deduplicator, size_t *len);

// Frees it and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
void slipring_deduplicator_free(struct slipring_deduplicator **deduplicator);

// Acknowledges an array of messages, or one, in one call: their subscription does not get them
// again. For messages that were received, and those that were kept, from any thread; what a handler
// has got is settled by what that returns.
//
// All of them are tried. `outcomes` may be NULL, or has room for as many, and gets what became of
// each, whatever is returned for all; only an array that cannot be is refused before that. OK if all
// were settled. Otherwise the last failure, or STALE if leases were over and nothing worse: that is
// harmless. CLOSED in a directory whose broker has closed: nobody could note it any more. Errors:
// EINVAL, ENOTLEASED, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_ack(const struct slipring_message *messages,
                             size_t messages_len,
                             slipring_status *outcomes);

// Gives messages back that have failed: they are delivered again after `delay_ns`, at most 24
// hours, or after the subscription's backoff if it is SLIPRING_BACKOFF; or go to the dead letters,
// if this was their last attempt. Otherwise as `slipring_ack`. Errors: those, ERANGE, and those of
// `slipring_dead_letter`.
slipring_status slipring_nack(const struct slipring_message *messages,
                              size_t messages_len,
                              uint64_t delay_ns,
                              slipring_status *outcomes);

// Lets the leases on messages end `by_ns` from now, 10 ms to 600 s, instead of when they would
// have. Otherwise as `slipring_ack`. Errors: those, and ERANGE.
slipring_status slipring_extend(const struct slipring_message *messages,
                                size_t messages_len,
                                uint64_t by_ns,
                                slipring_status *outcomes);

// Gives up on messages: they go to the dead letters, with a reason, of which the first 1024 bytes
// are kept, and are settled. `reason` may be NULL. Otherwise as `slipring_ack`. Errors: those,
// EUTF8; CLOSED, EFULL, ENOMEM and EDELETED if the dead letter could not be stored: then the message
// is not settled, and delivered again. Waits for a subscription to dead letters that blocks, at
// most 100 ms each: TIMEOUT.
slipring_status slipring_dead_letter(const struct slipring_message *messages,
                                     size_t messages_len,
                                     const char *reason,
                                     size_t reason_len,
                                     slipring_status *outcomes);

// The ack ids of an array of messages: `ids` has room for as many. Errors: EINVAL, ENOTLEASED if
// one of them is not to be settled. Does not wait.
slipring_status slipring_ack_ids(const struct slipring_message *messages,
                                 size_t messages_len,
                                 struct slipring_ack_id *ids);

// Copies an ack id as text to `buffer`, ending in NUL, and returns its length without the NUL,
// which is 48 characters of `[0-9a-f]`. 0 if `id` is NULL or damaged. Does not wait.
size_t slipring_ack_id_text(const struct slipring_ack_id *id, char *buffer, size_t buffer_len);

// Reads an ack id from its text. Errors: EINVAL, EUTF8, EACKID with the byte where it stops being
// one. Does not wait.
slipring_status slipring_ack_id_parse(const char *text,
                                      size_t text_len,
                                      struct slipring_ack_id *id);

// What settles messages of this subscription, until it seeks. Errors: EINVAL, EBUSY, EATMOSTONCE.
// Does not wait.
slipring_status slipring_subscription_acker(struct slipring_subscription *subscription,
                                            struct slipring_acker **acker);

// What settles messages of the subscription `name`, until it gets another consumer or seeks.
// Errors: EINVAL, EUTF8, ENOSUBSCRIPTION, EATMOSTONCE, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_acker(const struct slipring_broker *broker,
                                      const char *name,
                                      size_t name_len,
                                      struct slipring_acker **acker);

// Acknowledges messages by their ack ids, in one call: see `slipring_ack`. Errors: EINVAL, EACKID,
// EFILTERING, EFORKED. Does not wait.
slipring_status slipring_acker_ack(const struct slipring_acker *acker,
                                   const struct slipring_ack_id *ids,
                                   size_t ids_len,
                                   slipring_status *outcomes);

// Gives messages back by their ack ids: see `slipring_nack`. Errors: as there, and EACKID.
slipring_status slipring_acker_nack(const struct slipring_acker *acker,
                                    const struct slipring_ack_id *ids,
                                    size_t ids_len,
                                    uint64_t delay_ns,
                                    slipring_status *outcomes);

// Lets leases end at another time, by their ack ids: see `slipring_extend`. Errors: as there, and
// EACKID. Does not wait.
slipring_status slipring_acker_extend(const struct slipring_acker *acker,
                                      const struct slipring_ack_id *ids,
                                      size_t ids_len,
                                      uint64_t by_ns,
                                      slipring_status *outcomes);

// Gives up on messages by their ack ids: see `slipring_dead_letter`. Errors and waiting: as there,
// and EACKID.
slipring_status slipring_acker_dead_letter(const struct slipring_acker *acker,
                                           const struct slipring_ack_id *ids,
                                           size_t ids_len,
                                           const char *reason,
                                           size_t reason_len,
                                           slipring_status *outcomes);

// Frees the handle and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
void slipring_acker_free(struct slipring_acker **acker);

// Subscribes to `pattern`; `handler`, which is copied, is called with every message, possibly
// before this has returned. `options` may be NULL for the defaults, and is used up as
// `slipring_broker_subscribe` says; so is `handler` as soon as it is not NULL.
//
// Errors: as `slipring_broker_subscribe`, and ETHREAD.
slipring_status slipring_broker_subscribe_handler(const struct slipring_broker *broker,
                                                  const char *pattern,
                                                  size_t pattern_len,
                                                  const struct slipring_subscription_options *options,
                                                  const struct slipring_handler *handler,
                                                  struct slipring_handler_subscription **subscription);

// The same with a handler that is called with several messages at once.
slipring_status slipring_broker_subscribe_batch_handler(const struct slipring_broker *broker,
                                                        const char *pattern,
                                                        size_t pattern_len,
                                                        const struct slipring_subscription_options *options,
                                                        const struct slipring_batch_handler *handler,
                                                        struct slipring_handler_subscription **subscription);

// Number of the subscription, unique in the broker; 0 if `subscription` is NULL. Does not wait.
uint64_t slipring_handler_subscription_id(const struct slipring_handler_subscription *subscription);

// Messages queued and not handed to the handler yet. Errors: EINVAL. Does not wait.
slipring_status slipring_handler_subscription_queued(const struct slipring_handler_subscription *subscription,
                                                     uint64_t *queued);

// Unsubscribes, frees the handle and sets the pointer to NULL: when this returns, the handler does
// not run any more and is not called again. What was queued is thrown away. From inside the
// handler itself it returns at once. NULL, or a pointer to NULL, is no error.
//
// Waits for a running handler, except from inside a filter function. Two handlers that unsubscribe
// each other at the same time would wait for ever: `slipring_handler_subscription_unsubscribe` has a
// limit.
void slipring_handler_subscription_free(struct slipring_handler_subscription **subscription);

// The same, waiting for a running handler for at most `timeout_ns`. TIMEOUT if it was still
// running: it is not called again, and the handle stays, to be freed later. Errors: EINVAL,
// EFILTERING.
slipring_status slipring_handler_subscription_unsubscribe(struct slipring_handler_subscription **subscription,
                                                          uint64_t timeout_ns);

// Lets the handler run until the broker closes, frees the handle and sets the pointer to NULL.
// NULL, or a pointer to NULL, is no error.
void slipring_handler_subscription_detach(struct slipring_handler_subscription **subscription);

// Says why the handler that is running in this thread is about to fail: what a dead letter of the
// message, `failed` and the log are told; for a batch handler, of all messages that it fails with and
// that have no reason of their own. The text is copied; the last one counts. To be called from inside
// a handler, before it returns. Errors: EINVAL, also outside of a handler, EUTF8. Does not wait.
slipring_status slipring_handler_reason(const char *reason,
                                        size_t reason_len);

// The same of one message of those that a batch handler was called with: the one at `index`. Errors:
// those, and ERANGE if there is none.
slipring_status slipring_handler_reason_at(size_t index,
                                           const char *reason,
                                           size_t reason_len);

// Names of the subscriptions that have one, in order, each ending in a newline, which no name
// contains. Errors: EINVAL, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_subscriptions(const struct slipring_broker *broker,
                                              struct slipring_text **names);

// What is known of the subscription `name`: `description_size` is `sizeof *description`, and more
// than this library knows is EINVAL. `patterns` may be NULL, or gets the subscription's patterns,
// each ending in a newline. Errors: EINVAL, EUTF8, ENOSUBSCRIPTION, EFILTERING, EFORKED. Does not
// wait.
slipring_status slipring_broker_describe_subscription(const struct slipring_broker *broker,
                                                      const char *name,
                                                      size_t name_len,
                                                      struct slipring_subscription_description *description,
                                                      size_t description_size,
                                                      struct slipring_text **patterns);

// Deletes the subscription `name`, with all that it has not settled. Its consumer, if it has one,
// gets DISCONNECTED; a handler is unsubscribed, and may run to its end. Errors: EINVAL, EUTF8,
// ENOSUBSCRIPTION, EFILTERING, EFORKED.
slipring_status slipring_broker_delete_subscription(const struct slipring_broker *broker,
                                                    const char *name,
                                                    size_t name_len);

// Lets the subscription `name`, which has no consumer at the moment, go on elsewhere: see
// `slipring_subscription_seek`. Errors: EINVAL, EUTF8, ERANGE, ENOSUBSCRIPTION, EINUSE (it has a
// consumer), EATMOSTONCE, EFILTERING, EFORKED.
slipring_status slipring_broker_seek_subscription(const struct slipring_broker *broker,
                                                  const char *name,
                                                  size_t name_len,
                                                  uint32_t start,
                                                  uint64_t start_value);

// The dead letters in `topic`, which is `$dlq/` and a subscription's name where that did not ask
// for another: the first `most` that are retained and were neither sent back nor thrown away, in
// order by partition and offset. `filter` may be NULL; otherwise those whose attributes match it.
//
// A dead letter is the message as it was, with attributes that say where it is from and why: the
// SLIPRING_DEAD_LETTER_ ones. Listing reads through the logs of the topic's shards. Errors: EINVAL,
// EUTF8, EFILTER, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_dead_letters(const struct slipring_broker *broker,
                                             const char *topic,
                                             size_t topic_len,
                                             const char *filter,
                                             size_t filter_len,
                                             size_t most,
                                             struct slipring_letters **letters);

// How many dead letters `topic` has. Reads through the logs of the topic's shards. Errors: EINVAL,
// EUTF8, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_dead_letters_count(const struct slipring_broker *broker,
                                                   const char *topic,
                                                   size_t topic_len,
                                                   uint64_t *count);

// The letters: sets `*messages` to an array of `*count` of them, which lives as long as the handle.
// Errors: EINVAL. Does not wait.
slipring_status slipring_letters_get(const struct slipring_letters *letters,
                                     const struct slipring_message **messages,
                                     size_t *count);

// Frees the handle and sets the pointer to NULL; the letters stay in their topic. NULL, or a
// pointer to NULL, is no error.
void slipring_letters_free(struct slipring_letters **letters);

// The dead letter at `offset` of `partition` of `topic`; EMPTY if it is not in the list. Errors:
// EINVAL, EUTF8, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_dead_letter(const struct slipring_broker *broker,
                                            const char *topic,
                                            size_t topic_len,
                                            uint32_t partition,
                                            uint64_t offset,
                                            struct slipring_kept **letter);

// Sends dead letters of `topic` back, in one call: publishes each to the topic that its message was
// from, as it was, and takes it out of the list. What is not in the list any more is left out.
// `sent` may be NULL, or gets how many were sent, also if that ends with an error.
//
// Errors: EINVAL, EUTF8, and those of `slipring_topic_publish`: with the first that could not be
// sent, which stays in the list; those before it were. Waits as that does.
slipring_status slipring_broker_redrive(const struct slipring_broker *broker,
                                        const char *topic,
                                        size_t topic_len,
                                        const struct slipring_message *letters,
                                        size_t letters_len,
                                        uint64_t *sent);

// The same for all letters in the list, or, if `filter` is not NULL, those whose attributes match
// it. `sent` is written on success only. Errors: those, and EFILTER.
slipring_status slipring_broker_redrive_all(const struct slipring_broker *broker,
                                            const char *topic,
                                            size_t topic_len,
                                            const char *filter,
                                            size_t filter_len,
                                            uint64_t *sent);

// Throws all dead letters of `topic` away. `purged` may be NULL, or gets how many. Errors: EINVAL,
// EUTF8, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_purge_dead_letters(const struct slipring_broker *broker,
                                                   const char *topic,
                                                   size_t topic_len,
                                                   uint64_t *purged);

// Figures of the broker, over all its shards. `metrics_size` is `sizeof *metrics`; more than this
// library knows is EINVAL. They are read one after another while others work; when nobody does,
// they are exact. Errors: EINVAL. Does not wait.
slipring_status slipring_broker_metrics(const struct slipring_broker *broker,
                                        struct slipring_metrics *metrics,
                                        size_t metrics_size);

// Figures of the shard with the number `shard`, from 0; there are `slipring_metrics.shards`.
// `metrics_size` is `sizeof *metrics`. Errors: EINVAL, ERANGE (there is none of this number). Does not
// wait.
slipring_status slipring_broker_shard_metrics(const struct slipring_broker *broker,
                                              uint32_t shard,
                                              struct slipring_shard_metrics *metrics,
                                              size_t metrics_size);

// Figures of the topic `name`. `metrics_size` is `sizeof *metrics`. Errors: EINVAL, EUTF8, ENOTOPIC,
// EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_topic_metrics(const struct slipring_broker *broker,
                                              const char *name,
                                              size_t name_len,
                                              struct slipring_topic_metrics *metrics,
                                              size_t metrics_size);

// The numbers of all subscriptions, in the order in which they were made: writes up to `ids_len` of
// them to `ids`, which may be NULL if that is 0, and how many there are to `count`, which may be NULL.
// Errors: EINVAL, EFILTERING, EFORKED. Does not wait.
slipring_status slipring_broker_subscription_ids(const struct slipring_broker *broker,
                                                 uint64_t *ids,
                                                 size_t ids_len,
                                                 size_t *count);

// Figures of the subscription with the number `id`. Errors: EINVAL, ENOSUBSCRIPTION, EFILTERING,
// EFORKED. Does not wait.
slipring_status slipring_broker_subscription_metrics(const struct slipring_broker *broker,
                                                     uint64_t id,
                                                     struct slipring_subscription_metrics *metrics,
                                                     size_t metrics_size);

// All figures, also per shard, topic and subscription, in the Prometheus text exposition format,
// version 0.0.4. Errors: EINVAL. Does not wait.
slipring_status slipring_broker_prometheus(const struct slipring_broker *broker,
                                           struct slipring_text **text);

// What is in a text; it lives as long as the handle, and a NUL is behind its length. Errors:
// EINVAL. Does not wait.
slipring_status slipring_text_get(const struct slipring_text *text,
                                  struct slipring_text_view *view);

// Frees a text and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
void slipring_text_free(struct slipring_text **text);

// Copies the text of the last error of this thread to `buffer`, ending in NUL, and returns its
// length without the NUL, which may be more than fits: `buffer_len` bytes are never exceeded, and
// what is cut off are whole UTF-8 characters. `buffer` may be NULL to ask for the length.
//
// Set by every function that returns a negative status, and left as it is by all others; empty
// before the first error. Never fails; does not wait.
size_t slipring_last_error(char *buffer, size_t buffer_len);

// The place that the last error of this thread is about: the byte of a text at which it breaks the
// rules, of a name, a pattern or a filter expression. `SIZE_MAX` if it has none. Never fails; does
// not wait.
size_t slipring_last_error_position(void);

// A status in words: static text that ends in NUL, also for a number that is no status. Never
// fails; does not wait.
const char *slipring_status_str(int32_t status);

// The version of the library that is linked: `major << 16 | minor << 8 | patch`, to be compared
// with SLIPRING_VERSION, which is that of the header. Never fails.
uint32_t slipring_version(void);

// The same as text, "0.1.0": static, ends in NUL. Never fails.
const char *slipring_version_str(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// What follows is inline; `message` is one that was received, and not NULL. The library exports these
// functions as well, for languages that read no headers, and takes a NULL there for an empty message.

#ifdef __cplusplus
#define SLIPRING_INLINE inline
#define SLIPRING_CAST_(type, pointer) reinterpret_cast<type>(pointer)
extern "C" {
#else
#define SLIPRING_INLINE static inline
#define SLIPRING_CAST_(type, pointer) ((type)(pointer))
#endif

// The payload; never NULL. It lives as long as the message.
SLIPRING_INLINE const uint8_t *slipring_message_payload(const slipring_message *message) {
    const slipring_record *record = message->record;
    const size_t skip = 8u * (record->meta & SLIPRING_RECORD_EXTENSION);
    return SLIPRING_CAST_(const uint8_t *, record + 1) + skip;
}

// Bytes of the payload.
SLIPRING_INLINE size_t slipring_message_payload_len(const slipring_message *message) {
    return message->record->payload_len;
}

// The ordering key; `data` is NULL if it has none. It lives as long as the message.
SLIPRING_INLINE slipring_text_view slipring_message_key(const slipring_message *message) {
    const uint8_t *extension = SLIPRING_CAST_(const uint8_t *, message->record + 1);
    slipring_text_view key = {NULL, 0};
    if (message->record->meta & SLIPRING_RECORD_KEY) {
        key.data = SLIPRING_CAST_(const char *, extension + 2);
        key.len = extension[0] + 256u * extension[1];
    }
    return key;
}

// Position in the partition, from 0.
SLIPRING_INLINE uint64_t slipring_message_offset(const slipring_message *message) {
    return message->record->offset;
}

// When it was published: microseconds since the Unix epoch.
SLIPRING_INLINE uint64_t slipring_message_published_us(const slipring_message *message) {
    return message->record->published_us;
}

// Number of the partition, unique in the broker.
SLIPRING_INLINE uint32_t slipring_message_partition(const slipring_message *message) {
    return message->record->partition;
}

#ifdef __cplusplus
} // extern "C"
#endif

#endif  /* SLIPRING_H */
