"""NATS, RabbitMQ and Kafka in and out, all through FastStream.

A message is confirmed when what it says is durable: the handler returns then, and not before.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from faststream import AckPolicy

from rota.events.config import (
    KafkaSink,
    KafkaSource,
    NatsSink,
    NatsSource,
    RabbitSink,
    RabbitSource,
)
from rota.events.limits import BROKER_CLOSE_S, BROKER_PREFETCH
from rota.events.telling import EventDict, Teller, event_of

BrokerSource: TypeAlias = NatsSource | RabbitSource | KafkaSource
BrokerSink: TypeAlias = NatsSink | RabbitSink | KafkaSink
Take: TypeAlias = Callable[[Any], Awaitable[None]]


async def _as_it_is(message: Any) -> Any:
    """Instead of guessing what a body might be: `event_of` reads it."""
    return message


class Subscription:
    """One consumer of a broker."""

    def __init__(self, source: BrokerSource, teller: Teller) -> None:
        self._source = source
        self._teller = teller

    async def run(self) -> None:
        """For ever; the library sees to lost connections."""
        broker = _subscribed(self._source, self._take)
        await broker.start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await broker.stop()

    async def _take(self, message: Any) -> None:
        kind = self._source.__struct_config__.tag
        place, named = _place(self._source, message)
        plain: EventDict = {
            "specversion": "1.0",
            "id": place,
            "source": f"/{kind}/{self._source.name}",
            "type": self._source.type or f"{kind}.{named}",
        }
        await self._teller.tell([event_of(message.body, plain)])


def _subscribed(source: BrokerSource, take: Take) -> Any:
    """A broker with this one subscription; only the client that is needed is loaded."""
    how: dict[str, Any] = {"decoder": _as_it_is, "ack_policy": AckPolicy.NACK_ON_ERROR}
    broker: Any
    if isinstance(source, NatsSource):
        from faststream.nats import JStream, NatsBroker, PullSub
        from nats.js.api import DeliverPolicy

        broker = NatsBroker(source.url, logger=None, graceful_timeout=BROKER_CLOSE_S)
        subscriber = broker.subscriber(
            source.subject,
            stream=JStream(source.stream, declare=False),
            durable=source.durable,
            pull_sub=PullSub(batch_size=BROKER_PREFETCH),
            deliver_policy=DeliverPolicy.ALL,
            **how,
        )
    elif isinstance(source, RabbitSource):
        from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

        broker = RabbitBroker(
            source.url,
            logger=None,
            graceful_timeout=BROKER_CLOSE_S,
            default_channel=Channel(prefetch_count=BROKER_PREFETCH),
        )
        subscriber = broker.subscriber(RabbitQueue(source.queue, declare=False), **how)
    else:
        from faststream.kafka import KafkaBroker

        broker = KafkaBroker(source.servers, logger=None, graceful_timeout=BROKER_CLOSE_S)
        subscriber = broker.subscriber(
            source.topic, group_id=source.group, auto_offset_reset="earliest", **how
        )
    subscriber(take)
    return broker


def _place(source: BrokerSource, message: Any) -> tuple[str, str]:
    """Where a message lies, as its id; and the name that its type ends in."""
    raw = message.raw_message
    if isinstance(source, NatsSource):
        return f"{source.stream}/{raw.metadata.sequence.stream}", raw.subject
    if isinstance(source, KafkaSource):
        return f"{raw.topic}/{raw.partition}/{raw.offset}", raw.topic
    if raw.message_id:
        return str(raw.message_id), source.queue
    # A queue has no places. Without a name given by its sender, a message is what it says.
    return hashlib.sha256(message.body).hexdigest(), source.queue


class BrokerOutlet:
    """Publishes events, and waits until the broker has them."""

    def __init__(self, sink: BrokerSink) -> None:
        self._sink = sink
        self._broker: Any = None

    async def send(self, event: EventDict) -> None:
        """With the broker when it returns."""
        if self._broker is None:
            broker = _connected(self._sink)
            await broker.start()
            self._broker = broker
        body = msgspec.json.encode(event)
        headers = {"content-type": "application/cloudevents+json"}
        if isinstance(self._sink, NatsSink):
            subject = f"{self._sink.subject}.{event['type']}"
            # The broker itself drops what it has seen under the same id.
            headers["Nats-Msg-Id"] = event["id"]
            await self._broker.publish(body, subject, stream=self._sink.stream, headers=headers)
        elif isinstance(self._sink, RabbitSink):
            named = {"message_id": event["id"], "content_type": headers["content-type"]}
            await self._broker.publish(
                body, self._sink.queue, persist=True, mandatory=True, **named
            )
        else:
            key = str(event.get("subject", "")).encode()
            await self._broker.publish(body, self._sink.topic, key=key, headers=headers)

    async def close(self) -> None:
        """Gives the connection back."""
        if self._broker is not None:
            await self._broker.stop()


def _connected(sink: BrokerSink) -> Any:
    if isinstance(sink, NatsSink):
        from faststream.nats import NatsBroker

        return NatsBroker(sink.url, logger=None, graceful_timeout=BROKER_CLOSE_S)
    if isinstance(sink, RabbitSink):
        from faststream.rabbit import Channel, RabbitBroker

        # A message that no queue takes comes back, and that must not pass for success.
        strict = Channel(publisher_confirms=True, on_return_raises=True)
        return RabbitBroker(
            sink.url, logger=None, graceful_timeout=BROKER_CLOSE_S, default_channel=strict
        )
    from faststream.kafka import KafkaBroker

    return KafkaBroker(
        sink.servers,
        logger=None,
        graceful_timeout=BROKER_CLOSE_S,
        acks="all",
        enable_idempotence=True,
    )
