"""Redis streams, NATS, RabbitMQ and Kafka as sources and sinks of events.

A message is acknowledged when its event is durable on the server, and not before: a listener that
dies in between gets the message again, and the server knows the event by its id.
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
from redis.asyncio import Redis
from redis.exceptions import ResponseError

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


Message = tuple[bytes, Mapping[bytes, bytes] | None]


class RedisSubscription:
    """Reads a stream as a member of a group; what was not confirmed comes again."""

    def __init__(self, source: RedisSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller
        self._consumer = f"{socket.gethostname()}-{source.name}"

    async def run(self) -> None:
        """Until the connection is lost, which is an error."""
        redis: Redis = Redis.from_url(self._source.url)
        try:
            await self._join(redis)
            # What this consumer took before a crash and did not confirm is still its own.
            await self._drain(redis, "0")
            while True:
                await self._claim(redis)
                await self._drain(redis, ">")
        finally:
            await redis.aclose()

    async def _join(self, redis: Redis) -> None:
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
        """Takes over what a consumer that is gone has left unconfirmed."""
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
        # A message that was trimmed away while it waited has no fields any more.
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
    """Ends the task if that was asked for: the client loses a cancel that comes with an answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class RedisTransport:
    """Adds events to a stream; each is the field `data` of a message."""

    def __init__(self, sink: RedisSink) -> None:
        self._sink = sink
        self._redis: Redis = Redis.from_url(sink.url)

    async def send(self, event: EventDict) -> None:
        """In the stream when it returns."""
        await self._redis.xadd(
            self._sink.stream,
            {"data": msgspec.json.encode(event)},
            maxlen=self._sink.max_length,
            approximate=True,
        )

    async def close(self) -> None:
        """Gives the connection back."""
        await self._redis.aclose()


# Each client is loaded by who needs it: a listener of one broker does without the others.


log = structlog.get_logger("rota.events")

BrokerSource: TypeAlias = NatsSource | RabbitSource | KafkaSource
BrokerSink: TypeAlias = NatsSink | RabbitSink | KafkaSink

CONTENT_TYPE = "application/cloudevents+json"


class Subscription(Protocol):
    """One consumer of a broker."""

    async def run(self) -> None:
        """Until an error; `service` starts it again after a pause."""
        ...


def subscription(source: BrokerSource, teller: Publisher) -> Subscription:
    """The consumer that a source asks for; raises ImportError where its client is missing."""
    if isinstance(source, NatsSource):
        import nats  # noqa: F401  (told now, not at the first message)

        return NatsSubscription(source, teller)
    if isinstance(source, RabbitSource):
        import aio_pika  # noqa: F401

        return RabbitSubscription(source, teller)
    import aiokafka  # type: ignore[import-untyped]  # noqa: F401

    return KafkaSubscription(source, teller)


class NatsSubscription:
    """A pull consumer of a JetStream stream; it is made durable if it is not there yet."""

    def __init__(self, source: NatsSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller

    async def run(self) -> None:
        """Until the connection is lost for good, which is an error."""
        from nats.errors import TimeoutError as NothingCameError
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
                # The stream has no leader for a moment while its cluster elects one.
                with contextlib.suppress(NothingCameError, ServiceUnavailableError):
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
    """A consumer of a RabbitMQ queue; the client connects again by itself."""

    def __init__(self, source: RabbitSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller

    async def run(self) -> None:
        """Until an error."""
        import aio_pika

        source = self._source
        messages: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        connection = await aio_pika.connect_robust(source.url)
        try:
            channel = await connection.channel()
            # It bounds `messages` too: no more are handed out before one is acknowledged.
            await channel.set_qos(prefetch_count=BROKER_PREFETCH)
            queue = await channel.declare_queue(source.queue, passive=True)
            await queue.consume(messages.put)
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(self._take(await messages.get()))
        finally:
            await _close_rabbit(connection)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        # A queue has no positions. Without an id from its sender, a message is known by its body.
        place = message.message_id or hashlib.sha256(message.body).hexdigest()
        event = event_of_message(message.body, _plain(self._source, place, self._source.queue))
        await _publish(self._publisher, event, message.nack)
        await message.ack()


class KafkaSubscription:
    """A member of a Kafka consumer group; it commits each message by itself, in order."""

    def __init__(self, source: KafkaSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller

    async def run(self) -> None:
        """Until an error; what was not committed comes again to whoever reads the partition."""
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
    """The event around a plain message: where it lies is its id, so it is known when it repeats."""
    kind = source.__struct_config__.tag
    return {
        "specversion": "1.0",
        "id": place,
        "source": f"/{kind}/{source.name}",
        "type": source.type or f"{kind}.{named}",
    }


async def _publish(
    teller: Publisher, event: EventDict, give_back: Callable[[], Awaitable[None]]
) -> None:
    try:
        await teller.publish([event])
    except Exception:
        # At once to another consumer, instead of when the broker misses the acknowledgement.
        await give_back()
        raise


async def _connect_nats(url: str, name: str) -> NatsClient:
    import nats

    async def noted(error: Exception) -> None:
        log.warning("nats_connection", name=name, reason=f"{type(error).__name__}: {error}")

    return await nats.connect(url, error_cb=noted)


async def _close_rabbit(connection: AbstractRobustConnection) -> None:
    """A broker that does not answer must not hold up the end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BROKER_CLOSE_S):
            await connection.close()


def broker_transport(sink: BrokerSink) -> NatsTransport | RabbitTransport | KafkaTransport:
    """The way to a sink's broker; raises ImportError where its client is missing."""
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
        """The broker itself drops what it has seen under the same id."""
        if self._client is None or self._client.is_closed:
            self._client = await _connect_nats(self._sink.url, self._sink.name)
        await self._client.jetstream().publish(
            f"{self._sink.subject}.{event['type']}",
            msgspec.json.encode(event),
            stream=self._sink.stream,
            headers={"content-type": CONTENT_TYPE, "Nats-Msg-Id": event["id"]},
        )

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._client is not None:
            await self._client.close()


class RabbitTransport:
    """Publishes to a RabbitMQ queue; `send` returns when the broker has confirmed the event."""

    def __init__(self, sink: RabbitSink) -> None:
        self._sink = sink
        self._connection: AbstractRobustConnection | None = None
        self._exchange: AbstractExchange | None = None

    async def send(self, event: EventDict) -> None:
        """Raises where no queue takes it."""
        import aio_pika

        if self._exchange is None:
            if self._connection is None:
                self._connection = await aio_pika.connect_robust(self._sink.url)
            # A message that no queue takes comes back, and that must not pass for success.
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
        """Closes the connection, if there is one."""
        if self._connection is not None:
            await _close_rabbit(self._connection)


class KafkaTransport:
    """Publishes to a Kafka topic; `send` returns when all replicas in sync have the event."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._producer: Any = None

    async def send(self, event: EventDict) -> None:
        """Keyed by what changed, so that changes of a job stay in order."""
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
        """Closes the connection, if there is one."""
        if self._producer is not None:
            await self._producer.stop()
