/* Delivery at least once: leases, settling one or many at a time, dead letters, names, seeking. */
#include "check.h"

#include <pthread.h>
#include <sys/types.h>
#include <sys/wait.h>

/* Some reason, with an end that is no whole character. */
#define NO_TEXT "\xff"

static slipring_subscription_options at_least_once(void) {
    slipring_subscription_options options;
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    /* Longer than the slowest machine takes. */
    options.visibility_timeout_ns = SLIPRING_SECONDS(600);
    return options;
}

static slipring_subscription *subscribe(const slipring_broker *broker, const char *pattern,
                                        const slipring_subscription_options *options) {
    slipring_subscription *sub = NULL;
    OK(slipring_broker_subscribe(broker, pattern, strlen(pattern), options, &sub));
    return sub;
}

static void publish(const slipring_broker *broker, const char *payload) {
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("jobs/mail"), (const uint8_t *)payload,
                               strlen(payload), NULL));
}

static slipring_message receive(slipring_subscription *sub) {
    slipring_message message;
    OK(slipring_subscription_recv_timeout(sub, SLIPRING_SECONDS(60), &message));
    return message;
}

static uint64_t offset_of_next(slipring_subscription *sub) {
    slipring_message message = receive(sub);
    return slipring_message_offset(&message);
}

static uint32_t attempt_of_next(slipring_subscription *sub) {
    slipring_message message = receive(sub);
    return slipring_message_attempt(&message);
}

static int is_empty(slipring_subscription *sub) {
    slipring_message message;
    return slipring_subscription_try_recv(sub, &message) == SLIPRING_EMPTY;
}

static slipring_subscription_metrics figures_of(const slipring_broker *broker, uint64_t id) {
    slipring_subscription_metrics figures;
    OK(slipring_broker_subscription_metrics(broker, id, &figures, sizeof figures));
    return figures;
}

