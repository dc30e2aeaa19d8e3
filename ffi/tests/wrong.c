/* Every function with NULL, with lengths that cannot be, with text that is not UTF-8, after close.
   What goes wrong is said, and nothing is written. */
#include "check.h"

#define INVALID(call) CHECK((call) == SLIPRING_EINVAL)
#define FAILS(call, status, words)                                   \
    do {                                                             \
        char text_[256];                                             \
        CHECK((call) == (status));                                   \
        slipring_last_error(text_, sizeof text_);                    \
        if (strstr(text_, (words)) == NULL)                          \
            fprintf(stderr, "%s: no '%s'\n", text_, (words));        \
        CHECK(strstr(text_, (words)) != NULL);                       \
    } while (0)

static void nothing(void *user, const slipring_message *messages, size_t count) {
    (void)user, (void)messages, (void)count;
}
static int32_t handle(void *user, const slipring_message *message) {
    (void)user, (void)message;
    return 0;
}
static int32_t handle_all(void *user, const slipring_message *messages, size_t count,
                          int32_t *handled) {
    (void)user, (void)messages, (void)count, (void)handled;
    return 0;
}
static void freed(void *user) { ++*(int *)user; }

static const size_t TOO_LONG = (size_t)-1;

/* What is about delivery at least once. */
static void settling_nothing(slipring_broker *broker, slipring_subscription *sub) {
    slipring_message message;
    slipring_status outcomes[1] = {SLIPRING_OK};
    slipring_acker *acker = NULL, *leased_acker = NULL;
    slipring_letters *letters = NULL;
    slipring_kept *letter = NULL;
    slipring_text *words = NULL;
    slipring_ack_id id;
    slipring_subscription_description description;
    slipring_subscription_options options;
    slipring_subscription *leased = NULL;
    const slipring_message *messages = NULL;
    size_t count = 0;
    uint64_t number = 0;
    char buffer[4] = "old";

    memset(&message, 0, sizeof message);
    memset(&id, 0, sizeof id);
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("leased"), &options, &leased));
    OK(slipring_subscription_acker(leased, &leased_acker));

    INVALID(slipring_ack(NULL, 1, NULL));
    INVALID(slipring_ack(&message, TOO_LONG, NULL));
    OK(slipring_ack(NULL, 0, NULL));
    INVALID(slipring_ack(&message, 1, outcomes));
    CHECK(outcomes[0] == SLIPRING_EINVAL);
    INVALID(slipring_nack(NULL, 1, 0, NULL));
    INVALID(slipring_nack(&message, 1, 0, NULL));
    INVALID(slipring_extend(NULL, 1, 0, NULL));
    INVALID(slipring_extend(&message, 1, 0, NULL));
    INVALID(slipring_dead_letter(NULL, 1, NULL, 0, NULL));
    INVALID(slipring_dead_letter(&message, 1, NULL, 0, NULL));
    INVALID(slipring_dead_letter(&message, 1, NULL, 1, NULL));
    INVALID(slipring_dead_letter(&message, 1, "x", TOO_LONG, NULL));
    INVALID(slipring_ack_ids(NULL, 1, &id));
    INVALID(slipring_ack_ids(&message, 1, &id));
    INVALID(slipring_ack_ids(&message, 1, NULL));
    OK(slipring_ack_ids(NULL, 0, NULL));
    CHECK(slipring_ack_id_text(NULL, buffer, sizeof buffer) == 0);
    CHECK(slipring_ack_id_text(&id, buffer, sizeof buffer) == 0 && strcmp(buffer, "old") == 0);
    INVALID(slipring_ack_id_parse(NULL, 1, &id));
    INVALID(slipring_ack_id_parse(SLIPRING_TEXT("a"), NULL));
    FAILS(slipring_ack_id_parse(SLIPRING_TEXT("0x"), &id), SLIPRING_EACKID, "at byte 1");
    CHECK(slipring_last_error_position() == 1);
    CHECK(slipring_ack_id_parse(SLIPRING_TEXT(""), &id) == SLIPRING_EACKID);
    CHECK(slipring_ack_id_parse(SLIPRING_TEXT("\xff"), &id) == SLIPRING_EUTF8);

    INVALID(slipring_subscription_acker(NULL, &acker));
    INVALID(slipring_subscription_acker(leased, NULL));
    CHECK(slipring_subscription_acker(sub, &acker) == SLIPRING_EATMOSTONCE);
    INVALID(slipring_broker_acker(NULL, SLIPRING_TEXT("a"), &acker));
    INVALID(slipring_broker_acker(broker, NULL, 1, &acker));
    INVALID(slipring_broker_acker(broker, SLIPRING_TEXT("a"), NULL));
    CHECK(slipring_broker_acker(broker, SLIPRING_TEXT("a"), &acker) == SLIPRING_ENOSUBSCRIPTION);
    INVALID(slipring_acker_ack(NULL, &id, 1, NULL));
    INVALID(slipring_acker_ack(leased_acker, NULL, 1, NULL));
    INVALID(slipring_acker_ack(leased_acker, &id, TOO_LONG, NULL));
    CHECK(slipring_acker_ack(leased_acker, &id, 1, NULL) == SLIPRING_EACKID);
    memset(&id, 0xff, sizeof id);
    CHECK(slipring_acker_ack(leased_acker, &id, 1, outcomes) == SLIPRING_EACKID);
    CHECK(outcomes[0] == SLIPRING_EACKID);
    INVALID(slipring_acker_nack(NULL, &id, 1, 0, NULL));
    INVALID(slipring_acker_nack(leased_acker, NULL, 1, 0, NULL));
    INVALID(slipring_acker_extend(NULL, &id, 1, 0, NULL));
    INVALID(slipring_acker_extend(leased_acker, NULL, 1, 0, NULL));
    INVALID(slipring_acker_dead_letter(NULL, &id, 1, NULL, 0, NULL));
    INVALID(slipring_acker_dead_letter(leased_acker, NULL, 1, NULL, 0, NULL));
    INVALID(slipring_acker_dead_letter(leased_acker, &id, 1, NULL, 1, NULL));
    CHECK(slipring_acker_dead_letter(leased_acker, &id, 1, "\xff", 1, NULL) == SLIPRING_EUTF8);
    INVALID(slipring_handler_reason(NULL, 1));
    INVALID(slipring_handler_reason(SLIPRING_TEXT("outside")));
    INVALID(slipring_handler_reason_at(0, NULL, 1));
    INVALID(slipring_handler_reason_at(0, "x", TOO_LONG));
    INVALID(slipring_handler_reason_at(0, SLIPRING_TEXT("outside")));
    CHECK(slipring_handler_reason_at(0, "\xff", 1) == SLIPRING_EUTF8);

    INVALID(slipring_subscription_seek(NULL, SLIPRING_START_NOW, 0));
    CHECK(slipring_subscription_seek(leased, UINT32_MAX, 0) == SLIPRING_ERANGE);
    INVALID(slipring_broker_seek_subscription(NULL, SLIPRING_TEXT("a"), SLIPRING_START_NOW, 0));
    INVALID(slipring_broker_seek_subscription(broker, NULL, 1, SLIPRING_START_NOW, 0));
    CHECK(slipring_broker_seek_subscription(broker, SLIPRING_TEXT("a"), 5, 0) == SLIPRING_ERANGE);
    CHECK(slipring_broker_seek_subscription(broker, SLIPRING_TEXT("a"), SLIPRING_START_NOW, 0) ==
          SLIPRING_ENOSUBSCRIPTION);
    INVALID(slipring_broker_subscriptions(NULL, &words));
    INVALID(slipring_broker_subscriptions(broker, NULL));
    INVALID(slipring_broker_describe_subscription(NULL, SLIPRING_TEXT("a"), &description,
                                                  sizeof description, NULL));
    INVALID(slipring_broker_describe_subscription(broker, NULL, 1, &description,
                                                  sizeof description, NULL));
    CHECK(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("\xff"), &description,
                                                sizeof description, &words) == SLIPRING_EUTF8);
    INVALID(slipring_broker_delete_subscription(NULL, SLIPRING_TEXT("a")));
    INVALID(slipring_broker_delete_subscription(broker, NULL, 1));

    INVALID(slipring_broker_dead_letters(NULL, SLIPRING_TEXT("a"), NULL, 0, 1, &letters));
    INVALID(slipring_broker_dead_letters(broker, NULL, 1, NULL, 0, 1, &letters));
    INVALID(slipring_broker_dead_letters(broker, SLIPRING_TEXT("a"), NULL, 1, 1, &letters));
    INVALID(slipring_broker_dead_letters(broker, SLIPRING_TEXT("a"), NULL, 0, 1, NULL));
    FAILS(slipring_broker_dead_letters(broker, SLIPRING_TEXT("a"), SLIPRING_TEXT("attributes:"), 1,
                                       &letters),
          SLIPRING_EFILTER, "at byte 11");
    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("//"), NULL, 0, TOO_LONG, &letters));
    INVALID(slipring_letters_get(NULL, &messages, &count));
    INVALID(slipring_letters_get(letters, NULL, &count));
    INVALID(slipring_letters_get(letters, &messages, NULL));
    slipring_letters_free(&letters);
    slipring_letters_free(&letters);
    slipring_letters_free(NULL);
    INVALID(slipring_broker_dead_letter(NULL, SLIPRING_TEXT("a"), 0, 0, &letter));
    INVALID(slipring_broker_dead_letter(broker, NULL, 1, 0, 0, &letter));
    INVALID(slipring_broker_dead_letter(broker, SLIPRING_TEXT("a"), 0, 0, NULL));
    CHECK(slipring_broker_dead_letter(broker, SLIPRING_TEXT("a"), UINT32_MAX, UINT64_MAX,
                                      &letter) == SLIPRING_EMPTY);
    INVALID(slipring_broker_redrive(NULL, SLIPRING_TEXT("a"), &message, 1, &number));
    INVALID(slipring_broker_redrive(broker, NULL, 1, &message, 1, &number));
    INVALID(slipring_broker_redrive(broker, SLIPRING_TEXT("a"), NULL, 1, &number));
    INVALID(slipring_broker_redrive(broker, SLIPRING_TEXT("a"), &message, 1, &number));
    INVALID(slipring_broker_redrive(broker, SLIPRING_TEXT("a"), &message, TOO_LONG, NULL));
    OK(slipring_broker_redrive(broker, SLIPRING_TEXT("a"), NULL, 0, NULL));
    INVALID(slipring_broker_redrive_all(NULL, SLIPRING_TEXT("a"), NULL, 0, &number));
    INVALID(slipring_broker_redrive_all(broker, NULL, 1, NULL, 0, &number));
    INVALID(slipring_broker_redrive_all(broker, SLIPRING_TEXT("a"), NULL, 1, &number));
    CHECK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("a"), SLIPRING_TEXT("="), NULL) ==
          SLIPRING_EFILTER);
    INVALID(slipring_broker_purge_dead_letters(NULL, SLIPRING_TEXT("a"), &number));
    INVALID(slipring_broker_purge_dead_letters(broker, NULL, 1, &number));

    CHECK(acker == NULL && letters == NULL && letter == NULL && words == NULL);
    CHECK(messages == NULL && count == 0 && number == 0);
    slipring_acker_free(&leased_acker);
    slipring_acker_free(&leased_acker);
    slipring_acker_free(NULL);
    slipring_subscription_free(&leased);
}

