"""Latency of reads in a cell with ten million finished jobs.

PostgreSQL with a past (past.py), a real server, workers that hold jobs, and every read that the
dashboard and the command line make, shuffled, one after the other over one connection. ROTA_ROWS
says how many finished jobs, else 10 million.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from statistics import quantiles

from benchmarks.cell import Cell, workplace
from benchmarks.database_server import DatabaseServer
from benchmarks.past_jobs import fill
from benchmarks.read_requests import Known, Question, Request, cursor_at, get, moment, questions
from benchmarks.synthetic_jobs import DAY_MS, DAYS
from benchmarks.table import Row, Scale, count, number
from benchmarks.traffic import Connection, open_connections, run

AIM_MS = 200
LIVE = 100_000
WORKERS, HELD = 20, 50
TENANT = "tenant-00"
LEASE = ("--lease-ttl", "1h")
"""The workers here take jobs and are not received of again."""
UNWRITTEN = {"wal_level": "minimal", "max_wal_senders": "0", "shared_buffers": "1GB"}
"""A new partition is not in the write-ahead log then: the filling takes half as long. A quarter of
memory is what PostgreSQL's own manual begins with; this is far less."""


def measure(scale: Scale) -> Iterator[Row]:
    """Measures one row for each kind of request, and how many miss the aim."""
    done = int(os.environ.get("ROTA_ROWS", scale.of(10_000_000, 30_000)))
    with workplace() as place:
        database_server = DatabaseServer(place, UNWRITTEN)
        tenants_token = database_server.new_token(TENANT)
        fill(database_server.dsn, int(time.time() * 1000), done, min(done // 10, LIVE))
        with Cell(place / "rows", database_server, LEASE) as cell:
            taken = run(ask_all(cell, tenants_token, scale.of(60, 3)))
    yield from _table(f"{count(done)} jobs", taken)


def _table(about: str, taken: Sequence[tuple[Question, list[float]]]) -> Iterator[Row]:
    slow = 0
    for question, times in taken:
        late = _p95(times)
        slow += late > AIM_MS
        note = f"p95 {number(late)}, max {number(max(times))}"
        yield Row(about, question.name, times, "ms", note, less_is_better=True)
    yield Row(about, f"questions with a p95 over {AIM_MS} ms", [float(slow)], "", "aim: 0")


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]


async def ask_all(
    cell: Cell, tenants_token: str, repeats: int
) -> list[tuple[Question, list[float]]]:
    async with open_connections(cell, 1) as (connection,):
        own = await Connection.open(cell, tenants_token)
        await _hold_jobs(connection)
        asked = list(questions(await _known(connection)))
        taken: dict[str, list[float]] = {question.name: [] for question in asked}
        rng = random.Random(1)
        for turn in range(-1, repeats):
            rng.shuffle(asked)
            for question in asked:
                request = question.requests[turn % len(question.requests)]
                took = await _timed(own if question.of_tenant else connection, request)
                # The first time opens connections and plans statements.
                if turn >= 0:
                    taken[question.name].append(took)
        await own.close()
    by_name = sorted(asked, key=lambda question: list(taken).index(question.name))
    return [(question, taken[question.name]) for question in by_name]


async def _timed(connection: Connection, request: Request) -> float:
    raw = connection.request(request.method, request.path, request.body)
    began = time.perf_counter()
    await connection.send(raw)
    return (time.perf_counter() - began) * 1000


async def _hold_jobs(connection: Connection) -> None:
    for number_ in range(WORKERS):
        spec = {"name": f"busy-{number_}", "resources": {"cpu": HELD, "memory": "1TiB"}}
        worker = await connection.ask("POST", "/workers/register", spec)
        await connection.ask(
            "POST", f"/workers/{worker['worker_id']}/lease", {"max": HELD, "wait": 0}
        )


async def _known(connection: Connection) -> Known:
    now = int(time.time() * 1000)
    jobs, executions, wide = [], [], []
    for back in range(1, DAYS - 1, 3):
        cursor = cursor_at(now - back * DAY_MS)
        for query in ({}, {"status": "failed"}):
            page = await connection.ask("GET", get("/jobs", cursor=cursor, limit=3, **query).path)
            jobs += [job["job_id"] for job in page["items"]]
        page = await connection.ask("GET", get("/executions", cursor=cursor, limit=2).path)
        executions += [one["execution_id"] for one in page["items"]]
    page = await connection.ask("GET", get("/jobs", status="queued", limit=5).path)
    waiting = [job["job_id"] for job in page["items"]]
    # The first job of a day has the widest graph.
    for back in (1, DAYS // 2):
        start = moment((now // DAY_MS - back) * DAY_MS + 1000)
        page = await connection.ask("GET", get("/jobs", created_before=start, limit=5).path)
        wide += [job["job_id"] for job in page["items"]]
    groups = await connection.ask("GET", "/dead-letters/groups")
    marks = [group["fingerprint"] for group in groups["items"][:3]]
    return Known(now, jobs, waiting, wide, executions, marks)
