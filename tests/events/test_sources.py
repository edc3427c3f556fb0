"""Sources: what they hear reaches the server, also after they were away, and once."""

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
from tests.events.conftest import told, until

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


def test_a_message_that_is_an_event_is_told_as_it_is() -> None:
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
def test_any_other_message_is_the_data_of_one(body: bytes, more: dict[str, Any]) -> None:
    assert event_of_message(body, PLAIN) == {**PLAIN, **more}


async def test_what_the_server_refuses_is_buried_and_holds_up_nobody(
    client: AsyncClient, teller: Publisher, tmp_path: Path
) -> None:
    await teller.publish([{**PLAIN, "id": "a"}, {**PLAIN, "type": "rota.x"}, {**PLAIN, "id": "b"}])
    assert [one.id for one in await told(client, 2)] == ["a", "b"]
    assert b"rota.x" in (tmp_path / "state" / "here.dead.jsonl").read_bytes()


async def test_a_file_is_told_of_once_it_stops_growing(
    client: AsyncClient, teller: Publisher, positions: Offsets, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    folder = FolderWatcher(FolderSource(name="in", path=inbox, pattern="*.csv"), teller, positions)
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


async def test_a_folder_goes_on_where_it_was(
    client: AsyncClient, teller: Publisher, positions: Offsets, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    (inbox / "deep").mkdir(parents=True)
    (inbox / "old.csv").write_text("x")
    source = FolderSource(name="in", path=inbox, every=0.01, recursive=True, type="drop")
    async with going(FolderWatcher(source, teller, positions).run()):
        await until(_loaded(positions), lambda seen: seen is not None)
        (inbox / "deep" / "new.csv").write_text("x")
        await told(client, 1)
    (inbox / "late.csv").write_text("x")
    async with going(FolderWatcher(source, teller, positions).run()):
        events = await told(client, 2)
    assert [one.type for one in events] == ["drop.created"] * 2
    assert events[0].id.startswith("deep/new.csv:")
    assert events[1].id.startswith("late.csv:")


def _loaded(positions: Offsets) -> Any:
    async def look() -> Any:
        return positions.load("in")

    return look


@pytest.mark.process
async def test_messages_of_a_redis_stream_are_confirmed_when_they_are_durable(
    client: AsyncClient, teller: Publisher, tmp_path: Path
) -> None:
    from redis.asyncio import Redis

    from rota.events.brokers import RedisSubscription

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        await redis.xadd("orders", {"data": '{"n": 1}'})
        await redis.xadd("orders", {"customer": "7", "total": "3"})
        source = RedisSource(name="shop", url=url, stream="orders")
        async with going(RedisSubscription(source, teller).run()):
            events = await told(client, 2)
            pending = await until(
                lambda: redis.xpending("orders", "rota"), lambda seen: seen["pending"] == 0
            )
        assert {one.type for one in events} == {"redis.orders"}
        assert pending["pending"] == 0
        await redis.aclose()


@pytest.mark.process
async def test_a_redis_source_ends_when_told_whatever_it_is_doing(
    client: AsyncClient, teller: Publisher, tmp_path: Path
) -> None:
    """The client loses a cancel that comes along with an answer."""
    from redis.asyncio import Redis

    from rota.events.brokers import RedisSubscription

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        source = RedisSource(name="shop", url=url, stream="orders")
        ends = []
        for steps in range(40):
            await redis.xadd("orders", {"data": "1"})
            ends.append(asyncio.create_task(RedisSubscription(source, teller).run()))
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
async def test_what_redis_handed_out_before_a_crash_comes_again_and_counts_once(
    client: AsyncClient, teller: Publisher, tmp_path: Path
) -> None:
    from redis.asyncio import Redis

    from rota.events.brokers import RedisSubscription

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        source = RedisSource(name="shop", url=url, stream="orders")
        stream = RedisSubscription(source, teller)
        await stream._join(redis)
        await redis.xadd("orders", {"data": '{"n": 1}'})
        # Taken, told, and not confirmed: as if it had been killed between the two.
        answer = await redis.xreadgroup("rota", stream._consumer, {"orders": ">"})
        ((key, fields),) = answer[0][1]
        await teller.publish([stream._event(key, fields)])
        async with going(stream.run()):
            await until(lambda: redis.xpending("orders", "rota"), lambda seen: not seen["pending"])
        (event,) = await told(client, 1)
        assert event.repeats == 1
        await redis.aclose()


@pytest.mark.process
async def test_messages_of_a_nats_stream_are_confirmed_when_they_are_durable(
    client: AsyncClient, teller: Publisher, tmp_path: Path
) -> None:
    import nats

    from rota.events.brokers import subscription

    with nats_server(tmp_path) as url:
        connection = await nats.connect(url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        await stream.publish("orders.new", b'{"n": 1}')
        source = NatsSource(name="shop", url=url, stream="ORDERS", subject="orders.>")
        async with going(subscription(source, teller).run()):
            await told(client, 1)
            await stream.publish("orders.paid", b'{"n": 2}')
            events = await told(client, 2)
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
    positions: Offsets, tmp_path: Path
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
            async with going(subscription(source, Publisher(away, positions, "x")).run()):
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
async def test_messages_of_a_kafka_topic_are_taken_from_where_they_were_left(
    client: AsyncClient, teller: Publisher
) -> None:
    from confluent_kafka import Producer

    from rota.events.brokers import subscription

    # The client library brings a broker for tests along: real sockets, groups and offsets.
    kafka = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = kafka.list_topics(timeout=10).brokers.values()
    source = KafkaSource(name="k", servers=f"{broker.host}:{broker.port}", topic="orders")
    for number in (1, 2):
        kafka.produce("orders", json.dumps({"n": number}).encode(), partition=0)
        kafka.flush(10)
        async with going(subscription(source, teller).run()):
            await told(client, number)
    assert [(one.id, one.repeats) for one in await told(client, 2)] == [
        ("orders/0/0", 0),
        ("orders/0/1", 0),
    ]


@pytest.mark.process
@pytest.mark.slow
async def test_a_rabbitmq_message_comes_again_until_it_is_durable(
    client: AsyncClient, teller: Publisher, positions: Offsets, tmp_path: Path
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
            going(subscription(source, Publisher(away, positions, "x")).run()),
        ):
            await until(lambda: _waiting(channel), lambda count: count == 0)
        async with going(subscription(source, teller).run()):
            (event,) = await told(client, 1)
        assert (event.id, event.type) == ("m1", "rabbitmq.orders")
        outlet = broker_transport(RabbitSink(name="o", url=url, queue="orders"))
        await outlet.send({"id": "1.0", "type": "rota.job.failed"})
        await outlet.close()
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
    client: AsyncClient, teller: Publisher
) -> None:
    from rota.events.sources import PostgresListener
    from tests.postgres.cell import Cell

    cell = Cell()
    source = PostgresSource(name="db", dsn=cell.dsn, channel="orders")
    async with going(PostgresListener(source, teller).run()), cell.connected() as admin:

        async def notify() -> Any:
            await admin.execute("""NOTIFY orders, '{"n": 1}'""")
            return (await client.events()).items

        # Repeated, because nobody says when the other connection has begun to listen.
        (event, *_) = await until(notify, bool)
    assert event.type == "postgres.orders"
