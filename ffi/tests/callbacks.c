/* What may be called from inside callbacks, who waits for whom, and when user data is let go of. */
#include "check.h"

#include <pthread.h>

/* A place to meet: threads wait for a number to be reached. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void raise_to(int *number, int value) {
    pthread_mutex_lock(&lock);
    if (*number < value)
        *number = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void add_one(int *number) {
    pthread_mutex_lock(&lock);
    ++*number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int value_of(int *number) {
    int value;
    pthread_mutex_lock(&lock);
    value = *number;
    pthread_mutex_unlock(&lock);
    return value;
}

static void wait_for(int *number, int value) {
    pthread_mutex_lock(&lock);
    while (*number < value)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

typedef struct {
    slipring_broker *broker;
    slipring_handler_subscription *own;
    int own_is_set, handled, freed, lagged, failed, running, go_on;
} State;

static void state_freed(void *user) { add_one(&((State *)user)->freed); }

static slipring_handler handler_of(slipring_handler_fn function, State *state) {
    slipring_handler handler;
    memset(&handler, 0, sizeof handler);
    handler.handle = function;
    handler.user = state;
    handler.user_free = state_freed;
    return handler;
}

static State state_of(slipring_broker *broker) {
    State state;
    memset(&state, 0, sizeof state);
    state.broker = broker;
    return state;
}

/* Publishes, subscribes, and frees what it has subscribed, from inside. */
static int32_t calls_everything(void *user, const slipring_message *message) {
    State *state = (State *)user;
    slipring_subscription *sub = NULL;
    slipring_topic *topic = NULL;
    slipring_message got;
    slipring_metrics metrics;
    CHECK(is_text(slipring_message_topic(message), "in"));
    OK(slipring_broker_subscribe(state->broker, SLIPRING_TEXT("inner"), NULL, &sub));
    OK(slipring_broker_topic(state->broker, SLIPRING_TEXT("inner"), &topic));
    OK(slipring_topic_publish(topic, slipring_message_payload(message),
                              slipring_message_payload_len(message), NULL));
    OK(slipring_subscription_recv(sub, &got));
    CHECK(PAYLOAD_IS(&got, "x"));
    OK(slipring_broker_metrics(state->broker, &metrics, sizeof metrics));
    slipring_topic_free(&topic);
    slipring_subscription_free(&sub);
    OK(slipring_broker_publish(state->broker, SLIPRING_TEXT("out"), SLIPRING_BYTES("done"), NULL));
    return 0;
}

static void everything_is_allowed_in_a_handler(void) {
    State state = state_of(open_broker());
    slipring_subscription *out = NULL;
    slipring_handler_subscription *sub = NULL;
    slipring_handler handler = handler_of(calls_everything, &state);
    slipring_message message;
    uint64_t queued = 9;

    OK(slipring_broker_subscribe(state.broker, SLIPRING_TEXT("out"), NULL, &out));
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("in"), NULL, &handler, &sub));
    CHECK(slipring_handler_subscription_id(sub) > 0);
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_subscription_recv_timeout(out, SLIPRING_SECONDS(60), &message));
    OK(slipring_handler_subscription_queued(sub, &queued));
    CHECK(queued == 0);
    slipring_handler_subscription_free(&sub);
    CHECK(sub == NULL && value_of(&state.freed) == 1);
    slipring_subscription_free(&out);
    slipring_broker_free(&state.broker);
}

static int32_t unsubscribes_itself(void *user, const slipring_message *message) {
    State *state = (State *)user;
    (void)message;
    wait_for(&state->own_is_set, 1);
    slipring_handler_subscription_free(&state->own);
    CHECK(state->own == NULL && value_of(&state->freed) == 0);
    add_one(&state->handled);
    return 0;
}

static void a_handler_unsubscribes_itself(void) {
    State state = state_of(open_broker());
    slipring_handler handler = handler_of(unsubscribes_itself, &state);
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("in"), NULL, &handler,
                                         &state.own));
    raise_to(&state.own_is_set, 1);
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("1"), NULL));
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("2"), NULL));
    wait_for(&state.freed, 1);
    slipring_broker_free(&state.broker);
    CHECK(value_of(&state.handled) == 1 && value_of(&state.freed) == 1);
}

static int32_t unsubscribes_itself_in_a_batch(void *user, const slipring_message *messages,
                                              size_t count, int32_t *handled) {
    size_t i;
    (void)handled;
    unsubscribes_itself(user, messages);
    /* They are its own all the same. */
    for (i = 0; i < count; i++)
        CHECK(PAYLOAD_IS(&messages[i], "x"));
    return 0;
}

