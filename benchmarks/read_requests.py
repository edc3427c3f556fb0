"""Read requests of the dashboard and the command line, for a cell with synthetic finished jobs.

Each call has several variants, so that no answer is measured twice from the same warm pages only:
frequent and rare names, near and far pages, filters that contradict each other and find nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from benchmarks.synthetic_jobs import DAY_MS, DAYS, RARE_PRIORITY, SyntheticJobs, Trade, worker_id
from rota.wire.formats import make_cursor

COUNTED = 10_000
"""How far the dashboard counts what an action on many would touch."""
LIVE = "pending,queued,running,cancelling"
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    body: bytes = b""

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


@dataclass(frozen=True, slots=True)
class Question:
    name: str
    requests: Sequence[Request]
    of_tenant: bool = False
    """Asked with a tenant's own token."""


@dataclass(frozen=True, slots=True)
class Known:
    now: int
    jobs: Sequence[str]
    """Finished ones of several ages."""
    waiting: Sequence[str]
    wide: Sequence[str]
    """One of a graph of many jobs."""
    executions: Sequence[str]
    fingerprints: Sequence[str]


def questions(known: Known) -> Iterator[Question]:
    trades = SyntheticJobs(0).trades
    yield from _lists(known)
    yield from _filters(trades)
    yield from _labels(trades)
    yield from _times(known, trades)
    yield from _failures(known, trades)
    yield from _executions(known)
    yield from _overview(known)
    yield from _details(known)
    yield from _counts(known, trades)
    yield from _of_tenant(known)


def get(path: str, **query: Any) -> Request:
    given = {name: value for name, value in query.items() if value is not None}
    return Request(f"{path}?{urlencode(given, doseq=True)}" if given else path)


def moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")


def cursor_at(at: int) -> str:
    text = f"{at:012x}"
    return make_cursor(f"{text[:8]}-{text[8:]}-7000-8000-000000000000")


