/* A month of departures, published by two threads to six subscriptions at once.

       cc -Iinclude examples/c/flights.c -Ltarget/release -lslipring -lpthread -o flights
       LD_LIBRARY_PATH=target/release ./flights

   | subscription | what it shows                                                |
   |--------------|--------------------------------------------------------------|
   | jfk          | a handler on a pattern                                       |
   | cancelled    | a handler with a filter                                      |
   | one-topic    | a consumer that pulls, on the topic of the first line        |
   | board        | a slow consumer that wants only the newest                   |
   | on-time      | a handler that fails on departures more than two hours late  |
   | late         | one that comes when all is over, and asks for the last 100   |

   The whole input is read first, so that the table tells of the broker and not of JSON. */
#define _POSIX_C_SOURCE 200809L

#include "json.h"
#include "slipring.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PUBLISHERS = 2, BOARD_LINES = 32, LATE_BY_MINUTES = 120, MOST_ATTRIBUTES = 8 };

static void fail(const char *what) {
    char why[256];
    slipring_last_error(why, sizeof why);
    fprintf(stderr, "flights: %s: %s\n", what, why);
    exit(1);
}

static void must(slipring_status status, const char *what) {
    if (status == SLIPRING_OK)
        return;
    if (status > 0) {
        fprintf(stderr, "flights: %s: %s\n", what, slipring_status_str(status));
        exit(1);
    }
    fail(what);
}

static void *allocated(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "flights: no memory\n");
        exit(1);
    }
    return memory;
}

static uint64_t now_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* ---- The table: what each subscription got, counted where it got it ---- */

typedef struct {
    const char *name, *because;
    pthread_mutex_t lock;
    uint64_t delivered, dropped, failed, since_us, last_us;
    /* Of messages that were published after the subscription began. */
    uint64_t *latencies_us;
    size_t latencies, room;
} Row;

static void row_begin(Row *row, const char *name) {
    memset(row, 0, sizeof *row);
    row->name = name;
    row->because = "-";
    pthread_mutex_init(&row->lock, NULL);
    row->since_us = now_us(CLOCK_REALTIME);
}

static void row_got(Row *row, const slipring_message *message) {
    const uint64_t published_us = slipring_message_published_us(message);
    pthread_mutex_lock(&row->lock);
    row->delivered++;
    row->last_us = now_us(CLOCK_REALTIME);
    if (published_us >= row->since_us) {
        if (row->latencies == row->room) {
            row->room = row->room > 0 ? row->room * 2 : 1024;
            row->latencies_us = (uint64_t *)allocated(
                realloc(row->latencies_us, row->room * sizeof *row->latencies_us));
        }
        row->latencies_us[row->latencies++] =
            row->last_us > published_us ? row->last_us - published_us : 0;
    }
    pthread_mutex_unlock(&row->lock);
}

static void row_lost(Row *row, uint64_t count, const char *because) {
    pthread_mutex_lock(&row->lock);
    row->dropped += count;
    row->because = because;
    pthread_mutex_unlock(&row->lock);
}

static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The latency that `percent` of the messages did not exceed. */
static void latency(const Row *row, size_t percent, char text[21]) {
    size_t rank = (row->latencies * percent + 99) / 100;
    if (rank == 0)
        strcpy(text, "-");
    else
        snprintf(text, 21, "%" PRIu64, row->latencies_us[rank - 1]);
}

static void row_print(Row *row) {
    char p50[21], p99[21];
    uint64_t us = row->last_us > row->since_us ? row->last_us - row->since_us : 1;
    if (row->latencies > 0)
        qsort(row->latencies_us, row->latencies, sizeof *row->latencies_us, by_value);
    latency(row, 50, p50);
    latency(row, 99, p99);
    printf("%-12s %8" PRIu64 " %9" PRIu64 " %8" PRIu64 " %-8s %7" PRIu64 " %8s %8s %10.0f\n",
           row->name, row->delivered + row->dropped, row->delivered, row->dropped, row->because,
           row->failed, p50, p99, (double)row->delivered * 1e6 / (double)us);
    free(row->latencies_us);
    pthread_mutex_destroy(&row->lock);
}

/* ---- The input ---- */

typedef struct {
    size_t line;
    slipring_topic *topic;
    slipring_new_message message;
    slipring_attribute attributes[MOST_ATTRIBUTES];
} Flight;

typedef struct {
    char *text;
    Flight *flights;
    size_t len;
    uint64_t bad_lines;
} Input;

static slipring_text_view view(json_slice text) {
    slipring_text_view view;
    view.data = text.data;
    view.len = text.len;
    return view;
}

static int is(json_slice text, const char *literal) {
    return text.len == strlen(literal) && memcmp(text.data, literal, text.len) == 0;
}

