// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A broker of Python, used by C and C++ in the same process: an extension module gets the capsule of
// `broker.capsule()` and calls the functions of slipring.h, without linking libslipring.
//
//     #include <Python.h>
//     #include <slipring_python.h>
//
//     static PyObject *start(PyObject *module, PyObject *capsule) {
//         const slipring_broker *broker = slipring_python_import(capsule);
//         if (broker == NULL) return NULL; // an exception is set
//         slipring_broker_publish(broker, SLIPRING_TEXT("a/b"), SLIPRING_BYTES("x"), NULL);
//
// The handle lives as long as the capsule: keep a reference to that, or to what was made of the
// handle (a topic, a subscription), which outlives it. Every source file imports for itself.
//
// What can wait is called without the interpreter's lock (Py_BEGIN_ALLOW_THREADS). Filter functions
// run while a shard is held: they must not take the lock. Other callbacks may (PyGILState_Ensure).
//
// Made by `cargo xtask header`: do not edit.

#ifndef SLIPRING_PYTHON_H
#define SLIPRING_PYTHON_H

#ifndef Py_PYTHON_H
#error "include Python.h before slipring_python.h"
#endif

#include "slipring.h"

// What an extension and the package must agree on: the layout of `slipring_python`, and all that the
// functions take and give (structs, records). A release that changes one of these, other than by
// adding at an end, raises it; before the first release it is 1.
#define SLIPRING_PYTHON_ABI 1
// How many functions this header knows. A library that has fewer is refused.
#define SLIPRING_PYTHON_FUNCTIONS 119

