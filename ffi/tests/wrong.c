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

static void nothing(void *user, const slipring_message *message) { (void)user, (void)message; }
static int32_t handle(void *user, const slipring_message *message) {
    (void)user, (void)message;
    return 0;
}
static void freed(void *user) { ++*(int *)user; }

static const size_t TOO_LONG = (size_t)-1;

static void null_is_never_looked_at(slipring_broker *broker, slipring_topic *topic,
                                    slipring_subscription *sub) {
    slipring_topic *no_topic = NULL;
    slipring_subscription *no_sub = NULL;
    slipring_handler_subscription *no_handler = NULL;
    slipring_loan *loan = NULL;
    slipring_ticket *ticket = NULL;
    slipring_kept *kept = NULL;
    slipring_text *words = NULL;
    slipring_text_view view;
    slipring_message message;
    slipring_new_message out;
    slipring_metrics metrics;
    slipring_subscription_metrics figures;
    slipring_broker_options options;
    slipring_subscription_options sub_options;
    slipring_handler handler;
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

    INVALID(slipring_message_attribute(NULL, SLIPRING_TEXT("a"), &view));
    INVALID(slipring_message_attribute(&message, SLIPRING_TEXT("a"), &view));
    INVALID(slipring_message_attributes(NULL, NULL, 0, &count));
    INVALID(slipring_message_keep(NULL, &kept));
    INVALID(slipring_message_keep(&message, &kept));
    CHECK(slipring_message_id(NULL, NULL, 0) == 0);
    INVALID(slipring_kept_message(NULL, &message));
    INVALID(slipring_text_get(NULL, &view));

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
    CHECK(sub == NULL && handled == NULL);
}

static void after_close(slipring_broker *broker, slipring_topic *topic,
                        slipring_subscription *sub) {
    slipring_new_message out;
    slipring_message message;
    slipring_topic *none = NULL;
    slipring_subscription *no_sub = NULL;
    slipring_handler_subscription *no_handler = NULL;
    slipring_handler handler;
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

    CHECK(slipring_last_error(NULL, 0) == 0 && slipring_last_error_position() == SIZE_MAX);
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("t"), &topic));
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("t"), NULL, &sub));
    null_is_never_looked_at(broker, topic, sub);
    what_is_wrong_is_said(broker, topic);
    user_data_is_let_go_of_also_on_failure(broker);
    after_close(broker, topic, sub);
    slipring_topic_free(&topic);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
    return finish("wrong");
}