static void a_message_comes_again_until_it_is_acknowledged(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub;
    slipring_message message;
    slipring_kept *kept = NULL;
    slipring_subscription_metrics figures;
    uint32_t attempt;

    options.visibility_timeout_ns = SLIPRING_MILLISECONDS(10);
    options.max_delivery_attempts = 1000;
    sub = subscribe(broker, "jobs/*", &options);
    publish(broker, "one");
    for (attempt = 1; attempt <= 3; attempt++) {
        message = receive(sub);
        CHECK(PAYLOAD_IS(&message, "one") && slipring_message_attempt(&message) == attempt);
    }
    /* As long as it takes; the last lease may end before the answer. */
    OK(slipring_message_keep(&message, &kept));
    while (slipring_extend(&message, 1, SLIPRING_SECONDS(600), NULL) == SLIPRING_STALE)
        message = receive(sub);
    CHECK(slipring_extend(&message, 1, 0, NULL) == SLIPRING_ERANGE);
    CHECK(slipring_extend(&message, 1, SLIPRING_FOREVER, NULL) == SLIPRING_ERANGE);
    OK(slipring_ack(&message, 1, NULL));
    CHECK(slipring_ack(&message, 1, NULL) == SLIPRING_STALE);
    CHECK(slipring_nack(&message, 1, SLIPRING_BACKOFF, NULL) == SLIPRING_STALE);
    CHECK(slipring_dead_letter(&message, 1, NULL, 0, NULL) == SLIPRING_STALE);
    OK(slipring_kept_message(kept, &message));
    CHECK(slipring_ack(&message, 1, NULL) == SLIPRING_STALE);
    slipring_kept_free(&kept);
    CHECK(is_empty(sub));
    figures = figures_of(broker, slipring_subscription_id(sub));
    CHECK(figures.delivered == 1 && figures.acked == 1 && figures.unsettled == 0);
    CHECK(figures.redelivered >= 2 && figures.dead_lettered == 0 && figures.expired_unsettled == 0);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void an_eventfd_is_readable_again_when_a_lease_ends(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub;
    slipring_message message;
    struct pollfd polled;

    options.visibility_timeout_ns = SLIPRING_MILLISECONDS(10);
    sub = subscribe(broker, "jobs/*", &options);
    OK(slipring_subscription_event_fd(sub, &polled.fd));
    publish(broker, "one");
    CHECK(attempt_of_next(sub) == 1);
    polled.events = POLLIN;
    CHECK(poll(&polled, 1, 60000) == 1);
    message = receive(sub);
    CHECK(slipring_message_attempt(&message) >= 2);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

/* A hundred messages, and one call for each thing that is done with them. */
static void batches_are_settled_in_one_call(void) {
    enum { MESSAGES = 100 };
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub, *once;
    slipring_subscription_metrics figures;
    slipring_topic *topic = NULL;
    slipring_new_message batch[MESSAGES];
    const slipring_message *got = NULL;
    slipring_message mixed[2];
    slipring_status outcomes[MESSAGES];
    slipring_status status;
    size_t count = 0, seen, i;

    memset(batch, 0, sizeof batch);
    options.backoff_min_ns = 0;
    options.backoff_max_ns = 0;
    sub = subscribe(broker, "jobs/*", &options);
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("jobs/mail"), &topic));
    OK(slipring_topic_publish_batch(topic, batch, MESSAGES, NULL));
    OK(slipring_subscription_recv_batch(sub, MESSAGES, &got, &count));
    CHECK(count == MESSAGES);
    OK(slipring_extend(got, count, SLIPRING_SECONDS(600), outcomes));
    OK(slipring_ack(got + 90, 10, NULL));
    status = slipring_nack(got, count, SLIPRING_BACKOFF, outcomes);
    CHECK(status == SLIPRING_STALE);
    for (i = 0; i < count; i++)
        CHECK(outcomes[i] == (i < 90 ? SLIPRING_OK : SLIPRING_STALE));
    for (seen = 0; seen < 90; seen += count) {
        OK(slipring_subscription_recv_batch(sub, MESSAGES, &got, &count));
        for (i = 0; i < count; i++)
            CHECK(slipring_message_attempt(&got[i]) == 2);
        if (seen == 0) {
            OK(slipring_dead_letter(got, 1, SLIPRING_TEXT("first"), NULL));
            OK(slipring_ack(got + 1, count - 1, NULL));
        } else {
            OK(slipring_ack(got, count, outcomes));
        }
    }
    OK(slipring_ack(NULL, 0, NULL));
    figures = figures_of(broker, slipring_subscription_id(sub));
    CHECK(figures.acked == 99 && figures.dead_lettered == 1 && figures.unsettled == 0);
    CHECK(figures.redelivered == 90);

    /* What has failed counts for more than a lease that is over. */
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    once = subscribe(broker, "jobs/*", &options);
    OK(slipring_topic_publish(topic, NULL, 0, NULL));
    mixed[0] = receive(once);
    mixed[1] = receive(sub);
    OK(slipring_ack(&mixed[1], 1, NULL));
    CHECK(slipring_ack(mixed, 2, outcomes) == SLIPRING_ENOTLEASED);
    CHECK(outcomes[0] == SLIPRING_ENOTLEASED && outcomes[1] == SLIPRING_STALE);
    CHECK(slipring_message_attempt(&mixed[0]) == 1);
    slipring_topic_free(&topic);
    slipring_subscription_free(&once);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

typedef struct {
    const slipring_acker *acker;
    const slipring_ack_id *ids;
    size_t len;
    slipring_status outcomes[8];
} Elsewhere;

static void *acks_elsewhere(void *user) {
    Elsewhere *self = (Elsewhere *)user;
    OK(slipring_acker_ack(self->acker, self->ids, self->len, self->outcomes));
    return NULL;
}

static void ack_ids_settle_from_any_thread(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub, *other;
    slipring_acker *acker = NULL, *others = NULL, *none = NULL;
    const slipring_message *got = NULL;
    slipring_message message;
    slipring_ack_id ids[8], read, damaged;
    Elsewhere elsewhere;
    pthread_t thread;
    char text[64];
    size_t count = 0, i;

    options.backoff_min_ns = options.backoff_max_ns = 0;
    sub = subscribe(broker, "jobs/*", &options);
    other = subscribe(broker, "jobs/*", &options);
    OK(slipring_subscription_acker(sub, &acker));
    OK(slipring_subscription_acker(other, &others));
    for (i = 0; i < 8; i++)
        publish(broker, "x");
    OK(slipring_subscription_recv_batch(sub, 8, &got, &count));
    CHECK(count == 8);
    OK(slipring_ack_ids(got, count, ids));
    CHECK(slipring_ack_id_text(&ids[0], text, sizeof text) == 48 && strlen(text) == 48);
    OK(slipring_ack_id_parse(text, 48, &read));
    CHECK(memcmp(&read, &ids[0], sizeof read) == 0);
    CHECK(slipring_ack_id_text(&ids[0], text, 8) == 48 && strlen(text) == 7);

    CHECK(slipring_acker_ack(others, ids, 1, NULL) == SLIPRING_EACKID);
    damaged = ids[0];
    damaged.bytes[9] ^= 1;
    CHECK(slipring_acker_ack(acker, &damaged, 1, NULL) == SLIPRING_EACKID);
    CHECK(slipring_ack_id_text(&damaged, text, sizeof text) == 0);

    OK(slipring_acker_extend(acker, ids, 8, SLIPRING_SECONDS(600), NULL));
    OK(slipring_acker_nack(acker, ids + 6, 1, 0, NULL));
    OK(slipring_acker_dead_letter(acker, ids + 7, 1, SLIPRING_TEXT("by id"), NULL));
    elsewhere.acker = acker;
    elsewhere.ids = ids;
    elsewhere.len = 6;
    CHECK(pthread_create(&thread, NULL, acks_elsewhere, &elsewhere) == 0);
    pthread_join(thread, NULL);
    for (i = 0; i < 6; i++)
        CHECK(elsewhere.outcomes[i] == SLIPRING_OK);
    CHECK(slipring_acker_ack(acker, ids, 8, elsewhere.outcomes) == SLIPRING_STALE);
    CHECK(slipring_acker_extend(acker, ids, 1, SLIPRING_SECONDS(1), NULL) == SLIPRING_STALE);
    CHECK(slipring_acker_nack(acker, ids, 1, SLIPRING_SECONDS(100000), NULL) == SLIPRING_ERANGE);
    message = receive(sub);
    CHECK(slipring_message_attempt(&message) == 2);
    OK(slipring_ack_ids(&message, 1, ids));
    CHECK(is_empty(sub));

    /* Freed in any order; then everything is over, and harmless. */
    slipring_subscription_free(&sub);
    CHECK(slipring_acker_ack(acker, ids, 1, NULL) == SLIPRING_STALE);
    slipring_broker_free(&broker);
    CHECK(slipring_acker_nack(acker, ids, 1, 0, NULL) == SLIPRING_STALE);
    slipring_acker_free(&acker);
    slipring_acker_free(&acker);
    slipring_acker_free(&others);
    slipring_acker_free(&none);
    slipring_subscription_free(&other);
}

static void at_most_once_has_nothing_to_settle(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options;
    slipring_subscription *sub;
    slipring_acker *acker = NULL;
    slipring_message message;
    slipring_ack_id id;

    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.name = "once";
    options.name_len = 4;
    sub = subscribe(broker, "jobs/*", &options);
    publish(broker, "x");
    message = receive(sub);
    CHECK(slipring_ack(&message, 1, NULL) == SLIPRING_ENOTLEASED);
    CHECK(slipring_nack(&message, 1, 0, NULL) == SLIPRING_ENOTLEASED);
    CHECK(slipring_extend(&message, 1, SLIPRING_SECONDS(1), NULL) == SLIPRING_ENOTLEASED);
    CHECK(slipring_dead_letter(&message, 1, NULL, 0, NULL) == SLIPRING_ENOTLEASED);
    CHECK(slipring_ack_ids(&message, 1, &id) == SLIPRING_ENOTLEASED);
    CHECK(slipring_subscription_acker(sub, &acker) == SLIPRING_EATMOSTONCE);
    CHECK(slipring_broker_acker(broker, SLIPRING_TEXT("once"), &acker) == SLIPRING_EATMOSTONCE);
    CHECK(slipring_subscription_seek(sub, SLIPRING_START_EARLIEST, 0) == SLIPRING_EATMOSTONCE);
    CHECK(slipring_broker_seek_subscription(broker, SLIPRING_TEXT("once"), SLIPRING_START_NOW, 0) ==
          SLIPRING_EATMOSTONCE);
    CHECK(acker == NULL);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void at_the_limit_of_outstanding_messages_none_is_delivered(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub;
    slipring_message message;
    const slipring_message *got = NULL;
    slipring_kept *kept = NULL;
    size_t count = 0;

    options.max_outstanding = 2;
    sub = subscribe(broker, "jobs/*", &options);
    publish(broker, "1");
    publish(broker, "2");
    publish(broker, "3");
    message = receive(sub);
    OK(slipring_message_keep(&message, &kept));
    OK(slipring_subscription_recv_batch(sub, 9, &got, &count));
    CHECK(count == 1 && is_empty(sub));
    OK(slipring_kept_message(kept, &message));
    OK(slipring_ack(&message, 1, NULL));
    slipring_kept_free(&kept);
    message = receive(sub);
    CHECK(PAYLOAD_IS(&message, "3"));
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void publish_keyed(const slipring_broker *broker, const char *key, const char *payload) {
    slipring_topic *topic = NULL;
    slipring_new_message message;
    memset(&message, 0, sizeof message);
    message.payload = (const uint8_t *)payload;
    message.payload_len = strlen(payload);
    message.key = text(key);
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("jobs/mail"), &topic));
    OK(slipring_topic_publish_message(topic, &message, NULL));
    slipring_topic_free(&topic);
}

static void later_messages_of_a_key_wait_unless_they_may_overtake(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *subs[2];
    slipring_message message;
    int overtakes;

    options.backoff_min_ns = options.backoff_max_ns = SLIPRING_SECONDS(3600);
    subs[0] = subscribe(broker, "jobs/*", &options);
    options.keys_overtake = 1;
    options.backoff_jitter = 1;
    subs[1] = subscribe(broker, "jobs/*", &options);
    publish_keyed(broker, "k", "k1");
    for (overtakes = 0; overtakes < 2; overtakes++) {
        message = receive(subs[overtakes]);
        OK(slipring_nack(&message, 1, SLIPRING_BACKOFF, NULL));
    }
    publish_keyed(broker, "k", "k2");
    publish_keyed(broker, "j", "j1");
    message = receive(subs[0]);
    CHECK(PAYLOAD_IS(&message, "j1") && is_empty(subs[0]));
    message = receive(subs[1]);
    CHECK(PAYLOAD_IS(&message, "k2"));
    for (overtakes = 0; overtakes < 2; overtakes++)
        slipring_subscription_free(&subs[overtakes]);
    slipring_broker_free(&broker);
}

/* ---- Handlers ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

typedef struct {
    int calls, failures, lines;
    char reason[64];
    int32_t returned;
} Handled;

static void count(int *number) {
    pthread_mutex_lock(&lock);
    ++*number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int *number, int value) {
    pthread_mutex_lock(&lock);
    while (*number < value)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* What the payload says. */
static int32_t does_as_told(void *user, const slipring_message *message) {
    Handled *self = (Handled *)user;
    slipring_ack_id id;
    CHECK(slipring_ack(message, 1, NULL) == SLIPRING_ENOTLEASED);
    CHECK(slipring_ack_ids(message, 1, &id) == SLIPRING_ENOTLEASED);
    count(&self->calls);
    switch (slipring_message_payload(message)[0]) {
    case 'd':
        OK(slipring_handler_reason(SLIPRING_TEXT("not this")));
        CHECK(slipring_handler_reason(SLIPRING_TEXT(NO_TEXT)) == SLIPRING_EUTF8);
        CHECK(slipring_handler_reason(NULL, 1) == SLIPRING_EINVAL);
        OK(slipring_handler_reason(SLIPRING_TEXT("no such address")));
        return SLIPRING_DEAD_LETTER;
    case 'r':
        return slipring_message_attempt(message) == 1 ? SLIPRING_RETRY : SLIPRING_SUCCESS;
    case 'n':
        return -7;
    default:
        return SLIPRING_SUCCESS;
    }
}

static void told_of_failure(void *user, const slipring_message *message, int32_t returned,
                            const char *reason, size_t reason_len) {
    Handled *self = (Handled *)user;
    if (slipring_message_payload(message)[0] == 'd') {
        CHECK(SAME(reason, reason_len, "no such address") && returned == SLIPRING_DEAD_LETTER);
    } else if (slipring_message_payload(message)[0] == 'r') {
        CHECK(SAME(reason, reason_len, "the handler returned 1") && returned == SLIPRING_RETRY);
    } else {
        CHECK(SAME(reason, reason_len, "the handler returned -7") && returned == -7);
    }
    count(&self->failures);
}

static void reason_of(const slipring_message *letter, const char *attribute, const char *expected) {
    slipring_text_view value;
    OK(slipring_message_attribute(letter, attribute, strlen(attribute), &value));
    CHECK(value.len == strlen(expected) && memcmp(value.data, expected, value.len) == 0);
}

static void handlers_succeed_retry_or_give_up(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_handler_subscription *sub = NULL;
    slipring_handler handler;
    slipring_subscription_metrics figures;
    slipring_letters *letters = NULL;
    const slipring_message *got = NULL;
    Handled handled;
    uint64_t id;
    size_t count_of = 0;

    memset(&handled, 0, sizeof handled);
    memset(&handler, 0, sizeof handler);
    handler.handle = does_as_told;
    handler.failed = told_of_failure;
    handler.user = &handled;
    options.name = "worker";
    options.name_len = 6;
    options.max_delivery_attempts = 2;
    options.backoff_min_ns = options.backoff_max_ns = SLIPRING_MILLISECONDS(1);
    CHECK(slipring_handler_reason(SLIPRING_TEXT("outside")) == SLIPRING_EINVAL);
    OK(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("jobs/*"), &options, &handler,
                                         &sub));
    id = slipring_handler_subscription_id(sub);
    publish(broker, "dead");
    publish(broker, "retry");
    publish(broker, "never");
    publish(broker, "good");
    wait_for(&handled.calls, 6);
    wait_for(&handled.failures, 4);
    /* A handler's success counts some time after it has returned. */
    do
        figures = figures_of(broker, id);
    while (figures.acked + figures.dead_lettered < 4 || figures.unsettled > 0);
    CHECK(figures.acked == 2 && figures.dead_lettered == 2 && figures.redelivered == 2);
    CHECK(figures.handler_failures == 4);
    slipring_handler_subscription_free(&sub);

    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("$dlq/worker"), NULL, 0, 9, &letters));
    OK(slipring_letters_get(letters, &got, &count_of));
    CHECK(count_of == 2);
    reason_of(&got[0], SLIPRING_DEAD_LETTER_REASON, "no such address");
    reason_of(&got[0], SLIPRING_DEAD_LETTER_ATTEMPTS, "1");
    reason_of(&got[1], SLIPRING_DEAD_LETTER_REASON, "the handler returned -7");
    reason_of(&got[1], SLIPRING_DEAD_LETTER_ATTEMPTS, "2");
    slipring_letters_free(&letters);
    slipring_broker_free(&broker);
    CHECK(handled.calls == 6 && handled.failures == 4);
}

