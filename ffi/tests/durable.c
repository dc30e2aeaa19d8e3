/* A broker with a directory: what is there again when it is opened the next time. */
#include "check.h"
#include "scratch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static slipring_broker_options in_directory(const char *dir) {
    slipring_broker_options options;
    OK(slipring_broker_options_init(&options, sizeof options));
    CHECK(options.dir == NULL && options.sync == SLIPRING_SYNC_ALWAYS && options.shards == 0);
    options.dir = dir;
    options.dir_len = strlen(dir);
    return options;
}

static slipring_broker *open_in(const char *dir) {
    slipring_broker_options options = in_directory(dir);
    slipring_broker *broker = NULL;
    OK(slipring_broker_open(&options, &broker));
    return broker;
}

static slipring_subscription *worker(const slipring_broker *broker) {
    slipring_subscription_options options;
    slipring_subscription *sub = NULL;
    OK(slipring_subscription_options_init(&options, sizeof options));
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    options.name = "worker";
    options.name_len = strlen("worker");
    options.start = SLIPRING_START_EARLIEST;
    options.visibility_timeout_ns = SLIPRING_SECONDS(600);
    OK(slipring_broker_subscribe(broker, SLIPRING_TEXT("jobs/*"), &options, &sub));
    return sub;
}

static void publish(const slipring_broker *broker, const char *payload, uint32_t durable) {
    slipring_receipt receipt;
    OK(slipring_broker_publish(broker, SLIPRING_TEXT("jobs/mail"), (const uint8_t *)payload,
                               strlen(payload), &receipt));
    CHECK(receipt.durable == durable);
}

static void what_was_published_and_not_settled_is_there_again(const char *dir) {
    slipring_broker *broker = open_in(dir);
    slipring_subscription *sub = worker(broker);
    slipring_message message;
    slipring_close_report report;
    publish(broker, "one", 1);
    publish(broker, "two", 1);
    OK(slipring_subscription_recv(sub, &message));
    CHECK(PAYLOAD_IS(&message, "one"));
    OK(slipring_ack(&message, 1, NULL));
    slipring_subscription_free(&sub);
    OK(slipring_broker_close(broker, 0, &report));
    CHECK(report.store_failed == 0);
    slipring_broker_free(&broker);

    broker = open_in(dir);
    sub = worker(broker);
    OK(slipring_subscription_recv(sub, &message));
    CHECK(PAYLOAD_IS(&message, "two") && slipring_message_offset(&message) == 1);
    OK(slipring_ack(&message, 1, NULL));
    CHECK(slipring_subscription_try_recv(sub, &message) == SLIPRING_EMPTY);
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void a_directory_belongs_to_one_broker(const char *dir) {
    slipring_broker *broker = open_in(dir);
    slipring_broker *other = NULL;
    slipring_broker_options options = in_directory(dir);
    char why[256];
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ELOCKED && other == NULL);
    slipring_broker_free(&broker);
    options.shards = 3;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_EINCOMPATIBLE && other == NULL);
    options.shards = 0;
    options.dir = "/dev/null";
    options.dir_len = strlen("/dev/null");
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ESTORE && other == NULL);
    slipring_last_error(why, sizeof why);
    CHECK(strstr(why, "/dev/null: ") != NULL);
    options.dir_len = (size_t)-1;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_EINVAL);
    options = in_directory(dir);
    options.sync = 9;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ERANGE);
    options.sync = SLIPRING_SYNC_OS;
    options.on_damage = 9;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ERANGE);
    options = in_directory(dir);
    options.segment_bytes = 1000;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ERANGE);
    slipring_last_error(why, sizeof why);
    CHECK(strstr(why, "segment_bytes must be in 65536..=1073741824") != NULL);
    options.segment_bytes = 1 << 20;
    options.preallocate_bytes = (1 << 30) + 1;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ERANGE);
    options.preallocate_bytes = 0;
    options.reserve_bytes = UINT64_MAX;
    CHECK(slipring_broker_open(&options, &other) == SLIPRING_ERANGE);
}

static long size_of(const char *dir, const char *name) {
    char path[256];
    struct stat file;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &file) == 0 ? (long)file.st_size : -1;
}