// The functions of slipring.h, in an order that never changes; new ones come last.
typedef struct slipring_functions {
    __typeof__(&slipring_broker_open) broker_open;
    __typeof__(&slipring_broker_close) broker_close;
    __typeof__(&slipring_broker_free) broker_free;
    __typeof__(&slipring_broker_topic) broker_topic;
    __typeof__(&slipring_broker_create_topic) broker_create_topic;
    __typeof__(&slipring_broker_delete_topic) broker_delete_topic;
    __typeof__(&slipring_broker_topics) broker_topics;
    __typeof__(&slipring_broker_describe_topic) broker_describe_topic;
    __typeof__(&slipring_broker_publish) broker_publish;
    __typeof__(&slipring_broker_subscribe_handler) broker_subscribe_handler;
    __typeof__(&slipring_handler_subscription_id) handler_subscription_id;
    __typeof__(&slipring_handler_subscription_queued) handler_subscription_queued;
    __typeof__(&slipring_handler_subscription_free) handler_subscription_free;
    __typeof__(&slipring_handler_subscription_unsubscribe) handler_subscription_unsubscribe;
    __typeof__(&slipring_handler_subscription_detach) handler_subscription_detach;
    __typeof__(&slipring_last_error) last_error;
    __typeof__(&slipring_last_error_position) last_error_position;
    __typeof__(&slipring_topic_loan) topic_loan;
    __typeof__(&slipring_loan_commit) loan_commit;
    __typeof__(&slipring_loan_abort) loan_abort;
    __typeof__(&slipring_message_attribute) message_attribute;
    __typeof__(&slipring_message_attributes) message_attributes;
    __typeof__(&slipring_message_id) message_id;
    __typeof__(&slipring_message_keep) message_keep;
    __typeof__(&slipring_kept_message) kept_message;
    __typeof__(&slipring_kept_free) kept_free;
    __typeof__(&slipring_broker_metrics) broker_metrics;
    __typeof__(&slipring_broker_subscription_metrics) broker_subscription_metrics;
    __typeof__(&slipring_broker_prometheus) broker_prometheus;
    __typeof__(&slipring_broker_options_init) broker_options_init;
    __typeof__(&slipring_subscription_options_init) subscription_options_init;
    __typeof__(&slipring_status_str) status_str;
    __typeof__(&slipring_broker_subscribe) broker_subscribe;
    __typeof__(&slipring_subscription_free) subscription_free;
    __typeof__(&slipring_subscription_id) subscription_id;
    __typeof__(&slipring_subscription_lost) subscription_lost;
    __typeof__(&slipring_subscription_queued) subscription_queued;
    __typeof__(&slipring_subscription_recv) subscription_recv;
    __typeof__(&slipring_subscription_try_recv) subscription_try_recv;
    __typeof__(&slipring_subscription_recv_timeout) subscription_recv_timeout;
    __typeof__(&slipring_subscription_recv_batch) subscription_recv_batch;
    __typeof__(&slipring_subscription_try_recv_batch) subscription_try_recv_batch;
    __typeof__(&slipring_subscription_poll) subscription_poll;
    __typeof__(&slipring_subscription_wait) subscription_wait;
    __typeof__(&slipring_subscription_event_fd) subscription_event_fd;
    __typeof__(&slipring_text_get) text_get;
    __typeof__(&slipring_text_free) text_free;
    __typeof__(&slipring_topic_name) topic_name;
    __typeof__(&slipring_topic_publish) topic_publish;
    __typeof__(&slipring_topic_publish_message) topic_publish_message;
    __typeof__(&slipring_topic_try_publish) topic_try_publish;
    __typeof__(&slipring_topic_publish_timeout) topic_publish_timeout;
    __typeof__(&slipring_topic_publish_batch) topic_publish_batch;
    __typeof__(&slipring_topic_try_publish_batch) topic_try_publish_batch;
    __typeof__(&slipring_topic_free) topic_free;
    __typeof__(&slipring_topic_publish_ticket) topic_publish_ticket;
    __typeof__(&slipring_ticket_try) ticket_try;
    __typeof__(&slipring_ticket_wait) ticket_wait;
    __typeof__(&slipring_ticket_free) ticket_free;
    __typeof__(&slipring_version) version;
    __typeof__(&slipring_version_str) version_str;
    __typeof__(&slipring_ack_ids) ack_ids;
    __typeof__(&slipring_ack_id_text) ack_id_text;
    __typeof__(&slipring_ack_id_parse) ack_id_parse;
    __typeof__(&slipring_ack) ack;
    __typeof__(&slipring_nack) nack;
    __typeof__(&slipring_extend) extend;
    __typeof__(&slipring_dead_letter) dead_letter;
    __typeof__(&slipring_subscription_acker) subscription_acker;
    __typeof__(&slipring_broker_acker) broker_acker;
    __typeof__(&slipring_acker_ack) acker_ack;
    __typeof__(&slipring_acker_nack) acker_nack;
    __typeof__(&slipring_acker_extend) acker_extend;
    __typeof__(&slipring_acker_dead_letter) acker_dead_letter;
    __typeof__(&slipring_acker_free) acker_free;
    __typeof__(&slipring_handler_reason) handler_reason;
    __typeof__(&slipring_subscription_seek) subscription_seek;
    __typeof__(&slipring_broker_subscriptions) broker_subscriptions;
    __typeof__(&slipring_broker_describe_subscription) broker_describe_subscription;
    __typeof__(&slipring_broker_delete_subscription) broker_delete_subscription;
    __typeof__(&slipring_broker_seek_subscription) broker_seek_subscription;
    __typeof__(&slipring_broker_dead_letters) broker_dead_letters;
    __typeof__(&slipring_letters_get) letters_get;
    __typeof__(&slipring_letters_free) letters_free;
    __typeof__(&slipring_broker_dead_letter) broker_dead_letter;
    __typeof__(&slipring_broker_redrive) broker_redrive;
    __typeof__(&slipring_broker_redrive_all) broker_redrive_all;
    __typeof__(&slipring_broker_purge_dead_letters) broker_purge_dead_letters;
    __typeof__(&slipring_broker_flush) broker_flush;
    __typeof__(&slipring_broker_set_retention) broker_set_retention;
    __typeof__(&slipring_broker_set_dedup_window) broker_set_dedup_window;
    __typeof__(&slipring_message_topic) message_topic;
    __typeof__(&slipring_message_attempt) message_attempt;
    __typeof__(&slipring_idle_new) idle_new;
    __typeof__(&slipring_idle_rest) idle_rest;
    __typeof__(&slipring_idle_free) idle_free;
    __typeof__(&slipring_test_clock_new) test_clock_new;
    __typeof__(&slipring_test_clock_advance) test_clock_advance;
    __typeof__(&slipring_test_clock_free) test_clock_free;
    __typeof__(&slipring_broker_subscribe_batch_handler) broker_subscribe_batch_handler;
    __typeof__(&slipring_handler_reason_at) handler_reason_at;
    __typeof__(&slipring_topic_publish_sync) topic_publish_sync;
    __typeof__(&slipring_topic_publish_batch_timeout) topic_publish_batch_timeout;
    __typeof__(&slipring_topic_is_durable) topic_is_durable;
    __typeof__(&slipring_topic_message_id) topic_message_id;
    __typeof__(&slipring_loan_commit_timeout) loan_commit_timeout;
    __typeof__(&slipring_broker_is_durable) broker_is_durable;
    __typeof__(&slipring_broker_topic_config) broker_topic_config;
    __typeof__(&slipring_subscription_name) subscription_name;
    __typeof__(&slipring_subscription_is_due) subscription_is_due;
    __typeof__(&slipring_broker_dead_letters_count) broker_dead_letters_count;
    __typeof__(&slipring_broker_shard_metrics) broker_shard_metrics;
    __typeof__(&slipring_broker_topic_metrics) broker_topic_metrics;
    __typeof__(&slipring_broker_subscription_ids) broker_subscription_ids;
    __typeof__(&slipring_deduplicator_new) deduplicator_new;
    __typeof__(&slipring_deduplicator_is_new) deduplicator_is_new;
    __typeof__(&slipring_deduplicator_forget) deduplicator_forget;
    __typeof__(&slipring_deduplicator_len) deduplicator_len;
    __typeof__(&slipring_deduplicator_free) deduplicator_free;
} slipring_functions;

