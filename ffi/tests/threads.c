/* Handles in several threads, as the header has it. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, MESSAGES = 2000 };

typedef struct {
    slipring_broker *broker;
    slipring_topic *topic;
    slipring_subscription *sub;
    size_t received, lost, busy;
} Shared;

static void *publishes(void *user) {
    Shared *shared = (Shared *)user;
    int i;
    for (i = 0; i < MESSAGES; i++) {
        uint8_t byte = (uint8_t)i;
        if (i % 2)
            OK(slipring_topic_publish(shared->topic, &byte, 1, NULL));
        else
            OK(slipring_broker_publish(shared->broker, SLIPRING_TEXT("t"), &byte, 1, NULL));
    }
    return NULL;
}

static void *receives(void *user) {
    Shared *shared = (Shared *)user;
    const slipring_message *messages;
    size_t count;
    for (;;) {
        slipring_status status =
            slipring_subscription_recv_batch(shared->sub, 64, &messages, &count);
        if (status == SLIPRING_LAGGED)
            shared->lost += slipring_subscription_lost(shared->sub);
        else if (status == SLIPRING_OK)
            shared->received += count;
        else {
            CHECK(status == SLIPRING_CLOSED);
            return NULL;
        }
    }
}

static void many_publish_to_one_topic(void) {
    pthread_t publishers[THREADS], receiver;
    Shared shared;
    int i;
    memset(&shared, 0, sizeof shared);
    shared.broker = open_broker();
    OK(slipring_broker_topic(shared.broker, SLIPRING_TEXT("t"), &shared.topic));
    OK(slipring_broker_subscribe(shared.broker, SLIPRING_TEXT("t"), NULL, &shared.sub));
    CHECK(pthread_create(&receiver, NULL, receives, &shared) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&publishers[i], NULL, publishes, &shared) == 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(publishers[i], NULL);
    OK(slipring_broker_close(shared.broker, 0, NULL));
    pthread_join(receiver, NULL);
    CHECK(shared.received + shared.lost == THREADS * MESSAGES);
    slipring_subscription_free(&shared.sub);
    slipring_topic_free(&shared.topic);
    slipring_broker_free(&shared.broker);
}

/* Several threads receive from one subscription, which is not allowed, and is told. */
static void *receives_too(void *user) {
    Shared *shared = (Shared *)user;
    slipring_message message;
    int i;
    for (i = 0; i < MESSAGES; i++) {
        slipring_status status = slipring_subscription_try_recv(shared->sub, &message);
        CHECK(status == SLIPRING_OK || status == SLIPRING_EMPTY || status == SLIPRING_LAGGED ||
              status == SLIPRING_EBUSY);
    }
    return NULL;
}

typedef struct {
    const slipring_message *messages;
    const slipring_acker *acker;
    const slipring_ack_id *ids;
    size_t len;
} Share;

static void *settles(void *user) {
    Share *share = (Share *)user;
    OK(slipring_ack(share->messages, share->len / 2, NULL));
    OK(slipring_acker_ack(share->acker, share->ids + share->len / 2, share->len - share->len / 2,
                          NULL));
    return NULL;
}