/* A struct of a program that knows less, or more. */
static void descriptions_say_their_size(slipring_broker *broker) {
    slipring_subscription_options options;
    slipring_subscription_description description;
    slipring_subscription_metrics figures;
    slipring_subscription *sub = NULL;

    OK(slipring_subscription_options_init(&options, sizeof options));
    options.name = "sized";
    options.name_len = 5;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("sized"), &options, &sub));
    memset(&description, 0xee, sizeof description);
    OK(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("sized"), &description, 8,
                                             NULL));
    CHECK(description.queued == 0 && description.unsettled == 0xeeeeeeeeeeeeeeee);
    INVALID(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("sized"), NULL,
                                                  sizeof description, NULL));
    INVALID(slipring_broker_describe_subscription(broker, SLIPRING_TEXT("sized"), &description,
                                                  sizeof description + 1, NULL));
    /* Before there was delivery at least once. */
    memset(&figures, 0xee, sizeof figures);
    OK(slipring_broker_subscription_metrics(broker, slipring_subscription_id(sub), &figures, 112));
    CHECK(figures.breaker == 0 && figures.unsettled == 0xeeeeeeeeeeeeeeee);
    slipring_subscription_free(&sub);
    OK(slipring_subscription_options_init(&options, 128));
    CHECK(options.struct_size == 128);
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("sized"), &options, &sub));
    slipring_subscription_free(&sub);
}

