"""Traces end to end on one server: submissions, waits, executions and ends become spans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rota.traces.otlp import Otlp
from rota.traces.spans import RecordingPropagator, TraceFollower
from tests.api.cluster_servers import a_cell
from tests.api.in_process_server import NOOP, InProcessServer, open_server
from tests.engine.rig import until

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
RETRIED = {"retry": {"max_attempts": 2, "delay": 0, "jitter": 0}}


class Traced:
    """Server that exports traces into memory."""

    def __init__(self, sampler: Callable[[str], bool] | None = None) -> None:
        self._kept = InMemorySpanExporter()
        self._otlp = Otlp(SimpleSpanProcessor(self._kept), "node-a")
        self.naming = RecordingPropagator(sampler or self._otlp.samples)
        self._seq = 0

    def follow(self, server: InProcessServer) -> None:
        self.server = server
        engine = server.engine
        self._follower = TraceFollower(
            engine, engine.journal_notifier, server.deps.queries, self.naming, self._otlp
        )

    async def spans(self, name: str = "") -> list[ReadableSpan]:
        """Returns all ended spans, or those of this name."""
        self._seq = await self._follower.follow(self._seq, self.server.engine.journal_notifier.seq)
        return [one for one in self._kept.get_finished_spans() if one.name == name or not name]

    async def span(self, name: str) -> ReadableSpan:
        """Returns the span of this name."""
        (one,) = await self.spans(name)
        return one

    async def submit(self, name: str = "j", **more: Any) -> dict[str, Any]:
        """Submits a noop job, with or without a caller's trace."""
        headers = more.pop("headers", GIVEN)
        body = {"name": name, "task": NOOP, **more}
        made = await self.server.ask("POST", "/jobs", body, expect=201, headers=headers)
        return dict(made)

    async def run(self, worker_id: str, status: str = "succeeded") -> str:
        """Runs the next job to its end; returns its TRACEPARENT."""
        (order,) = (await self.server.lease(worker_id))["executions"]
        await self.server.finish(order, status)
        return str(order["traceparent"])


@asynccontextmanager
async def traced(**more: Any) -> AsyncIterator[Traced]:
    one = Traced(**more)
    async with open_server(naming=one.naming) as server:
        one.follow(server)
        yield one


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    """Returns (trace, span, parent)."""
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    shown = None if parent is None else f"{parent.span_id:016x}"
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", shown


def linked(span: ReadableSpan) -> list[str]:
    """Returns the spans that it links to."""
    return [f"{one.context.span_id:016x}" for one in span.links]


async def test_a_job_is_traced_from_its_caller_to_its_end() -> None:
    async with traced() as one:
        job = await one.submit(queue="q", tenant="t")
        given = await one.run(await one.server.register())
        whole, submit = await one.span("job j"), await one.span("submit j")
        wait, run = await one.span("wait j"), await one.span("run j")
        assert {ids(span)[0] for span in (whole, submit, wait, run)} == {TRACE}
        assert ids(whole)[2] == CALLER
        assert {ids(span)[2] for span in (submit, wait, run)} == {ids(whole)[1]}
        assert given == f"00-{TRACE}-{ids(run)[1]}-01"
        assert whole.start_time <= wait.start_time <= wait.end_time <= run.start_time  # type: ignore[operator]
        assert run.end_time <= whole.end_time  # type: ignore[operator]
        about = dict(run.attributes or {})
        assert about["rota.job.id"] == job["job_id"]
        assert (about["rota.queue"], about["rota.tenant"]) == ("q", "t")
        assert whole.status.status_code is StatusCode.OK
        assert whole.resource.attributes["service.instance.id"] == "node-a"


async def test_a_retry_links_to_the_execution_before_it() -> None:
    async with traced() as one:
        await one.submit(**RETRIED)
        worker_id = await one.server.register()
        await one.run(worker_id, "failed")
        await one.run(worker_id)
        first, second = await one.spans("run j")
        assert linked(second) == [ids(first)[1]]
        assert linked(first) == []
        assert first.status.status_code is StatusCode.ERROR
        assert len(await one.spans("wait j")) == 2
        assert len(await one.spans("job j")) == 1


async def test_a_job_links_to_its_dependencies() -> None:
    async with traced() as one:
        upstream = await one.submit("up")
        other = {"traceparent": GIVEN["traceparent"].replace(TRACE, "1" * 32)}
        await one.submit("down", dependencies=[upstream["job_id"]], headers=other)
        worker_id = await one.server.register()
        await one.run(worker_id)
        await one.run(worker_id)
        down = await one.span("job down")
        assert ids(down)[0] == "1" * 32
        assert linked(down) == [ids(await one.span("job up"))[1]]
        assert f"{down.links[0].context.trace_id:032x}" == TRACE