static const char *read_attributes(json *in, Flight *flight) {
    json_slice key, value;
    int first = 1, more;
    while ((more = json_member(in, &key, &first)) > 0) {
        slipring_attribute *attribute = &flight->attributes[flight->message.attributes_len];
        if (flight->message.attributes_len == MOST_ATTRIBUTES)
            return "too many attributes";
        if (!json_string(in, &value))
            return "an attribute is not text";
        attribute->key = view(key);
        attribute->value = view(value);
        flight->message.attributes_len++;
    }
    return more < 0 ? "\"attributes\" is not an object" : NULL;
}

/* Reads a line; returns why it cannot be used, or NULL. */
static const char *read_flight(const slipring_broker *broker, json in, Flight *flight) {
    static char why[256];
    json_slice name, topic = {NULL, 0}, value;
    int first = 1, more;
    memset(flight, 0, sizeof *flight);
    while ((more = json_member(&in, &name, &first)) > 0) {
        const char *reason = NULL;
        if (is(name, "topic")) {
            reason = json_string(&in, &topic) ? NULL : "\"topic\" is not text";
        } else if (is(name, "key")) {
            json rest = in;
            if (json_value(&rest, &value) && is(value, "null"))
                in = rest;
            else if (json_string(&in, &value))
                flight->message.key = view(value);
            else
                reason = "\"key\" is not text";
        } else if (is(name, "attributes")) {
            reason = read_attributes(&in, flight);
        } else if (!json_value(&in, &value)) {
            reason = "not JSON";
        } else if (is(name, "payload")) {
            flight->message.payload = (const uint8_t *)value.data;
            flight->message.payload_len = value.len;
        }
        if (reason != NULL)
            return reason;
    }
    if (more < 0)
        return "not JSON";
    if (topic.data == NULL || flight->message.payload == NULL)
        return "no \"topic\" or no \"payload\"";
    /* Last, because this creates the topic. */
    if (slipring_broker_topic(broker, topic.data, topic.len, &flight->topic) == SLIPRING_OK)
        return NULL;
    slipring_last_error(why, sizeof why);
    return why;
}

static void name_bad_line(size_t line, const char *reason) {
    fprintf(stderr, "flights: line %lu: %s\n", (unsigned long)line, reason);
}

/* Reads all flights of a file. A line that cannot be used is named, and left out. */
static void read_input(const slipring_broker *broker, const char *path, Input *input) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t len = 0, room = 1 << 16, line = 0, flights = 0;
    char *at, *end;
    memset(input, 0, sizeof *input);
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    input->text = (char *)allocated(malloc(room));
    while ((len += fread(input->text + len, 1, room - len, file)) == room)
        input->text = (char *)allocated(realloc(input->text, room *= 2));
    if (ferror(file)) {
        perror(path);
        exit(1);
    }
    input->text[len] = '\0'; /* There is room: otherwise more would have been read. */
    if (file != stdin)
        fclose(file);
    for (at = input->text; at < input->text + len; at = end + 1) {
        json in;
        const char *reason;
        end = (char *)memchr(at, '\n', (size_t)(input->text + len - at));
        if (end == NULL)
            end = input->text + len;
        line++;
        in.at = at;
        in.end = end;
        if (strspn(at, " \t\r") >= (size_t)(end - at))
            continue;
        if (input->len == flights) {
            flights = flights > 0 ? flights * 2 : 1024;
            input->flights = (Flight *)allocated(
                realloc(input->flights, flights * sizeof *input->flights));
        }
        reason = read_flight(broker, in, &input->flights[input->len]);
        if (reason == NULL) {
            input->flights[input->len++].line = line;
        } else {
            name_bad_line(line, reason);
            input->bad_lines++;
        }
    }
}

/* ---- Consumers ---- */

static int32_t count_it(void *user, const slipring_message *message) {
    row_got((Row *)user, message);
    return 0;
}

/* Fails on a departure that was late, or that cannot be read. */
static int32_t expect_on_time(void *user, const slipring_message *message) {
    json in;
    json_slice name, value;
    int first = 1, more;
    const size_t len = slipring_message_payload_len(message);
    char *copy = (char *)allocated(malloc(len + 1));
    long delay = 0;
    row_got((Row *)user, message);
    memcpy(copy, slipring_message_payload(message), len);
    copy[len] = '\0';
    in.at = copy;
    in.end = copy + len;
    while ((more = json_member(&in, &name, &first)) > 0 && json_value(&in, &value))
        if (is(name, "delay") && !is(value, "null"))
            delay = strtol(value.data, NULL, 10);
    free(copy);
    return more != 0 ? -1 : delay > LATE_BY_MINUTES ? (int32_t)delay : 0;
}

