/* A broker with a directory: what is there again when it is opened the next time. */
#include "check.h"

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
    CHECK(SAME(message.payload, message.payload_len, "one"));
    OK(slipring_ack(&message, 1, NULL));
    slipring_subscription_free(&sub);
    OK(slipring_broker_close(broker, 0, &report));
    CHECK(report.store_failed == 0);
    slipring_broker_free(&broker);

    broker = open_in(dir);
    sub = worker(broker);
    OK(slipring_subscription_recv(sub, &message));
    CHECK(SAME(message.payload, message.payload_len, "two") && message.offset == 1);
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
        if (message.topic.len == strlen("jobs/kill")) {
            snprintf(payload, sizeof payload, "%d", at++);
            CHECK(message.payload_len == strlen(payload) &&
                  memcmp(message.payload, payload, message.payload_len) == 0);
        }
        OK(slipring_ack(&message, 1, NULL));
    }
    slipring_subscription_free(&sub);
    slipring_broker_free(&broker);
}

int main(void) {
    char dir[] = "/tmp/slipring-durable-XXXXXX";
    char command[64];
    CHECK(mkdtemp(dir) != NULL);
    /* Before there are threads. */
    a_killed_process_loses_nothing(dir);
    what_need_not_wait_for_the_disk_says_so_until_it_is_flushed(dir);
    a_directory_belongs_to_one_broker(dir);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK(system(command) == 0 && mkdir(dir, 0700) == 0);
    what_was_published_and_not_settled_is_there_again(dir);
    the_sizes_of_a_directory_can_be_set(dir);
    CHECK(system(command) == 0);
    return finish("durable");
}
