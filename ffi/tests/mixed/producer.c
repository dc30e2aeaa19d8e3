/* The producer in C. */
#include "slipring.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 16 };

int produce_in_c(const slipring_broker *broker, uint64_t count);

int produce_in_c(const slipring_broker *broker, uint64_t count) {
    slipring_topic *topic = NULL;
    slipring_new_message batch[BATCH];
    slipring_attribute language;
    char numbers[BATCH][21];
    uint64_t next = 0;
    int good = slipring_broker_topic(broker, SLIPRING_TEXT("numbers/c"), &topic) == SLIPRING_OK;
    language.key.data = "language";
    language.key.len = strlen(language.key.data);
    language.value.data = "C";
    language.value.len = 1;
    memset(batch, 0, sizeof batch);
    while (good && next < count) {
        size_t filled = 0;
        for (; filled < BATCH && next < count; filled++, next++) {
            int len = snprintf(numbers[filled], sizeof numbers[filled], "%" PRIu64, next);
            batch[filled].payload = (const uint8_t *)numbers[filled];
            batch[filled].payload_len = (size_t)len;
            batch[filled].key = language.value;
            batch[filled].attributes = &language;
            batch[filled].attributes_len = 1;
        }
        good = slipring_topic_publish_batch(topic, batch, filled, NULL) == SLIPRING_OK;
    }
    slipring_topic_free(&topic);
    return good;
}
