/* A tour of the surface: every function once, as it is meant to be used. */
#include "check.h"

static void publishing(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription *sub = NULL;
    slipring_topic *topic = NULL;
    slipring_receipt receipt;
    slipring_message message;
    slipring_text_view view;
    char id[256];
    uint64_t queued = 0;

    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("sports/" "**"), NULL, &sub));
    CHECK(slipring_subscription_id(sub) > 0);
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("sports/cricket"), SLIPRING_BYTES("four!"),
                               &receipt));
    CHECK(receipt.offset == 0 && receipt.matched == 1 && receipt.enqueued == 1);
    CHECK(receipt.dropped == 0 && receipt.durable == 0);
    OK(slipring_subscription_queued(sub, &queued));
    CHECK(queued == 1);
    OK(slipring_subscription_recv(sub, &message));
    CHECK(PAYLOAD_IS(&message, "four!"));
    CHECK(is_text(slipring_message_topic(&message), "sports/cricket"));
    CHECK(slipring_message_key(&message).data == NULL && attributes_of(&message) == 0);
    CHECK(slipring_message_published_us(&message) > 0);
    CHECK(slipring_message_partition(&message) == receipt.partition);
    CHECK(slipring_message_id(&message, id, sizeof id) == 36 && id[36] == 0 && id[14] == '8');
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_EMPTY);
    CHECK(slipring_subscription_recv_timeout(sub, SLIPRING_MILLISECONDS(1), &message) ==
          SLIPRING_TIMEOUT);
    CHECK(slipring_subscription_wait(sub, SLIPRING_MILLISECONDS(1)) == SLIPRING_TIMEOUT);

    OK(slipring_broker_topic(broker, SLIPRING_TEXT("sports/tennis"), &topic));
    OK(slipring_topic_name(topic, &view));
    CHECK(SAME(view.data, view.len, "sports/tennis"));
    OK(slipring_topic_publish(topic, NULL, 0, NULL));
    OK(slipring_subscription_wait(sub, SLIPRING_FOREVER));
    OK(slipring_subscription_recv_timeout(sub, SLIPRING_FOREVER, &message));
    CHECK(slipring_message_payload(&message) != NULL);
    CHECK(slipring_message_payload_len(&message) == 0);
    slipring_topic_free(&topic);
    CHECK(topic == NULL);
    slipring_topic_free(&topic);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
    CHECK(sub == NULL && broker == NULL);
}

static slipring_new_message new_message(const char *payload) {
    slipring_new_message message;
    memset(&message, 0, sizeof message);
    message.payload = (const uint8_t *)payload;
    message.payload_len = strlen(payload);
    return message;
}

static void everything_of_a_message(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription *sub = NULL;
    slipring_topic *topic = NULL;
    slipring_attribute attributes[2], read[1];
    slipring_new_message message = new_message("98.4");
    slipring_message got, kept_view;
    slipring_kept *kept = NULL;
    slipring_text_view value;
    size_t count = 0;
    char id[8];

    attributes[0].key = text("severity");
    attributes[0].value = text("high");
    attributes[1].key = text("unit");
    attributes[1].value = text("");
    message.key = text("sensor-7");
    message.id = text("my-own-id");
    message.attributes = attributes;
    message.attributes_len = 2;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), NULL, &sub));
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("t"), &topic));
    OK(slipring_topic_publish_message(topic, &message, NULL));
    OK(slipring_subscription_try_recv(sub, &got));
    CHECK(is_text(slipring_message_key(&got), "sensor-7") && attributes_of(&got) == 2);
    CHECK(slipring_message_id(&got, id, sizeof id) == 9 && strcmp(id, "my-own-") == 0);
    OK(slipring_message_attribute(&got, SLIPRING_TEXT("severity"), &value));
    CHECK(SAME(value.data, value.len, "high"));
    OK(slipring_message_attribute(&got, SLIPRING_TEXT("unit"), &value));
    CHECK(value.data != NULL && value.len == 0);
    CHECK(slipring_message_attribute(&got, SLIPRING_TEXT("none"), &value) == SLIPRING_EMPTY);
    OK(slipring_message_attributes(&got, read, 1, &count));
    CHECK(count == 2 && SAME(read[0].key.data, read[0].key.len, "severity"));
    OK(slipring_message_attributes(&got, NULL, 0, &count));
    OK(slipring_message_keep(&got, &kept));
    slipring_subscription_free(&sub);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
    OK(slipring_kept_message(kept, &kept_view));
    CHECK(PAYLOAD_IS(&kept_view, "98.4"));
    CHECK(is_text(slipring_message_topic(&kept_view), "t"));
    slipring_kept_free(&kept);
    CHECK(kept == NULL);
}