static void null_is_never_looked_at(slipring_broker *broker, slipring_topic *topic,
                                    slipring_subscription *sub) {
    slipring_topic *no_topic = NULL;
    slipring_subscription *no_sub = NULL;
    slipring_handler_subscription *no_handler = NULL;
    slipring_loan *loan = NULL;
    slipring_ticket *ticket = NULL;
    slipring_kept *kept = NULL;
    slipring_idle *idle = NULL;
    slipring_text *words = NULL;
    slipring_text_view view;
    slipring_message message;
    slipring_new_message out;
    slipring_metrics metrics;
    slipring_subscription_metrics figures;
    slipring_broker_options options;
    slipring_subscription_options sub_options;
    slipring_handler handler;
    slipring_batch_handler batch_handler;
    const slipring_message *messages = NULL;
    uint8_t *payload = NULL;
    uint64_t number = 0;
    size_t count = 0;
    int fd = 0;

    memset(&message, 0, sizeof message);
    memset(&out, 0, sizeof out);
    memset(&handler, 0, sizeof handler);
    INVALID(slipring_broker_open(NULL, NULL));
    INVALID(slipring_broker_close(NULL, 0, NULL));
    INVALID(slipring_broker_topic(NULL, SLIPRING_TEXT("a"), &no_topic));
    INVALID(slipring_broker_topic(broker, NULL, 1, &no_topic));
    INVALID(slipring_broker_topic(broker, SLIPRING_TEXT("a"), NULL));
    INVALID(slipring_broker_create_topic(NULL, SLIPRING_TEXT("a"), 1, NULL));
    INVALID(slipring_broker_create_topic(broker, NULL, 1, 1, NULL));
    INVALID(slipring_broker_delete_topic(NULL, SLIPRING_TEXT("a")));
    INVALID(slipring_broker_delete_topic(broker, NULL, 1));
    INVALID(slipring_broker_topics(NULL, SLIPRING_TEXT("a"), NULL, 0, 1, &words));
    INVALID(slipring_broker_topics(broker, NULL, 1, NULL, 0, 1, &words));
    INVALID(slipring_broker_topics(broker, SLIPRING_TEXT("a"), NULL, 1, 1, &words));
    INVALID(slipring_broker_topics(broker, SLIPRING_TEXT("a"), NULL, 0, 1, NULL));
    INVALID(slipring_broker_describe_topic(NULL, SLIPRING_TEXT("t"), NULL, 0, NULL));
    INVALID(slipring_broker_describe_topic(broker, NULL, 1, NULL, 0, NULL));
    INVALID(slipring_broker_describe_topic(broker, SLIPRING_TEXT("t"), NULL, 1, NULL));
    INVALID(slipring_broker_publish(NULL, SLIPRING_TEXT("a"), SLIPRING_BYTES("x"), NULL));
    INVALID(slipring_broker_publish(broker, NULL, 1, SLIPRING_BYTES("x"), NULL));
    INVALID(slipring_broker_publish(broker, SLIPRING_TEXT("a"), NULL, 1, NULL));
    INVALID(slipring_broker_subscribe(NULL, SLIPRING_TEXT("a"), NULL, &no_sub));
    INVALID(slipring_broker_subscribe(broker, NULL, 1, NULL, &no_sub));
    INVALID(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), NULL, NULL));
    INVALID(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), NULL, NULL, &no_handler));
    INVALID(
        slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), NULL, &handler, &no_handler));
    handler.handle = handle;
    INVALID(
        slipring_broker_subscribe_handler(NULL, SLIPRING_TEXT("a"), NULL, &handler, &no_handler));
    INVALID(slipring_broker_subscribe_handler(broker, NULL, 1, NULL, &handler, &no_handler));
    INVALID(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), NULL, &handler, NULL));
    memset(&batch_handler, 0, sizeof batch_handler);
    INVALID(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("a"), NULL, NULL,
                                                    &no_handler));
    INVALID(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("a"), NULL,
                                                    &batch_handler, &no_handler));
    batch_handler.handle = handle_all;
    INVALID(slipring_broker_subscribe_batch_handler(NULL, SLIPRING_TEXT("a"), NULL, &batch_handler,
                                                    &no_handler));
    INVALID(slipring_broker_subscribe_batch_handler(broker, NULL, 1, NULL, &batch_handler,
                                                    &no_handler));
    INVALID(slipring_broker_subscribe_batch_handler(broker, "a", TOO_LONG, NULL, &batch_handler,
                                                    &no_handler));
    INVALID(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("a"), NULL,
                                                    &batch_handler, NULL));
    CHECK(slipring_broker_subscribe_batch_handler(broker, "\xff", 1, NULL, &batch_handler,
                                                  &no_handler) == SLIPRING_EUTF8);
    INVALID(slipring_broker_flush(NULL));
    INVALID(slipring_broker_set_retention(NULL, SLIPRING_TEXT("t"), 1, 1));
    INVALID(slipring_broker_set_retention(broker, NULL, 1, 1, 1));
    INVALID(slipring_broker_set_retention(broker, "t", TOO_LONG, 1, 1));
    CHECK(slipring_broker_set_retention(broker, "\xff", 1, 1, 1) == SLIPRING_EUTF8);
    CHECK(slipring_broker_set_retention(broker, SLIPRING_TEXT("none"), SLIPRING_FOREVER, 0) ==
          SLIPRING_ENOTOPIC);
    INVALID(slipring_broker_set_dedup_window(NULL, SLIPRING_TEXT("t"), 0, 0));
    INVALID(slipring_broker_set_dedup_window(broker, NULL, 1, 0, 0));
    INVALID(slipring_broker_set_dedup_window(broker, "t", TOO_LONG, 0, 0));
    CHECK(slipring_broker_set_dedup_window(broker, "\xff", 1, 0, 0) == SLIPRING_EUTF8);
    CHECK(slipring_broker_set_dedup_window(broker, SLIPRING_TEXT("none"), 0, 0) ==
          SLIPRING_ENOTOPIC);
    INVALID(slipring_broker_metrics(NULL, &metrics, sizeof metrics));
    INVALID(slipring_broker_metrics(broker, NULL, sizeof metrics));
    INVALID(slipring_broker_metrics(broker, &metrics, sizeof metrics + 1));
    INVALID(slipring_broker_metrics(broker, &metrics, TOO_LONG));
    INVALID(slipring_broker_subscription_metrics(NULL, 1, &figures, sizeof figures));
    INVALID(slipring_broker_subscription_metrics(broker, slipring_subscription_id(sub), NULL, 8));
    CHECK(slipring_broker_subscription_metrics(broker, 999, &figures, sizeof figures) ==
          SLIPRING_ENOSUBSCRIPTION);
    INVALID(slipring_broker_prometheus(NULL, &words));
    INVALID(slipring_broker_prometheus(broker, NULL));
    INVALID(slipring_broker_options_init(NULL, sizeof options));
    INVALID(slipring_broker_options_init(&options, 0));
    INVALID(slipring_broker_options_init(&options, TOO_LONG));
    INVALID(slipring_subscription_options_init(NULL, sizeof sub_options));
    INVALID(slipring_subscription_options_init(&sub_options, sizeof sub_options + 1));

    INVALID(slipring_topic_name(NULL, &view));
    INVALID(slipring_topic_name(topic, NULL));
    INVALID(slipring_topic_publish(NULL, SLIPRING_BYTES("x"), NULL));
    INVALID(slipring_topic_publish(topic, NULL, 1, NULL));
    INVALID(slipring_topic_publish(topic, (const uint8_t *)"x", TOO_LONG, NULL));
    INVALID(slipring_topic_publish_message(NULL, &out, NULL));
    INVALID(slipring_topic_publish_message(topic, NULL, NULL));
    INVALID(slipring_topic_try_publish(NULL, &out, NULL));
    INVALID(slipring_topic_try_publish(topic, NULL, NULL));
    INVALID(slipring_topic_publish_timeout(NULL, &out, 0, NULL));
    INVALID(slipring_topic_publish_timeout(topic, NULL, 0, NULL));
    INVALID(slipring_topic_publish_batch(NULL, &out, 1, NULL));
    INVALID(slipring_topic_publish_batch(topic, NULL, 1, NULL));
    INVALID(slipring_topic_publish_batch(topic, &out, TOO_LONG, NULL));
    INVALID(slipring_topic_try_publish_batch(NULL, &out, 1, NULL));
    INVALID(slipring_topic_try_publish_batch(topic, NULL, 1, NULL));
    INVALID(slipring_topic_publish_ticket(NULL, &out, &ticket));
    INVALID(slipring_topic_publish_ticket(topic, NULL, &ticket));
    INVALID(slipring_topic_publish_ticket(topic, &out, NULL));
    INVALID(slipring_ticket_try(NULL, NULL));
    INVALID(slipring_ticket_wait(NULL, NULL));
    INVALID(slipring_ticket_wait(&ticket, NULL));
    INVALID(slipring_topic_loan(NULL, NULL, 1, &loan, &payload));
    INVALID(slipring_topic_loan(topic, NULL, 1, NULL, &payload));
    INVALID(slipring_topic_loan(topic, NULL, 1, &loan, NULL));
    INVALID(slipring_loan_commit(NULL, NULL));
    INVALID(slipring_loan_commit(&loan, NULL));
    out.attributes_len = 1;
    INVALID(slipring_topic_publish_message(topic, &out, NULL));
    INVALID(slipring_topic_publish_batch(topic, &out, 1, NULL));
    out.attributes_len = 0;
    out.key.len = 5;
    INVALID(slipring_topic_publish_message(topic, &out, NULL));

    CHECK(slipring_subscription_id(NULL) == 0 && slipring_subscription_lost(NULL) == 0);
    INVALID(slipring_subscription_queued(NULL, &number));
    INVALID(slipring_subscription_queued(sub, NULL));
    INVALID(slipring_subscription_recv(NULL, &message));
    INVALID(slipring_subscription_recv(sub, NULL));
    INVALID(slipring_subscription_try_recv(NULL, &message));
    INVALID(slipring_subscription_try_recv(sub, NULL));
    INVALID(slipring_subscription_recv_timeout(NULL, 0, &message));
    INVALID(slipring_subscription_recv_timeout(sub, 0, NULL));
    INVALID(slipring_subscription_recv_batch(NULL, 1, &messages, &count));
    INVALID(slipring_subscription_recv_batch(sub, 1, NULL, &count));
    INVALID(slipring_subscription_recv_batch(sub, 1, &messages, NULL));
    INVALID(slipring_subscription_try_recv_batch(NULL, 1, &messages, &count));
    INVALID(slipring_subscription_poll(NULL, 1, nothing, NULL, &count));
    INVALID(slipring_subscription_poll(sub, 1, NULL, NULL, &count));
    CHECK(slipring_subscription_poll(sub, TOO_LONG, nothing, NULL, NULL) == SLIPRING_EMPTY);
    CHECK(slipring_subscription_try_recv_batch(sub, TOO_LONG, &messages, &count) ==
          SLIPRING_EMPTY);
    INVALID(slipring_subscription_wait(NULL, 0));
    INVALID(slipring_subscription_event_fd(NULL, &fd));
    INVALID(slipring_subscription_event_fd(sub, NULL));

    CHECK(slipring_handler_subscription_id(NULL) == 0);
    INVALID(slipring_handler_subscription_queued(NULL, &number));
    INVALID(slipring_handler_subscription_unsubscribe(NULL, 0));
    INVALID(slipring_handler_subscription_unsubscribe(&no_handler, 0));

    INVALID(slipring_idle_new(SLIPRING_WAIT_YIELD, NULL));
    CHECK(slipring_idle_new(4, &idle) == SLIPRING_ERANGE && idle == NULL);
    INVALID(slipring_idle_rest(NULL, 0));
    slipring_idle_free(NULL);
    slipring_idle_free(&idle);

    CHECK(slipring_message_topic(NULL).data == NULL && slipring_message_topic(&message).len == 0);
    CHECK(slipring_message_attempt(NULL) == 0 && slipring_message_attempt(&message) == 0);
    INVALID(slipring_message_attribute(NULL, SLIPRING_TEXT("a"), &view));
    INVALID(slipring_message_attribute(&message, SLIPRING_TEXT("a"), &view));
    INVALID(slipring_message_attributes(NULL, NULL, 0, &count));
    INVALID(slipring_message_keep(NULL, &kept));
    INVALID(slipring_message_keep(&message, &kept));
    CHECK(slipring_message_id(NULL, NULL, 0) == 0);
    INVALID(slipring_kept_message(NULL, &message));
    INVALID(slipring_text_get(NULL, &view));

    settling_nothing(broker, sub);

    slipring_broker_free(NULL);
    slipring_topic_free(NULL);
    slipring_topic_free(&no_topic);
    slipring_ticket_free(NULL);
    slipring_loan_abort(NULL);
    slipring_subscription_free(NULL);
    slipring_subscription_free(&no_sub);
    slipring_handler_subscription_free(NULL);
    slipring_handler_subscription_free(&no_handler);
    slipring_handler_subscription_detach(NULL);
    slipring_kept_free(NULL);
    slipring_text_free(NULL);

    CHECK(no_topic == NULL && no_sub == NULL && no_handler == NULL && loan == NULL);
    CHECK(ticket == NULL && kept == NULL && words == NULL && payload == NULL);
    CHECK(messages == NULL && count == 0 && fd == 0 && number == 0);
}

