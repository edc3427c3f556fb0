"""Sources and sinks of events at brokers: Redis streams, NATS, RabbitMQ and Kafka.

A message is acknowledged when its event is durable on the server, not before: after a crash in
between the broker delivers it again, and the server recognises the event by its id. Each broker's
client is imported where it is used, so that a bridge of one needs none of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
import structlog

from rota.events.config import (
    KafkaSink,
    KafkaSource,
    NatsSink,
    NatsSource,
    RabbitSink,
    RabbitSource,
    RedisSink,
    RedisSource,
)
from rota.events.limits import (
    BROKER_CLOSE_S,
    BROKER_PREFETCH,
    EVENTS_AT_ONCE,
    REDIS_CLAIM_IDLE_MS,
    REDIS_WAIT_MS,
)
from rota.events.publisher import EventDict, Publisher, event_of_message

if TYPE_CHECKING:
    from aio_pika.abc import AbstractExchange, AbstractIncomingMessage, AbstractRobustConnection
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg
    from redis.asyncio import Redis

log = structlog.get_logger("rota.events")

BrokerSource: TypeAlias = NatsSource | RabbitSource | KafkaSource
BrokerSink: TypeAlias = NatsSink | RabbitSink | KafkaSink
Message: TypeAlias = tuple[bytes, Mapping[bytes, bytes] | None]

CONTENT_TYPE = "application/cloudevents+json"


class Subscription(Protocol):
    """Consumer of a broker's messages."""

    async def run(self) -> None:
        """Runs until an error; `service` starts it again after a pause."""
        ...


def subscription(source: RedisSource | BrokerSource, publisher: Publisher) -> Subscription:
    """Opens the consumer of a source; raises ImportError where its client is not installed."""
    if isinstance(source, RedisSource):
        import redis  # noqa: F401  (fails here, at the start, and not at the first message)

        return RedisSubscription(source, publisher)
    if isinstance(source, NatsSource):
        import nats  # noqa: F401

        return NatsSubscription(source, publisher)
    if isinstance(source, RabbitSource):
        import aio_pika  # noqa: F401

        return RabbitSubscription(source, publisher)
    import aiokafka  # type: ignore[import-untyped]  # noqa: F401

    return KafkaSubscription(source, publisher)