/* What has been seen of messages whose payloads are their numbers, and which have come in order. */
typedef struct {
    uint32_t next;
    size_t calls;
} Seen;

static void see(void *user, const slipring_message *messages, size_t count) {
    Seen *seen = (Seen *)user;
    size_t i;
    CHECK(count > 0);
    seen->calls++;
    for (i = 0; i < count; i++, seen->next++) {
        uint32_t number = 0;
        CHECK(slipring_message_payload_len(&messages[i]) == sizeof number);
        memcpy(&number, slipring_message_payload(&messages[i]), sizeof number);
        CHECK(number == seen->next && slipring_message_offset(&messages[i]) == number);
        if (number % 7 == 0)
            CHECK(is_text(slipring_message_key(&messages[i]), number % 2 ? "odd" : ""));
        else
            CHECK(slipring_message_key(&messages[i]).data == NULL);
        CHECK(slipring_message_attempt(&messages[i]) == 1);
    }
}

/* A poll hands over several messages at a time, of which each is as it was published, also where
   they are leased; a round that finds none pauses. */
static void polling(void) {
    enum { MESSAGES = 700 };
    slipring_broker *broker = open_broker();
    slipring_subscription *subs[2] = {NULL, NULL};
    slipring_subscription_options options;
    slipring_topic *topic = NULL;
    slipring_idle *idle = NULL;
    Seen seen[2] = {{0, 0}, {0, 0}};
    uint32_t number, i;
    OK(slipring_subscription_options_init(&options, sizeof options));
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), &options, &subs[0]));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), &options, &subs[1]));
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("t"), &topic));
    OK(slipring_idle_new(SLIPRING_WAIT_BUSY_SPIN, &idle));
    for (number = 0; number < MESSAGES; number++) {
        slipring_new_message message = new_message("");
        message.payload = (const uint8_t *)&number;
        message.payload_len = sizeof number;
        if (number % 7 == 0)
            message.key = text(number % 2 ? "odd" : "");
        OK(slipring_topic_publish_message(topic, &message, NULL));
    }
    while (seen[0].next + seen[1].next < 2 * MESSAGES) {
        size_t found = 0, count;
        for (i = 0; i < 2; i++)
            if (slipring_subscription_poll(subs[i], 100, see, &seen[i], &count) == SLIPRING_OK)
                found += count;
        OK(slipring_idle_rest(idle, found));
    }
    OK(slipring_idle_rest(idle, 0));
    CHECK(seen[1].calls < MESSAGES / 4);
    slipring_idle_free(&idle);
    CHECK(idle == NULL);
    slipring_topic_free(&topic);
    slipring_subscription_free(&subs[0]);
    slipring_subscription_free(&subs[1]);
    slipring_broker_free(&broker);
}

static void count_bytes(void *user, const slipring_message *messages, size_t count) {
    size_t i;
    for (i = 0; i < count; i++)
        *(size_t *)user += slipring_message_payload_len(&messages[i]);
}