static void a_batch_handler_unsubscribes_itself(void) {
    State state = state_of(open_broker());
    slipring_batch_handler handler;
    int i;
    memset(&handler, 0, sizeof handler);
    handler.handle = unsubscribes_itself_in_a_batch;
    handler.user = &state;
    handler.user_free = state_freed;
    OK(slipring_broker_subscribe_batch_handler(state.broker, SLIPRING_TEXT("in"), NULL, &handler,
                                               &state.own));
    for (i = 0; i < 200; i++)
        OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    raise_to(&state.own_is_set, 1);
    wait_for(&state.freed, 1);
    slipring_broker_free(&state.broker);
    CHECK(value_of(&state.handled) == 1 && value_of(&state.freed) == 1);
}

/* Keeps the messages, publishes each to its own full queue, and reads what was kept in the end. */
typedef struct {
    slipring_topic *topic;
    slipring_kept *kept[256];
    int count, begin;
} Keeping;

static int32_t keeps(void *user, const slipring_message *messages, size_t count, int32_t *handled) {
    Keeping *self = (Keeping *)user;
    size_t i;
    (void)handled;
    wait_for(&self->begin, 1);
    for (i = 0; i < count; i++) {
        /* Their places are free already. */
        if (self->count < 128)
            OK(slipring_topic_publish(self->topic, slipring_message_payload(&messages[i]),
                                      slipring_message_payload_len(&messages[i]), NULL));
        if (self->count < 256)
            OK(slipring_message_keep(&messages[i], &self->kept[self->count]));
        add_one(&self->count);
    }
    return 0;
}

static void a_batch_handler_publishes_to_its_own_full_queue(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options;
    slipring_handler_subscription *sub = NULL;
    slipring_batch_handler handler;
    Keeping keeping;
    slipring_message message;
    int i;
    memset(&keeping, 0, sizeof keeping);
    memset(&handler, 0, sizeof handler);
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.overflow = SLIPRING_BLOCK;
    options.capacity_messages = 128;
    handler.handle = keeps;
    handler.user = &keeping;
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("in"), &keeping.topic));
    OK(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("in"), &options, &handler,
                                               &sub));
    for (i = 0; i < 128; i++)
        OK(slipring_topic_publish(keeping.topic, SLIPRING_BYTES("x"), NULL));
    raise_to(&keeping.begin, 1);
    wait_for(&keeping.count, 256);
    slipring_handler_subscription_free(&sub);
    slipring_topic_free(&keeping.topic);
    slipring_broker_free(&broker);
    for (i = 0; i < 256; i++) {
        OK(slipring_kept_message(keeping.kept[i], &message));
        CHECK(PAYLOAD_IS(&message, "x"));
        slipring_kept_free(&keeping.kept[i]);
    }
}

static int32_t closes(void *user, const slipring_message *message) {
    State *state = (State *)user;
    slipring_close_report report;
    (void)message;
    OK(slipring_broker_close(state->broker, SLIPRING_SECONDS(60), &report));
    CHECK(report.handler_running == 1);
    add_one(&state->handled);
    return 0;
}

static void a_handler_closes_the_broker(void) {
    State state = state_of(open_broker());
    slipring_handler handler = handler_of(closes, &state);
    slipring_handler_subscription *sub = NULL;
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("in"), NULL, &handler, &sub));
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    wait_for(&state.handled, 1);
    CHECK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL) ==
          SLIPRING_CLOSED);
    slipring_handler_subscription_free(&sub);
    CHECK(value_of(&state.freed) == 1);
    slipring_broker_free(&state.broker);
}

static int32_t waits(void *user, const slipring_message *message) {
    State *state = (State *)user;
    (void)message;
    raise_to(&state->running, 1);
    wait_for(&state->go_on, 1);
    add_one(&state->handled);
    return 0;
}

static void *lets_go_on(void *user) {
    raise_to(&((State *)user)->go_on, 1);
    return NULL;
}

static void unsubscribing_waits_for_a_running_handler(void) {
    State state = state_of(open_broker());
    slipring_handler handler = handler_of(waits, &state);
    slipring_handler_subscription *sub = NULL, *before;
    pthread_t thread;
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("in"), NULL, &handler, &sub));
    before = sub;
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    wait_for(&state.running, 1);
    CHECK(slipring_handler_subscription_unsubscribe(&sub, SLIPRING_MILLISECONDS(5)) ==
          SLIPRING_TIMEOUT);
    CHECK(sub == before && value_of(&state.freed) == 0);
    CHECK(pthread_create(&thread, NULL, lets_go_on, &state) == 0);
    slipring_handler_subscription_free(&sub);
    CHECK(value_of(&state.handled) == 1 && value_of(&state.freed) == 1 && sub == NULL);
    pthread_join(thread, NULL);
    slipring_broker_free(&state.broker);
}

