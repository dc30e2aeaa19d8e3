/* What the Rust API has besides: publishing until it is on the disk, with a limit of time, by place;
   looking around; knowing messages again. */
#include "check.h"
#include "scratch.h"

#define INVALID(call) CHECK((call) == SLIPRING_EINVAL)

static slipring_new_message payload_of(const char *bytes) {
    slipring_new_message message;
    memset(&message, 0, sizeof message);
    message.payload = (const uint8_t *)bytes;
    message.payload_len = strlen(bytes);
    return message;
}

static slipring_broker *open_in(const char *dir, uint32_t sync) {
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    OK(slipring_broker_options_init(&options, sizeof options));
    options.sync = sync;
    options.dir = dir;
    options.dir_len = strlen(dir);
    OK(slipring_broker_open(&options, &broker));
    return broker;
}

static slipring_topic *topic_of(const slipring_broker *broker, const char *name) {
    slipring_topic *topic = NULL;
    OK(slipring_broker_topic(broker, name, strlen(name), &topic));
    return topic;
}

static void a_publish_can_wait_until_it_survives(const char *dir) {
    slipring_broker *broker = open_in(dir, SLIPRING_SYNC_OS);
    slipring_topic *topic = topic_of(broker, "jobs");
    slipring_new_message message = payload_of("one");
    slipring_receipt receipt;
    slipring_shard_metrics metrics;
    CHECK(slipring_broker_is_durable(broker) == 1 && slipring_topic_is_durable(topic) == 1);
    OK(slipring_topic_publish_message(topic, &message, &receipt));
    CHECK(receipt.durable == 0);
    OK(slipring_broker_shard_metrics(broker, 0, &metrics, sizeof metrics));
    CHECK(metrics.stored == 1 && metrics.stored_bytes > 0 && metrics.unsynced == 1);
    OK(slipring_topic_publish_sync(topic, &message, &receipt));
    CHECK(receipt.durable == 1 && receipt.offset == 1);
    OK(slipring_topic_publish_sync(topic, &message, NULL));
    OK(slipring_broker_shard_metrics(broker, 0, &metrics, sizeof metrics));
    CHECK(metrics.published == 3 && metrics.stored == 3 && metrics.unsynced == 0);
    message.key.data = "\xff";
    message.key.len = 1;
    CHECK(slipring_topic_publish_sync(topic, &message, NULL) == SLIPRING_EUTF8);
    INVALID(slipring_topic_publish_sync(NULL, &message, NULL));
    INVALID(slipring_topic_publish_sync(topic, NULL, NULL));
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);

    broker = open_broker();
    topic = topic_of(broker, "jobs");
    message = payload_of("one");
    CHECK(slipring_broker_is_durable(broker) == 0 && slipring_topic_is_durable(topic) == 0);
    CHECK(slipring_broker_is_durable(NULL) == 0 && slipring_topic_is_durable(NULL) == 0);
    OK(slipring_topic_publish_sync(topic, &message, &receipt));
    CHECK(receipt.durable == 0 && receipt.offset == 0);
    OK(slipring_broker_close(broker, 0, NULL));
    CHECK(slipring_topic_publish_sync(topic, &message, NULL) == SLIPRING_CLOSED);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

/* A subscription whose queue takes two, and then blocks whoever publishes. */
static slipring_subscription *small(const slipring_broker *broker) {
    slipring_subscription_options options;
    slipring_subscription *sub = NULL;
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.overflow = SLIPRING_BLOCK;
    options.capacity_messages = 2;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub));
    return sub;
}