/* Of each message what its payload says, in as many calls as it takes; it begins when it may. */
static int32_t does_all_as_told(void *user, const slipring_message *messages, size_t count_of,
                                int32_t *handled) {
    Handled *self = (Handled *)user;
    slipring_ack_id id;
    size_t i;
    wait_for(&self->lines, 1);
    CHECK(count_of > 0);
    CHECK(slipring_handler_reason_at(count_of, SLIPRING_TEXT("beyond")) == SLIPRING_ERANGE);
    CHECK(slipring_handler_reason_at(0, SLIPRING_TEXT(NO_TEXT)) == SLIPRING_EUTF8);
    CHECK(slipring_handler_reason_at(0, NULL, 1) == SLIPRING_EINVAL);
    for (i = 0; i < count_of; i++) {
        CHECK(handled[i] == SLIPRING_AS_RETURNED);
        CHECK(slipring_ack(&messages[i], 1, NULL) == SLIPRING_ENOTLEASED);
        CHECK(slipring_ack_ids(&messages[i], 1, &id) == SLIPRING_ENOTLEASED);
        switch (slipring_message_payload(&messages[i])[0]) {
        case 'd':
            OK(slipring_handler_reason_at(i, SLIPRING_TEXT("not this")));
            OK(slipring_handler_reason_at(i, SLIPRING_TEXT("no such address")));
            handled[i] = SLIPRING_DEAD_LETTER;
            break;
        case 'r':
            handled[i] =
                slipring_message_attempt(&messages[i]) == 1 ? SLIPRING_RETRY : SLIPRING_SUCCESS;
            break;
        case 'n':
            handled[i] = -7;
            break;
        case 'g':
            handled[i] = SLIPRING_SUCCESS;
            break;
        default:
            break;
        }
    }
    pthread_mutex_lock(&lock);
    self->calls += (int)count_of;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return self->returned;
}