async def test_a_manually_retried_job_has_a_span_for_each_retry() -> None:
    async with traced() as one:
        job = await one.submit()
        worker_id = await one.server.register()
        await one.run(worker_id, "failed")
        await one.spans()
        await one.server.ask("POST", f"/jobs/{job['job_id']}/retry", expect=200)
        await one.run(worker_id)
        first, second = await one.spans("job j")
        assert ids(first)[1] != ids(second)[1]
        assert linked(second) == [ids(first)[1]]
        assert ids((await one.spans("run j"))[1])[2] == ids(second)[1]


async def test_a_schedule_begins_a_trace() -> None:
    async with traced() as one:
        worker_id = await one.server.register()
        spec = {"name": "s", "interval": "1h", "job": {"name": "j", "task": NOOP}}
        made = await one.server.ask("POST", "/schedules", spec, expect=201)
        await one.server.ask("POST", f"/schedules/{made['schedule_id']}/trigger", expect=201)
        given = await one.run(worker_id)
        whole = await one.span("job j")
        assert ids(whole)[2] is None
        assert given.split("-")[1] == ids(whole)[0]
        assert dict(whole.attributes or {})["rota.schedule.id"] == made["schedule_id"]


async def test_a_job_that_never_ran_is_traced_too() -> None:
    async with traced() as one:
        job = await one.submit()
        await one.server.ask("PUT", f"/jobs/{job['job_id']}/cancel", expect=200)
        assert [span.name for span in await one.spans()] == ["job j", "submit j"]


@pytest.mark.parametrize("headers", [{}, {"traceparent": f"00-{TRACE}-{CALLER}-00"}])
async def test_an_unsampled_trace_has_no_spans(headers: dict[str, str]) -> None:
    async with traced(sampler=lambda _: False) as one:
        await one.submit(headers=headers)
        given = await one.run(await one.server.register())
        assert given.endswith("-00"), "the job is told that nobody records it"
        assert await one.spans() == []


async def test_an_invalid_traceparent_is_ignored() -> None:
    async with traced() as one:
        await one.submit(headers={"traceparent": "nonsense"})
        await one.run(await one.server.register())
        assert ids(await one.span("job j"))[2] is None


async def test_the_callers_trace_reaches_the_job_unchanged_without_tracing(
    server: InProcessServer,
) -> None:
    worker_id = await server.register()
    body = {"name": "j", "task": NOOP}
    await server.ask("POST", "/jobs", body, expect=201, headers=GIVEN)
    (order,) = (await server.lease(worker_id))["executions"]
    assert order["traceparent"] == GIVEN["traceparent"]
    await server.ask("POST", "/jobs/batch", {"jobs": [body]}, expect=201)
    (order,) = (await server.lease(worker_id))["executions"]
    assert order["traceparent"] is None


async def test_a_patched_job_stays_in_its_trace(server: InProcessServer) -> None:
    body = {"name": "j", "task": NOOP, "run_at": "2099-01-01T00:00:00Z"}
    job = await server.ask("POST", "/jobs", body, expect=201, headers=GIVEN)
    await server.ask("PATCH", f"/jobs/{job['job_id']}", {"run_at": None}, expect=200)
    (order,) = (await server.lease(await server.register()))["executions"]
    assert order["traceparent"] == GIVEN["traceparent"]


async def test_a_trace_passes_a_follower_and_a_time_without_a_leader() -> None:
    body = {"name": "j", "task": NOOP}
    async with a_cell(ttl_ms=1_000) as cell:
        leader, follower = await cell.pair()
        await follower.ask("POST", "/jobs", body, expect=201, headers=GIVEN)
        (order,) = (await leader.lease(await leader.register()))["executions"]
        assert order["traceparent"] == GIVEN["traceparent"]
        await leader.crash()
        await follower.ask("POST", "/jobs", body, expect=201, headers=GIVEN)
        await until(lambda: follower.engine.ready)
        (order,) = (await follower.lease(await follower.register("other")))["executions"]
        assert order["traceparent"] == GIVEN["traceparent"]


async def test_the_leader_exports_traces_from_its_journal() -> None:
    async with traced() as one:
        one._follower.start()
        try:
            await one.submit()
            await one.run(await one.server.register())
            await until(lambda: len(one._kept.get_finished_spans()) == 4)
        finally:
            await one._follower.stop()