static int32_t fails_at_first(void *user, const slipring_message *message) {
    State *state = (State *)user;
    raise_to(&state->running, 1);
    wait_for(&state->go_on, 1);
    add_one(&state->handled);
    return slipring_message_offset(message) == 0 ? -42 : 0;
}

static void told_of_failure(void *user, const slipring_message *message, int32_t returned,
                            const char *reason, size_t reason_len) {
    CHECK(slipring_message_offset(message) == 0 && returned == -42);
    CHECK(SAME(reason, reason_len, "the handler returned -42"));
    add_one(&((State *)user)->failed);
}

static void told_of_loss(void *user, uint64_t lost) {
    while (lost--)
        add_one(&((State *)user)->lagged);
}

static void failures_and_losses_are_told(void) {
    State state = state_of(open_broker());
    slipring_handler handler = handler_of(fails_at_first, &state);
    slipring_handler_subscription *sub = NULL;
    slipring_subscription_options options;
    slipring_subscription_metrics figures;
    int i;
    handler.failed = told_of_failure;
    handler.lagged = told_of_loss;
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.capacity_messages = 2;
    options.dedicated_thread = 1;
    options.breaker_failures = 100;
    options.breaker_cool_down_ns = 1;
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("in"), &options, &handler,
                                         &sub));
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    wait_for(&state.running, 1);
    for (i = 0; i < 20; i++)
        OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_broker_subscription_metrics(state.broker, slipring_handler_subscription_id(sub),
                                            &figures, sizeof figures));
    CHECK(figures.matched == 21 && figures.dropped_newest > 0);
    raise_to(&state.go_on, 1);
    /* All are handled, or told as lost. */
    pthread_mutex_lock(&lock);
    while (state.handled + state.lagged < 21)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    CHECK(state.lagged == (int)figures.dropped_newest);
    slipring_handler_subscription_free(&sub);
    CHECK(value_of(&state.failed) == 1 && value_of(&state.freed) == 1);
    slipring_broker_free(&state.broker);
}

static int32_t counts(void *user, const slipring_message *message) {
    (void)message;
    add_one(&((State *)user)->handled);
    return 0;
}

static void detached_handlers_run_until_the_broker_closes(void) {
    State state = state_of(open_broker());
    slipring_handler handler = handler_of(counts, &state);
    slipring_handler_subscription *sub = NULL;
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("in"), NULL, &handler, &sub));
    slipring_handler_subscription_detach(&sub);
    CHECK(sub == NULL);
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    wait_for(&state.handled, 1);
    OK(slipring_broker_close(state.broker, SLIPRING_SECONDS(60), NULL));
    slipring_broker_free(&state.broker);
    wait_for(&state.freed, 1);
}