static void what_is_wrong_is_said(slipring_broker *broker, slipring_topic *topic) {
    slipring_topic *none = NULL;
    slipring_subscription *sub = NULL;
    slipring_subscription_options options;
    slipring_broker_options broker_options;
    slipring_broker *no_broker = NULL;
    slipring_new_message out;
    slipring_attribute attributes[2];
    char buffer[8];

    FAILS(slipring_broker_topic(broker, SLIPRING_TEXT("a//b"), &none), SLIPRING_ENAME, "at byte 2");
    CHECK(slipring_last_error_position() == 2);
    /* Success, and outcomes that are no errors, leave it as it is. */
    OK(slipring_topic_publish(topic, NULL, 0, NULL));
    CHECK(slipring_last_error_position() == 2);
    FAILS(slipring_broker_topic(broker, SLIPRING_TEXT("ab\xff"), &none), SLIPRING_EUTF8, "byte 2");
    FAILS(slipring_broker_topic(broker, SLIPRING_TEXT("*"), &none), SLIPRING_ENAME, "not allowed");
    FAILS(slipring_broker_topic(broker, SLIPRING_TEXT(""), &none), SLIPRING_ENAME, "empty");
    FAILS(slipring_broker_create_topic(broker, SLIPRING_TEXT("a"), 0, NULL), SLIPRING_ERANGE,
          "1..=1024");
    CHECK(slipring_last_error_position() == SIZE_MAX);
    FAILS(slipring_broker_delete_topic(broker, SLIPRING_TEXT("no")), SLIPRING_ENOTOPIC, "no such");
    FAILS(slipring_broker_delete_topic(broker, SLIPRING_TEXT("\x80")), SLIPRING_EUTF8, "byte 0");
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a*"), NULL, &sub), SLIPRING_ENAME,
          "whole segment");
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("\xc3"), NULL, &sub), SLIPRING_EUTF8,
          "pattern");

    OK(slipring_subscription_options_init(&options, sizeof options));
    options.filter = "attributes:";
    options.filter_len = 11;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_EFILTER,
          "at byte 11");
    CHECK(slipring_last_error_position() == 11);
    options.filter_len = TOO_LONG;
    INVALID(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub));
    options.filter = NULL;
    INVALID(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub));
    options.filter_len = 0;
    options.name = "a b";
    options.name_len = 3;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ENAME,
          "subscription name");
    options.name = NULL;
    options.name_len = 0;
    options.patterns_len = 1;
    INVALID(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub));
    options.patterns_len = 0;
    options.capacity_messages = 0;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "capacity");
    options.capacity_messages = UINT64_MAX;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "capacity");
    options.capacity_messages = 1;
    options.overflow = 77;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "overflow");
    options.overflow = SLIPRING_DISCONNECT;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "needs a time");
    options.overflow = 0;
    options.start = 77;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "start");
    options.start = 0;
    options.wait = 77;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "wait");
    options.wait = 0;
    options.delivery = 77;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "delivery");
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    options.visibility_timeout_ns = 9999999;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "visibility_timeout");
    options.visibility_timeout_ns = SLIPRING_FOREVER;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "visibility_timeout");
    options.visibility_timeout_ns = SLIPRING_SECONDS(600);
    options.max_delivery_attempts = 0;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "max_delivery_attempts");
    options.max_delivery_attempts = 65535;
    options.max_outstanding = UINT64_MAX;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ERANGE,
          "max_outstanding");
    options.max_outstanding = 1;
    options.dead_letter_topic = "a//b";
    options.dead_letter_topic_len = 4;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_ENAME,
          "byte 2");
    CHECK(slipring_last_error_position() == 2);
    options.dead_letter_topic = NULL;
    INVALID(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub));
    options.struct_size = 4;
    FAILS(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub), SLIPRING_EINVAL,
          "_init");
    OK(slipring_broker_options_init(&broker_options, sizeof broker_options));
    broker_options.shards = 65;
    FAILS(slipring_broker_open(&broker_options, &no_broker), SLIPRING_ERANGE, "shards");
    broker_options.shards = 1;
    broker_options.when_full = 2;
    FAILS(slipring_broker_open(&broker_options, &no_broker), SLIPRING_ERANGE, "when_full");
    broker_options.when_full = 0;
    broker_options.struct_size = UINT32_MAX;
    FAILS(slipring_broker_open(&broker_options, &no_broker), SLIPRING_EINVAL, "_init");

    memset(&out, 0, sizeof out);
    out.key = text("\xff");
    FAILS(slipring_topic_publish_message(topic, &out, NULL), SLIPRING_EUTF8, "key");
    out.key.data = NULL;
    out.key.len = 0;
    out.id.data = "";
    FAILS(slipring_topic_publish_message(topic, &out, NULL), SLIPRING_EMESSAGE, "id");
    out.id.data = NULL;
    attributes[0].key = attributes[0].value = attributes[1].key = text("same");
    attributes[1].value = text("\xff");
    out.attributes = attributes;
    out.attributes_len = 2;
    FAILS(slipring_topic_publish_message(topic, &out, NULL), SLIPRING_EUTF8, "attribute value");
    attributes[1].value = text("");
    FAILS(slipring_topic_publish_message(topic, &out, NULL), SLIPRING_EMESSAGE, "attribute 1");
    out.attributes_len = 101;
    FAILS(slipring_topic_publish_message(topic, &out, NULL), SLIPRING_EMESSAGE, "101");
    CHECK(none == NULL && sub == NULL && no_broker == NULL);

    /* The text is cut off at a whole character, and its length told. */
    FAILS(slipring_broker_topic(broker, SLIPRING_TEXT("a//b"), &none), SLIPRING_ENAME, "invalid");
    CHECK(slipring_last_error(buffer, sizeof buffer) > sizeof buffer);
    CHECK(strcmp(buffer, "invalid") == 0);
    CHECK(slipring_last_error(NULL, 100) == slipring_last_error(buffer, 0));
    CHECK(slipring_status_str(12345) != NULL && slipring_status_str(INT32_MIN) != NULL);
}