class RedisSubscription:
    """Consumes a Redis stream as a member of a group; unconfirmed messages come again."""

    def __init__(self, source: RedisSource, publisher: Publisher) -> None:
        self._source = source
        self._publisher = publisher
        self._consumer = f"{socket.gethostname()}-{source.name}"

    async def run(self) -> None:
        """Runs until the connection is lost, which is an error."""
        from redis.asyncio import Redis

        redis: Redis = Redis.from_url(self._source.url)
        try:
            await self._join(redis)
            # Messages that this consumer took before a crash and did not confirm are still its own.
            await self._drain(redis, "0")
            while True:
                await self._claim(redis)
                await self._drain(redis, ">")
        finally:
            await redis.aclose()

    async def _join(self, redis: Redis) -> None:
        from redis.exceptions import ResponseError

        source = self._source
        try:
            await redis.xgroup_create(source.stream, source.group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _drain(self, redis: Redis, position: str) -> None:
        source = self._source
        while True:
            answer: Any = await redis.xreadgroup(
                source.group,
                self._consumer,
                {source.stream: position},
                count=EVENTS_AT_ONCE,
                block=REDIS_WAIT_MS,
            )
            _raise_if_cancelled()
            messages = [one for _, part in answer or () for one in part]
            if not messages:
                return
            await self._take(redis, messages)

    async def _claim(self, redis: Redis) -> None:
        """Takes over messages that a consumer without a connection has left unconfirmed."""
        source = self._source
        answer: Any = await redis.xautoclaim(
            source.stream,
            source.group,
            self._consumer,
            REDIS_CLAIM_IDLE_MS,
            count=EVENTS_AT_ONCE,
        )
        if answer[1]:
            await self._take(redis, answer[1])

    async def _take(self, redis: Redis, messages: Sequence[Message]) -> None:
        # A message that was trimmed from the stream meanwhile has no fields.
        events = [self._event(key, fields) for key, fields in messages if fields]
        await self._publisher.publish(events)
        await redis.xack(self._source.stream, self._source.group, *(key for key, _ in messages))

    def _event(self, key: bytes, fields: Mapping[bytes, bytes]) -> EventDict:
        source = self._source
        plain: EventDict = {
            "specversion": "1.0",
            "id": key.decode(),
            "source": f"/redis/{source.name}",
            "type": source.type or f"redis.{source.stream}",
        }
        body = fields.get(source.field.encode())
        if body is None:
            shown = {_text(name): _text(value) for name, value in fields.items()}
            return {**plain, "data": shown}
        return event_of_message(body, plain)


def _raise_if_cancelled() -> None:
    # Redis' client loses a cancellation that comes together with an answer.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class RedisTransport:
    """Adds events to a Redis stream; each is the field `data` of a message."""

    def __init__(self, sink: RedisSink) -> None:
        from redis.asyncio import Redis

        self._sink = sink
        self._redis: Redis = Redis.from_url(sink.url)

    async def send(self, event: EventDict) -> None:
        """Returns when the event is in the stream."""
        await self._redis.xadd(
            self._sink.stream,
            {"data": msgspec.json.encode(event)},
            maxlen=self._sink.max_length,
            approximate=True,
        )

    async def close(self) -> None:
        await self._redis.aclose()


class NatsSubscription:
    """Consumes a JetStream stream by a durable pull consumer, which it creates if needed."""

    def __init__(self, source: NatsSource, publisher: Publisher) -> None:
        self._source = source
        self._publisher = publisher

    async def run(self) -> None:
        """Runs until the connection is lost for good, which is an error."""
        from nats.errors import TimeoutError as NoMessageError
        from nats.js.api import ConsumerConfig, DeliverPolicy
        from nats.js.errors import ServiceUnavailableError

        source = self._source
        client = await _connect_nats(source.url, source.name)
        try:
            pull = await client.jetstream().pull_subscribe(
                source.subject,
                durable=source.durable,
                stream=source.stream,
                config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL),
            )
            while True:
                messages: list[Msg] = []
                # While NATS' own cluster elects a leader, the stream is not available.
                with contextlib.suppress(NoMessageError, ServiceUnavailableError):
                    messages = await pull.fetch(BROKER_PREFETCH)
                async with asyncio.TaskGroup() as group:
                    for message in messages:
                        group.create_task(self._take(message))
        finally:
            await client.close()

    async def _take(self, message: Msg) -> None:
        source = self._source
        place = f"{source.stream}/{message.metadata.sequence.stream}"
        event = event_of_message(message.data, _plain(source, place, message.subject))
        await _publish(self._publisher, event, message.nak)
        await message.ack()


class RabbitSubscription:
    """Consumes a RabbitMQ queue; the client connects again by itself."""

    def __init__(self, source: RabbitSource, publisher: Publisher) -> None:
        self._source = source
        self._publisher = publisher

    async def run(self) -> None:
        """Runs until an error."""
        import aio_pika

        source = self._source
        messages: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        connection = await aio_pika.connect_robust(source.url)
        try:
            channel = await connection.channel()
            # This bounds `messages` too: RabbitMQ delivers no more before one is acknowledged.
            await channel.set_qos(prefetch_count=BROKER_PREFETCH)
            queue = await channel.declare_queue(source.queue, passive=True)
            await queue.consume(messages.put)
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(self._take(await messages.get()))
        finally:
            await _close_rabbit(connection)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        # A queue has no positions: a message without an id of its sender is identified by its body.
        place = message.message_id or hashlib.sha256(message.body).hexdigest()
        event = event_of_message(message.body, _plain(self._source, place, self._source.queue))
        await _publish(self._publisher, event, message.nack)
        await message.ack()