/* One receives, and each of several settles a share of every batch, where it lies and by id. */
static void many_settle_what_one_receives(void) {
    enum { BATCH = 64 };
    slipring_broker *broker = open_broker();
    slipring_subscription_options options;
    slipring_subscription *sub = NULL;
    slipring_subscription_metrics figures;
    slipring_topic *topic = NULL;
    slipring_acker *acker = NULL;
    slipring_ack_id ids[BATCH];
    const slipring_message *messages;
    pthread_t threads[THREADS];
    Share shares[THREADS];
    size_t received, count, i;

    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    options.visibility_timeout_ns = SLIPRING_SECONDS(600);
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), &options, &sub));
    OK(slipring_subscription_acker(sub, &acker));
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("t"), &topic));
    for (i = 0; i < MESSAGES; i++)
        OK(slipring_topic_publish(topic, NULL, 0, NULL));
    for (received = 0; received < MESSAGES; received += count) {
        OK(slipring_subscription_recv_batch(sub, BATCH, &messages, &count));
        OK(slipring_ack_ids(messages, count, ids));
        for (i = 0; i < THREADS; i++) {
            size_t first = count * i / THREADS;
            shares[i].messages = messages + first;
            shares[i].ids = ids + first;
            shares[i].len = count * (i + 1) / THREADS - first;
            shares[i].acker = acker;
            CHECK(pthread_create(&threads[i], NULL, settles, &shares[i]) == 0);
        }
        for (i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    OK(slipring_broker_subscription_metrics(broker, slipring_subscription_id(sub), &figures,
                                            sizeof figures));
    CHECK(figures.acked == MESSAGES && figures.unsettled == 0 && figures.redelivered == 0);
    slipring_acker_free(&acker);
    slipring_topic_free(&topic);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void one_consumer_at_a_time_is_checked(void) {
    pthread_t threads[THREADS];
    Shared shared;
    int i;
    memset(&shared, 0, sizeof shared);
    shared.broker = open_broker();
    OK(slipring_broker_topic(shared.broker, SLIPRING_TEXT("t"), &shared.topic));
    OK(slipring_broker_subscribe(shared.broker, SLIPRING_TEXT("t"), NULL, &shared.sub));
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, i == 0 ? publishes : receives_too, &shared) == 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    slipring_subscription_free(&shared.sub);
    slipring_topic_free(&shared.topic);
    slipring_broker_free(&shared.broker);
}

/* The last error is that of the thread. */
static void *makes_an_error(void *user) {
    slipring_topic *none = NULL;
    Shared *shared = (Shared *)user;
    CHECK(slipring_last_error(NULL, 0) == 0);
    CHECK(slipring_broker_topic(shared->broker, SLIPRING_TEXT("abc/"), &none) == SLIPRING_ENAME);
    CHECK(slipring_last_error_position() == 4 || slipring_last_error_position() == 3);
    return NULL;
}

static void errors_belong_to_their_thread(void) {
    pthread_t thread;
    Shared shared;
    memset(&shared, 0, sizeof shared);
    shared.broker = open_broker();
    CHECK(pthread_create(&thread, NULL, makes_an_error, &shared) == 0);
    pthread_join(thread, NULL);
    CHECK(slipring_last_error(NULL, 0) == 0);
    slipring_broker_free(&shared.broker);
}

/* A subscription that another thread frees while this one waits for a message ends when it wakes. */
static void *waits_for_a_message(void *user) {
    slipring_message message;
    slipring_status status;
    do /* The other thread is looking whether this one is at it. */
        status = slipring_subscription_recv((slipring_subscription *)user, &message);
    while (status == SLIPRING_EBUSY);
    CHECK(status == SLIPRING_CLOSED);
    return NULL;
}

static void freed_while_it_waits(void) {
    pthread_t thread;
    slipring_broker *broker = open_broker();
    slipring_subscription *sub = NULL;
    slipring_message message;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), NULL, &sub));
    CHECK(pthread_create(&thread, NULL, waits_for_a_message, sub) == 0);
    while (slipring_subscription_try_recv(sub, &message) != SLIPRING_EBUSY) {
    }
    slipring_subscription_free(&sub);
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("t"), SLIPRING_BYTES("x"), NULL));
    pthread_join(thread, NULL);
    slipring_broker_free(&broker);
}

uint32_t version_of_the_other_unit(void);

int main(void) {
    CHECK(version_of_the_other_unit() == slipring_version());
    many_publish_to_one_topic();
    many_settle_what_one_receives();
    one_consumer_at_a_time_is_checked();
    errors_belong_to_their_thread();
    freed_while_it_waits();
    return finish("threads");
}