static void batches_loans_and_tickets(void) {
    enum { MESSAGES = 100 };
    slipring_broker *broker = open_broker();
    slipring_subscription *sub = NULL;
    slipring_topic *topic = NULL;
    slipring_new_message batch[MESSAGES], head = new_message("");
    slipring_batch_receipt receipt;
    slipring_receipt one;
    const slipring_message *got = NULL;
    slipring_loan *loan = NULL, *before;
    slipring_ticket *ticket = NULL;
    slipring_attribute attribute;
    uint8_t *payload = NULL;
    size_t count = 0, seen = 0, bytes = 0, i;
    slipring_status status;

    attribute.key = text("a");
    attribute.value = text("b");
    for (i = 0; i < MESSAGES; i++) {
        batch[i] = new_message("x");
        batch[i].attributes = i % 2 ? &attribute : NULL;
        batch[i].attributes_len = i % 2;
    }
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("*"), NULL, &sub));
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("t"), &topic));
    OK(slipring_topic_publish_batch(topic, batch, MESSAGES, &receipt));
    CHECK(receipt.published == MESSAGES && receipt.enqueued == MESSAGES);
    OK(slipring_topic_try_publish_batch(topic, batch, MESSAGES, NULL));
    OK(slipring_topic_publish_batch(topic, NULL, 0, &receipt));
    CHECK(receipt.published == 0);
    OK(slipring_subscription_recv_batch(sub, MESSAGES, &got, &count));
    CHECK(count == MESSAGES);
    for (i = 0; i < count; i++)
        CHECK(slipring_message_offset(&got[i]) == i && attributes_of(&got[i]) == i % 2);
    OK(slipring_subscription_try_recv_batch(sub, 10, &got, &count));
    CHECK(count == 10 && slipring_message_offset(&got[9]) == MESSAGES + 9);
    while ((status = slipring_subscription_poll(sub, 7, count_bytes, &bytes, &count)) ==
           SLIPRING_OK)
        seen += count;
    CHECK(status == SLIPRING_EMPTY && seen == MESSAGES - 10 && bytes == seen);
    CHECK(slipring_subscription_try_recv_batch(sub, 10, &got, &count) == SLIPRING_EMPTY);
    CHECK(slipring_subscription_recv_batch(sub, 0, &got, &count) == SLIPRING_EMPTY);

    head.key = text("key");
    OK(slipring_topic_loan(topic, &head, 5, &loan, &payload));
    memcpy(payload, "loan!", 5);
    OK(slipring_loan_commit(&loan, &one));
    CHECK(loan == NULL && one.offset == 2 * MESSAGES);
    OK(slipring_topic_loan(topic, NULL, 1000, &loan, &payload));
    memset(payload, 1, 1000);
    slipring_loan_abort(&loan);
    slipring_loan_abort(&loan);
    OK(slipring_topic_publish_ticket(topic, batch, &ticket));
    status = slipring_ticket_try(ticket, &one);
    CHECK(status == SLIPRING_OK || status == SLIPRING_EMPTY);
    OK(slipring_ticket_wait(&ticket, &one));
    CHECK(ticket == NULL && one.offset == 2 * MESSAGES + 1);
    OK(slipring_topic_publish_ticket(topic, batch, &ticket));
    slipring_ticket_free(&ticket);
    OK(slipring_subscription_recv_batch(sub, 10, &got, &count));
    CHECK(count == 3 && PAYLOAD_IS(&got[0], "loan!"));
    CHECK(is_text(slipring_message_key(&got[0]), "key"));
    /* A loan that cannot be committed stays. */
    OK(slipring_topic_loan(topic, NULL, 1, &loan, &payload));
    before = loan;
    OK(slipring_broker_close(broker, 0, NULL));
    CHECK(slipring_loan_commit(&loan, NULL) == SLIPRING_CLOSED);
    CHECK(loan == before);
    *payload = 1;
    slipring_loan_abort(&loan);
    CHECK(slipring_subscription_recv_batch(sub, 10, &got, &count) == SLIPRING_CLOSED);
    slipring_subscription_free(&sub);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

static int only_even(void *user, const slipring_message *message) {
    ++*(int *)user;
    return slipring_message_payload(message)[0] % 2 == 0;
}

static slipring_subscription_options at_most_once(void) {
    slipring_subscription_options options;
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    return options;
}

