/* Follows a log with epoll: one thread reads lines and publishes each to a topic by its level, an
   event loop prints what is worth it.

       cc -Iinclude examples/c/tailer.c -Ltarget/release -lslipring -lpthread -o tailer
       LD_LIBRARY_PATH=target/release ./tailer < /var/log/some.log

   A line is `LEVEL text`; the loop wants `log/WARN`, `log/ERROR` and nothing of the rest. */
#define _POSIX_C_SOURCE 200809L

#include "slipring.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void must(slipring_status status, const char *what) {
    char why[256] = "";
    if (status == SLIPRING_OK)
        return;
    if (status < 0) /* What is no error leaves the last one as it was. */
        slipring_last_error(why, sizeof why);
    fprintf(stderr, "%s: %s%s%s\n", what, slipring_status_str(status), *why ? ": " : "", why);
    exit(1);
}

/* Publishes the lines of standard input, and closes the broker behind the last. */
static void *reader(void *user) {
    slipring_broker *broker = (slipring_broker *)user;
    char line[4096], topic[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t len = strcspn(line, "\n");
        int level = (int)strcspn(line, " \n");
        int topic_len = snprintf(topic, sizeof topic, "log/%.*s", level < 32 ? level : 32, line);
        if (level > 0) {
            slipring_status status = slipring_broker_publish(
                broker, topic, (size_t)topic_len, (const uint8_t *)line, len, NULL);
            if (status < 0) /* A line that begins with what is no topic. */
                fprintf(stderr, "skipped: %s\n", slipring_status_str(status));
        }
    }
    must(slipring_broker_close(broker, 0, NULL), "close");
    return NULL;
}

int main(void) {
    slipring_broker *broker = NULL;
    slipring_subscription *alarms = NULL;
    slipring_subscription_options options;
    slipring_text_view error;
    struct epoll_event event;
    pthread_t thread;
    slipring_status status;
    uint64_t lost = 0;
    int fd, epoll;

    error.data = "log/ERROR";
    error.len = strlen(error.data);
    must(slipring_broker_open(NULL, &broker), "open");
    must(slipring_subscription_options_init(&options, sizeof options), "options");
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.patterns = &error;
    options.patterns_len = 1;
    options.overflow = SLIPRING_DROP_OLDEST;
    must(slipring_broker_subscribe(broker, SLIPRING_TEXT("log/WARN"), &options, &alarms),
         "subscribe");
    must(slipring_subscription_event_fd(alarms, &fd), "event fd");

    epoll = epoll_create1(EPOLL_CLOEXEC);
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        perror("epoll");
        return 1;
    }
    if (pthread_create(&thread, NULL, reader, broker) != 0)
        return 1;

    do {
        const slipring_message *messages;
        size_t count, i;
        if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR) {
            perror("epoll_wait");
            return 1;
        }
        /* Level-triggered: one batch at a time, and back to the loop. */
        status = slipring_subscription_try_recv_batch(alarms, 64, &messages, &count);
        if (status == SLIPRING_LAGGED)
            lost += slipring_subscription_lost(alarms);
        else if (status == SLIPRING_OK)
            for (i = 0; i < count; i++)
                printf("%.*s\n", (int)slipring_message_payload_len(&messages[i]),
                       (const char *)slipring_message_payload(&messages[i]));
    } while (status != SLIPRING_CLOSED);

    pthread_join(thread, NULL);
    printf("%llu lines lost\n", (unsigned long long)lost);
    close(epoll);
    slipring_subscription_free(&alarms);
    slipring_broker_free(&broker);
    return 0;
}