static void batch_handlers_answer_for_each(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_handler_subscription *sub = NULL;
    slipring_batch_handler handler;
    slipring_subscription_metrics figures;
    slipring_letters *letters = NULL;
    const slipring_message *got = NULL;
    Handled handled;
    uint64_t id;
    size_t count_of = 0, i;

    memset(&handled, 0, sizeof handled);
    memset(&handler, 0, sizeof handler);
    handler.handle = does_all_as_told;
    handler.failed = told_of_failure;
    handler.user = &handled;
    options.name = "worker";
    options.name_len = 6;
    options.max_delivery_attempts = 2;
    options.backoff_min_ns = options.backoff_max_ns = SLIPRING_MILLISECONDS(1);
    OK(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("jobs/*"), &options, &handler,
                                               &sub));
    id = slipring_handler_subscription_id(sub);
    for (i = 0; i < 50; i++) {
        publish(broker, "dead");
        publish(broker, "retry");
        publish(broker, "never");
        publish(broker, "good");
        publish(broker, "unsaid");
    }
    count(&handled.lines);
    wait_for(&handled.calls, 350);
    wait_for(&handled.failures, 200);
    do
        figures = figures_of(broker, id);
    while (figures.acked + figures.dead_lettered < 250 || figures.unsettled > 0);
    CHECK(figures.acked == 150 && figures.dead_lettered == 100 && figures.redelivered == 100);
    CHECK(figures.handler_failures == 200);
    slipring_handler_subscription_free(&sub);

    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("$dlq/worker"), NULL, 0, 999, &letters));
    OK(slipring_letters_get(letters, &got, &count_of));
    CHECK(count_of == 100);
    for (i = 0; i < count_of; i++) {
        if (slipring_message_payload(&got[i])[0] == 'd') {
            reason_of(&got[i], SLIPRING_DEAD_LETTER_REASON, "no such address");
            reason_of(&got[i], SLIPRING_DEAD_LETTER_ATTEMPTS, "1");
        } else {
            reason_of(&got[i], SLIPRING_DEAD_LETTER_REASON, "the handler returned -7");
            reason_of(&got[i], SLIPRING_DEAD_LETTER_ATTEMPTS, "2");
        }
    }
    slipring_letters_free(&letters);
    slipring_broker_free(&broker);
    CHECK(handled.calls == 350 && handled.failures == 200);
}

