"""Event sources: every message reaches the server, also after a restart, and counts once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rota.events.config import (
    FolderSource,
    KafkaSource,
    NatsSource,
    PostgresSource,
    RabbitSink,
    RabbitSource,
    RedisSource,
)
from rota.events.publisher import Offsets, Publisher, event_of_message
from rota.events.sources import FolderWatcher
from rota.sdk import AsyncClient
from tests.events.brokers import nats_server, rabbitmq_server, redis_server
from tests.events.conftest import received, until

PLAIN = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


@asynccontextmanager
async def going(run: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(run)
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_a_message_that_is_an_event_is_published_unchanged() -> None:
    event = {"specversion": "1.0", "id": "x", "source": "/o", "type": "u"}
    assert (
        event_of_message(b'{"specversion":"1.0","id":"x","source":"/o","type":"u"}', PLAIN) == event
    )


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (b'{"a":1}', {"data": {"a": 1}}),
        (b"plain words", {"data": "plain words"}),
        (b"\xff\x00", {"data_base64": "/wA="}),
        (b"[" * 100_000, {"data": "[" * 100_000}),
    ],
)
def test_any_other_message_becomes_the_data_of_an_event(body: bytes, more: dict[str, Any]) -> None:
    assert event_of_message(body, PLAIN) == {**PLAIN, **more}


async def test_a_refused_event_becomes_a_dead_letter_and_holds_up_no_other(
    client: AsyncClient, publisher: Publisher, tmp_path: Path
) -> None:
    await publisher.publish(
        [{**PLAIN, "id": "a"}, {**PLAIN, "type": "rota.x"}, {**PLAIN, "id": "b"}]
    )
    assert [one.id for one in await received(client, 2)] == ["a", "b"]
    assert b"rota.x" in (tmp_path / "state" / "here.dead.jsonl").read_bytes()


async def test_a_file_is_published_once_it_stops_growing(
    client: AsyncClient, publisher: Publisher, offsets: Offsets, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    folder = FolderWatcher(FolderSource(name="in", path=inbox, pattern="*.csv"), publisher, offsets)
    seen = await folder.look_once({})
    (inbox / "a.csv").write_text("1")
    (inbox / "b.txt").write_text("1")
    seen = await folder.look_once(seen)
    (inbox / "a.csv").write_text("12")
    seen = await folder.look_once(seen)
    assert (await client.events()).items == []
    seen = await folder.look_once(seen)
    (event,) = (await client.events()).items
    assert (event.type, event.source) == ("file.created", "/folders/in")
    (inbox / "a.csv").write_text("123")
    seen = await folder.look_once(await folder.look_once(seen))
    assert (await client.events()).items[0].type == "file.changed"
    assert list(seen) == ["a.csv"]
    (inbox / "a.csv").unlink()
    assert await folder.look_once(seen) == {}


async def test_a_folder_source_continues_where_it_stopped(
    client: AsyncClient, publisher: Publisher, offsets: Offsets, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    (inbox / "deep").mkdir(parents=True)
    (inbox / "old.csv").write_text("x")
    source = FolderSource(name="in", path=inbox, every=0.01, recursive=True, type="drop")
    async with going(FolderWatcher(source, publisher, offsets).run()):
        await until(_loaded(offsets), lambda seen: seen is not None)
        (inbox / "deep" / "new.csv").write_text("x")
        await received(client, 1)
    (inbox / "late.csv").write_text("x")
    async with going(FolderWatcher(source, publisher, offsets).run()):
        events = await received(client, 2)
    assert [one.type for one in events] == ["drop.created"] * 2
    assert events[0].id.startswith("deep/new.csv:")
    assert events[1].id.startswith("late.csv:")


def _loaded(offsets: Offsets) -> Any:
    async def look() -> Any:
        return offsets.load("in")

    return look


@pytest.mark.process
async def test_messages_of_a_redis_stream_are_confirmed_when_they_are_durable(
    client: AsyncClient, publisher: Publisher, tmp_path: Path
) -> None:
    from redis.asyncio import Redis

    from rota.events.brokers import RedisSubscription

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        await redis.xadd("orders", {"data": '{"n": 1}'})
        await redis.xadd("orders", {"customer": "7", "total": "3"})
        source = RedisSource(name="shop", url=url, stream="orders")
        async with going(RedisSubscription(source, publisher).run()):
            events = await received(client, 2)
            pending = await until(
                lambda: redis.xpending("orders", "rota"), lambda seen: seen["pending"] == 0
            )
        assert {one.type for one in events} == {"redis.orders"}
        assert pending["pending"] == 0
        await redis.aclose()


@pytest.mark.process
async def test_a_cancelled_redis_source_ends_whatever_it_is_doing(
    client: AsyncClient, publisher: Publisher, tmp_path: Path
) -> None:
    """Redis' client loses a cancellation that comes together with an answer."""
    from redis.asyncio import Redis

    from rota.events.brokers import RedisSubscription

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        source = RedisSource(name="shop", url=url, stream="orders")
        ends = []
        for steps in range(40):
            await redis.xadd("orders", {"data": "1"})
            ends.append(asyncio.create_task(RedisSubscription(source, publisher).run()))
            for _ in range(steps):
                await asyncio.sleep(0)
            ends[-1].cancel()
        done, pending = await asyncio.wait(ends, timeout=30)
        for task in pending:
            task.cancel()
        assert not pending
        assert all(task.cancelled() for task in done)
        await redis.aclose()


