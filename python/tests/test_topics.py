"""The vectors that every implementation of the rules of topics and patterns has to agree with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import slipring

VECTORS = Path(__file__).parents[2] / "core/tests/vectors/topics.jsonl"


def vectors() -> list[dict[str, Any]]:
    return [json.loads(line) for line in VECTORS.read_text().splitlines()]


def test_patterns_match_what_the_vectors_say() -> None:
    looked_at = 0
    for vector in vectors():
        if "match" not in vector or vector["topic"].startswith("$"):
            continue
        looked_at += 1
        with slipring.open() as broker:
            subscription = broker.subscribe(vector["pattern"])
            receipt = broker.publish(vector["topic"], b"")
            message = subscription.get_nowait()
        assert receipt.matched == int(vector["match"]), vector
        assert (message is not None) == vector["match"], vector
    assert looked_at > 300


def test_bad_names_and_patterns_are_refused() -> None:
    with slipring.open() as broker:
        for vector in vectors():
            if "bad_topic" in vector:
                with pytest.raises(slipring.InvalidName):
                    broker.publish(vector["bad_topic"], b"")
            if "bad_pattern" in vector:
                with pytest.raises(slipring.InvalidName):
                    broker.subscribe(vector["bad_pattern"])


def test_canonical_patterns_are_what_the_vectors_say() -> None:
    with slipring.open() as broker:
        for vector in vectors():
            if "canonical" in vector:
                with broker.subscribe(vector["pattern"]):
                    (known,) = broker.metrics()["subscriptions"]
                    assert known["patterns"] == [vector["canonical"]]


def test_figures_are_told_for_one_topic_and_one_subscription(broker: slipring.Broker) -> None:
    topic = broker.create_topic("a", dedup_window=60)
    subscription = broker.subscribe("a")
    for _ in range(3):
        topic.publish(b"x", id="same")
    assert broker.topic_metrics("a") == {"name": "a", "published": 1, "duplicates": 2}
    assert broker.topic_metrics("a") == broker.metrics()["topics"][0]
    figures = broker.subscription_metrics(subscription.id)
    assert (figures["matched"], figures["handler_panics"], figures["filter_panics"]) == (1, 0, 0)
    assert figures.keys() == broker.metrics()["subscriptions"][0].keys()
    with pytest.raises(slipring.UnknownTopic):
        broker.topic_metrics("b")
    with pytest.raises(slipring.UnknownSubscription):
        broker.subscription_metrics(99)