// What the capsule points to.
typedef struct slipring_python {
    // SLIPRING_PYTHON_ABI of the library.
    uint32_t abi;
    // SLIPRING_PYTHON_FUNCTIONS of the library.
    uint32_t functions_len;
    // The broker: not to be freed.
    const slipring_broker *broker;
    const slipring_functions *functions;
} slipring_python;

// Set by `slipring_python_import`.
static const slipring_python *slipring_python_api = NULL;

// The broker of a capsule; NULL with an exception set if it is no such capsule (ValueError), or of a
// library that does not fit this header (ImportError). Call it before any function of slipring.h, with
// the interpreter's lock.
static inline const slipring_broker *slipring_python_import(PyObject *capsule) {
    const slipring_python *api =
        (const slipring_python *)PyCapsule_GetPointer(capsule, "slipring.broker");
    if (api == NULL) return NULL;
    if (api->abi != SLIPRING_PYTHON_ABI || api->functions_len < SLIPRING_PYTHON_FUNCTIONS) {
        PyErr_Format(PyExc_ImportError,
                     "this extension was built for %s slipring: with ABI %d and %d functions, where "
                     "the one that is installed has ABI %u and %u",
                     api->abi > SLIPRING_PYTHON_ABI ? "an older" : "a newer", SLIPRING_PYTHON_ABI,
                     SLIPRING_PYTHON_FUNCTIONS, (unsigned)api->abi, (unsigned)api->functions_len);
        return NULL;
    }
    // The functions are those of the module, so any capsule's will do; what they are reached through
    // must outlive this capsule.
    static slipring_python kept;
    kept = *api;
    slipring_python_api = &kept;
    return api->broker;
}