static void user_data_is_let_go_of_also_on_failure(slipring_broker *broker) {
    int filters = 0, handlers = 0;
    slipring_subscription_options options;
    slipring_handler handler;
    slipring_batch_handler batch_handler;
    slipring_subscription *sub = NULL;
    slipring_handler_subscription *handled = NULL;

    OK(slipring_subscription_options_init(&options, sizeof options));
    memset(&handler, 0, sizeof handler);
    handler.user = &handlers;
    handler.user_free = freed;
    options.filter_fn = handle;
    options.filter_user = &filters;
    options.filter_user_free = freed;
    CHECK(slipring_broker_subscribe(broker, SLIPRING_TEXT("//"), &options, &sub) == SLIPRING_ENAME);
    CHECK(filters == 1);
    INVALID(slipring_broker_subscribe(NULL, SLIPRING_TEXT("a"), &options, &sub));
    CHECK(filters == 2);
    INVALID(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), &options, &handler,
                                              &handled));
    CHECK(filters == 3 && handlers == 1);
    handler.handle = handle;
    CHECK(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("//"), &options, &handler,
                                            &handled) == SLIPRING_ENAME);
    CHECK(filters == 4 && handlers == 2);
    options.filter = "";
    INVALID(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), &options, &handler,
                                              NULL));
    CHECK(filters == 5 && handlers == 3);
    options.filter = NULL;
    memset(&batch_handler, 0, sizeof batch_handler);
    batch_handler.user = &handlers;
    batch_handler.user_free = freed;
    INVALID(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("a"), &options,
                                                    &batch_handler, &handled));
    CHECK(filters == 6 && handlers == 4);
    batch_handler.handle = handle_all;
    CHECK(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("//"), &options,
                                                  &batch_handler, &handled) == SLIPRING_ENAME);
    CHECK(filters == 7 && handlers == 5);
    CHECK(sub == NULL && handled == NULL);
}