/* Fails with all, but for those that it says something of. */
static int32_t fails_with_the_rest(void *user, const slipring_message *messages, size_t count_of,
                                   int32_t *handled) {
    Handled *self = (Handled *)user;
    size_t i;
    wait_for(&self->lines, 1);
    for (i = 0; i < count_of; i++) {
        if (slipring_message_payload(&messages[i])[0] == 'g')
            handled[i] = SLIPRING_SUCCESS;
    }
    OK(slipring_handler_reason(SLIPRING_TEXT("the table is gone")));
    for (i = 0; i < count_of; i++)
        count(&self->calls);
    return SLIPRING_RETRY;
}

static void told_of_all(void *user, const slipring_message *message, int32_t returned,
                        const char *reason, size_t reason_len) {
    Handled *self = (Handled *)user;
    CHECK(slipring_message_payload(message)[0] == 'u' && returned == SLIPRING_RETRY);
    CHECK(SAME(reason, reason_len, "the table is gone"));
    count(&self->failures);
}

static void what_a_batch_handler_returns_is_for_the_rest(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options;
    slipring_handler_subscription *sub = NULL;
    slipring_batch_handler handler;
    slipring_subscription_metrics figures;
    Handled handled;
    int i;

    memset(&handled, 0, sizeof handled);
    memset(&handler, 0, sizeof handler);
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    handler.handle = fails_with_the_rest;
    handler.failed = told_of_all;
    handler.user = &handled;
    OK(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("jobs/*"), &options, &handler,
                                               &sub));
    for (i = 0; i < 100; i++) {
        publish(broker, "unsaid");
        publish(broker, "good");
    }
    count(&handled.lines);
    wait_for(&handled.calls, 200);
    wait_for(&handled.failures, 100);
    figures = figures_of(broker, slipring_handler_subscription_id(sub));
    CHECK(figures.handler_failures == 100);
    slipring_handler_subscription_free(&sub);
    slipring_broker_free(&broker);
    CHECK(handled.calls == 200 && handled.failures == 100);
}

/* ---- Dead letters ---- */

static void publish_of_kind(const slipring_broker *broker, const char *payload, const char *kind) {
    slipring_topic *topic = NULL;
    slipring_new_message message;
    slipring_attribute attribute;
    memset(&message, 0, sizeof message);
    attribute.key = text("kind");
    attribute.value = text(kind);
    message.payload = (const uint8_t *)payload;
    message.payload_len = strlen(payload);
    message.attributes = &attribute;
    message.attributes_len = 1;
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("jobs/mail"), &topic));
    OK(slipring_topic_publish_message(topic, &message, NULL));
    slipring_topic_free(&topic);
}

static size_t letters_in(const slipring_broker *broker, const char *filter) {
    slipring_letters *letters = NULL;
    const slipring_message *got = NULL;
    size_t count_of = 99;
    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("graves"), filter,
                                    filter != NULL ? strlen(filter) : 0, 100, &letters));
    OK(slipring_letters_get(letters, &got, &count_of));
    slipring_letters_free(&letters);
    return count_of;
}