static void settings_of_a_subscription(void) {
    slipring_broker_options options;
    slipring_subscription_options sub_options;
    slipring_broker *broker = NULL;
    slipring_subscription *sub = NULL, *other = NULL;
    slipring_topic *topic = NULL;
    slipring_message message;
    slipring_text_view more;
    slipring_new_message fresh = new_message("1");
    slipring_batch_receipt receipt;
    uint8_t byte;
    int asked[2] = {0, 0};

    OK(slipring_broker_options_init(&options, sizeof options));
    options.shards = 2;
    options.workers = 1;
    options.memory_budget_bytes = 4 << 20;
    options.create_topics = 0;
    OK(slipring_broker_open(&options, &broker));
    CHECK(slipring_broker_topic(broker, SLIPRING_TEXT("a"), &topic) == SLIPRING_ENOTOPIC);
    OK(slipring_broker_create_topic(broker, SLIPRING_TEXT("a"), 1, &topic));
    CHECK(slipring_broker_create_topic(broker, SLIPRING_TEXT("a"), 1, NULL) == SLIPRING_EEXIST);

    /* Drop oldest, a name, another pattern, an exact loss. */
    sub_options = at_most_once();
    more = text("b/*");
    sub_options.name = "my-name";
    sub_options.name_len = 7;
    sub_options.patterns = &more;
    sub_options.patterns_len = 1;
    sub_options.capacity_messages = 4;
    sub_options.overflow = SLIPRING_DROP_OLDEST;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &sub_options, &sub));
    CHECK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &sub_options, &other) ==
          SLIPRING_EINUSE);
    CHECK(other == NULL);
    for (byte = 0; byte < 10; byte++)
        OK(slipring_topic_publish(topic, &byte, 1, NULL));
    CHECK(slipring_subscription_recv(sub, &message) == SLIPRING_LAGGED);
    CHECK(slipring_subscription_lost(sub) == 6);
    OK(slipring_subscription_recv(sub, &message));
    CHECK(slipring_message_payload(&message)[0] == 6);
    slipring_subscription_free(&sub);

    /* Replay: the last two. */
    sub_options = at_most_once();
    sub_options.start = SLIPRING_START_LAST;
    sub_options.start_value = 2;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &sub_options, &sub));
    OK(slipring_subscription_recv(sub, &message));
    CHECK(slipring_message_payload(&message)[0] == 8);
    slipring_subscription_free(&sub);

    /* A function as filter; its user data is let go of once. */
    sub_options.start = SLIPRING_START_OFFSET;
    sub_options.start_value = 3;
    sub_options.filter_fn = only_even;
    sub_options.filter_user = asked;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &sub_options, &sub));
    OK(slipring_subscription_recv(sub, &message));
    CHECK(slipring_message_payload(&message)[0] == 4 && asked[0] >= 2);
    slipring_subscription_free(&sub);

    /* Blocking: try does not wait, a time is kept, a batch tells how far it came. */
    sub_options = at_most_once();
    sub_options.overflow = SLIPRING_BLOCK;
    sub_options.capacity_messages = 1;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &sub_options, &sub));
    OK(slipring_topic_try_publish(topic, &fresh, NULL));
    CHECK(slipring_topic_try_publish(topic, &fresh, NULL) == SLIPRING_WOULD_BLOCK);
    CHECK(slipring_topic_publish_timeout(topic, &fresh, SLIPRING_MILLISECONDS(1), NULL) ==
          SLIPRING_TIMEOUT);
    OK(slipring_subscription_recv(sub, &message));
    {
        slipring_new_message two[2];
        two[0] = fresh, two[1] = fresh;
        CHECK(slipring_topic_try_publish_batch(topic, two, 2, &receipt) == SLIPRING_WOULD_BLOCK);
        CHECK(receipt.published == 1);
    }
    OK(slipring_subscription_recv(sub, &message));
    OK(slipring_topic_publish_timeout(topic, &fresh, SLIPRING_FOREVER, NULL));
    slipring_subscription_free(&sub);

    /* An expression as filter. */
    sub_options = at_most_once();
    sub_options.filter = "attributes:x";
    sub_options.filter_len = 12;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &sub_options, &sub));
    OK(slipring_topic_publish_message(topic, &fresh, NULL));
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_EMPTY);
    slipring_subscription_free(&sub);
    OK(slipring_broker_delete_topic(broker, SLIPRING_TEXT("a")));
    CHECK(slipring_topic_publish(topic, NULL, 0, NULL) == SLIPRING_EDELETED);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