static void batches_and_loans_wait_for_so_long(void) {
    slipring_broker *broker = open_broker();
    slipring_topic *topic = topic_of(broker, "a");
    slipring_subscription *sub = small(broker);
    slipring_new_message messages[3];
    slipring_batch_receipt batch;
    slipring_receipt receipt;
    slipring_message got;
    slipring_loan *loan = NULL;
    uint8_t *payload = NULL;
    size_t i;
    for (i = 0; i < 3; i++)
        messages[i] = payload_of("x");
    CHECK(slipring_topic_publish_batch_timeout(topic, messages, 3, SLIPRING_MILLISECONDS(1),
                                               &batch) == SLIPRING_TIMEOUT);
    CHECK(batch.published == 2 && batch.enqueued == 2 && batch.first_offset == 0);
    OK(slipring_topic_loan(topic, NULL, 1, &loan, &payload));
    *payload = 'y';
    CHECK(slipring_loan_commit_timeout(&loan, SLIPRING_MILLISECONDS(1), &receipt) ==
          SLIPRING_TIMEOUT);
    CHECK(loan != NULL && *payload == 'y');
    OK(slipring_subscription_recv(sub, &got));
    OK(slipring_subscription_recv(sub, &got));
    OK(slipring_loan_commit_timeout(&loan, SLIPRING_FOREVER, &receipt));
    CHECK(loan == NULL && receipt.offset == 2 && receipt.enqueued == 1);
    OK(slipring_topic_publish_batch_timeout(topic, messages, 1, SLIPRING_SECONDS(60), NULL));
    OK(slipring_subscription_recv(sub, &got));
    CHECK(PAYLOAD_IS(&got, "y"));
    OK(slipring_topic_publish_batch_timeout(topic, messages, 1, SLIPRING_FOREVER, &batch));
    CHECK(batch.published == 1);
    INVALID(slipring_topic_publish_batch_timeout(NULL, messages, 1, 0, NULL));
    INVALID(slipring_topic_publish_batch_timeout(topic, NULL, 1, 0, NULL));
    INVALID(slipring_loan_commit_timeout(NULL, 0, NULL));
    INVALID(slipring_loan_commit_timeout(&loan, 0, NULL));
    slipring_subscription_free(&sub);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

static void a_receipt_has_the_id_of_its_message(void) {
    slipring_broker *broker = open_broker();
    slipring_topic *topic = topic_of(broker, "a");
    slipring_subscription *sub = NULL;
    slipring_receipt receipt;
    slipring_message message;
    char id[64], told[64];
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), NULL, &sub));
    OK(slipring_topic_publish(topic, SLIPRING_BYTES("x"), NULL));
    OK(slipring_topic_publish(topic, SLIPRING_BYTES("y"), &receipt));
    OK(slipring_subscription_recv(sub, &message));
    OK(slipring_subscription_recv(sub, &message));
    CHECK(slipring_message_id(&message, id, sizeof id) == 36);
    CHECK(slipring_topic_message_id(topic, receipt.partition, receipt.offset, told, sizeof told) ==
          36);
    CHECK(strcmp(id, told) == 0);
    CHECK(slipring_topic_message_id(topic, receipt.partition, 0, told, sizeof told) == 36);
    CHECK(strcmp(id, told) != 0);
    CHECK(slipring_topic_message_id(topic, 0, 0, told, 5) == 36 && strlen(told) == 4);
    CHECK(slipring_topic_message_id(topic, 0, 0, NULL, 0) == 36);
    CHECK(slipring_topic_message_id(NULL, 0, 0, told, sizeof told) == 0);
    slipring_subscription_free(&sub);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

static void a_topic_tells_its_settings(void) {
    slipring_broker *broker = open_broker();
    slipring_topic_config config;
    uint64_t head[1] = {0};
    OK(slipring_broker_create_topic(broker, SLIPRING_TEXT("a"), 2, NULL));
    OK(slipring_broker_topic_config(broker, SLIPRING_TEXT("a"), &config, sizeof config));
    CHECK(config.retention_ns == SLIPRING_SECONDS(7 * 24 * 3600) && config.retention_bytes == 0);
    CHECK(config.dedup_window_ns == 0 && config.dedup_ids == 0);
    OK(slipring_broker_set_retention(broker, SLIPRING_TEXT("a"), SLIPRING_FOREVER, 1 << 20));
    OK(slipring_broker_set_dedup_window(broker, SLIPRING_TEXT("a"), SLIPRING_SECONDS(60), 100));
    OK(slipring_broker_topic_config(broker, SLIPRING_TEXT("a"), &config, sizeof config));
    CHECK(config.retention_ns == SLIPRING_FOREVER && config.retention_bytes == 1 << 20);
    CHECK(config.dedup_window_ns == SLIPRING_SECONDS(60) && config.dedup_ids == 100);
    /* Who was compiled with fewer members gets those. */
    OK(slipring_broker_topic_config(broker, SLIPRING_TEXT("a"), (slipring_topic_config *)head,
                                    sizeof head));
    CHECK(head[0] == SLIPRING_FOREVER);
    CHECK(slipring_broker_topic_config(broker, SLIPRING_TEXT("b"), &config, sizeof config) ==
          SLIPRING_ENOTOPIC);
    INVALID(slipring_broker_topic_config(broker, SLIPRING_TEXT("a"), &config, sizeof config + 1));
    INVALID(slipring_broker_topic_config(broker, SLIPRING_TEXT("a"), NULL, sizeof config));
    INVALID(slipring_broker_topic_config(NULL, SLIPRING_TEXT("a"), &config, sizeof config));
    slipring_broker_free(&broker);
}

