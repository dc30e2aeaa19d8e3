"""One event loop: a publisher in a thread, a consumer that iterates, and a handler that awaits."""

import asyncio
import threading

import slipring
from slipring import Message


async def main() -> None:
    with slipring.open() as broker:
        prices = broker.subscribe("prices/*")
        seen = asyncio.Event()

        @broker.on("prices/gold")
        async def slowly(message: Message) -> None:
            await asyncio.sleep(0)
            seen.set()

        def publish() -> None:
            for n in range(3):
                broker.publish("prices/gold", b"%d" % (4000 + n))

        publisher = threading.Thread(target=publish)
        publisher.start()
        total = 0
        async for message in prices:
            total += int(bytes(message))
            if message.offset == 2:
                break
        await seen.wait()
        publisher.join()
        print("sum of prices", total)


if __name__ == "__main__":
    asyncio.run(main())