static void looking_around(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription *sub = NULL;
    slipring_text *names = NULL;
    slipring_text_view view;
    slipring_metrics metrics;
    slipring_subscription_metrics figures;
    slipring_partition partitions[2];
    slipring_close_report report;
    size_t count = 0;
    int fd = -1;

    OK(slipring_broker_create_topic(broker, SLIPRING_TEXT("a/1"), 3, NULL));
    OK(slipring_broker_create_topic(broker, SLIPRING_TEXT("a/2"), 1, NULL));
    OK(slipring_broker_topics(broker, SLIPRING_TEXT("a/*"), NULL, 0, 10, &names));
    OK(slipring_text_get(names, &view));
    CHECK(SAME(view.data, view.len, "a/1\na/2\n") && view.data[view.len] == 0);
    slipring_text_free(&names);
    OK(slipring_broker_topics(broker, SLIPRING_TEXT("*" "*"), SLIPRING_TEXT("a/1"), 10, &names));
    OK(slipring_text_get(names, &view));
    CHECK(SAME(view.data, view.len, "a/2\n"));
    slipring_text_free(&names);
    OK(slipring_broker_describe_topic(broker, SLIPRING_TEXT("a/1"), partitions, 2, &count));
    CHECK(count == 3 && partitions[1].id == partitions[0].id + 1);

    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a/2"), NULL, &sub));
    OK(slipring_subscription_event_fd(sub, &fd));
    CHECK(fd >= 0 && !readable(fd));
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("a/2"), SLIPRING_BYTES("x"), NULL));
    CHECK(readable(fd));
    OK(slipring_broker_metrics(broker, &metrics, sizeof metrics));
    CHECK(metrics.published == 1 && metrics.topics == 2 && metrics.subscriptions == 1);
    OK(slipring_broker_subscription_metrics(broker, slipring_subscription_id(sub), &figures,
                                            sizeof figures));
    CHECK(figures.matched == 1 && figures.queued == 1 && figures.delivered == 0);
    OK(slipring_broker_prometheus(broker, &names));
    OK(slipring_text_get(names, &view));
    CHECK(strstr(view.data, "slipring_topic_published_total{topic=\"a/2\"} 1\n") != NULL);
    slipring_text_free(&names);
    OK(slipring_broker_close(broker, SLIPRING_SECONDS(1), &report));
    CHECK(report.unreceived == 1 && report.unhandled == 0 && report.handler_running == 0);
    slipring_broker_free(&broker);
    slipring_subscription_free(&sub);

    CHECK(slipring_version() == SLIPRING_VERSION);
    CHECK(strcmp(slipring_version_str(), SLIPRING_VERSION_STRING) == 0);
    CHECK(strcmp(slipring_status_str(SLIPRING_OK), "ok") == 0);
}

/* Programs that were compiled before must find these as they were. */
static void sizes_are_what_they_were(void) {
    CHECK(sizeof(slipring_text_view) == 16 && sizeof(slipring_attribute) == 32);
    CHECK(sizeof(slipring_message) == 16 && offsetof(slipring_message, delivery) == 8);
    CHECK(sizeof(slipring_record) == 32 && offsetof(slipring_record, meta) == 28);
    CHECK(sizeof(slipring_new_message) == 64 && offsetof(slipring_new_message, key) == 16);
    CHECK(sizeof(slipring_receipt) == 40 && offsetof(slipring_receipt, partition) == 32);
    CHECK(sizeof(slipring_batch_receipt) == 48 && sizeof(slipring_close_report) == 32);
    CHECK(sizeof(slipring_partition) == 16 && sizeof(slipring_handler) == 40);
    CHECK(sizeof(slipring_ack_id) == 24);
    /* These may grow at their end. */
    CHECK(offsetof(slipring_broker_options, workers_first_cpu) == 52);
    CHECK(offsetof(slipring_subscription_options, dead_letter_topic_len) == 192);
    CHECK(offsetof(slipring_metrics, subscriptions) == 72);
    CHECK(offsetof(slipring_subscription_metrics, expired_unsettled) == 144);
    CHECK(offsetof(slipring_subscription_description, is_online) == 20);
}

int main(void) {
    sizes_are_what_they_were();
    publishing();
    everything_of_a_message();
    polling();
    batches_loans_and_tickets();
    settings_of_a_subscription();
    looking_around();
    return finish("tour");
}