static void after_close_there_is_no_settling(slipring_broker *broker) {
    slipring_subscription_options options;
    slipring_subscription *sub = NULL;
    slipring_text *words = NULL;
    slipring_letters *letters = NULL;
    uint64_t number = 9;

    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    options.name = "late";
    options.name_len = 4;
    CHECK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), &options, &sub) ==
          SLIPRING_CLOSED);
    CHECK(sub == NULL);
    CHECK(slipring_broker_seek_subscription(broker, SLIPRING_TEXT("late"), SLIPRING_START_NOW, 0) ==
          SLIPRING_ENOSUBSCRIPTION);
    CHECK(slipring_broker_delete_subscription(broker, SLIPRING_TEXT("late")) ==
          SLIPRING_ENOSUBSCRIPTION);
    OK(slipring_broker_subscriptions(broker, &words));
    slipring_text_free(&words);
    OK(slipring_broker_dead_letters(broker, SLIPRING_TEXT("$dlq/late"), NULL, 0, 1, &letters));
    slipring_letters_free(&letters);
    OK(slipring_broker_redrive_all(broker, SLIPRING_TEXT("$dlq/late"), NULL, 0, &number));
    CHECK(number == 0);
    OK(slipring_broker_purge_dead_letters(broker, SLIPRING_TEXT("$dlq/late"), NULL));
}