#define slipring_broker_open (slipring_python_api->functions->broker_open)
#define slipring_broker_close (slipring_python_api->functions->broker_close)
#define slipring_broker_free (slipring_python_api->functions->broker_free)
#define slipring_broker_topic (slipring_python_api->functions->broker_topic)
#define slipring_broker_create_topic (slipring_python_api->functions->broker_create_topic)
#define slipring_broker_delete_topic (slipring_python_api->functions->broker_delete_topic)
#define slipring_broker_topics (slipring_python_api->functions->broker_topics)
#define slipring_broker_describe_topic (slipring_python_api->functions->broker_describe_topic)
#define slipring_broker_publish (slipring_python_api->functions->broker_publish)
#define slipring_broker_subscribe_handler (slipring_python_api->functions->broker_subscribe_handler)
#define slipring_handler_subscription_id (slipring_python_api->functions->handler_subscription_id)
#define slipring_handler_subscription_queued (slipring_python_api->functions->handler_subscription_queued)
#define slipring_handler_subscription_free (slipring_python_api->functions->handler_subscription_free)
#define slipring_handler_subscription_unsubscribe (slipring_python_api->functions->handler_subscription_unsubscribe)
#define slipring_handler_subscription_detach (slipring_python_api->functions->handler_subscription_detach)
#define slipring_last_error (slipring_python_api->functions->last_error)
#define slipring_last_error_position (slipring_python_api->functions->last_error_position)
#define slipring_topic_loan (slipring_python_api->functions->topic_loan)
#define slipring_loan_commit (slipring_python_api->functions->loan_commit)
#define slipring_loan_abort (slipring_python_api->functions->loan_abort)
#define slipring_message_attribute (slipring_python_api->functions->message_attribute)
#define slipring_message_attributes (slipring_python_api->functions->message_attributes)
#define slipring_message_id (slipring_python_api->functions->message_id)
#define slipring_message_keep (slipring_python_api->functions->message_keep)
#define slipring_kept_message (slipring_python_api->functions->kept_message)
#define slipring_kept_free (slipring_python_api->functions->kept_free)
#define slipring_broker_metrics (slipring_python_api->functions->broker_metrics)
#define slipring_broker_subscription_metrics (slipring_python_api->functions->broker_subscription_metrics)
#define slipring_broker_prometheus (slipring_python_api->functions->broker_prometheus)
#define slipring_broker_options_init (slipring_python_api->functions->broker_options_init)
#define slipring_subscription_options_init (slipring_python_api->functions->subscription_options_init)
#define slipring_status_str (slipring_python_api->functions->status_str)
#define slipring_broker_subscribe (slipring_python_api->functions->broker_subscribe)
#define slipring_subscription_free (slipring_python_api->functions->subscription_free)
#define slipring_subscription_id (slipring_python_api->functions->subscription_id)
#define slipring_subscription_lost (slipring_python_api->functions->subscription_lost)
#define slipring_subscription_queued (slipring_python_api->functions->subscription_queued)
#define slipring_subscription_recv (slipring_python_api->functions->subscription_recv)
#define slipring_subscription_try_recv (slipring_python_api->functions->subscription_try_recv)
#define slipring_subscription_recv_timeout (slipring_python_api->functions->subscription_recv_timeout)
#define slipring_subscription_recv_batch (slipring_python_api->functions->subscription_recv_batch)
#define slipring_subscription_try_recv_batch (slipring_python_api->functions->subscription_try_recv_batch)
#define slipring_subscription_poll (slipring_python_api->functions->subscription_poll)
#define slipring_subscription_wait (slipring_python_api->functions->subscription_wait)
#define slipring_subscription_event_fd (slipring_python_api->functions->subscription_event_fd)
#define slipring_text_get (slipring_python_api->functions->text_get)
#define slipring_text_free (slipring_python_api->functions->text_free)
#define slipring_topic_name (slipring_python_api->functions->topic_name)
#define slipring_topic_publish (slipring_python_api->functions->topic_publish)
#define slipring_topic_publish_message (slipring_python_api->functions->topic_publish_message)
#define slipring_topic_try_publish (slipring_python_api->functions->topic_try_publish)
#define slipring_topic_publish_timeout (slipring_python_api->functions->topic_publish_timeout)
#define slipring_topic_publish_batch (slipring_python_api->functions->topic_publish_batch)
#define slipring_topic_try_publish_batch (slipring_python_api->functions->topic_try_publish_batch)
#define slipring_topic_free (slipring_python_api->functions->topic_free)
#define slipring_topic_publish_ticket (slipring_python_api->functions->topic_publish_ticket)
#define slipring_ticket_try (slipring_python_api->functions->ticket_try)
#define slipring_ticket_wait (slipring_python_api->functions->ticket_wait)
#define slipring_ticket_free (slipring_python_api->functions->ticket_free)
#define slipring_version (slipring_python_api->functions->version)
#define slipring_version_str (slipring_python_api->functions->version_str)
#define slipring_ack_ids (slipring_python_api->functions->ack_ids)
#define slipring_ack_id_text (slipring_python_api->functions->ack_id_text)
#define slipring_ack_id_parse (slipring_python_api->functions->ack_id_parse)
#define slipring_ack (slipring_python_api->functions->ack)
#define slipring_nack (slipring_python_api->functions->nack)
#define slipring_extend (slipring_python_api->functions->extend)
#define slipring_dead_letter (slipring_python_api->functions->dead_letter)
#define slipring_subscription_acker (slipring_python_api->functions->subscription_acker)
#define slipring_broker_acker (slipring_python_api->functions->broker_acker)
#define slipring_acker_ack (slipring_python_api->functions->acker_ack)
#define slipring_acker_nack (slipring_python_api->functions->acker_nack)
#define slipring_acker_extend (slipring_python_api->functions->acker_extend)
#define slipring_acker_dead_letter (slipring_python_api->functions->acker_dead_letter)
#define slipring_acker_free (slipring_python_api->functions->acker_free)
#define slipring_handler_reason (slipring_python_api->functions->handler_reason)
#define slipring_subscription_seek (slipring_python_api->functions->subscription_seek)
#define slipring_broker_subscriptions (slipring_python_api->functions->broker_subscriptions)
#define slipring_broker_describe_subscription (slipring_python_api->functions->broker_describe_subscription)
#define slipring_broker_delete_subscription (slipring_python_api->functions->broker_delete_subscription)
#define slipring_broker_seek_subscription (slipring_python_api->functions->broker_seek_subscription)
#define slipring_broker_dead_letters (slipring_python_api->functions->broker_dead_letters)
#define slipring_letters_get (slipring_python_api->functions->letters_get)
#define slipring_letters_free (slipring_python_api->functions->letters_free)
#define slipring_broker_dead_letter (slipring_python_api->functions->broker_dead_letter)
#define slipring_broker_redrive (slipring_python_api->functions->broker_redrive)
#define slipring_broker_redrive_all (slipring_python_api->functions->broker_redrive_all)
#define slipring_broker_purge_dead_letters (slipring_python_api->functions->broker_purge_dead_letters)
#define slipring_broker_flush (slipring_python_api->functions->broker_flush)
#define slipring_broker_set_retention (slipring_python_api->functions->broker_set_retention)
#define slipring_broker_set_dedup_window (slipring_python_api->functions->broker_set_dedup_window)
#define slipring_message_topic (slipring_python_api->functions->message_topic)
#define slipring_message_attempt (slipring_python_api->functions->message_attempt)
#define slipring_idle_new (slipring_python_api->functions->idle_new)
#define slipring_idle_rest (slipring_python_api->functions->idle_rest)
#define slipring_idle_free (slipring_python_api->functions->idle_free)
#define slipring_test_clock_new (slipring_python_api->functions->test_clock_new)
#define slipring_test_clock_advance (slipring_python_api->functions->test_clock_advance)
#define slipring_test_clock_free (slipring_python_api->functions->test_clock_free)
#define slipring_broker_subscribe_batch_handler (slipring_python_api->functions->broker_subscribe_batch_handler)
#define slipring_handler_reason_at (slipring_python_api->functions->handler_reason_at)
#define slipring_topic_publish_sync (slipring_python_api->functions->topic_publish_sync)
#define slipring_topic_publish_batch_timeout (slipring_python_api->functions->topic_publish_batch_timeout)
#define slipring_topic_is_durable (slipring_python_api->functions->topic_is_durable)
#define slipring_topic_message_id (slipring_python_api->functions->topic_message_id)
#define slipring_loan_commit_timeout (slipring_python_api->functions->loan_commit_timeout)
#define slipring_broker_is_durable (slipring_python_api->functions->broker_is_durable)
#define slipring_broker_topic_config (slipring_python_api->functions->broker_topic_config)
#define slipring_subscription_name (slipring_python_api->functions->subscription_name)
#define slipring_subscription_is_due (slipring_python_api->functions->subscription_is_due)
#define slipring_broker_dead_letters_count (slipring_python_api->functions->broker_dead_letters_count)
#define slipring_broker_shard_metrics (slipring_python_api->functions->broker_shard_metrics)
#define slipring_broker_topic_metrics (slipring_python_api->functions->broker_topic_metrics)
#define slipring_broker_subscription_ids (slipring_python_api->functions->broker_subscription_ids)
#define slipring_deduplicator_new (slipring_python_api->functions->deduplicator_new)
#define slipring_deduplicator_is_new (slipring_python_api->functions->deduplicator_is_new)
#define slipring_deduplicator_forget (slipring_python_api->functions->deduplicator_forget)
#define slipring_deduplicator_len (slipring_python_api->functions->deduplicator_len)
#define slipring_deduplicator_free (slipring_python_api->functions->deduplicator_free)

#endif // SLIPRING_PYTHON_H
