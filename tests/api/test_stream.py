from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

from rota.api.deps import ConcurrencyLimit
from rota.api.endpoints.stream import _RECORD_END, StreamPosition, _pieces
from rota.api.limits import STREAMS_MAX
from tests.api.in_process_server import InProcessServer, StreamReader, events


def last_id(text: str) -> str:
    return re.findall(r"^id: (\S+)$", text, re.MULTILINE)[-1]


async def test_the_stream_shows_every_change_as_it_happens(server: InProcessServer) -> None:
    async with StreamReader(server, "/stream") as tap:
        await tap.read_until("retry:")
        worker = await server.register("box")
        order = await server.start(worker, name="streamed", queue="q")
        await server.finish(order)
        text = await tap.read_until('"succeeded"')
    shown = events(text)
    kinds = {change["kind"] for change in shown}
    assert kinds == {"job", "execution", "worker", "queue"}
    job = [one for one in shown if one["kind"] == "job" and one["id"] == order["job_id"]]
    assert job[0]["name"] == "streamed"
    assert job[0]["queue"] == "q"
    assert {"running", "succeeded"} <= {one["status"] for one in job}


async def test_a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice(
    server: InProcessServer,
) -> None:
    async with StreamReader(server, "/stream") as tap:
        await tap.read_until("retry:")
        first = await server.submit()
        seen = last_id(await tap.read_until(first["job_id"]))
    missed = await server.submit()
    async with StreamReader(server, "/stream", {"last-event-id": seen}) as tap:
        text = await tap.read_until(missed["job_id"])
    assert first["job_id"] not in text
    assert "reset" not in text


async def test_a_reader_that_leaves_before_the_first_change_misses_nothing_either(
    server: InProcessServer,
) -> None:
    await server.submit()
    async with StreamReader(server, "/stream") as tap:
        place = last_id(await tap.read_until("id: "))
    missed = await server.submit()
    async with StreamReader(server, "/stream", {"last-event-id": place}) as tap:
        assert len(events(await tap.read_until(missed["job_id"]))) >= 1


async def test_a_reader_may_come_back_in_the_middle_of_a_record(server: InProcessServer) -> None:
    async with StreamReader(server, "/stream") as tap:
        await tap.read_until("retry:")
        jobs = [{"name": f"j{n}", "task": {"kind": "noop"}} for n in range(4)]
        ids = (await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201))["job_ids"]
        text = await tap.read_until(ids[-1])
    seen = re.findall(rf'^id: (\S+)\ndata: .*"{ids[1]}"', text, re.MULTILINE)[0]
    async with StreamReader(server, "/stream", {"last-event-id": seen}) as tap:
        rest = await tap.read_until(ids[3])
    assert ids[2] in rest
    assert ids[1] not in rest


async def test_a_reader_of_another_journal_is_told_to_start_afresh(server: InProcessServer) -> None:
    await server.submit()
    async with StreamReader(server, "/stream", {"last-event-id": "999999.0"}) as tap:
        text = await tap.read_until("event: reset")
        after = await server.submit()
        assert after["job_id"] in await tap.read_until(after["job_id"])
    assert last_id(text).split(".")[0] != "999999"


async def test_an_invalid_last_event_id_is_refused(server: InProcessServer) -> None:
    for place in ("x", "1", "1.2.3", "-1.0"):
        answer = await server.http.get("/stream", headers={"Last-Event-ID": place})
        assert answer.status_code == 422


async def test_a_shutdown_ends_streams_properly(server: InProcessServer) -> None:
    async with StreamReader(server, "/stream") as tap:
        await tap.read_until("retry:")
        server.deps.closing.set()
        await tap.read_all()
        assert tap.ended


async def test_a_reader_that_leaves_at_the_moment_of_a_commit_is_gone(
    server: InProcessServer,
) -> None:
    """A stream that stayed open would keep its place, and delay the stop of the server."""
    call = SimpleNamespace(deps=server.deps)
    newest, feed = (await server.deps.queries.head())[1], server.deps.commits
    pieces = _pieces(call, StreamPosition(newest, _RECORD_END), lost=False)  # type: ignore[arg-type]
    await anext(pieces)
    reading = asyncio.ensure_future(anext(pieces))
    for _ in range(5):
        await asyncio.sleep(0)
    assert feed._watchers
    feed.publish(newest + 1)
    reading.cancel()
    await asyncio.wait([reading], timeout=1)
    assert reading.cancelled()
    await pieces.aclose()


async def test_the_number_of_open_streams_is_limited_and_leaving_frees_one(
    server: InProcessServer,
) -> None:
    path_server, _ = server.app._app.find("/stream")  # type: ignore[attr-defined]  # the directory's
    limit: ConcurrencyLimit = path_server._servers["GET"]._state.streams
    limit._taken = STREAMS_MAX - 1
    async with StreamReader(server, "/stream") as tap:
        await tap.read_until("retry:")
        refused = await server.http.get("/stream")
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
    async with StreamReader(server, "/stream") as tap:
        assert tap.status == 200


async def test_a_stream_answers_head_without_opening(server: InProcessServer) -> None:
    answer = await server.http.head("/stream")
    assert (answer.status_code, answer.content) == (200, b"")