@pytest.mark.process
async def test_a_redis_message_taken_before_a_crash_comes_again_and_counts_once(
    client: AsyncClient, publisher: Publisher, tmp_path: Path
) -> None:
    from redis.asyncio import Redis

    from rota.events.brokers import RedisSubscription

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        source = RedisSource(name="shop", url=url, stream="orders")
        stream = RedisSubscription(source, publisher)
        await stream._join(redis)
        await redis.xadd("orders", {"data": '{"n": 1}'})
        # Taken, published and not confirmed: as if it had been killed in between.
        answer = await redis.xreadgroup("rota", stream._consumer, {"orders": ">"})
        ((key, fields),) = answer[0][1]
        await publisher.publish([stream._event(key, fields)])
        async with going(stream.run()):
            await until(lambda: redis.xpending("orders", "rota"), lambda seen: not seen["pending"])
        (event,) = await received(client, 1)
        assert event.repeats == 1
        await redis.aclose()


@pytest.mark.process
async def test_messages_of_a_nats_stream_are_confirmed_when_they_are_durable(
    client: AsyncClient, publisher: Publisher, tmp_path: Path
) -> None:
    import nats

    from rota.events.brokers import subscription

    with nats_server(tmp_path) as url:
        connection = await nats.connect(url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        await stream.publish("orders.new", b'{"n": 1}')
        source = NatsSource(name="shop", url=url, stream="ORDERS", subject="orders.>")
        async with going(subscription(source, publisher).run()):
            await received(client, 1)
            await stream.publish("orders.paid", b'{"n": 2}')
            events = await received(client, 2)
            info = await until(
                lambda: stream.consumer_info("ORDERS", "rota"),
                lambda seen: seen.num_ack_pending == 0 and seen.ack_floor.stream_seq == 2,
            )
        assert [one.id for one in events] == ["ORDERS/1", "ORDERS/2"]
        assert [one.type for one in events] == ["nats.orders.new", "nats.orders.paid"]
        assert info.num_pending == 0
        await connection.close()


@pytest.mark.process
async def test_a_nats_message_is_not_confirmed_while_the_server_is_away(
    offsets: Offsets, tmp_path: Path
) -> None:
    import nats

    from rota.events.brokers import subscription
    from tests.events.brokers import free_port

    with nats_server(tmp_path) as url:
        connection = await nats.connect(url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        await stream.publish("orders.new", b"{}")
        source = NatsSource(name="shop", url=url, stream="ORDERS", subject="orders.>")
        nobody = f"http://127.0.0.1:{free_port()}"
        async with AsyncClient(nobody, "token") as away:
            async with going(subscription(source, Publisher(away, offsets, "x")).run()):
                info = await until(
                    lambda: _consumer(stream), lambda seen: seen and seen.num_ack_pending == 1
                )
            assert info is not None
            assert info.ack_floor.stream_seq == 0
        await connection.close()


async def _consumer(stream: Any) -> Any:
    import nats.js.errors

    try:
        return await stream.consumer_info("ORDERS", "rota")
    except nats.js.errors.NotFoundError:
        return None


@pytest.mark.process
@pytest.mark.slow
async def test_a_kafka_source_continues_where_it_stopped(
    client: AsyncClient, publisher: Publisher
) -> None:
    from confluent_kafka import Producer

    from rota.events.brokers import subscription

    # This client library contains a broker for tests, with real sockets, groups and offsets.
    kafka = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = kafka.list_topics(timeout=10).brokers.values()
    source = KafkaSource(name="k", servers=f"{broker.host}:{broker.port}", topic="orders")
    for number in (1, 2):
        kafka.produce("orders", json.dumps({"n": number}).encode(), partition=0)
        kafka.flush(10)
        async with going(subscription(source, publisher).run()):
            await received(client, number)
    assert [(one.id, one.repeats) for one in await received(client, 2)] == [
        ("orders/0/0", 0),
        ("orders/0/1", 0),
    ]


@pytest.mark.process
@pytest.mark.slow
async def test_a_rabbitmq_message_comes_again_until_it_is_durable(
    client: AsyncClient, publisher: Publisher, offsets: Offsets, tmp_path: Path
) -> None:
    import aio_pika

    from rota.events.brokers import broker_transport, subscription
    from tests.events.brokers import free_port

    with rabbitmq_server(tmp_path) as url:
        connection = await until(lambda: _connected(url), bool)
        channel = await connection.channel()
        queue = await channel.declare_queue("orders", durable=True)
        message = aio_pika.Message(b'{"n": 1}', message_id="m1")
        await channel.default_exchange.publish(message, "orders")
        source = RabbitSource(name="r", url=url, queue="orders")
        nobody = f"http://127.0.0.1:{free_port()}"
        async with (
            AsyncClient(nobody, "token") as away,
            going(subscription(source, Publisher(away, offsets, "x")).run()),
        ):
            await until(lambda: _waiting(channel), lambda count: count == 0)
        async with going(subscription(source, publisher).run()):
            (event,) = await received(client, 1)
        assert (event.id, event.type) == ("m1", "rabbitmq.orders")
        transport = broker_transport(RabbitSink(name="o", url=url, queue="orders"))
        await transport.send({"id": "1.0", "type": "rota.job.failed"})
        await transport.close()
        got = await until(lambda: queue.get(fail=False), bool)
        assert (got.message_id, got.content_type) == ("1.0", "application/cloudevents+json")
        nowhere = broker_transport(RabbitSink(name="o", url=url, queue="nowhere"))
        with pytest.raises(aio_pika.exceptions.PublishError):
            await nowhere.send({"id": "1.0", "type": "x"})
        await nowhere.close()
        await connection.close()


async def _connected(url: str) -> Any:
    import aio_pika

    with suppress(aio_pika.exceptions.AMQPError, OSError):
        return await aio_pika.connect(url)


async def _waiting(channel: Any) -> int:
    queue = await channel.declare_queue("orders", durable=True, passive=True)
    return int(queue.declaration_result.message_count)


@pytest.mark.postgres
async def test_a_notification_of_postgresql_is_an_event(
    client: AsyncClient, publisher: Publisher
) -> None:
    from rota.events.sources import PostgresListener
    from tests.postgres.cell import Cell

    cell = Cell()
    source = PostgresSource(name="db", dsn=cell.dsn, channel="orders")
    async with going(PostgresListener(source, publisher).run()), cell.connected() as admin:

        async def notify() -> Any:
            await admin.execute("""NOTIFY orders, '{"n": 1}'""")
            return (await client.events()).items

        # Repeated, because there is no sign that the other connection has begun to listen.
        (event, *_) = await until(notify, bool)
    assert event.type == "postgres.orders"