static void after_close(slipring_broker *broker, slipring_topic *topic,
                        slipring_subscription *sub) {
    slipring_new_message out;
    slipring_message message;
    slipring_topic *none = NULL;
    slipring_subscription *no_sub = NULL;
    slipring_handler_subscription *no_handler = NULL;
    slipring_handler handler;
    slipring_batch_handler batch_handler;
    slipring_ticket *ticket = NULL;
    slipring_loan *loan = NULL;
    const slipring_message *messages = NULL;
    slipring_metrics metrics;
    slipring_text_view name;
    uint8_t *payload = NULL;
    slipring_status status;
    uint64_t queued = 1;
    size_t count = 0;
    int fd = -1, freed_handlers = 0;

    memset(&out, 0, sizeof out);
    OK(slipring_broker_close(broker, 0, NULL));
    OK(slipring_broker_close(broker, 0, NULL));
    CHECK(slipring_broker_topic(broker, SLIPRING_TEXT("fresh"), &none) == SLIPRING_CLOSED);
    CHECK(slipring_topic_publish(topic, NULL, 0, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_topic_publish_batch(topic, &out, 1, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_topic_publish_ticket(topic, &out, &ticket) == SLIPRING_CLOSED);
    CHECK(slipring_topic_loan(topic, NULL, 1, &loan, &payload) == SLIPRING_CLOSED);
    CHECK(slipring_broker_subscribe(broker, SLIPRING_TEXT("a"), NULL, &no_sub) == SLIPRING_CLOSED);
    CHECK(slipring_broker_create_topic(broker, SLIPRING_TEXT("new"), 1, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_broker_publish(broker, SLIPRING_TEXT("t"), NULL, 0, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_topic_publish_message(topic, &out, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_topic_try_publish(topic, &out, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_topic_publish_timeout(topic, &out, 1, NULL) == SLIPRING_CLOSED);
    CHECK(slipring_topic_try_publish_batch(topic, &out, 1, NULL) == SLIPRING_CLOSED);
    memset(&handler, 0, sizeof handler);
    handler.handle = handle;
    handler.user = &freed_handlers;
    handler.user_free = freed;
    CHECK(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), NULL, &handler,
                                            &no_handler) == SLIPRING_CLOSED);
    CHECK(no_handler == NULL && freed_handlers == 1);
    memset(&batch_handler, 0, sizeof batch_handler);
    batch_handler.handle = handle_all;
    batch_handler.user = &freed_handlers;
    batch_handler.user_free = freed;
    CHECK(slipring_broker_subscribe_batch_handler(broker, SLIPRING_TEXT("a"), NULL, &batch_handler,
                                                  &no_handler) == SLIPRING_CLOSED);
    CHECK(no_handler == NULL && freed_handlers == 2);
    while ((status = slipring_subscription_recv(sub, &message)) == SLIPRING_OK) {
    }
    CHECK(status == SLIPRING_CLOSED);
    OK(slipring_subscription_wait(sub, SLIPRING_FOREVER));
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_CLOSED);
    CHECK(slipring_subscription_recv_timeout(sub, 1, &message) == SLIPRING_CLOSED);
    CHECK(slipring_subscription_recv_batch(sub, 9, &messages, &count) == SLIPRING_CLOSED);
    CHECK(slipring_subscription_try_recv_batch(sub, 9, &messages, &count) == SLIPRING_CLOSED);
    CHECK(slipring_subscription_poll(sub, 9, nothing, NULL, &count) == SLIPRING_CLOSED);
    CHECK(messages == NULL && count == 0);
    OK(slipring_subscription_event_fd(sub, &fd));
    CHECK(readable(fd));
    after_close_there_is_no_settling(broker);
    /* Looking around goes on. */
    OK(slipring_subscription_queued(sub, &queued));
    OK(slipring_broker_metrics(broker, &metrics, sizeof metrics));
    OK(slipring_topic_name(topic, &name));
    CHECK(queued == 0 && SAME(name.data, name.len, "t"));
}

int main(void) {
    slipring_broker *broker = open_broker();
    slipring_topic *topic = NULL;
    slipring_subscription *sub = NULL;
    slipring_subscription_options options;

    CHECK(slipring_last_error(NULL, 0) == 0 && slipring_last_error_position() == SIZE_MAX);
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("t"), &topic));
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_MOST_ONCE;
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), &options, &sub));
    null_is_never_looked_at(broker, topic, sub);
    descriptions_say_their_size(broker);
    what_is_wrong_is_said(broker, topic);
    user_data_is_let_go_of_also_on_failure(broker);
    after_close(broker, topic, sub);
    slipring_topic_free(&topic);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
    return finish("wrong");
}
