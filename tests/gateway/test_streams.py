"""Streams through a gateway: changes of all cells, followed logs, and large answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.gateway.stream import StreamMerge, read_event_id
from rota.wire.problems import ProblemError
from tests.gateway.fleet import PATIENCE_S, Gateway, TestFleet


class Reading:
    """Answer that is read as it comes."""

    def __init__(self, pieces: AsyncIterator[str]) -> None:
        self._pieces = pieces
        self.text = ""

    async def until(self, wanted: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            while wanted not in self.text:
                self.text += await anext(self._pieces)
        return self.text

    async def to_end(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            async for piece in self._pieces:
                self.text += piece
        return self.text

    @property
    def last_id(self) -> str:
        return re.findall(r"^id: (\S+)$", self.text, re.MULTILINE)[-1]

    def jobs(self) -> list[str]:
        """Returns ids of queued jobs in order, repeats too."""
        changes = [json.loads(line) for line in re.findall(r"^data: (.*)$", self.text, re.M)]
        return [one["id"] for one in changes if (one["kind"], one["status"]) == ("job", "queued")]


@asynccontextmanager
async def reading(gateway: Gateway, path: str, **headers: str) -> AsyncIterator[Reading]:
    async with gateway.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        yield Reading(answer.aiter_text())


def test_the_id_of_an_event_has_a_position_in_every_cell() -> None:
    merge = StreamMerge({"a": "1.0"})
    assert merge.merge("b", b"id: 7.2\ndata: {}") == b"id: a=1.0,b=7.2\ndata: {}\n\n"
    assert merge.merge("a", b"event: reset\nid: 9.0\ndata: x\ndata: y") == (
        b"id: a=9.0,b=7.2\nevent: reset\ndata: x\ndata: y\n\n"
    )
    assert merge.merge("a", b": still here") == b""
    assert merge.merge("a", b"retry: 1000") == b""


@pytest.mark.parametrize("text", ["x", "1.0", "a=", "a=1.0,", "a=1.0;b=2", "A=1"])
def test_an_id_of_another_stream_is_refused(text: str) -> None:
    with pytest.raises(ProblemError):
        read_event_id(text)


async def test_changes_of_all_cells_come_in_one_stream_that_can_be_resumed(
    gateway: Gateway,
) -> None:
    here, there = gateway.tenant_of("north"), gateway.tenant_of("south")
    async with reading(gateway, "/stream") as first:
        await first.until("north=")
        await first.until("south=")
        one = (await gateway.submit(here))["job_id"]
        await first.until(one)
        left = first.last_id
    missed = [(await gateway.submit(tenant))["job_id"] for tenant in (there, here, there)]
    async with reading(gateway, "/stream", **{"Last-Event-ID": left}) as second:
        for job_id in missed:
            await second.until(job_id)
    assert sorted(second.jobs()) == sorted(missed)


async def test_a_stream_continues_without_a_cell_and_with_it_when_it_is_back(
    fleet: TestFleet, gateway: Gateway
) -> None:
    here, there = gateway.tenant_of("north"), gateway.tenant_of("south")
    south = fleet.cells["south"]
    async with reading(gateway, "/stream") as stream:
        await stream.until("south=")
        await stream.until("north=")
        await south.listening.stop()
        await stream.until(": cell south is away")
        near = (await gateway.submit(here))["job_id"]
        await stream.until(near)
        far = (await south.server.submit(tenant=there))["job_id"]
        assert far not in stream.text
        await south.listening.start()
        await stream.until(far)
    assert sorted(stream.jobs()) == sorted([near, far])


async def test_a_gateway_that_stops_ends_its_streams(gateway: Gateway) -> None:
    async with reading(gateway, "/stream") as stream:
        await stream.until("north=")
        gateway.context.closing.set()
        await stream.to_end()
    assert gateway.context.streams.taken == 0


async def test_a_stream_beyond_the_limit_is_refused(gateway: Gateway) -> None:
    gateway.context.streams.taken = 256
    problem = await gateway.ask("GET", "/stream", expect=429)
    assert "streams are open" in problem["detail"]
    head = await gateway.http.head("/stream")
    assert head.status_code == 200


async def test_a_log_can_be_followed_through_the_gateway(
    fleet: TestFleet, gateway: Gateway
) -> None:
    server = fleet.cells["north"].server
    worker = await server.register()
    await gateway.submit(gateway.tenant_of("north"))
    (order,) = (await server.lease(worker))["executions"]
    logs = f"/executions/{order['execution_id']}/logs"
    async with reading(gateway, f"/jobs/{order['job_id']}/logs?follow=true") as log:
        for line in ("one\n", "two\n"):
            await server.http.post(logs, content=line.encode())
            await log.until(line)
        await server.finish(order)
        assert await log.to_end() == "one\ntwo\n"


async def test_a_large_answer_and_a_file_arrive_complete(
    fleet: TestFleet, gateway: Gateway
) -> None:
    server = fleet.cells["north"].server
    worker = await server.register()
    payload = {"text": "x" * 600_000}
    made = await gateway.submit(gateway.tenant_of("north"), payload=payload)
    shown = await gateway.ask("GET", f"/jobs/{made['job_id']}", expect=200)
    assert shown["payload"] == payload
    (order,) = (await server.lease(worker))["executions"]
    content = bytes(range(256)) * 4000
    for name in ("a%20b.bin", "sub%2Fa%20b.bin", "sub/a%20b.bin", "a%20b.bin%2Fupload"):
        path = f"/executions/{order['execution_id']}/artifacts/{name}"
        await server.http.put(path, content=content)
        answer = await gateway.http.get(path)
        assert answer.content == content
        last = name.replace("%2F", "/").rpartition("/")[2]
        assert f"UTF-8''{last}" in answer.headers["content-disposition"]
