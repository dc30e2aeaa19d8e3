/* A worker that sends mails, and loses none: jobs are acknowledged when they are done.

       cc -Iinclude examples/c/worker.c -Ltarget/release -lslipring -lpthread -o worker
       LD_LIBRARY_PATH=target/release ./worker [directory]

   The subscription has a name, so the jobs are there when the worker is not; with a directory, also
   when the broker is not. The first worker stops in the middle of its work, and the next one gets
   what that had taken and not settled. A mail server that is busy is asked again later; a job that
   can never be done goes to the dead letters, where somebody looks at it, mends the address, and
   sends it back. */
#include "slipring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 40, MOST = 8 };

static void must(slipring_status status, const char *what) {
    char why[256] = "";
    if (status == SLIPRING_OK)
        return;
    if (status < 0) /* What is no error leaves the last one as it was. */
        slipring_last_error(why, sizeof why);
    fprintf(stderr, "%s: %s%s%s\n", what, slipring_status_str(status), *why ? ": " : "", why);
    exit(1);
}

static int has(const slipring_message *job, const char *word) {
    size_t len = strlen(word), at;
    for (at = 0; at + len <= slipring_message_payload_len(job); at++)
        if (memcmp(slipring_message_payload(job) + at, word, len) == 0)
            return 1;
    return 0;
}

/* ---- The mail server, as far as this example knows one ---- */

typedef enum { SENT, BUSY, NO_ADDRESS } Answer;

/* Some servers are busy at first. An address without a domain is one only when somebody has put the
   domain into the book. */
static Answer send_mail(const slipring_message *job, int book_has_domain) {
    if (!has(job, "@") && !book_has_domain)
        return NO_ADDRESS;
    return has(job, "busy") && slipring_message_attempt(job) == 1 ? BUSY : SENT;
}

/* ---- The worker ---- */

typedef struct {
    slipring_subscription *jobs;
    int book_has_domain;
    unsigned sent, delayed, given_up, again;
} Worker;

/* Takes the place of whoever was the worker before. */
static void worker_begin(Worker *self, const slipring_broker *broker) {
    slipring_subscription_options options;
    must(slipring_subscription_options_init(&options, sizeof options), "options");
    options.delivery = SLIPRING_AT_LEAST_ONCE;
    options.name = "mailer";
    options.name_len = strlen(options.name);
    options.take_over = 1;
    options.visibility_timeout_ns = SLIPRING_SECONDS(60); /* Longer than a batch takes. */
    options.backoff_min_ns = SLIPRING_MILLISECONDS(10);
    memset(self, 0, sizeof *self);
    must(slipring_broker_subscribe(broker, SLIPRING_TEXT("jobs/mail"), &options, &self->jobs),
         "subscribe");
}

/* Takes some jobs, does them, and says what became of them: three calls for all of them together. */
static void worker_do_some(Worker *self) {
    const slipring_message *jobs;
    slipring_message by_answer[3][MOST];
    size_t counts[3] = {0, 0, 0}, count, i;
    must(slipring_subscription_recv_batch(self->jobs, MOST, &jobs, &count), "receive");
    for (i = 0; i < count; i++) {
        Answer answer = send_mail(&jobs[i], self->book_has_domain);
        by_answer[answer][counts[answer]++] = jobs[i];
        self->again += slipring_message_attempt(&jobs[i]) > 1;
    }
    must(slipring_ack(by_answer[SENT], counts[SENT], NULL), "ack");
    must(slipring_nack(by_answer[BUSY], counts[BUSY], SLIPRING_BACKOFF, NULL), "nack");
    must(slipring_dead_letter(by_answer[NO_ADDRESS], counts[NO_ADDRESS],
                              SLIPRING_TEXT("no such address"), NULL),
         "dead letter");
    self->sent += (unsigned)counts[SENT];
    self->delayed += (unsigned)counts[BUSY];
    self->given_up += (unsigned)counts[NO_ADDRESS];
}

/* ---- Who looks at dead letters ---- */