static int32_t calls_the_broker(void *user, const slipring_message *message) {
    State *state = (State *)user;
    slipring_subscription *sub = NULL;
    slipring_subscription_metrics figures;
    (void)message;
    CHECK(slipring_broker_publish(state->broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_subscription_metrics(state->broker,
                                               slipring_handler_subscription_id(state->own),
                                               &figures, sizeof figures) == SLIPRING_EFILTERING);
    CHECK(slipring_broker_subscribe(state->broker, SLIPRING_TEXT("in"), NULL, &sub) ==
          SLIPRING_EFILTERING);
    OK(slipring_broker_close(state->broker, 0, NULL));
    CHECK(slipring_handler_subscription_unsubscribe(&state->own, 0) == SLIPRING_EFILTERING);
    slipring_handler_subscription_free(&state->own);
    CHECK(state->own == NULL);
    add_one(&state->handled);
    return 1;
}

static void a_filter_may_not_call_the_broker(void) {
    State state = state_of(open_broker()), handled = state_of(NULL);
    slipring_handler handler = handler_of(counts, &handled);
    slipring_subscription_options options;
    slipring_subscription *sub = NULL;
    slipring_message message;
    OK(slipring_broker_subscribe_handler(state.broker, SLIPRING_TEXT("none"), NULL, &handler,
                                         &state.own));
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.filter_fn = calls_the_broker;
    options.filter_user = &state;
    options.filter_user_free = state_freed;
    OK(slipring_broker_subscribe(state.broker, SLIPRING_TEXT("in"), &options, &sub));
    OK(slipring_broker_publish(state.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_subscription_try_recv(sub, &message));
    CHECK(value_of(&state.handled) == 1);
    slipring_subscription_free(&sub);
    slipring_broker_free(&state.broker);
    wait_for(&state.freed, 1);
    wait_for(&handled.freed, 1);
}

typedef struct {
    slipring_broker *broker;
    slipring_subscription *sub;
    int polled;
} Polling;

static void polls_again(void *user, const slipring_message *messages, size_t count) {
    Polling *polling = (Polling *)user;
    slipring_message got;
    CHECK(count == 1 && PAYLOAD_IS(messages, "x"));
    CHECK(slipring_subscription_try_recv(polling->sub, &got) == SLIPRING_EBUSY);
    CHECK(slipring_subscription_id(polling->sub) > 0);
    OK(slipring_broker_publish(polling->broker, SLIPRING_TEXT("other"), NULL, 0, NULL));
    ++polling->polled;
}

static void frees_what_it_polls(void *user, const slipring_message *messages, size_t count) {
    Polling *polling = (Polling *)user;
    slipring_subscription_free(&polling->sub);
    CHECK(polling->sub == NULL && PAYLOAD_IS(&messages[count - 1], "x"));
    polling->polled += (int)count;
}

static void a_poll_holds_its_subscription(void) {
    Polling polling;
    slipring_subscription *sub = NULL;
    size_t count = 0;
    polling.broker = open_broker();
    polling.polled = 0;
    OK(slipring_broker_subscribe(polling.broker, SLIPRING_TEXT("in"), NULL, &polling.sub));
    sub = polling.sub;
    OK(slipring_broker_publish(polling.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_subscription_poll(sub, 9, polls_again, &polling, &count));
    CHECK(count == 1 && polling.polled == 1);
    OK(slipring_broker_publish(polling.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_broker_publish(polling.broker, SLIPRING_TEXT("in"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_subscription_poll(sub, 9, frees_what_it_polls, &polling, &count));
    CHECK(count == 2 && polling.polled == 3);
    slipring_broker_free(&polling.broker);
}

typedef struct {
    State state;
    slipring_topic *topic;
    int warnings, infos, others;
} Logged;

static void log_event(void *user, uint32_t level, const char *event, size_t event_len) {
    Logged *logged = (Logged *)user;
    CHECK(event_len > 0 && memchr(event, 0, event_len) == NULL);
    if (level == SLIPRING_LOG_WARN && strncmp(event, "disconnected", 12) == 0) {
        /* A shard is held. */
        CHECK(slipring_topic_publish(logged->topic, NULL, 0, NULL) == SLIPRING_EFILTERING);
        add_one(&logged->warnings);
    } else if (level == SLIPRING_LOG_INFO && strncmp(event, "broker closed", 13) == 0) {
        add_one(&logged->infos);
    } else {
        add_one(&logged->others);
    }
}

/* Events go to the broker's own function, from the thread in which they happen. */
static void events_are_told_to_the_function_of_their_broker(void) {
    Logged logged;
    slipring_broker_options options;
    slipring_subscription_options impatient;
    slipring_broker *silent = open_broker(), *refused = NULL;
    slipring_subscription *subs[2] = {NULL, NULL};
    slipring_receipt receipt;
    int i;
    memset(&logged, 0, sizeof logged);
    OK(slipring_broker_options_init(&options, sizeof options));
    options.log_fn = log_event;
    options.log_user = &logged;
    options.log_user_free = state_freed;
    OK(slipring_broker_open(&options, &logged.state.broker));
    OK(slipring_broker_topic(logged.state.broker, SLIPRING_TEXT("in"), &logged.topic));
    OK(slipring_subscription_options_init(&impatient, sizeof impatient));
    impatient.delivery = SLIPRING_AT_MOST_ONCE;
    impatient.capacity_messages = 1;
    impatient.overflow = SLIPRING_DISCONNECT;
    impatient.overflow_ns = 0;
    OK(slipring_broker_subscribe(logged.state.broker, SLIPRING_TEXT("in"), &impatient, &subs[0]));
    OK(slipring_broker_subscribe(silent, SLIPRING_TEXT("in"), &impatient, &subs[1]));
    do
        OK(slipring_topic_publish(logged.topic, NULL, 0, &receipt));
    while (receipt.matched > 0);
    do
        OK(slipring_broker_publish(silent, SLIPRING_TEXT("in"), NULL, 0, &receipt));
    while (receipt.matched > 0);
    slipring_broker_free(&silent);
    CHECK(value_of(&logged.warnings) == 1 && value_of(&logged.infos) == 0);
    slipring_broker_free(&logged.state.broker);
    CHECK(value_of(&logged.infos) == 1 && value_of(&logged.others) == 0);
    for (i = 0; i < 2; i++)
        slipring_subscription_free(&subs[i]);
    slipring_topic_free(&logged.topic);
    wait_for(&logged.state.freed, 1);

    /* It is let go of also where the broker is not opened. */
    options.log_level = 9;
    CHECK(slipring_broker_open(&options, &refused) == SLIPRING_ERANGE);
    CHECK(refused == NULL && value_of(&logged.state.freed) == 2);
    options.log_level = SLIPRING_LOG_TRACE;
    options.shards = 65;
    CHECK(slipring_broker_open(&options, &refused) == SLIPRING_ERANGE);
    wait_for(&logged.state.freed, 3);
    /* A program that was compiled before there was a log. */
    options.struct_size = 56;
    options.shards = 1;
    OK(slipring_broker_open(&options, &refused));
    slipring_broker_free(&refused);
    CHECK(value_of(&logged.state.freed) == 3 && value_of(&logged.infos) == 1);
}

/* How many messages have come whose payload is the name of their topic. */
static void is_named(void *user, const slipring_message *message) {
    slipring_text_view topic = slipring_message_topic(message);
    CHECK(topic.len == slipring_message_payload_len(message));
    CHECK(memcmp(topic.data, slipring_message_payload(message), topic.len) == 0);
    add_one((int *)user);
}

static void are_named(void *user, const slipring_message *messages, size_t count) {
    for (size_t i = 0; i < count; ++i)
        is_named(user, &messages[i]);
}

static int32_t is_named_to_handler(void *user, const slipring_message *message) {
    is_named(user, message);
    return SLIPRING_SUCCESS;
}

static void publish_name(const slipring_broker *broker, const char *name) {
    OK(slipring_broker_publish(broker, name, strlen(name), (const uint8_t *)name, strlen(name), NULL));
}

static void messages_have_the_names_of_their_topics_whatever_becomes_of_those(void) {
    static const char *const names[] = {"v/one", "v/two-that-is-longer", "v/3"};
    enum { rounds = 50, all = rounds * 6 };
    slipring_broker *broker = open_broker();
    slipring_subscription *polled = NULL, *batched = NULL;
    slipring_handler_subscription *handled = NULL;
    slipring_handler handler;
    int seen_by_handler = 0, seen_by_poll = 0, seen_in_batches = 0;
    memset(&handler, 0, sizeof handler);
    handler.handle = is_named_to_handler;
    handler.user = &seen_by_handler;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("v/*"), NULL, &polled));
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("v/*"), NULL, &batched));
    OK(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("v/*"), NULL, &handler, &handled));
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < 3; ++i) {
            publish_name(broker, names[i]);
            publish_name(broker, names[i]);
        }
        /* The handler goes on over these, and the next round makes the topics anew. */
        OK(slipring_broker_delete_topic(broker, names[round % 3], strlen(names[round % 3])));
        if (round % 7 == 0)
            OK(slipring_subscription_poll(polled, 2, are_named, &seen_by_poll, NULL));
    }
    wait_for(&seen_by_handler, all);
    slipring_handler_subscription_free(&handled);
    OK(slipring_broker_close(broker, 0, NULL));
    slipring_broker_free(&broker);
    /* The names outlive the broker's handle. */
    while (seen_by_poll < all)
        OK(slipring_subscription_poll(polled, 64, are_named, &seen_by_poll, NULL));
    while (seen_in_batches < all) {
        const slipring_message *messages = NULL;
        size_t count = 0;
        OK(slipring_subscription_try_recv_batch(batched, 64, &messages, &count));
        are_named(&seen_in_batches, messages, count);
    }
    slipring_subscription_free(&polled);
    slipring_subscription_free(&batched);
}

int main(void) {
    everything_is_allowed_in_a_handler();
    a_handler_unsubscribes_itself();
    a_batch_handler_unsubscribes_itself();
    a_batch_handler_publishes_to_its_own_full_queue();
    a_handler_closes_the_broker();
    unsubscribing_waits_for_a_running_handler();
    failures_and_losses_are_told();
    detached_handlers_run_until_the_broker_closes();
    a_filter_may_not_call_the_broker();
    a_poll_holds_its_subscription();
    events_are_told_to_the_function_of_their_broker();
    messages_have_the_names_of_their_topics_whatever_becomes_of_those();
    return finish("callbacks");
}
