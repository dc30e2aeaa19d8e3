"""A plant's sensors: wildcards, a filter, a late subscriber, and a queue that loses and says so."""

import slipring
from slipring import DeliveryMode, Last, Message, Overflow


def main() -> None:
    with slipring.open() as broker:
        alarms: list[str] = []

        @broker.on("plant/*/temperature", filter='attributes.severity = "high"')
        def alarm(message: Message) -> None:
            alarms.append(f"{message.topic}: {bytes(message).decode()}")

        display = broker.subscribe(
            "plant/**",
            delivery=DeliveryMode.AT_MOST_ONCE,
            capacity=4,
            overflow=Overflow.DROP_OLDEST,
        )
        for n in range(10):
            severity = "high" if n > 7 else "low"
            broker.publish(f"plant/{n % 3}/temperature", b"%d" % (90 + n), severity=severity)

        with broker.subscribe("plant/**", start=Last(2)) as late:
            print("late:", [bytes(message).decode() for message in late.get_many(10)])
        try:
            display.get()
        except slipring.Lagged as lagged:
            print("display lost", lagged.count)
        print("display:", display.get_many(10).payloads())
    # The block has ended, so the handler has finished.
    print("alarms:", alarms)


if __name__ == "__main__":
    main()