static void print_letters(const slipring_broker *broker) {
    slipring_letters *letters = NULL;
    const slipring_message *each;
    size_t count, i;
    must(slipring_broker_dead_letters(broker, SLIPRING_TEXT("$dlq/mailer"), NULL, 0, SIZE_MAX,
                                      &letters),
         "dead letters");
    must(slipring_letters_get(letters, &each, &count), "dead letters");
    for (i = 0; i < count; i++) {
        slipring_text_view topic, attempts, reason;
        must(slipring_message_attribute(&each[i], SLIPRING_TEXT(SLIPRING_DEAD_LETTER_TOPIC), &topic),
             "topic");
        must(slipring_message_attribute(&each[i], SLIPRING_TEXT(SLIPRING_DEAD_LETTER_ATTEMPTS),
                                        &attempts),
             "attempts");
        must(slipring_message_attribute(&each[i], SLIPRING_TEXT(SLIPRING_DEAD_LETTER_REASON),
                                        &reason),
             "reason");
        printf("dead letter: %.*s to %.*s: %.*s, attempts: %.*s\n", (int)topic.len, topic.data,
               (int)slipring_message_payload_len(&each[i]),
               (const char *)slipring_message_payload(&each[i]), (int)reason.len,
               reason.data, (int)attempts.len, attempts.data);
    }
    slipring_letters_free(&letters);
}

/* In the directory, or in memory where that is NULL. */
static slipring_broker *open_broker(const char *directory) {
    slipring_broker_options options;
    slipring_broker *broker = NULL;
    must(slipring_broker_options_init(&options, sizeof options), "options");
    if (directory != NULL) {
        options.dir = directory;
        options.dir_len = strlen(directory);
    }
    must(slipring_broker_open(&options, &broker), "open");
    return broker;
}

int main(int argc, char **argv) {
    const char *directory = argc > 1 ? argv[1] : NULL;
    slipring_broker *broker = open_broker(directory);
    slipring_topic *mail = NULL;
    Worker first, second;
    const slipring_message *taken;
    uint64_t sent_back;
    size_t count;
    int number;

    worker_begin(&first, broker);
    must(slipring_broker_topic(broker, SLIPRING_TEXT("jobs/mail"), &mail), "topic");
    for (number = 1; number <= JOBS; number++) {
        char to[64];
        int len = snprintf(to, sizeof to, "%s-%d%s", number % 7 == 0 ? "busy" : "customer", number,
                           number % 20 == 0 ? "" : "@example.org");
        must(slipring_topic_publish(mail, (const uint8_t *)to, (size_t)len, NULL), "publish");
    }
    slipring_topic_free(&mail);

    worker_do_some(&first);
    /* It takes some more, and is gone before it has said what became of them. */
    must(slipring_subscription_recv_batch(first.jobs, MOST, &taken, &count), "receive");
    slipring_subscription_free(&first.jobs);
    printf("the first worker: %u sent, %u delayed, gone with %lu\n", first.sent, first.delayed,
           (unsigned long)count);
    if (directory != NULL) { /* So is the program, for all that matters. */
        slipring_broker_free(&broker);
        broker = open_broker(directory);
    }

    worker_begin(&second, broker);
    while (first.sent + second.sent + second.given_up < JOBS)
        worker_do_some(&second);
    printf("the second worker: %u sent, %u delayed, %u given up, %u not for the first time\n",
           second.sent, second.delayed, second.given_up, second.again);

    print_letters(broker);
    second.book_has_domain = 1;
    must(slipring_broker_redrive_all(broker, SLIPRING_TEXT("$dlq/mailer"), NULL, 0, &sent_back),
         "redrive");
    while (first.sent + second.sent < JOBS)
        worker_do_some(&second);
    printf("sent back: %lu, sent in all: %u\n", (unsigned long)sent_back,
           first.sent + second.sent);

    slipring_subscription_free(&second.jobs);
    slipring_broker_free(&broker);
    return 0;
}