static void figures_are_told_for_each_shard_topic_and_subscription(void) {
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    slipring_topic *topic;
    slipring_subscription *subs[3] = {NULL, NULL, NULL};
    slipring_subscription_options named;
    slipring_shard_metrics shard;
    slipring_topic_metrics metrics;
    slipring_subscription_metrics figures;
    slipring_new_message message = payload_of("x");
    slipring_text_view name;
    uint64_t ids[2] = {0, 0}, published = 0;
    size_t count = 0, i;
    OK(slipring_broker_options_init(&options, sizeof options));
    options.shards = 2;
    OK(slipring_broker_open(&options, &broker));
    OK(slipring_broker_create_topic(broker, SLIPRING_TEXT("a"), 2, &topic));
    OK(slipring_broker_set_dedup_window(broker, SLIPRING_TEXT("a"), SLIPRING_SECONDS(60), 0));
    message.id = text("same");
    for (i = 0; i < 3; i++)
        OK(slipring_topic_publish_message(topic, &message, NULL));
    OK(slipring_topic_publish(topic, SLIPRING_BYTES("x"), NULL));
    OK(slipring_broker_topic_metrics(broker, SLIPRING_TEXT("a"), &metrics, sizeof metrics));
    CHECK(metrics.published == 2 && metrics.duplicates == 2);
    CHECK(slipring_broker_topic_metrics(broker, SLIPRING_TEXT("b"), &metrics, sizeof metrics) ==
          SLIPRING_ENOTOPIC);
    for (i = 0; i < 2; i++) {
        OK(slipring_broker_shard_metrics(broker, (uint32_t)i, &shard, sizeof shard));
        CHECK(shard.retained == shard.published && shard.expired == 0 && shard.stored == 0);
        published += shard.published;
    }
    CHECK(published == 2);
    CHECK(slipring_broker_shard_metrics(broker, 2, &shard, sizeof shard) == SLIPRING_ERANGE);

    OK(slipring_subscription_options_init(&named, sizeof named));
    named.name = "worker";
    named.name_len = 6;
    for (i = 0; i < 3; i++)
        OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), i == 1 ? &named : NULL, &subs[i]));
    OK(slipring_subscription_name(subs[1], &name));
    CHECK(is_text(name, "worker"));
    OK(slipring_subscription_name(subs[0], &name));
    CHECK(name.data == NULL && name.len == 0);
    slipring_subscription_free(&subs[0]);
    OK(slipring_broker_subscription_ids(broker, NULL, 0, &count));
    CHECK(count == 2);
    OK(slipring_broker_subscription_ids(broker, ids, 1, NULL));
    CHECK(ids[0] == slipring_subscription_id(subs[1]) && ids[1] == 0);
    OK(slipring_broker_subscription_ids(broker, ids, 2, &count));
    CHECK(count == 2 && ids[1] == slipring_subscription_id(subs[2]));
    OK(slipring_broker_subscription_metrics(broker, ids[1], &figures, sizeof figures));
    CHECK(figures.handler_panics == 0 && figures.filter_panics == 0);

    INVALID(slipring_broker_shard_metrics(NULL, 0, &shard, sizeof shard));
    INVALID(slipring_broker_shard_metrics(broker, 0, NULL, sizeof shard));
    INVALID(slipring_broker_shard_metrics(broker, 0, &shard, sizeof shard + 1));
    INVALID(slipring_broker_topic_metrics(NULL, SLIPRING_TEXT("a"), &metrics, sizeof metrics));
    INVALID(slipring_broker_topic_metrics(broker, NULL, 1, &metrics, sizeof metrics));
    INVALID(slipring_broker_topic_metrics(broker, SLIPRING_TEXT("a"), NULL, sizeof metrics));
    INVALID(slipring_broker_subscription_ids(NULL, ids, 2, &count));
    INVALID(slipring_broker_subscription_ids(broker, NULL, 2, &count));
    INVALID(slipring_subscription_name(NULL, &name));
    INVALID(slipring_subscription_name(subs[1], NULL));
    for (i = 1; i < 3; i++)
        slipring_subscription_free(&subs[i]);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

static void closing_tells_what_is_not_settled(void) {
    slipring_test_clock *clock = NULL;
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    slipring_subscription *sub = NULL;
    slipring_message message;
    slipring_close_report report;
    uint64_t letters = 9;
    int32_t is_due = 9;
    OK(slipring_test_clock_new(&clock));
    OK(slipring_broker_options_init(&options, sizeof options));
    options.clock = clock;
    OK(slipring_broker_open(&options, &broker));
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), NULL, &sub));
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("a"), SLIPRING_BYTES("x"), NULL));
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("a"), SLIPRING_BYTES("y"), NULL));
    OK(slipring_subscription_recv(sub, &message));
    OK(slipring_broker_dead_letters_count(broker, SLIPRING_TEXT("$dlq/unnamed-1"), &letters));
    CHECK(letters == 0);
    OK(slipring_dead_letter(&message, 1, NULL, 0, NULL));
    OK(slipring_broker_dead_letters_count(broker, SLIPRING_TEXT("$dlq/unnamed-1"), &letters));
    CHECK(letters == 1);
    INVALID(slipring_broker_dead_letters_count(broker, SLIPRING_TEXT("a"), NULL));
    INVALID(slipring_broker_dead_letters_count(NULL, SLIPRING_TEXT("a"), &letters));
    OK(slipring_subscription_recv(sub, &message));
    OK(slipring_subscription_is_due(sub, &is_due));
    CHECK(is_due == 0);
    OK(slipring_test_clock_advance(clock, SLIPRING_SECONDS(11)));
    OK(slipring_subscription_is_due(sub, &is_due));
    CHECK(is_due == 1);
    INVALID(slipring_subscription_is_due(NULL, &is_due));
    INVALID(slipring_subscription_is_due(sub, NULL));
    OK(slipring_broker_close(broker, 0, &report));
    CHECK(report.unsettled == 1 && report.unreceived == 0 && report.unhandled == 0);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
    slipring_test_clock_free(&clock);
}