static void dead_letters_are_listed_sent_back_and_thrown_away(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub;
    slipring_letters *letters = NULL;
    slipring_kept *peeked = NULL;
    const slipring_message *got = NULL;
    slipring_message message;
    slipring_text_view view;
    uint64_t sent = 99;
    size_t count_of = 0, i;

    options.dead_letter_topic = "graves";
    options.dead_letter_topic_len = 6;
    sub = subscribe(broker, "jobs/*", &options);
    CHECK(letters_in(broker, NULL) == 0);
    for (i = 0; i < 6; i++)
        publish_of_kind(broker, "x", i % 2 ? "odd" : "even");
    while (!is_empty(sub)) {
        /* The one that was received: its lease goes on. */
    }
    OK(slipring_subscription_seek(sub, SLIPRING_START_EARLIEST, 0));
    OK(slipring_subscription_recv_batch(sub, 6, &got, &count_of));
    CHECK(count_of == 6);
    OK(slipring_dead_letter(got, 6, SLIPRING_TEXT("no"), NULL));
    CHECK(slipring_dead_letter(got, 1, SLIPRING_TEXT(NO_TEXT), NULL) == SLIPRING_EUTF8);
    CHECK(letters_in(broker, NULL) == 6 && letters_in(broker, "attributes.kind = \"odd\"") == 3);

    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("graves"), NULL, 0, 2, &letters));
    OK(slipring_letters_get(letters, &got, &count_of));
    CHECK(count_of == 2);
    reason_of(&got[0], SLIPRING_DEAD_LETTER_TOPIC, "jobs/mail");
    reason_of(&got[0], SLIPRING_DEAD_LETTER_OFFSET, "0");
    reason_of(&got[0], "kind", "even");
    CHECK(slipring_message_attribute(&got[0], SLIPRING_TEXT(SLIPRING_DEAD_LETTER_PARTITION),
                                     &view) == SLIPRING_OK);
    CHECK(slipring_message_attribute(&got[0], SLIPRING_TEXT(SLIPRING_DEAD_LETTER_SUBSCRIPTION),
                                     &view) == SLIPRING_OK);
    OK(slipring_broker_dead_letter(broker, SLIPRING_TEXT("graves"),
                                   slipring_message_partition(&got[0]),
                                   slipring_message_offset(&got[0]), &peeked));
    OK(slipring_kept_message(peeked, &message));
    CHECK(slipring_message_offset(&message) == slipring_message_offset(&got[0]));
    CHECK(PAYLOAD_IS(&message, "x"));
    slipring_kept_free(&peeked);
    OK(slipring_broker_redrive(broker, SLIPRING_TEXT("graves"), got, 2, &sent));
    CHECK(sent == 2);
    OK(slipring_broker_redrive(broker, SLIPRING_TEXT("graves"), got, 2, &sent));
    CHECK(sent == 0);
    CHECK(slipring_broker_dead_letter(broker, SLIPRING_TEXT("graves"),
                                      slipring_message_partition(&got[0]),
                                      slipring_message_offset(&got[0]), &peeked) == SLIPRING_EMPTY);
    CHECK(peeked == NULL);
    message = receive(sub);
    CHECK(slipring_message_attempt(&message) == 1 && attributes_of(&message) == 1);
    OK(slipring_ack(&message, 1, NULL));
    message = receive(sub);
    OK(slipring_ack(&message, 1, NULL));
    OK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("graves"),
                                   SLIPRING_TEXT("attributes.kind = \"odd\""), &sent));
    CHECK(sent == 2);
    OK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("none"), NULL, 0, &sent));
    CHECK(sent == 0);
    OK(slipring_subscription_recv_batch(sub, 6, &got, &count_of));
    CHECK(count_of == 2);
    OK(slipring_dead_letter(got, 2, NULL, 0, NULL));
    OK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("graves"), NULL, 0, NULL));
    OK(slipring_subscription_recv_batch(sub, 6, &got, &count_of));
    CHECK(count_of == 4);
    OK(slipring_dead_letter(got, 4, NULL, 0, NULL));

    /* A letter that cannot be sent stays, and the others are not counted as sent. */
    OK(slipring_broker_delete_topic(broker, SLIPRING_TEXT("jobs/mail")));
    CHECK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("graves"), NULL, 0, &sent) ==
          SLIPRING_ENOTOPIC);
    slipring_letters_free(&letters);
    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("graves"), NULL, 0, 9, &letters));
    OK(slipring_letters_get(letters, &got, &count_of));
    CHECK(slipring_broker_redrive(broker, SLIPRING_TEXT("graves"), got, count_of, &sent) ==
          SLIPRING_ENOTOPIC);
    CHECK(sent == 0 && letters_in(broker, NULL) == 4);
    OK(slipring_broker_purge_dead_letters(broker, SLIPRING_TEXT("graves"), &sent));
    CHECK(sent == 4 && letters_in(broker, NULL) == 0);
    OK(slipring_broker_purge_dead_letters(broker, SLIPRING_TEXT("none"), NULL));
    /* Letters outlive the broker. */
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
    reason_of(&got[3], SLIPRING_DEAD_LETTER_REASON, "");
    slipring_letters_free(&letters);
    CHECK(letters == NULL);
}

static void log_event(void *user, uint32_t level, const char *event, size_t event_len) {
    static const char expected[] = "a dead letter is not stored";
    if (level == SLIPRING_LOG_WARN && event_len >= sizeof expected - 1 &&
        memcmp(event, expected, sizeof expected - 1) == 0)
        count(&((Handled *)user)->lines);
}

static void a_dead_letter_that_cannot_be_stored_is_told_and_stays_unsettled(void) {
    slipring_broker *broker = NULL;
    slipring_broker_options broker_options;
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub;
    slipring_message message;
    slipring_kept *kept = NULL;
    slipring_status status;
    Handled handled;
    uint64_t id;

    memset(&handled, 0, sizeof handled);
    OK(slipring_broker_options_init(&broker_options, sizeof broker_options));
    broker_options.log_fn = log_event;
    broker_options.log_user = &handled;
    OK(slipring_broker_open(&broker_options, &broker));
    options.max_delivery_attempts = 1;
    options.visibility_timeout_ns = SLIPRING_MILLISECONDS(10);
    sub = subscribe(broker, "jobs/*", &options);
    id = slipring_subscription_id(sub);
    publish(broker, "x");
    message = receive(sub);
    OK(slipring_message_keep(&message, &kept));
    OK(slipring_broker_close(broker, 0, NULL));
    OK(slipring_kept_message(kept, &message));
    status = slipring_dead_letter(&message, 1, SLIPRING_TEXT("late"), NULL);
    CHECK(status == SLIPRING_CLOSED || status == SLIPRING_STALE);
    do
        CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_CLOSED);
    while (handled.lines == 0);
    CHECK(figures_of(broker, id).unsettled == 1);
    slipring_kept_free(&kept);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void what_was_received_is_settled_also_after_the_end(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub = subscribe(broker, "jobs/*", &options);
    slipring_message message;
    slipring_kept *kept = NULL;

    publish(broker, "1");
    publish(broker, "2");
    OK(slipring_broker_close(broker, 0, NULL));
    message = receive(sub);
    OK(slipring_ack(&message, 1, NULL));
    slipring_broker_free(&broker);
    message = receive(sub);
    OK(slipring_extend(&message, 1, SLIPRING_SECONDS(600), NULL));
    OK(slipring_message_keep(&message, &kept));
    OK(slipring_kept_message(kept, &message));
    OK(slipring_ack(&message, 1, NULL));
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_CLOSED);
    slipring_subscription_free(&sub);
    OK(slipring_kept_message(kept, &message));
    CHECK(slipring_ack(&message, 1, NULL) == SLIPRING_STALE);
    slipring_kept_free(&kept);
}

