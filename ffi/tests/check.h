/* What the tests in C share. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "slipring.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            char why_[256];                                                                     \
            slipring_last_error(why_, sizeof why_);                                             \
            fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #condition, why_); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

#define OK(call) CHECK((call) == SLIPRING_OK)

/* Are `len` bytes at `data` those of the literal? */
#define SAME(data, len, literal) \
    ((len) == sizeof(literal) - 1 && memcmp((data), (literal), (len)) == 0)

/* Is the payload of the message the literal? */
#define PAYLOAD_IS(message, literal) \
    SAME(slipring_message_payload(message), slipring_message_payload_len(message), literal)

/* Is the text of a view the literal? */
static inline int is_text(slipring_text_view view, const char *literal) {
    return view.len == strlen(literal) && memcmp(view.data, literal, view.len) == 0;
}

static inline size_t attributes_of(const slipring_message *message) {
    size_t count = 0;
    OK(slipring_message_attributes(message, NULL, 0, &count));
    return count;
}

static inline slipring_text_view text(const char *string) {
    slipring_text_view view;
    view.data = string;
    view.len = strlen(string);
    return view;
}

static inline slipring_broker *open_broker(void) {
    slipring_broker *broker = NULL;
    OK(slipring_broker_open(NULL, &broker));
    return broker;
}

static inline int readable(int fd) {
    struct pollfd polled;
    polled.fd = fd;
    polled.events = POLLIN;
    polled.revents = 0;
    return poll(&polled, 1, 0) == 1;
}

static inline int finish(const char *name) {
    printf("%s: ok\n", name);
    return 0;
}

#endif