static void count_failure(void *user, const slipring_message *message, int32_t returned,
                          const char *reason, size_t reason_len) {
    Row *failing = (Row *)user;
    (void)message, (void)returned, (void)reason, (void)reason_len;
    pthread_mutex_lock(&failing->lock);
    failing->failed++;
    pthread_mutex_unlock(&failing->lock);
}

typedef struct {
    slipring_subscription *subscription;
    Row *row;
} Consumer;

/* Receives until the broker closes, waiting for each message. */
static void *receive_all(void *user) {
    Consumer *self = (Consumer *)user;
    slipring_message message;
    slipring_status status;
    while ((status = slipring_subscription_recv(self->subscription, &message)) != SLIPRING_CLOSED) {
        if (status == SLIPRING_OK)
            row_got(self->row, &message);
        else if (status == SLIPRING_LAGGED)
            row_lost(self->row, slipring_subscription_lost(self->subscription), "expired");
        else
            must(status, "recv");
    }
    return NULL;
}

static void show(void *user, const slipring_message *messages, size_t count) {
    size_t i;
    for (i = 0; i < count; i++)
        row_got((Row *)user, &messages[i]);
}

/* Takes what is queued once in a period, as a board of departures would that is drawn anew: what
   has not been shown by then and does not fit is of no interest any more. */
static void *show_newest(void *user) {
    Consumer *self = (Consumer *)user;
    const struct timespec period = {0, 16000000};
    slipring_status status;
    for (;;) {
        status = slipring_subscription_poll(self->subscription, BOARD_LINES, show, self->row, NULL);
        if (status == SLIPRING_CLOSED)
            return NULL;
        if (status == SLIPRING_LAGGED)
            row_lost(self->row, slipring_subscription_lost(self->subscription), "overflow");
        else if (status == SLIPRING_OK || status == SLIPRING_EMPTY)
            nanosleep(&period, NULL);
        else
            must(status, "poll");
    }
}

/* ---- Publishers ---- */

typedef struct {
    const Input *input;
    size_t share;
    uint64_t messages, matched, dropped, bad_lines;
} Publisher;

/* Each topic is published by one thread, so that its flights keep their order. */
static size_t share_of(const slipring_topic *topic) {
    slipring_text_view name;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    size_t i;
    must(slipring_topic_name(topic, &name), "topic name");
    for (i = 0; i < name.len; i++)
        hash = (hash ^ (uint8_t)name.data[i]) * 1099511628211u;
    return (size_t)(hash % PUBLISHERS);
}

static void *publish(void *user) {
    Publisher *self = (Publisher *)user;
    size_t i;
    for (i = 0; i < self->input->len; i++) {
        const Flight *flight = &self->input->flights[i];
        slipring_new_message message = flight->message;
        slipring_receipt receipt;
        slipring_status status;
        if (share_of(flight->topic) != self->share)
            continue;
        message.attributes = flight->attributes;
        status = slipring_topic_publish_message(flight->topic, &message, &receipt);
        if (status == SLIPRING_EMESSAGE) {
            name_bad_line(flight->line, "breaks a limit");
            self->bad_lines++;
            continue;
        }
        must(status, "publish");
        self->messages++;
        self->matched += receipt.matched;
        self->dropped += receipt.dropped;
    }
    return NULL;
}