static int32_t is_new(slipring_deduplicator *seen, const slipring_message *message) {
    int32_t answer = 9;
    OK(slipring_deduplicator_is_new(seen, message, &answer));
    return answer;
}

static void messages_are_known_again(void) {
    slipring_broker *broker = open_broker();
    slipring_topic *topic = topic_of(broker, "a");
    slipring_subscription *sub = NULL;
    slipring_deduplicator *seen = NULL;
    slipring_new_message out = payload_of("");
    slipring_message message;
    const char *const ids[] = {"x", "y", "x", "z", "y"};
    const int32_t expected[] = {1, 1, 0, 1, 0};
    int32_t answer = 9;
    size_t len = 9, i;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), NULL, &sub));
    OK(slipring_deduplicator_new(2, &seen));
    for (i = 0; i < 5; i++) {
        out.id = text(ids[i]);
        OK(slipring_topic_publish_message(topic, &out, NULL));
        OK(slipring_subscription_recv(sub, &message));
        CHECK(is_new(seen, &message) == expected[i]);
    }
    OK(slipring_deduplicator_len(seen, &len));
    CHECK(len == 2);
    OK(slipring_deduplicator_forget(seen, &message));
    OK(slipring_deduplicator_len(seen, &len));
    CHECK(len == 1 && is_new(seen, &message) == 1 && is_new(seen, &message) == 0);
    INVALID(slipring_deduplicator_new(2, NULL));
    INVALID(slipring_deduplicator_is_new(NULL, &message, &answer));
    INVALID(slipring_deduplicator_is_new(seen, NULL, &answer));
    INVALID(slipring_deduplicator_is_new(seen, &message, NULL));
    INVALID(slipring_deduplicator_forget(NULL, &message));
    INVALID(slipring_deduplicator_forget(seen, NULL));
    INVALID(slipring_deduplicator_len(NULL, &len));
    INVALID(slipring_deduplicator_len(seen, NULL));
    CHECK(answer == 9);
    slipring_deduplicator_free(&seen);
    CHECK(seen == NULL);
    slipring_deduplicator_free(&seen);
    slipring_deduplicator_free(NULL);
    slipring_subscription_free(&sub);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

/* What is refused from inside a filter function says so. */
static int32_t looks_around(void *user, const slipring_message *message) {
    const slipring_broker *broker = (const slipring_broker *)user;
    slipring_topic_config config;
    slipring_topic_metrics metrics;
    slipring_topic *none = NULL;
    uint64_t letters;
    size_t count;
    (void)message;
    CHECK(slipring_broker_topic_config(broker, SLIPRING_TEXT("a"), &config, sizeof config) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_topic_metrics(broker, SLIPRING_TEXT("a"), &metrics, sizeof metrics) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_subscription_ids(broker, NULL, 0, &count) == SLIPRING_EFILTERING);
    CHECK(slipring_broker_dead_letters_count(broker, SLIPRING_TEXT("a"), &letters) ==
          SLIPRING_EFILTERING);
    CHECK(slipring_broker_topic(broker, SLIPRING_TEXT("a"), &none) == SLIPRING_EFILTERING);
    return 1;
}

static void a_filter_looks_at_nothing_else(void) {
    slipring_broker *broker = open_broker();
    slipring_subscription_options options;
    slipring_subscription *sub = NULL;
    slipring_receipt receipt;
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.filter_fn = looks_around;
    options.filter_user = broker;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub));
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("a"), SLIPRING_BYTES("x"), &receipt));
    CHECK(receipt.matched == 1);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

int main(void) {
    char dir[SCRATCH_BYTES];
    make_scratch(dir);
    a_publish_can_wait_until_it_survives(dir);
    remove_scratch(dir);
    batches_and_loans_wait_for_so_long();
    a_receipt_has_the_id_of_its_message();
    a_topic_tells_its_settings();
    figures_are_told_for_each_shard_topic_and_subscription();
    closing_tells_what_is_not_settled();
    messages_are_known_again();
    a_filter_looks_at_nothing_else();
    return finish("parity");
}
