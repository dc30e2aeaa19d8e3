"""What a handler can make of a message, besides being done with it."""

from __future__ import annotations


class Retry(Exception):
    """The message is to be delivered again after the subscription's ``Backoff``, unless this was its
    last attempt; then it goes to the dead letters.

    A handler raises it or returns it, with the reason in words. Any other exception means the same.

    >>> import slipring
    >>> tried = []
    >>> with slipring.open() as broker:
    ...     @broker.on("jobs", backoff=slipring.Backoff(min=0, max=0))
    ...     def send(message):
    ...         tried.append(message.attempt)
    ...         return slipring.Retry("busy") if message.attempt == 1 else None
    ...     receipt = broker.publish("jobs", b"hello")
    ...     while len(tried) < 2: pass
    >>> tried
    [1, 2]
    """


class DeadLetter(Exception):
    """The message is to go to the dead letters, now.

    A handler raises it or returns it, with the reason in words, of which the first 1,024 bytes are
    kept as the letter's attribute ``slipring.DEAD_LETTER_REASON``.

    >>> import slipring
    >>> with slipring.open() as broker:
    ...     @broker.on("jobs", name="mailer", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
    ...     def send(message):
    ...         if not message.attributes.get("address"):
    ...             raise slipring.DeadLetter("no address")
    ...     letters = broker.subscribe("$dlq/*", delivery=slipring.DeliveryMode.AT_MOST_ONCE)
    ...     receipt = broker.publish("jobs", b"hello")
    ...     letters.get().attributes[slipring.DEAD_LETTER_REASON]
    'no address'
    """