class KafkaSubscription:
    """Consumes a Kafka topic as a member of a group; commits each message by itself, in order."""

    def __init__(self, source: KafkaSource, publisher: Publisher) -> None:
        self._source = source
        self._publisher = publisher

    async def run(self) -> None:
        """Runs until an error; messages that are not committed come again."""
        from aiokafka import AIOKafkaConsumer

        source = self._source
        consumer = AIOKafkaConsumer(
            source.topic,
            bootstrap_servers=source.servers,
            group_id=source.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            await consumer.start()
            while True:
                message = await consumer.getone()
                place = f"{message.topic}/{message.partition}/{message.offset}"
                plain = _plain(source, place, message.topic)
                await self._publisher.publish([event_of_message(message.value or b"", plain)])
                await consumer.commit()
        finally:
            await consumer.stop()


def _plain(source: BrokerSource, place: str, named: str) -> EventDict:
    """Makes the event for a plain message; its place is its id, so a repeat is recognised."""
    kind = source.__struct_config__.tag
    return {
        "specversion": "1.0",
        "id": place,
        "source": f"/{kind}/{source.name}",
        "type": source.type or f"{kind}.{named}",
    }


async def _publish(
    publisher: Publisher, event: EventDict, reject: Callable[[], Awaitable[None]]
) -> None:
    try:
        await publisher.publish([event])
    except Exception:
        # Then another consumer gets it at once, not only after the acknowledgement's timeout.
        await reject()
        raise


async def _connect_nats(url: str, name: str) -> NatsClient:
    import nats

    async def log_error(error: Exception) -> None:
        log.warning("nats_error", name=name, reason=f"{type(error).__name__}: {error}")

    return await nats.connect(url, error_cb=log_error)


async def _close_rabbit(connection: AbstractRobustConnection) -> None:
    # The timeout: a broker that does not answer must not hold up the end.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BROKER_CLOSE_S):
            await connection.close()


def broker_transport(
    sink: RedisSink | BrokerSink,
) -> RedisTransport | NatsTransport | RabbitTransport | KafkaTransport:
    """Opens the transport of a sink; raises ImportError where its client is not installed."""
    if isinstance(sink, RedisSink):
        return RedisTransport(sink)
    if isinstance(sink, NatsSink):
        import nats  # noqa: F401

        return NatsTransport(sink)
    if isinstance(sink, RabbitSink):
        import aio_pika  # noqa: F401

        return RabbitTransport(sink)
    import aiokafka  # noqa: F401

    return KafkaTransport(sink)


class NatsTransport:
    """Publishes to a JetStream stream; `send` returns when the stream has the event."""

    def __init__(self, sink: NatsSink) -> None:
        self._sink = sink
        self._client: NatsClient | None = None

    async def send(self, event: EventDict) -> None:
        """Publishes an event; the stream itself drops a repeat of its id."""
        if self._client is None or self._client.is_closed:
            self._client = await _connect_nats(self._sink.url, self._sink.name)
        await self._client.jetstream().publish(
            f"{self._sink.subject}.{event['type']}",
            msgspec.json.encode(event),
            stream=self._sink.stream,
            headers={"content-type": CONTENT_TYPE, "Nats-Msg-Id": event["id"]},
        )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class RabbitTransport:
    """Publishes to a RabbitMQ queue; `send` returns when the broker has confirmed the event."""

    def __init__(self, sink: RabbitSink) -> None:
        self._sink = sink
        self._connection: AbstractRobustConnection | None = None
        self._exchange: AbstractExchange | None = None

    async def send(self, event: EventDict) -> None:
        """Publishes an event; raises if no queue takes it."""
        import aio_pika

        if self._exchange is None:
            if self._connection is None:
                self._connection = await aio_pika.connect_robust(self._sink.url)
            # A message that no queue takes is returned: that must raise.
            channel = await self._connection.channel(on_return_raises=True)
            self._exchange = channel.default_exchange
        message = aio_pika.Message(
            msgspec.json.encode(event),
            message_id=event["id"],
            content_type=CONTENT_TYPE,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await self._exchange.publish(message, self._sink.queue, mandatory=True)

    async def close(self) -> None:
        if self._connection is not None:
            await _close_rabbit(self._connection)


class KafkaTransport:
    """Publishes to a Kafka topic; `send` returns when all replicas in sync have the event."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._producer: Any = None

    async def send(self, event: EventDict) -> None:
        """Publishes an event with its subject as key, so that a job's changes stay in order."""
        from aiokafka import AIOKafkaProducer

        if self._producer is None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._sink.servers, acks="all", enable_idempotence=True
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer
        await self._producer.send_and_wait(
            self._sink.topic,
            msgspec.json.encode(event),
            key=str(event.get("subject", "")).encode(),
            headers=[("content-type", CONTENT_TYPE.encode())],
        )

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop()