static void the_sizes_of_a_directory_can_be_set(const char *dir) {
    char inside[256];
    slipring_metrics metrics;
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    snprintf(inside, sizeof inside, "%s/small", dir);
    options = in_directory(inside);
    options.reserve_bytes = 8192;
    options.segment_bytes = 64 << 10;
    options.preallocate_bytes = 16 << 10;
    OK(slipring_broker_open(&options, &broker));
    publish(broker, "one", 1);
    CHECK(size_of(inside, "reserve") == 8192);
    CHECK(size_of(inside, "shard-000/00000000000000000000.log") <= 64 << 10);
    OK(slipring_broker_metrics(broker, &metrics, sizeof metrics));
    CHECK(metrics.stored == 1 && metrics.stored_bytes > 0 && metrics.unsynced == 0);
    slipring_broker_free(&broker);
    options.reserve_bytes = 0;
    OK(slipring_broker_open(&options, &broker));
    CHECK(size_of(inside, "reserve") == 0);
    slipring_broker_free(&broker);
}

static void what_need_not_wait_for_the_disk_says_so_until_it_is_flushed(const char *dir) {
    slipring_broker_options options = in_directory(dir);
    slipring_broker *broker = NULL;
    options.sync = SLIPRING_SYNC_INTERVAL;
    options.sync_interval_ns = SLIPRING_SECONDS(3600);
    OK(slipring_broker_open(&options, &broker));
    publish(broker, "three", 0);
    OK(slipring_broker_flush(broker));
    CHECK(slipring_broker_flush(NULL) == SLIPRING_EINVAL);
    OK(slipring_broker_set_retention(broker, SLIPRING_TEXT("jobs/mail"), SLIPRING_FOREVER, 0));
    CHECK(slipring_broker_set_retention(broker, SLIPRING_TEXT("none"), 1, 1) ==
          SLIPRING_ENOTOPIC);
    CHECK(slipring_broker_set_retention(NULL, SLIPRING_TEXT("none"), 1, 1) == SLIPRING_EINVAL);
    slipring_broker_free(&broker);
    broker = open_broker();
    OK(slipring_broker_flush(broker));
    slipring_broker_free(&broker);
}

static slipring_receipt publish_as(const slipring_topic *topic, const char *id, const char *key) {
    slipring_new_message message;
    slipring_receipt receipt;
    memset(&message, 0, sizeof message);
    message.id = text(id);
    message.key = text(key);
    OK(slipring_topic_publish_message(topic, &message, &receipt));
    return receipt;
}

static void is_again(slipring_receipt again, slipring_receipt first) {
    CHECK(!first.duplicate && again.duplicate == 1);
    CHECK(again.partition == first.partition && again.offset == first.offset);
    CHECK(again.matched == 0 && again.enqueued == 0 && again.dropped == 0);
}

/* Every way to publish, in one process and the next. */
static void what_is_published_again_within_the_window_is_stored_once(const char *dir) {
    slipring_broker *broker = open_in(dir);
    slipring_topic *topic = NULL;
    slipring_new_message messages[3];
    slipring_receipt first, again;
    slipring_batch_receipt batch;
    slipring_ticket *ticket = NULL;
    slipring_loan *loan = NULL;
    uint8_t *payload;
    const slipring_text_view name = text("orders");
    OK(slipring_broker_create_topic(broker, name.data, name.len, 3, &topic));
    CHECK(slipring_broker_set_dedup_window(broker, name.data, name.len, 1, 0) == SLIPRING_ERANGE);
    CHECK(slipring_broker_set_dedup_window(broker, SLIPRING_TEXT("none"), SLIPRING_SECONDS(60), 0) ==
          SLIPRING_ENOTOPIC);
    CHECK(slipring_broker_set_dedup_window(NULL, name.data, name.len, SLIPRING_SECONDS(60), 0) ==
          SLIPRING_EINVAL);
    CHECK(!publish_as(topic, "x", "a").duplicate && !publish_as(topic, "x", "a").duplicate);
    OK(slipring_broker_set_dedup_window(broker, name.data, name.len, SLIPRING_SECONDS(60), 2));
    OK(slipring_broker_set_retention(broker, name.data, name.len, SLIPRING_FOREVER, 0));
    first = publish_as(topic, "x", "a");
    CHECK(first.durable == 1);
    is_again(publish_as(topic, "x", "b"), first);
    memset(messages, 0, sizeof messages);
    messages[0].id = messages[2].id = text("x");
    messages[1].id = text("y");
    OK(slipring_topic_try_publish(topic, &messages[0], &again));
    is_again(again, first);
    OK(slipring_topic_publish_timeout(topic, &messages[0], SLIPRING_SECONDS(1), &again));
    is_again(again, first);
    OK(slipring_topic_publish_ticket(topic, &messages[0], &ticket));
    OK(slipring_ticket_wait(&ticket, &again));
    is_again(again, first);
    OK(slipring_topic_loan(topic, &messages[0], 8, &loan, &payload));
    OK(slipring_loan_commit(&loan, &again));
    is_again(again, first);
    CHECK(loan == NULL);
    OK(slipring_topic_publish_batch(topic, messages, 3, &batch));
    CHECK(batch.published == 3 && batch.duplicates == 2 && batch.durable == 1);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);

    broker = open_in(dir);
    OK(slipring_broker_topic(broker, name.data, name.len, &topic));
    is_again(publish_as(topic, "x", "c"), first);
    CHECK(!publish_as(topic, "z", "a").duplicate);
    CHECK(!publish_as(topic, "x", "a").duplicate); /* The third id back. */
    OK(slipring_broker_set_dedup_window(broker, name.data, name.len, 0, 0));
    CHECK(!publish_as(topic, "x", "a").duplicate);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