/* In the child of a fork everything is refused, and nothing waits. */
static void a_child_settles_nothing(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub;
    slipring_acker *acker = NULL;
    slipring_letters *letters = NULL;
    slipring_text *words = NULL;
    slipring_message message;
    slipring_ack_id id;
    pid_t child;
    int status = 1;

    options.name = "s";
    options.name_len = 1;
    sub = subscribe(broker, "jobs/*", &options);
    OK(slipring_subscription_acker(sub, &acker));
    publish(broker, "x");
    message = receive(sub);
    OK(slipring_ack_ids(&message, 1, &id));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(slipring_ack(&message, 1, NULL) == SLIPRING_EFORKED);
        CHECK(slipring_nack(&message, 1, 0, NULL) == SLIPRING_EFORKED);
        CHECK(slipring_acker_ack(acker, &id, 1, NULL) == SLIPRING_EFORKED);
        CHECK(slipring_subscription_seek(sub, SLIPRING_START_NOW, 0) == SLIPRING_EFORKED);
        CHECK(slipring_broker_subscriptions(broker, &words) == SLIPRING_EFORKED);
        CHECK(slipring_broker_delete_subscription(broker, SLIPRING_TEXT("s")) == SLIPRING_EFORKED);
        CHECK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("d"), NULL, 0, 1, &letters) ==
              SLIPRING_EFORKED);
        CHECK(slipring_broker_purge_dead_letters(broker, SLIPRING_TEXT("d"), NULL) ==
              SLIPRING_EFORKED);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(slipring_ack(&message, 1, NULL));
    slipring_acker_free(&acker);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

/* ---- Names ---- */

static slipring_subscription_description described(const slipring_broker *broker) {
    slipring_subscription_description description;
    OK(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("s"), &description,
                                             sizeof description, NULL));
    return description;
}

static void named_subscriptions_outlive_their_consumers(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription_description description;
    slipring_subscription *sub, *other = NULL;
    slipring_acker *acker = NULL;
    slipring_ack_id id;
    slipring_message message;
    slipring_text *words = NULL;
    slipring_text_view view, more = text("other/**");

    OK(slipring_broker_subscriptions(broker, &words));
    OK(slipring_text_get(words, &view));
    CHECK(view.len == 0);
    slipring_text_free(&words);
    options.name = "s";
    options.name_len = 1;
    options.patterns = &more;
    options.patterns_len = 1;
    sub = subscribe(broker, "jobs/*", &options);
    publish(broker, "1");
    publish(broker, "2");
    message = receive(sub);
    OK(slipring_ack_ids(&message, 1, &id));
    CHECK(slipring_broker_subscribe(broker, SLIPRING_TEXT("jobs/*"), &options, &other) ==
          SLIPRING_EINUSE);
    CHECK(slipring_broker_seek_subscription(broker, SLIPRING_TEXT("s"), SLIPRING_START_NOW, 0) ==
          SLIPRING_EINUSE);
    description = described(broker);
    CHECK(description.is_online == 1 && description.unsettled == 1 && description.queued == 1);
    CHECK(description.delivery == SLIPRING_AT_LEAST_ONCE);

    /* Another takes over: what the first has not settled is delivered anew. */
    options.take_over = 1;
    other = subscribe(broker, "jobs/*", &options);
    options.take_over = 0;
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_DISCONNECTED);
    OK(slipring_broker_acker(broker, SLIPRING_TEXT("s"), &acker));
    CHECK(slipring_acker_ack(acker, &id, 1, NULL) == SLIPRING_STALE);
    message = receive(other);
    CHECK(PAYLOAD_IS(&message, "1") && slipring_message_attempt(&message) == 2);
    OK(slipring_ack_ids(&message, 1, &id));
    OK(slipring_acker_ack(acker, &id, 1, NULL));
    slipring_acker_free(&acker);
    slipring_subscription_free(&sub);
    slipring_subscription_free(&other);

    /* Without a consumer it goes on. */
    description = described(broker);
    CHECK(description.is_online == 0 && description.unsettled == 0);
    OK(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("s"), &description,
                                             sizeof description, &words));
    OK(slipring_text_get(words, &view));
    CHECK(SAME(view.data, view.len, "jobs/*\nother/**\n"));
    slipring_text_free(&words);
    OK(slipring_broker_subscriptions(broker, &words));
    OK(slipring_text_get(words, &view));
    CHECK(SAME(view.data, view.len, "s\n"));
    slipring_text_free(&words);
    publish(broker, "3");
    sub = subscribe(broker, "jobs/*", &options);
    message = receive(sub);
    CHECK(PAYLOAD_IS(&message, "2"));
    slipring_subscription_free(&sub);
    OK(slipring_broker_seek_subscription(broker, SLIPRING_TEXT("s"), SLIPRING_START_OFFSET, 2));
    sub = subscribe(broker, "jobs/*", &options);
    message = receive(sub);
    CHECK(PAYLOAD_IS(&message, "3") && slipring_message_attempt(&message) == 1);

    OK(slipring_broker_delete_subscription(broker, SLIPRING_TEXT("s")));
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_DISCONNECTED);
    CHECK(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("s"), &description,
                                                sizeof description, NULL) ==
          SLIPRING_ENOSUBSCRIPTION);
    CHECK(slipring_broker_delete_subscription(broker, SLIPRING_TEXT("s")) ==
          SLIPRING_ENOSUBSCRIPTION);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void seeking_goes_on_elsewhere(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub = subscribe(broker, "jobs/*", &options);
    slipring_subscription_metrics figures;
    slipring_message message;
    slipring_kept *kept = NULL;
    uint64_t time_us, id = slipring_subscription_id(sub);
    int i;

    for (i = 0; i < 4; i++)
        publish(broker, i % 2 ? "odd" : "even");
    for (i = 0; i < 4; i++) {
        message = receive(sub);
        if (i == 0)
            OK(slipring_message_keep(&message, &kept));
        else
            OK(slipring_ack(&message, 1, NULL));
    }
    time_us = slipring_message_published_us(&message);
    OK(slipring_subscription_seek(sub, SLIPRING_START_OFFSET, 3));
    CHECK(offset_of_next(sub) == 3 && is_empty(sub));
    OK(slipring_kept_message(kept, &message));
    CHECK(slipring_ack(&message, 1, NULL) == SLIPRING_STALE);
    slipring_kept_free(&kept);
    OK(slipring_subscription_seek(sub, SLIPRING_START_EARLIEST, 0));
    message = receive(sub);
    CHECK(slipring_message_offset(&message) == 0 && slipring_message_attempt(&message) == 1);
    OK(slipring_subscription_seek(sub, SLIPRING_START_TIME, time_us));
    message = receive(sub);
    CHECK(slipring_message_published_us(&message) >= time_us);
    OK(slipring_subscription_seek(sub, SLIPRING_START_LAST, 2));
    CHECK(offset_of_next(sub) == 2);
    OK(slipring_subscription_seek(sub, SLIPRING_START_NOW, 0));
    CHECK(is_empty(sub));
    CHECK(slipring_subscription_seek(sub, 77, 0) == SLIPRING_ERANGE);
    publish(broker, "fresh");
    CHECK(offset_of_next(sub) == 4);
    CHECK(slipring_subscription_id(sub) == id);
    figures = figures_of(broker, id);
    CHECK(figures.id == id && figures.unsettled == 1);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static int32_t may_not_settle(void *user, const slipring_message *message) {
    void **calls = (void **)user;
    const slipring_broker *broker = (const slipring_broker *)calls[0];
    slipring_acker *acker = (slipring_acker *)calls[1];
    const slipring_message *leased = (const slipring_message *)calls[2];
    slipring_letters *letters = NULL;
    slipring_kept *letter = NULL;
    slipring_text *words = NULL;
    slipring_ack_id id;
    (void)message;
    OK(slipring_ack_ids(leased, 1, &id));
    CHECK(slipring_ack(leased, 1, NULL) == SLIPRING_EFILTERING);
    CHECK(slipring_nack(leased, 1, 0, NULL) == SLIPRING_EFILTERING);
    CHECK(slipring_extend(leased, 1, SLIPRING_SECONDS(1), NULL) == SLIPRING_EFILTERING);
    CHECK(slipring_dead_letter(leased, 1, NULL, 0, NULL) == SLIPRING_EFILTERING);
    CHECK(slipring_acker_ack(acker, &id, 1, NULL) == SLIPRING_EFILTERING);
    CHECK(slipring_broker_subscriptions(broker, &words) == SLIPRING_EFILTERING);
    CHECK(slipring_broker_delete_subscription(broker, SLIPRING_TEXT("s")) == SLIPRING_EFILTERING);
    CHECK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("d"), NULL, 0, 1, &letters) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_dead_letter(broker, SLIPRING_TEXT("d"), 0, 0, &letter) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("d"), NULL, 0, NULL) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_purge_dead_letters(broker, SLIPRING_TEXT("d"), NULL) ==
          SLIPRING_EFILTERING);
    calls[3] = (void *)calls[0];
    return 1;
}

