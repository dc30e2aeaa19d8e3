//! The consumer in Rust. It is a library of its own, so it knows the broker by the C ABI alone.

use std::ffi::{c_char, c_void};
use std::ptr;

#[repr(C)]
struct Text {
    data: *const c_char,
    len: usize,
}

#[repr(C)]
struct Message {
    record: *const c_void,
    delivery: *const c_void,
}

/// `slipring_subscription_options`: what is used of it, and room for the rest.
#[repr(C, align(8))]
struct Options {
    struct_size: u32,
    overflow: u32,
    others: [u8; 120],
    delivery: u32,
    rest: [u8; 68],
}

const BLOCK: u32 = 2;
const AT_MOST_ONCE: u32 = 1;
const OK: i32 = 0;
const CLOSED: i32 = 4;

unsafe extern "C" {
    fn slipring_subscription_options_init(options: *mut Options, size: usize) -> i32;
    fn slipring_broker_subscribe(
        broker: *const c_void,
        pattern: *const c_char,
        pattern_len: usize,
        options: *const Options,
        subscription: *mut *mut c_void,
    ) -> i32;
    fn slipring_subscription_recv_batch(
        subscription: *mut c_void,
        most: usize,
        messages: *mut *const Message,
        count: *mut usize,
    ) -> i32;
    fn slipring_message_payload(message: *const Message) -> *const u8;
    fn slipring_message_payload_len(message: *const Message) -> usize;
    fn slipring_message_key(message: *const Message) -> Text;
    fn slipring_message_offset(message: *const Message) -> u64;
    fn slipring_message_published_us(message: *const Message) -> u64;
    fn slipring_message_partition(message: *const Message) -> u32;
    fn slipring_subscription_free(subscription: *mut *mut c_void);
}

/// Adds up numbers, which come in order, until the broker closes; 0 if anything is wrong.
///
/// # Safety
/// `broker` is one, and `subscribed` takes `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn consume_in_rust(
    broker: *const c_void,
    subscribed: extern "C" fn(*mut c_void),
    user: *mut c_void,
) -> u64 {
    const PATTERN: &str = "**";
    let mut options =
        Options { struct_size: 0, overflow: 0, others: [0; 120], delivery: 0, rest: [0; 68] };
    let mut subscription = ptr::null_mut();
    // SAFETY: as the header has it.
    let opened = unsafe {
        slipring_subscription_options_init(&raw mut options, size_of::<Options>());
        options.overflow = BLOCK;
        options.delivery = AT_MOST_ONCE;
        slipring_broker_subscribe(
            broker,
            PATTERN.as_ptr().cast(),
            PATTERN.len(),
            &raw const options,
            &raw mut subscription,
        )
    };
    subscribed(user);
    if opened != OK {
        return 0;
    }
    let (mut next, mut sum, mut expected) = (0_u64, 0, None);
    let ended = loop {
        let (mut messages, mut count) = (ptr::null(), 0);
        // SAFETY: as the header has it.
        let status = unsafe {
            slipring_subscription_recv_batch(subscription, 64, &raw mut messages, &raw mut count)
        };
        if status != OK {
            break status;
        }
        // SAFETY: the array is valid until the next call.
        for message in unsafe { std::slice::from_raw_parts(messages, count) } {
            // SAFETY: so are its payload and its key.
            let (payload, key, offset, partition, published_us) = unsafe {
                let (payload, len) =
                    (slipring_message_payload(message), slipring_message_payload_len(message));
                let key = slipring_message_key(message);
                (
                    std::slice::from_raw_parts(payload, len),
                    std::slice::from_raw_parts(key.data.cast::<u8>(), key.len),
                    slipring_message_offset(message),
                    slipring_message_partition(message),
                    slipring_message_published_us(message),
                )
            };
            let number = str::from_utf8(payload).ok().and_then(|text| text.parse().ok());
            let is_right = number == Some(next) && key == b"C" && offset == next;
            if !is_right || published_us == 0 || partition != *expected.get_or_insert(partition) {
                break;
            }
            sum += next;
            next += 1;
        }
    };
    // SAFETY: as the header has it.
    unsafe { slipring_subscription_free(&raw mut subscription) };
    if ended == CLOSED { sum } else { 0 }
}