int main(int argc, char **argv) {
    enum { JFK, CANCELLED, ONE_TOPIC, BOARD, ON_TIME, LATE, ROWS };
    static const char *const names[ROWS] = {"jfk",   "cancelled", "one-topic",
                                            "board", "on-time",   "late"};
    const char *path = "examples/data/flights-2013-01.ndjson";
    static const char cancelled[] = "attributes.status = \"cancelled\"";
    Row rows[ROWS];
    slipring_broker *broker = NULL;
    slipring_handler_subscription *handlers[3] = {NULL, NULL, NULL};
    slipring_subscription_options lossless, options;
    slipring_text_view first_topic;
    slipring_handler handler;
    slipring_close_report left;
    Consumer one_topic = {NULL, &rows[ONE_TOPIC]}, board = {NULL, &rows[BOARD]};
    Consumer late = {NULL, &rows[LATE]};
    pthread_t one_topic_thread, board_thread, threads[PUBLISHERS];
    Publisher publishers[PUBLISHERS];
    uint64_t messages = 0, matched = 0, dropped = 0, bad_lines, began, took;
    Input input;
    size_t i;

    if (argc == 3 && strcmp(argv[1], "--file") == 0) {
        path = argv[2];
    } else if (argc != 1) {
        fprintf(stderr, "usage: flights [--file PATH]   ('-' for the standard input)\n");
        return 2;
    }
    must(slipring_broker_open(NULL, &broker), "open");
    read_input(broker, path, &input);
    bad_lines = input.bad_lines;

    /* Publishers wait for a subscription that is behind: it misses nothing. */
    must(slipring_subscription_options_init(&lossless, sizeof lossless), "options");
    lossless.delivery = SLIPRING_AT_MOST_ONCE;
    lossless.overflow = SLIPRING_BLOCK;
    memset(&handler, 0, sizeof handler);

    row_begin(&rows[JFK], names[JFK]);
    handler.handle = count_it;
    handler.user = &rows[JFK];
    must(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("flights/JFK/*/*"),
                                           &lossless, &handler, &handlers[0]),
         "subscribe");

    row_begin(&rows[CANCELLED], names[CANCELLED]);
    options = lossless;
    options.filter = cancelled;
    options.filter_len = strlen(cancelled);
    handler.user = &rows[CANCELLED];
    must(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("flights/**"), &options,
                                           &handler, &handlers[1]),
         "subscribe");

    row_begin(&rows[ONE_TOPIC], names[ONE_TOPIC]);
    first_topic.data = "flights/JFK/LAX/UA";
    first_topic.len = strlen(first_topic.data);
    if (input.len > 0)
        must(slipring_topic_name(input.flights[0].topic, &first_topic), "topic name");
    must(slipring_broker_subscribe(broker, first_topic.data, first_topic.len, &lossless,
                                   &one_topic.subscription),
         "subscribe");

    row_begin(&rows[BOARD], names[BOARD]);
    options = lossless;
    options.overflow = SLIPRING_DROP_OLDEST;
    options.capacity_messages = BOARD_LINES;
    must(slipring_broker_subscribe(broker, SLIPRING_TEXT("**"), &options, &board.subscription),
         "subscribe");

    row_begin(&rows[ON_TIME], names[ON_TIME]);
    handler.handle = expect_on_time;
    handler.failed = count_failure;
    handler.user = &rows[ON_TIME];
    must(slipring_broker_subscribe_handler(broker, SLIPRING_TEXT("**"), &lossless, &handler,
                                           &handlers[2]),
         "subscribe");

    if (pthread_create(&one_topic_thread, NULL, receive_all, &one_topic) != 0 ||
        pthread_create(&board_thread, NULL, show_newest, &board) != 0)
        return 1;
    began = now_us(CLOCK_MONOTONIC);
    for (i = 0; i < PUBLISHERS; i++) {
        memset(&publishers[i], 0, sizeof publishers[i]);
        publishers[i].input = &input;
        publishers[i].share = i;
        if (pthread_create(&threads[i], NULL, publish, &publishers[i]) != 0)
            return 1;
    }
    for (i = 0; i < PUBLISHERS; i++) {
        pthread_join(threads[i], NULL);
        messages += publishers[i].messages;
        matched += publishers[i].matched;
        dropped += publishers[i].dropped;
        bad_lines += publishers[i].bad_lines;
    }
    took = now_us(CLOCK_MONOTONIC) - began;

    row_begin(&rows[LATE], names[LATE]);
    must(slipring_subscription_options_init(&options, sizeof options), "options");
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.start = SLIPRING_START_LAST;
    options.start_value = 100;
    must(slipring_broker_subscribe(broker, SLIPRING_TEXT("**"), &options, &late.subscription),
         "subscribe");

    /* Handlers finish what is queued; consumers that pull get it, and are then told CLOSED. */
    must(slipring_broker_close(broker, SLIPRING_SECONDS(60), &left), "close");
    receive_all(&late);
    pthread_join(one_topic_thread, NULL);
    pthread_join(board_thread, NULL);
    if (left.unhandled > 0)
        fprintf(stderr, "flights: %" PRIu64 " messages were not handled in time\n", left.unhandled);

    for (i = 0; i < 3; i++)
        slipring_handler_subscription_free(&handlers[i]);
    slipring_subscription_free(&one_topic.subscription);
    slipring_subscription_free(&board.subscription);
    slipring_subscription_free(&late.subscription);
    printf("%-12s %8s %9s %8s %-8s %7s %8s %8s %10s\n", "subscription", "matched", "delivered",
           "dropped", "because", "failed", "p50 us", "p99 us", "messages/s");
    for (i = 0; i < ROWS; i++)
        row_print(&rows[i]);
    printf("\npublished %" PRIu64 " in %.1f ms: %.0f messages/s\n", messages, (double)took / 1e3,
           (double)messages * 1e6 / (double)(took > 0 ? took : 1));
    printf("receipts: matched %" PRIu64 ", dropped %" PRIu64 "\nbad lines: %" PRIu64 "\n", matched,
           dropped, bad_lines);
    for (i = 0; i < input.len; i++)
        slipring_topic_free(&input.flights[i].topic);
    free(input.flights);
    free(input.text);
    slipring_broker_free(&broker);
    return 0;
}