static void a_filter_may_not_settle_anything(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options = at_least_once();
    slipring_subscription *sub = subscribe(broker, "jobs/*", &options), *filtered;
    slipring_acker *acker = NULL;
    slipring_message message;
    void *calls[4] = {NULL, NULL, NULL, NULL};

    OK(slipring_subscription_acker(sub, &acker));
    publish(broker, "x");
    message = receive(sub);
    calls[0] = broker;
    calls[1] = acker;
    calls[2] = &message;
    options.filter_fn = may_not_settle;
    options.filter_user = calls;
    filtered = subscribe(broker, "asked", &options);
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("asked"), NULL, 0, NULL));
    CHECK(calls[3] != NULL);
    OK(slipring_ack(&message, 1, NULL));
    slipring_acker_free(&acker);
    slipring_subscription_free(&sub);
    slipring_subscription_free(&filtered);
    slipring_broker_free(&broker);
}

static void a_lease_ends_when_the_clock_is_moved(void) {
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    slipring_subscription *sub = NULL;
    slipring_test_clock *clock = NULL;
    slipring_message message;
    OK(slipring_test_clock_new(&clock));
    OK(slipring_broker_options_init(&options, sizeof options));
    options.clock = clock;
    OK(slipring_broker_open(&options, &broker));
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("jobs"), NULL, &sub));
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("jobs"), NULL, 0, NULL));
    OK(slipring_subscription_recv(sub, &message));
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_EMPTY);
    OK(slipring_test_clock_advance(clock, SLIPRING_SECONDS(11)));
    slipring_test_clock_free(&clock); /* the broker goes on with it */
    OK(slipring_subscription_recv(sub, &message));
    CHECK(slipring_message_attempt(&message) == 2);
    OK(slipring_ack(&message, 1, NULL));
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
    CHECK(slipring_test_clock_new(NULL) == SLIPRING_EINVAL);
    CHECK(slipring_test_clock_advance(NULL, 1) == SLIPRING_EINVAL);
    slipring_test_clock_free(&clock);
    slipring_test_clock_free(NULL);
}

int main(void) {
    a_message_comes_again_until_it_is_acknowledged();
    an_eventfd_is_readable_again_when_a_lease_ends();
    batches_are_settled_in_one_call();
    ack_ids_settle_from_any_thread();
    at_most_once_has_nothing_to_settle();
    at_the_limit_of_outstanding_messages_none_is_delivered();
    later_messages_of_a_key_wait_unless_they_may_overtake();
    handlers_succeed_retry_or_give_up();
    batch_handlers_answer_for_each();
    what_a_batch_handler_returns_is_for_the_rest();
    dead_letters_are_listed_sent_back_and_thrown_away();
    a_dead_letter_that_cannot_be_stored_is_told_and_stays_unsettled();
    what_was_received_is_settled_also_after_the_end();
    a_child_settles_nothing();
    named_subscriptions_outlive_their_consumers();
    seeking_goes_on_elsewhere();
    a_filter_may_not_settle_anything();
    a_lease_ends_when_the_clock_is_moved();
    return finish("acks");
}