static void topics_that_are_created_by_publishing_have_the_window_of_the_options(void) {
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    slipring_topic *topic = NULL;
    OK(slipring_broker_options_init(&options, sizeof options));
    CHECK(options.dedup_window_ns == 0 && options.dedup_ids == 0);
    options.dedup_window_ns = 1;
    CHECK(slipring_broker_open(&options, &broker) == SLIPRING_ERANGE);
    options.dedup_window_ns = SLIPRING_SECONDS(60);
    options.dedup_ids = 1;
    OK(slipring_broker_open(&options, &broker));
    OK(slipring_broker_topic(broker, SLIPRING_TEXT("a"), &topic));
    CHECK(!publish_as(topic, "x", "k").duplicate && publish_as(topic, "x", "k").duplicate);
    CHECK(!publish_as(topic, "y", "k").duplicate && !publish_as(topic, "x", "k").duplicate);
    slipring_topic_free(&topic);
    slipring_broker_free(&broker);
}

/* A child that dies without a word leaves all that it was told is stored. */
static void a_killed_process_loses_nothing(const char *dir) {
    slipring_broker *broker;
    slipring_subscription *sub;
    slipring_message message;
    char payload[16];
    int at;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        slipring_broker_options options = in_directory(dir);
        options.sync = SLIPRING_SYNC_OS;
        broker = NULL;
        if (slipring_broker_open(&options, &broker) != SLIPRING_OK)
            _exit(1);
        for (at = 0; at < 1000; ++at) {
            snprintf(payload, sizeof payload, "%d", at);
            if (slipring_broker_publish(broker, SLIPRING_TEXT("jobs/kill"),
                                        (const uint8_t *)payload, strlen(payload),
                                        NULL) != SLIPRING_OK)
                _exit(1);
        }
        _exit(0);
    }
    CHECK(waitpid(child, &at, 0) == child && WIFEXITED(at) && WEXITSTATUS(at) == 0);
    broker = open_in(dir);
    sub = worker(broker);
    for (at = 0; at < 1000;) {
        OK(slipring_subscription_recv(sub, &message));
        if (slipring_message_topic(&message).len == strlen("jobs/kill")) {
            snprintf(payload, sizeof payload, "%d", at++);
            CHECK(slipring_message_payload_len(&message) == strlen(payload));
            CHECK(memcmp(slipring_message_payload(&message), payload, strlen(payload)) == 0);
        }
        OK(slipring_ack(&message, 1, NULL));
    }
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

static void an_old_file_is_followed_by_another(const char *dir) {
    char inside[256];
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    slipring_test_clock *clock = NULL;
    OK(slipring_test_clock_new(&clock));
    snprintf(inside, sizeof inside, "%s/aging", dir);
    options = in_directory(inside);
    CHECK(options.segment_age_ns == SLIPRING_SECONDS(21 * 3600) && options.clock == NULL);
    options.segment_age_ns = SLIPRING_SECONDS(60);
    options.clock = clock;
    OK(slipring_broker_open(&options, &broker));
    publish(broker, "one", 1);
    CHECK(size_of(inside, "shard-000/00000000000000000001.log") < 0);
    OK(slipring_test_clock_advance(clock, SLIPRING_SECONDS(61)));
    while (size_of(inside, "shard-000/00000000000000000001.log") < 0)
        ; /* its thread makes it */
    slipring_broker_free(&broker);
    slipring_test_clock_free(&clock);
    CHECK(clock == NULL);
}

/* Puts the folder in the place of the log's descriptors, from which nothing can be read then, and
   keeps them in `kept`; puts them back where that is done already. */
