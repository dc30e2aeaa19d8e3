//! The functions of the C ABI, as a table: what `Broker.capsule` hands to native code.
//!
//! The order is part of the ABI: a new function goes to the end, and none is ever taken away.
//! `cargo xtask header` makes `include/slipring_python.h` of this list, and refuses one that is not
//! complete.
#![expect(unsafe_code, reason = "pointers that threads share")]

use slipring_c_abi::ack_id::*;
use slipring_c_abi::acker::*;
use slipring_c_abi::broker::*;
use slipring_c_abi::clock::*;
use slipring_c_abi::dedup::*;
use slipring_c_abi::handled::*;
use slipring_c_abi::handler::*;
use slipring_c_abi::idle::*;
use slipring_c_abi::last_error::*;
use slipring_c_abi::letters::*;
use slipring_c_abi::loan::*;
use slipring_c_abi::message::*;
use slipring_c_abi::metrics::*;
use slipring_c_abi::named::*;
use slipring_c_abi::options::*;
use slipring_c_abi::settle::*;
use slipring_c_abi::status::*;
use slipring_c_abi::subscription::*;
use slipring_c_abi::text::*;
use slipring_c_abi::topic::*;
use slipring_c_abi::version::*;
use std::ffi::c_void;

/// The address of a function.
#[repr(transparent)]
pub(crate) struct Function(*const c_void);

// SAFETY: code is never written.
unsafe impl Sync for Function {}

macro_rules! functions {
    ($($name:ident,)*) => {
        pub(crate) static FUNCTIONS: &[Function] = &[$(Function($name as *const c_void)),*];
    };
}

functions! {
    slipring_broker_open,
    slipring_broker_close,
    slipring_broker_free,
    slipring_broker_topic,
    slipring_broker_create_topic,
    slipring_broker_delete_topic,
    slipring_broker_topics,
    slipring_broker_describe_topic,
    slipring_broker_publish,
    slipring_broker_subscribe_handler,
    slipring_handler_subscription_id,
    slipring_handler_subscription_queued,
    slipring_handler_subscription_free,
    slipring_handler_subscription_unsubscribe,
    slipring_handler_subscription_detach,
    slipring_last_error,
    slipring_last_error_position,
    slipring_topic_loan,
    slipring_loan_commit,
    slipring_loan_abort,
    slipring_message_attribute,
    slipring_message_attributes,
    slipring_message_id,
    slipring_message_keep,
    slipring_kept_message,
    slipring_kept_free,
    slipring_broker_metrics,
    slipring_broker_subscription_metrics,
    slipring_broker_prometheus,
    slipring_broker_options_init,
    slipring_subscription_options_init,
    slipring_status_str,
    slipring_broker_subscribe,
    slipring_subscription_free,
    slipring_subscription_id,
    slipring_subscription_lost,
    slipring_subscription_queued,
    slipring_subscription_recv,
    slipring_subscription_try_recv,
    slipring_subscription_recv_timeout,
    slipring_subscription_recv_batch,
    slipring_subscription_try_recv_batch,
    slipring_subscription_poll,
    slipring_subscription_wait,
    slipring_subscription_event_fd,
    slipring_text_get,
    slipring_text_free,
    slipring_topic_name,
    slipring_topic_publish,
    slipring_topic_publish_message,
    slipring_topic_try_publish,
    slipring_topic_publish_timeout,
    slipring_topic_publish_batch,
    slipring_topic_try_publish_batch,
    slipring_topic_free,
    slipring_topic_publish_ticket,
    slipring_ticket_try,
    slipring_ticket_wait,
    slipring_ticket_free,
    slipring_version,
    slipring_version_str,
    slipring_ack_ids,
    slipring_ack_id_text,
    slipring_ack_id_parse,
    slipring_ack,
    slipring_nack,
    slipring_extend,
    slipring_dead_letter,
    slipring_subscription_acker,
    slipring_broker_acker,
    slipring_acker_ack,
    slipring_acker_nack,
    slipring_acker_extend,
    slipring_acker_dead_letter,
    slipring_acker_free,
    slipring_handler_reason,
    slipring_subscription_seek,
    slipring_broker_subscriptions,
    slipring_broker_describe_subscription,
    slipring_broker_delete_subscription,
    slipring_broker_seek_subscription,
    slipring_broker_dead_letters,
    slipring_letters_get,
    slipring_letters_free,
    slipring_broker_dead_letter,
    slipring_broker_redrive,
    slipring_broker_redrive_all,
    slipring_broker_purge_dead_letters,
    slipring_broker_flush,
    slipring_broker_set_retention,
    slipring_broker_set_dedup_window,
    slipring_message_topic,
    slipring_message_attempt,
    slipring_idle_new,
    slipring_idle_rest,
    slipring_idle_free,
    slipring_test_clock_new,
    slipring_test_clock_advance,
    slipring_test_clock_free,
    slipring_broker_subscribe_batch_handler,
    slipring_handler_reason_at,
    slipring_topic_publish_sync,
    slipring_topic_publish_batch_timeout,
    slipring_topic_is_durable,
    slipring_topic_message_id,
    slipring_loan_commit_timeout,
    slipring_broker_is_durable,
    slipring_broker_topic_config,
    slipring_subscription_name,
    slipring_subscription_is_due,
    slipring_broker_dead_letters_count,
    slipring_broker_shard_metrics,
    slipring_broker_topic_metrics,
    slipring_broker_subscription_ids,
    slipring_deduplicator_new,
    slipring_deduplicator_is_new,
    slipring_deduplicator_forget,
    slipring_deduplicator_len,
    slipring_deduplicator_free,
}
