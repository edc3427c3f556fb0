"""Logs over HTTP: followed as they grow, read from their end, clear about what is missing."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from rota.api import limits
from rota.api.deps import LogNotifier
from rota.api.endpoints.logs import _tail_start
from rota.api.limits import ApiLimits
from rota.core.model import ExecutionId
from rota.store.sqlite.memory import MemoryStore
from tests.api.in_process_server import InProcessServer, StreamReader, open_server

LINES = b"".join(b"line %d\n" % number for number in range(1000))


async def printed(server: InProcessServer, text: bytes) -> tuple[dict[str, str], str]:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/logs"
    assert (await server.http.post(path, content=text)).status_code == 200
    return order, path


async def test_the_last_lines_can_be_read_alone(server: InProcessServer) -> None:
    order, path = await printed(server, LINES)
    for where in (path, f"/jobs/{order['job_id']}/logs"):
        answer = await server.http.get(f"{where}?tail=2")
        assert answer.text == "line 998\nline 999\n"
        assert int(answer.headers["rota-log-offset"]) == len(LINES) - len(answer.text)
    assert (await server.http.get(f"{path}?tail=0")).text == ""
    assert (await server.http.get(f"{path}?tail=5000")).content == LINES
    assert (await server.http.get(f"{path}?offset=5")).headers["rota-log-offset"] == "5"


async def test_a_tail_from_an_offset_is_refused(server: InProcessServer) -> None:
    _, path = await printed(server, LINES)
    refused = await server.http.get(f"{path}?tail=2&offset=5")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "tail"
    for bad in ("-1", "many", "99999999999"):
        assert (await server.http.get(f"{path}?tail={bad}")).status_code == 422


async def test_following_may_start_with_the_last_lines(server: InProcessServer) -> None:
    order, path = await printed(server, LINES)
    async with StreamReader(server, f"/jobs/{order['job_id']}/logs?follow=true&tail=1") as tap:
        await tap.read_until("line 999\n")
        await server.http.post(path, content=b"more\n")
        await tap.read_until("more\n")
        await server.finish(order)
        assert await tap.read_all() == "line 999\nmore\n"


async def test_an_endless_line_is_searched_back_to_a_limit(server: InProcessServer) -> None:
    server.limit(log_tail_bytes_max=1000)
    _, path = await printed(server, b"x" * 5000)
    assert (await server.http.get(f"{path}?tail=1")).text == "x" * 1000


@given(
    text=st.text("ab\n", max_size=80).map(str.encode),
    lines=st.integers(0, 12),
    block=st.integers(1, 30),
)
def test_the_last_lines_are_those_that_tail_prints(text: bytes, lines: int, block: int) -> None:
    async def start() -> int:
        store = MemoryStore()
        await store.logs.append(ExecutionId("e"), 0, text)

        class Parts:
            logs = store.logs
            limits = ApiLimits(log_read_bytes=block)

        return await _tail_start(Parts(), ExecutionId("e"), lines)  # type: ignore[arg-type]

    begin = asyncio.run(start())
    wanted = text.splitlines(keepends=True)
    assert text[begin:] == b"".join(wanted[max(0, len(wanted) - lines) :])


async def test_a_follower_is_notified_of_new_text(server: InProcessServer) -> None:
    # A follower that only looked would see this after an hour.
    server.limit(log_wait_s=3600.0, log_wait_s_max=3600.0)
    _, path = await printed(server, b"first\n")
    async with StreamReader(server, f"{path}?follow=true") as tap:
        await tap.read_until("first\n")
        for number in range(20):
            await server.http.post(path, content=b"line %d\n" % number)
            await tap.read_until(f"line {number}\n")


async def test_a_follower_that_is_not_notified_finds_new_text_within_a_second(
    server: InProcessServer,
) -> None:
    order, path = await printed(server, b"first\n")
    async with StreamReader(server, f"{path}?follow=true") as tap:
        await tap.read_until("first\n")
        # As another server of the cell would: into the store, past this one's bell.
        await server.store.logs.append(ExecutionId(order["execution_id"]), None, b"second\n")
        await tap.read_until("second\n")
    assert limits.LOG_WAIT_S_MAX < 1


async def test_a_log_beyond_its_limit_ends_with_the_number_of_dropped_bytes() -> None:
    async with open_server(store=MemoryStore(log_bytes_max=10)) as server:
        order, path = await printed(server, b"0123456789" + b"x" * 12_345)
        end = "\n[… 12,345 bytes left out …]\n"
        assert (await server.http.get(path)).text == "0123456789" + end
        assert (await server.http.get(f"{path}?offset=10")).text == end
        assert (await server.http.get(f"{path}?offset={10 + len(end.encode())}")).text == ""
        async with StreamReader(server, f"{path}?follow=true") as tap:
            await tap.read_until("0123456789")
            await server.finish(order)
            assert await tap.read_all() == "0123456789" + end


async def test_bytes_and_colours_come_back_as_they_were(server: InProcessServer) -> None:
    log = b"\x1b[31mred\x1b[0m \xff\xfe\x00 half \xe2\x82"
    _, path = await printed(server, log)
    assert (await server.http.get(path)).content == log


def test_a_notifier_forgets_readers_that_left() -> None:
    notifier, one = LogNotifier(), ExecutionId("e1")
    with notifier.subscribed(one) as first, notifier.subscribed(one) as second:
        notifier.notify(one)
        notifier.notify(ExecutionId("e2"))
        assert first.is_set()
        assert second.is_set()
    assert notifier._listeners == {}