static void toggle_reading(const char *dir, int kept[256]) {
    char link[64], path[512];
    int folder = open(dir, O_RDONLY);
    CHECK(folder >= 0);
    for (int fd = 0; fd < 256; ++fd) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(link, path, sizeof path - 1);
        path[len > 0 ? len : 0] = 0;
        if (kept[fd] > 0) {
            CHECK(dup2(kept[fd], fd) == fd);
            close(kept[fd]);
            kept[fd] = 0;
        } else if (strstr(path, dir) == path && strstr(path, "/shard-000/") != NULL) {
            kept[fd] = fcntl(fd, F_DUPFD, 256);
            CHECK(kept[fd] >= 256 && dup2(folder, fd) == fd);
        }
    }
    close(folder);
}

static int unreadable, readable_again, handled;

static int begins(const char *text, size_t len, const char *with) {
    return len >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

static void count_event(void *user, uint32_t level, const char *text, size_t len) {
    (void)user;
    if (begins(text, len, "messages for a handler cannot be read")) {
        CHECK(level == SLIPRING_LOG_ERROR);
        __atomic_add_fetch(&unreadable, 1, __ATOMIC_SEQ_CST);
    }
    if (begins(text, len, "messages for a handler can be read again"))
        __atomic_add_fetch(&readable_again, 1, __ATOMIC_SEQ_CST);
}

static int32_t count_message(void *user, const slipring_message *message) {
    (void)user;
    (void)message;
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
    return SLIPRING_SUCCESS;
}

static void a_handler_that_cannot_read_is_told_of_once_and_goes_on_when_it_can(const char *dir) {
    static uint8_t payload[16 << 10];
    int kept[256] = {0};
    char inside[256];
    slipring_broker_options options;
    slipring_subscription_options early;
    slipring_handler handler;
    slipring_handler_subscription *sub = NULL;
    slipring_broker *broker = NULL;
    slipring_test_clock *clock = NULL;
    OK(slipring_test_clock_new(&clock));
    snprintf(inside, sizeof inside, "%s/unreadable", dir);
    options = in_directory(inside);
    options.sync = SLIPRING_SYNC_OS;
    options.memory_budget_bytes = 256 << 10;
    options.clock = clock;
    options.log_fn = count_event;
    OK(slipring_broker_open(&options, &broker));
    for (int at = 0; at < 64; ++at)
        OK(slipring_broker_publish(broker, SLIPRING_TEXT("a"), payload, sizeof payload, NULL));
    OK(slipring_subscription_options_init(&early, sizeof early));
    early.start = SLIPRING_START_EARLIEST;
    memset(&handler, 0, sizeof handler);
    handler.handle = count_message;
    toggle_reading(inside, kept);
    OK(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("a"), &early, &handler, &sub));
    while (__atomic_load_n(&unreadable, __ATOMIC_SEQ_CST) == 0)
        OK(slipring_test_clock_advance(clock, SLIPRING_SECONDS(1)));
    for (int at = 0; at < 1000; ++at)
        OK(slipring_test_clock_advance(clock, SLIPRING_SECONDS(1)));
    CHECK(__atomic_load_n(&handled, __ATOMIC_SEQ_CST) == 0);
    toggle_reading(inside, kept);
    while (__atomic_load_n(&readable_again, __ATOMIC_SEQ_CST) == 0)
        OK(slipring_test_clock_advance(clock, SLIPRING_SECONDS(1)));
    CHECK(__atomic_load_n(&handled, __ATOMIC_SEQ_CST) == 64);
    CHECK(__atomic_load_n(&unreadable, __ATOMIC_SEQ_CST) == 1);
    slipring_handler_subscription_free(&sub);
    slipring_broker_free(&broker);
    slipring_test_clock_free(&clock);
}

int main(void) {
    char dir[SCRATCH_BYTES];
    make_scratch(dir);
    /* Before there are threads. */
    a_killed_process_loses_nothing(dir);
    what_need_not_wait_for_the_disk_says_so_until_it_is_flushed(dir);
    a_directory_belongs_to_one_broker(dir);
    remove_scratch(dir);
    CHECK(mkdir(dir, 0700) == 0);
    what_was_published_and_not_settled_is_there_again(dir);
    what_is_published_again_within_the_window_is_stored_once(dir);
    topics_that_are_created_by_publishing_have_the_window_of_the_options();
    the_sizes_of_a_directory_can_be_set(dir);
    an_old_file_is_followed_by_another(dir);
    a_handler_that_cannot_read_is_told_of_once_and_goes_on_when_it_can(dir);
    remove_scratch(dir);
    return finish("durable");
}
