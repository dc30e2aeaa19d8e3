/* A program of somebody who has installed the library. */
#include <slipring.h>

#include <stdio.h>

int main(void) {
    slipring_broker *broker = NULL;
    slipring_subscription *scores = NULL;
    slipring_message message;
    if (slipring_version() != SLIPRING_VERSION || slipring_broker_open(NULL, &broker) < 0)
        return 1;
    slipring_broker_subscribe(broker, SLIPRING_TEXT("sports/**"), NULL, &scores);
    slipring_broker_publish(broker, SLIPRING_TEXT("sports/cricket"), SLIPRING_BYTES("four!"), NULL);
    if (slipring_subscription_recv(scores, &message) == SLIPRING_OK)
        printf("%.*s: %.*s\n", (int)slipring_message_topic(&message).len,
               slipring_message_topic(&message).data, (int)slipring_message_payload_len(&message),
               (const char *)slipring_message_payload(&message));
    slipring_subscription_free(&scores);
    slipring_broker_free(&broker);
    return 0;
}