def _deep(known: Known, path: str, **query: Any) -> list[Request]:
    return [
        get(path, cursor=cursor_at(known.now - back * DAY_MS), **query)
        for back in (1, DAYS // 2, DAYS - 2)
    ]


def _lists(known: Known) -> Iterator[Question]:
    yield Question("jobs: newest", [get("/jobs")])
    yield Question("jobs: newest, 1,000", [get("/jobs", limit=1000)])
    yield Question("jobs: deep pages", _deep(known, "/jobs"))
    yield Question("jobs: live", [get("/jobs", status=LIVE)])
    for state in (*FINAL, "queued", "running"):
        yield Question(f"jobs: {state}", [get("/jobs", status=state)])
    yield Question("jobs: several statuses", [get("/jobs", status="failed,cancelled,expired")])
    yield Question("jobs: all final statuses", [get("/jobs", status=",".join(FINAL))])
    yield Question("jobs: failed, deep pages", _deep(known, "/jobs", status="failed"))
    yield Question("jobs: succeeded, deep pages", _deep(known, "/jobs", status="succeeded"))
    yield Question("jobs: members of an array", [get("/jobs", array=one) for one in known.jobs])


def _some(trades: Sequence[Trade]) -> list[Trade]:
    return [trades[number] for number in (0, 1, 5, 20, 80, 200, len(trades) - 1)]


def _filters(trades: Sequence[Trade]) -> Iterator[Question]:
    some = [trade.terms for trade in _some(trades)]
    for column in ("name", "queue", "tenant"):
        values = [getattr(terms, column) for terms in some]
        yield Question(f"jobs: {column}", [get("/jobs", **{column: one}) for one in values])
        for state in ("failed", "expired", "succeeded"):
            yield Question(
                f"jobs: {column} and {state}",
                [get("/jobs", **{column: one}, status=state) for one in values],
            )
    yield Question("jobs: a name nobody has", [get("/jobs", name="nobody")])
    yield Question(
        "jobs: name, queue, tenant, failed",
        [
            get("/jobs", name=one.name, queue=one.queue, tenant=one.tenant, status="failed")
            for one in some
        ],
    )
    others = [trade.terms for trade in trades[:10]]
    yield Question(
        "jobs: name and a queue it is never in",
        [
            get("/jobs", name=one.name, queue=other.queue)
            for one, other in zip(others, reversed(others), strict=True)
            if one.queue != other.queue
        ],
    )
    yield Question("jobs: priority 0", [get("/jobs", priority=0)])
    yield Question("jobs: a rare priority", [get("/jobs", priority=RARE_PRIORITY)])
    yield Question("jobs: a priority nobody has", [get("/jobs", priority=777)])
    yield Question(
        "jobs: queue and a priority nobody has",
        [get("/jobs", queue=one.queue, priority=777) for one in some],
    )


def _labels(trades: Sequence[Trade]) -> Iterator[Question]:
    customers = [f"customer:c{number}" for number in (0, 1, 10, 100, 1_000, 20_000)]
    yield Question("jobs: label, many values", [get("/jobs", label=one) for one in customers])
    teams = [f"team:team-{number}" for number in range(10)]
    yield Question("jobs: label, few values", [get("/jobs", label=one) for one in teams])
    yield Question("jobs: a label nobody has", [get("/jobs", label="team:none")])
    yield Question(
        "jobs: two labels",
        [get("/jobs", label=[one, team]) for one in customers for team in teams[:3]],
    )
    for state in ("failed", "expired"):
        yield Question(
            f"jobs: label and {state}",
            [get("/jobs", label=one, status=state) for one in (*customers, *teams)],
        )
    yield Question(
        "jobs: label and name",
        [
            get("/jobs", label=one, name=trade.terms.name)
            for one in (*customers[:3], *teams)
            for trade in _some(trades)
        ],
    )


def _times(known: Known, trades: Sequence[Trade]) -> Iterator[Question]:
    now, some = known.now, [trade.terms for trade in _some(trades)]
    days = [now - back * DAY_MS for back in (2, DAYS // 2, DAYS - 2)]
    hours = [(moment(at), moment(at + 3_600_000)) for at in days]
    yield Question(
        "jobs: an hour of another day",
        [get("/jobs", created_after=start, created_before=end) for start, end in hours],
    )
    yield Question("jobs: before a time", [get("/jobs", created_before=moment(at)) for at in days])
    yield Question(
        "jobs: before a time, failed",
        [get("/jobs", created_before=moment(at), status="failed") for at in days],
    )
    yield Question(
        "jobs: before a time, queue",
        [get("/jobs", created_before=moment(at), queue=one.queue) for at in days for one in some],
    )
    yield Question(
        "jobs: an hour of another day, name, failed",
        [
            get("/jobs", created_after=start, created_before=end, name=one.name, status="failed")
            for start, end in hours
            for one in some
        ],
    )
    yield Question(
        "jobs: before all there is", [get("/jobs", created_before=moment(now - 2 * DAYS * DAY_MS))]
    )
    yield Question(
        "jobs: an id's beginning",
        [
            get("/jobs", created_after=moment(at - 1), created_before=moment(at + 65_536))
            for at in days
        ],
    )


def _failures(known: Known, trades: Sequence[Trade]) -> Iterator[Question]:
    yield Question("dead letters", [get("/dead-letters")])
    yield Question("dead letters: deep pages", _deep(known, "/dead-letters"))
    yield Question("dead letters: groups", [get("/dead-letters/groups")])
    yield Question(
        "dead letters: groups of a name",
        [get("/dead-letters/groups", name=trade.terms.name) for trade in _some(trades)],
    )
    yield Question(
        "dead letters: groups of a queue",
        [get("/dead-letters/groups", queue=trade.terms.queue) for trade in _some(trades)],
    )


def _executions(known: Known) -> Iterator[Question]:
    workers = [worker_id(number) for number in (0, 7, 39)]
    yield Question("executions: newest", [get("/executions")])
    yield Question("executions: deep pages", _deep(known, "/executions"))
    yield Question("executions: of a job", [get("/executions", job_id=one) for one in known.jobs])
    yield Question("executions: of a worker", [get("/executions", worker_id=w) for w in workers])
    for state in ("lost", "failed", "timed_out", "succeeded"):
        yield Question(f"executions: {state}", [get("/executions", status=state)])
        yield Question(
            f"executions: of a worker, {state}",
            [get("/executions", worker_id=one, status=state) for one in workers],
        )


def _overview(known: Known) -> Iterator[Question]:
    yield Question("/healthz, for comparison", [get("/healthz")])
    for path in (
        "/stats", "/stats/history", "/attention", "/cluster", "/session", "/queues", "/tenants",
        "/workers", "/policy", "/schedules", "/triggers", "/events", "/alerts", "/autoscale",
        "/audit", "/metrics", "/reports/waste", "/bundles",
    ):  # fmt: skip
        yield Question(path, [get(path)])
    yield Question("/stats/history of a day", [get("/stats/history", window="day")])
    yield Question("timeline: the last hour", [get("/timeline")])
    hour = 3_600_000
    old = [known.now - back * DAY_MS for back in (2, DAYS // 2, DAYS - 2)]
    yield Question(
        "timeline: a day",
        [get("/timeline", after=moment(at - DAY_MS), before=moment(at)) for at in old],
    )
    yield Question(
        "timeline: of a worker",
        [
            get("/timeline", after=moment(at - hour), before=moment(at), worker_id=worker_id(7))
            for at in old
        ],
    )


def _details(known: Known) -> Iterator[Question]:
    yield Question("job", [get(f"/jobs/{one}") for one in known.jobs])
    yield Question("job: nobody's id", [get("/executions", job_id=known.executions[0])])
    yield Question("job: why, ended", [get(f"/jobs/{one}/why") for one in known.jobs])
    yield Question("job: why, waiting", [get(f"/jobs/{one}/why") for one in known.waiting])
    yield Question("job: logs", [get(f"/jobs/{one}/logs") for one in known.jobs])
    yield Question("job: graph", [get(f"/jobs/{one}/graph") for one in known.jobs])
    yield Question("job: graph of 1,500", [get(f"/jobs/{one}/graph") for one in known.wide])
    yield Question("execution", [get(f"/executions/{one}") for one in known.executions])
    yield Question("execution: log", [get(f"/executions/{one}/logs") for one in known.executions])
    yield Question("worker", [get(f"/workers/{worker_id(7)}")])


def _counts(known: Known, trades: Sequence[Trade]) -> Iterator[Question]:
    def preview(action: str, **wanted: Any) -> Request:
        asked = {"action": action, "filter": wanted, "dry_run": True, "limit": COUNTED}
        if action == "reprioritise":
            asked["priority"] = 9
        return Request("/jobs/bulk", json.dumps(asked).encode())

    some = [trade.terms for trade in _some(trades)]
    yield Question("preview: delete of a queue", [preview("delete", queue=t.queue) for t in some])
    yield Question("preview: delete of a name", [preview("delete", name=one.name) for one in some])
    yield Question(
        "preview: delete by label",
        [preview("delete", labels={"team": f"team-{number}"}) for number in (0, 9)],
    )
    yield Question("preview: retry of all failed", [preview("retry", status="failed")])
    yield Question(
        "preview: retry of one error",
        [preview("retry", status="failed", fingerprint=one) for one in known.fingerprints],
    )
    yield Question("preview: cancel of all", [preview("cancel")])
    yield Question("preview: priority of a queue", [preview("reprioritise", queue=some[0].queue)])


def _of_tenant(known: Known) -> Iterator[Question]:
    for path in ("/stats", "/jobs", "/executions", "/attention", "/dead-letters/groups",
                 "/timeline", "/queues"):  # fmt: skip
        yield Question(f"a tenant's {path}", [get(path)], of_tenant=True)
    yield Question("a tenant's failed jobs", [get("/jobs", status="failed")], of_tenant=True)
