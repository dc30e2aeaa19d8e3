/* A camera that writes its frames where they are read: no frame is ever copied.

       cc -Iinclude examples/c/loan.c -Ltarget/release -lslipring -lpthread -o loan
       LD_LIBRARY_PATH=target/release ./loan [frames]

   A loan is space in the memory of the broker. The frame gets its place in the order when it is
   committed; one that turns out bad is given up, and nobody has waited for it. */
#define _POSIX_C_SOURCE 200809L

#include "slipring.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 64, HEIGHT = 48, SHUTTER = 10 };

static void must(slipring_status status, const char *what) {
    char why[256] = "";
    if (status == SLIPRING_OK)
        return;
    if (status < 0) /* What is no error leaves the last one as it was. */
        slipring_last_error(why, sizeof why);
    fprintf(stderr, "%s: %s%s%s\n", what, slipring_status_str(status), *why ? ": " : "", why);
    exit(1);
}

static uint8_t pixel(unsigned long frame, int x, int y) {
    return (uint8_t)(frame * 7 + (unsigned long)(x * 3 + y * 5));
}

typedef struct {
    slipring_broker *broker;
    unsigned long frames;
} Camera;

/* Draws the wanted number of frames; every tenth attempt is out of focus, and given up. */
static void *draw(void *user) {
    Camera *self = (Camera *)user;
    slipring_topic *topic = NULL;
    unsigned long attempt, good = 0, bad = 0;
    must(slipring_broker_topic(self->broker, SLIPRING_TEXT("camera/1/frames"), &topic), "topic");
    for (attempt = 1; good < self->frames; attempt++) {
        slipring_loan *loan = NULL;
        uint8_t *pixels;
        int x, y;
        must(slipring_topic_loan(topic, NULL, WIDTH * HEIGHT, &loan, &pixels), "loan");
        for (y = 0; y < HEIGHT; y++)
            for (x = 0; x < WIDTH; x++)
                pixels[y * WIDTH + x] = pixel(good, x, y);
        if (attempt % SHUTTER == 0) {
            slipring_loan_abort(&loan);
            bad++;
        } else {
            must(slipring_loan_commit(&loan, NULL), "commit");
            good++;
        }
    }
    slipring_topic_free(&topic);
    printf("published %lu frames of %d x %d, gave up %lu\n", good, WIDTH, HEIGHT, bad);
    must(slipring_broker_close(self->broker, 0, NULL), "close");
    return NULL;
}

typedef struct {
    unsigned long frames, wrong;
} Viewer;

/* Reads the frame where the camera has written it. */
static void look_at(Viewer *self, const slipring_message *message) {
    const uint8_t *frame = slipring_message_payload(message);
    int x, y, same = slipring_message_payload_len(message) == WIDTH * HEIGHT;
    for (y = 0; same && y < HEIGHT; y++)
        for (x = 0; same && x < WIDTH; x++)
            same = frame[y * WIDTH + x] == pixel(self->frames, x, y);
    self->wrong += !same;
    self->frames++;
}

static void look(void *user, const slipring_message *messages, size_t count) {
    size_t i;
    for (i = 0; i < count; i++)
        look_at((Viewer *)user, &messages[i]);
}

int main(int argc, char **argv) {
    Camera camera = {NULL, argc > 1 ? strtoul(argv[1], NULL, 10) : 1000};
    Viewer viewer = {0, 0};
    slipring_subscription *frames = NULL;
    slipring_subscription_options options;
    slipring_status status;
    pthread_t thread;

    must(slipring_broker_open(NULL, &camera.broker), "open");
    must(slipring_subscription_options_init(&options, sizeof options), "options");
    options.delivery = SLIPRING_AT_MOST_ONCE;
    options.overflow = SLIPRING_BLOCK;
    options.capacity_messages = 8;
    must(slipring_broker_subscribe(camera.broker, SLIPRING_TEXT("camera/*/frames"), &options,
                                   &frames),
         "subscribe");
    if (pthread_create(&thread, NULL, draw, &camera) != 0)
        return 1;
    do {
        must(slipring_subscription_wait(frames, SLIPRING_FOREVER), "wait");
        status = slipring_subscription_poll(frames, 8, look, &viewer, NULL);
    } while (status == SLIPRING_OK || status == SLIPRING_EMPTY);
    pthread_join(thread, NULL);
    printf("received %lu frames, %s\n", viewer.frames,
           viewer.wrong == 0 ? "every pixel as drawn" : "some of them damaged");
    slipring_subscription_free(&frames);
    slipring_broker_free(&camera.broker);
    return viewer.wrong != 0 || status != SLIPRING_CLOSED;
}
