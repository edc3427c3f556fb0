"""Event sinks: state changes are delivered in order, at least once, from the last offset on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from rota.api.parsing.webhook_signatures import check_signature
from rota.engine.clock import SystemClock
from rota.events.config import NatsSink, RedisSink, WebhookSink
from rota.events.limits import EventLimits
from rota.events.publisher import Offsets
from rota.events.sinks import EventTransport, Follower, open_transport
from rota.sdk import AsyncClient
from rota.store.documents import Hook
from tests.events.brokers import nats_server, redis_server
from tests.events.conftest import received, until

SECRET = "a-secret-of-32-characters-or-so!"
NOOP = {"kind": "noop"}


class Receiver:
    """Web server that keeps requests and answers as a test says."""

    def __init__(self) -> None:
        self.got: list[tuple[Mapping[str, str], bytes]] = []
        self.answers: list[int] = []
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status = self.answers.pop(0) if self.answers else 204
        if status < 300:
            self.got.append((headers, body))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    @property
    def types(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in self.got]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        config = uvicorn.Config(self, port=0, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())

        async def started() -> bool:
            return server.started

        await until(started, bool)
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
        try:
            yield
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    one = Receiver()
    async with one.listening():
        yield one


@asynccontextmanager
async def following(
    sink: Any, client: AsyncClient, offsets: Offsets, transport: EventTransport | None = None
) -> AsyncIterator[None]:
    hurried = EventLimits(pause_s_first=0.01)
    follower = Follower(sink, client, transport or open_transport(sink), offsets, hurried)
    task = asyncio.create_task(follower.run())

    async def look() -> Any:
        return offsets.load(sink.name)

    await until(look, lambda seen: seen is not None)
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def submit(client: AsyncClient, name: str = "j") -> str:
    return (
        await client.submit({"name": name, "task": NOOP, "run_at": "2199-01-01T00:00:00Z"})
    ).job_id


async def seen(receiver: Receiver, count: int) -> list[str]:
    async def look() -> list[str]:
        return receiver.types

    return await until(look, lambda types: len(types) >= count)


def webhook(receiver: Receiver, **given: Any) -> WebhookSink:
    return WebhookSink(name="hook", url=receiver.url, secret=SECRET, **given)


async def test_changes_of_a_job_are_delivered_in_order_and_signed(
    client: AsyncClient, offsets: Offsets, receiver: Receiver
) -> None:
    async with following(webhook(receiver), client, offsets):
        job_id = await submit(client)
        await client.cancel(job_id)
        assert await seen(receiver, 2) == ["rota.job.pending", "rota.job.cancelled"]
    headers, body = receiver.got[0]
    assert json.loads(body)["subject"] == job_id
    kept = Hook(
        name="x",
        scheme="rota",
        secrets=(SECRET,),
        type="t",
        tolerance_ms=60_000,
        created_at=0,
        updated_at=0,
    )
    check_signature(kept, headers, body, SystemClock().now())


async def test_a_sink_continues_from_its_last_offset(
    client: AsyncClient, offsets: Offsets, receiver: Receiver
) -> None:
    async with following(webhook(receiver), client, offsets):
        await submit(client, "first")
        await seen(receiver, 1)
    await submit(client, "while it was away")
    async with following(webhook(receiver), client, offsets):
        await seen(receiver, 2)
    names = [json.loads(body)["data"]["name"] for _, body in receiver.got]
    assert names == ["first", "while it was away"]


async def test_a_change_that_failed_is_sent_again_before_later_ones(
    client: AsyncClient, offsets: Offsets, receiver: Receiver
) -> None:
    receiver.answers = [500, 429, 302, 204]
    async with following(webhook(receiver), client, offsets):
        job_id = await submit(client)
        await client.cancel(job_id)
        assert await seen(receiver, 2) == ["rota.job.pending", "rota.job.cancelled"]


async def test_a_change_that_cannot_be_delivered_becomes_a_dead_letter_and_an_event(
    client: AsyncClient, offsets: Offsets, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [500, 500]
    async with following(webhook(receiver, attempts=2), client, offsets):
        job_id = await submit(client)
        (alarm,) = await received(client, 1)
        await client.cancel(job_id)
        assert await seen(receiver, 1) == ["rota.job.cancelled"]
    assert (alarm.type, alarm.source) == ("sink.dead", "/sinks/hook")
    (undelivered,) = (tmp_path / "state" / "hook.dead.jsonl").read_text().splitlines()
    assert json.loads(undelivered)["type"] == "rota.job.pending"


async def test_a_sink_delivers_only_the_types_that_it_names(
    client: AsyncClient, offsets: Offsets, receiver: Receiver
) -> None:
    sink = webhook(receiver, events=["rota.job.cancelled", "rota.queue.*"])
    async with following(sink, client, offsets):
        await client.cancel(await submit(client))
        assert await seen(receiver, 2) == ["rota.queue.open", "rota.job.cancelled"]


@pytest.mark.process
async def test_a_redis_stream_gets_the_changes(
    client: AsyncClient, offsets: Offsets, tmp_path: Path
) -> None:
    from redis.asyncio import Redis

    with redis_server(tmp_path) as url:
        redis: Any = Redis.from_url(url)
        sink = RedisSink(name="r", url=url, stream="changes")
        async with following(sink, client, offsets):
            await client.cancel(await submit(client))
            await until(lambda: redis.xlen("changes"), lambda count: count >= 2)
        messages = await redis.xrange("changes")
        types = [json.loads(fields[b"data"])["type"] for _, fields in messages]
        assert types == ["rota.job.pending", "rota.job.cancelled"]
        await redis.aclose()


@pytest.mark.process
async def test_a_nats_stream_gets_the_changes(
    client: AsyncClient, offsets: Offsets, tmp_path: Path
) -> None:
    import nats

    with nats_server(tmp_path) as url:
        connection = await nats.connect(url)
        stream = connection.jetstream()
        await stream.add_stream(name="CHANGES", subjects=["cell.>"])
        sink = NatsSink(name="n", url=url, stream="CHANGES", subject="cell")
        async with following(sink, client, offsets):
            await client.cancel(await submit(client))
            info = await until(
                lambda: stream.stream_info("CHANGES"), lambda seen: seen.state.messages >= 2
            )
        assert info.state.messages == 2
        first = await stream.get_msg("CHANGES", 1)
        assert first.subject == "cell.rota.job.pending"
        assert json.loads(first.data or b"")["type"] == "rota.job.pending"
        await connection.close()
