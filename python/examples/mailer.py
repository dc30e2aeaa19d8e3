"""Jobs that must be done: retries, dead letters, and sending those back once it is mended."""

import threading

import slipring
from slipring import Backoff, DeadLetter, DeliveryMode, Message, Retry


def main() -> None:
    addresses = {"ada": "ada@example.org"}
    sent: list[str] = []
    all_sent = threading.Event()

    with slipring.open() as broker:
        graves = broker.subscribe("$dlq/mailer", delivery=DeliveryMode.AT_MOST_ONCE)

        @broker.on(
            "mail/*",
            name="mailer",
            delivery=DeliveryMode.AT_LEAST_ONCE,
            backoff=Backoff(min=0.01),
            on_error=lambda message, error: print("failed:", bytes(message).decode(), repr(error)),
        )
        def send(message: Message) -> object:
            name = message.attributes["to"]
            if name not in addresses:
                raise DeadLetter(f"no address for {name}")
            if message.attempt == 1:
                return Retry("the server is busy")
            sent.append(f"{bytes(message).decode()} to {addresses[name]}")
            if len(sent) == 2:
                all_sent.set()
            return None

        broker.publish("mail/out", b"hello", to="ada")
        broker.publish("mail/out", b"good morning", to="grace")

        letter = graves.get(timeout=60)
        print("dead:", bytes(letter).decode(), "-", letter.attributes[slipring.DEAD_LETTER_REASON])
        addresses["grace"] = "grace@example.org"
        print("sent back:", broker.dead_letters("$dlq/mailer").redrive_all())
        assert all_sent.wait(60)
    print("sent:", sorted(sent))


if __name__ == "__main__":
    main()
