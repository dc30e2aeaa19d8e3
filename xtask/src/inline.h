
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
