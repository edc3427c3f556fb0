"""Runs a benchmark of an installation through its public API, with jobs of its own that it removes
again.

All jobs are in one queue and carry a label and a capability that only the bench's own worker
has: nobody else's worker gets them, and that worker gets nobody else's.
"""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
import psutil

from rota.cli.problems import Failure
from rota.sdk import Endpoint
from rota.sdk.clock import Clock
from rota.wire.formats import encode
from rota.wire.problems import Problem
from rota.worker.agent import Agent, ResourceOverrides, WorkerConfig, open_agent_log

BUSY = 0.75
"""Of one core, or of the time: more than this and it is what the rest waits for."""
_SAMPLE = re.compile(
    r"^(process_cpu_seconds_total|rota_append_seconds_sum|rota_append_seconds_count) (\S+)", re.M
)


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Counters at one moment; all but the first are the server's own, as its metrics tell them."""

    at_s: float
    here_cpu_s: float
    """Of this process: whoever measures works, too."""
    server_cpu_s: float = 0.0
    append_s: float = 0.0
    appends: float = 0.0


def spent(metrics: str, at_s: float, here_cpu_s: float) -> Spent:
    """Reads a page of metrics; a counter that is missing stands still."""
    content = {name: float(value) for name, value in _SAMPLE.findall(metrics)}
    return Spent(
        at_s=at_s,
        here_cpu_s=here_cpu_s,
        server_cpu_s=content.get("process_cpu_seconds_total", 0.0),
        append_s=content.get("rota_append_seconds_sum", 0.0),
        appends=content.get("rota_append_seconds_count", 0.0),
    )


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Use of processors and disk during a measurement."""

    server_cores: float
    here_cores: float
    append_share: float
    """Of the time, in which an append to the journal was under way: disk or database."""
    append_ms: float
    """One append, on average."""


def cost(before: Spent, after: Spent) -> Cost:
    """Subtracts the counters of two moments."""
    took_s = max(after.at_s - before.at_s, 1e-9)
    appends = after.appends - before.appends
    append_s = after.append_s - before.append_s
    return Cost(
        server_cores=(after.server_cpu_s - before.server_cpu_s) / took_s,
        here_cores=(after.here_cpu_s - before.here_cpu_s) / took_s,
        append_share=append_s / took_s,
        append_ms=append_s / appends * 1_000 if appends else 0.0,
    )


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: a rate, or times in milliseconds."""

    name: str
    setting: str
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    count: int = 0
    """How many jobs or calls it rests on."""
    limit: str = ""
    """What held it back, as far as can be seen from outside."""
    cost: Cost | None = None


class Result(msgspec.Struct, kw_only=True):
    """Result of a bench, as `--json` prints it."""

    url: str
    version: str
    tag: str
    figures: list[Figure] = []
    notes: list[str] = []
    submitted: int = 0
    removed: int = 0


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that so many per cent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


def limit_of_rate(cost: Cost, *, held_back: bool) -> str:
    """Says what limits a rate: the busiest resource of those that can be seen."""
    if held_back:
        return "the server's limit of requests for one token (--rate-limit)"
    choices = (
        (cost.server_cores, f"the server's processor: {cost.server_cores:.0%} of a core"),
        (cost.append_share, f"disk or database: {cost.append_share:.0%} of the time in appends"),
        (cost.here_cores, f"this machine that measures: {cost.here_cores:.0%} of a core"),
    )
    share, words = max(choices)
    if share >= BUSY:
        return words
    return f"round trips, or others on these machines; next {words}"


def limit_of_call(call_ms: float, network_ms: float, cost: Cost) -> str:
    """Says where the time of one durable call goes."""
    rest = max(0.0, call_ms - network_ms - cost.append_ms)
    parts = (
        (network_ms, "the way there and back"),
        (cost.append_ms, "disk or database"),
        (rest, "the server"),
    )
    return ", ".join(f"{ms:.1f} ms {words}" for ms, words in sorted(parts, reverse=True))


TOO_MANY = 429
PAUSE_S = 0.02
"""After a 429: whoever asks too fast waits for the server's next breath, and goes on."""
CALL_S = 60.0
"""No call of a bench is held by the server for longer."""
JSON = {"Content-Type": "application/json"}


@dataclass(slots=True)
class BenchClient:
    """HTTP client of one server; `held_back` counts the answers with status 429."""

    http: aiohttp.ClientSession
    url: str
    clock: Clock
    throttled: int = 0
    _decode: msgspec.json.Decoder[Any] = field(default_factory=msgspec.json.Decoder)

    @classmethod
    def open(cls, endpoint: Endpoint, clock: Clock) -> BenchClient:
        """Connects to the first server named: a mean over several would say nothing."""
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        http = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=CALL_S),
        )
        return cls(http, endpoint.url, clock)

    async def close(self) -> None:
        """Hangs up."""
        await self.http.close()

    async def send(self, method: str, path: str, body: bytes = b"", key: str = "") -> bytes:
        """Returns the body of the answer; repeats what is throttled, fails on any other error."""
        headers = dict(JSON) if body else {}
        if key:
            headers["Idempotency-Key"] = key
        while True:
            try:
                async with self.http.request(
                    method,
                    self.url + path,
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,  # the token goes no further than to whom it was given
                ) as answer:
                    content = await answer.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise Failure(
                    f"{self.url}: {method} {path}: {str(error) or 'no answer'}"
                ) from error
            if answer.status < 300:
                return content
            if answer.status != TOO_MANY:
                raise Failure(f"{self.url}: {method} {path}: {_error_text(answer.status, content)}")
            self.throttled += 1
            await asyncio.sleep(PAUSE_S)

    async def ask(self, method: str, path: str, record: object = None) -> Any:
        """Sends and receives JSON, for what is not measured."""
        content = await self.send(method, path, b"" if record is None else encode(record))
        return self._decode.decode(content) if content else None

    async def timed_ms(self, method: str, path: str, body: bytes = b"", key: str = "") -> float:
        """Measures one call."""
        began = self.clock.elapsed_s()
        await self.send(method, path, body, key)
        return (self.clock.elapsed_s() - began) * 1_000


def _error_text(status: int, body: bytes) -> str:
    try:
        return f"{msgspec.json.decode(body, type=Problem).detail} (HTTP {status})"
    except msgspec.MsgspecError:
        return f"HTTP {status}"


CPUS = 1_000
"""A job asks for one: so many are held at once, and figures are not those of round trips."""
ONLINE_POLL_S = 0.02
START_S_MAX = 30.0
"""From the start of an agent until its server lists it as online."""


@asynccontextmanager
async def bench_worker(
    endpoint: Endpoint, queue: str, capability: str
) -> AsyncIterator[Callable[[BenchClient], Awaitable[None]]]:
    """Runs a worker until the block is left; yields a function that waits until it is online."""
    agent_log = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        agent = Agent(_config(endpoint, queue, capability, Path(folder)), open_agent_log(agent_log))
        task = asyncio.create_task(agent.run())

        async def online(client: BenchClient) -> None:
            deadline = client.clock.elapsed_s() + START_S_MAX
            path = f"/workers?status=online&capabilities={capability}"
            while not (await client.ask("GET", path))["items"]:
                if task.done() or client.clock.elapsed_s() > deadline:
                    last = (agent_log.getvalue().strip().splitlines() or ["it said nothing"])[-1]
                    raise Failure(f"the bench's own worker did not start: {last}")
                await asyncio.sleep(ONLINE_POLL_S)

        try:
            yield online
        finally:
            # Told once it drains; told twice it also stops what it runs, and leaves.
            agent.request_stop()
            agent.request_stop()
            await task


def _config(endpoint: Endpoint, queue: str, capability: str, folder: Path) -> WorkerConfig:
    return WorkerConfig(
        servers=[endpoint.url],
        token=endpoint.token,
        name=capability,
        resources=ResourceOverrides(cpu=CPUS),
        capabilities=[capability],
        queues=[queue],
        work_dir=folder,
        isolation="subreaper",
        containers="none",
    )


QUEUE = "rota-bench"
LABEL = "rota-bench"
BATCH = 1_000
BATCH_CONNECTIONS = 4
READS = 200
PICKUPS = 60
POLL_S = 0.005
IDLE_S = 0.02
"""Before each job whose pickup is timed: nobody has anything to do."""
SETTLE_S_MAX = 120.0
"""For jobs that do nothing: who waits longer waits in vain."""
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")
TRUE_TASK = {"kind": "command", "argv": ["true"]}


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Limits of a bench: seconds for each measurement, jobs in all."""

    seconds: float
    jobs: int
    connections: int

    def share(self, part: float) -> int:
        """Returns a part of the jobs; one at least."""
        return max(1, int(self.jobs * part))


@dataclass(slots=True)
class Bench:
    """Runs one bench of one installation."""

    endpoint: Endpoint
    client: BenchClient
    plan: BenchPlan
    tag: str
    """Different for every bench; all that it makes carries it."""
    submitted: int = 0
    notes: list[str] = field(default_factory=list)
    _network_ms: float = 0.0
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def capability(self) -> str:
        """Returns the capability that only the worker of this bench has."""
        return f"{LABEL}-{self.tag}"

    async def run(self) -> AsyncIterator[Figure]:
        """Yields each figure as it is measured: reads, submissions, whole lives, pickups."""
        yield await self._reads("way there and back", "/healthz")
        yield await self._reads("read", f"/jobs?queue={QUEUE}&limit=1")
        await _pause(self.client, paused=True)
        yield await self._single_connection()
        yield await self._many_connections()
        yield await self._batches("submit", self.plan.share(0.3), self._wait_projected)
        async with bench_worker(self.endpoint, QUEUE, self.capability) as online:
            await online(self.client)
            yield await self._drain()
            yield await self._batches("whole life", self.plan.share(0.45), self._wait_empty)
        if (found := await self._pickups()) is not None:
            for figure in found:
                yield figure

    # What is measured

    async def _reads(self, name: str, path: str) -> Figure:
        await self.client.send("GET", path)
        taken: list[float] = []
        going = self._time_and_count()
        while going(len(taken), READS):
            taken.append(await self.client.timed_ms("GET", path))
        if not self._network_ms:
            self._network_ms = percentile(taken, 50)
        return _times(name, f"GET {path.partition('?')[0]}", taken)

    async def _single_connection(self) -> Figure:
        body, taken = self._body(), list[float]()
        before = await self._spent()
        going = self._time_and_count()
        while going(len(taken), self.plan.share(0.05)):
            taken.append(await self.client.timed_ms("POST", "/jobs", body, self._key()))
        self.submitted += len(taken)
        used = cost(before, await self._spent())
        limit = limit_of_call(percentile(taken, 50), self._network_ms, used)
        figure = _times("submit", "single calls, 1 connection", taken)
        took_s = sum(taken) / 1_000
        return msgspec.structs.replace(
            figure, per_second=len(taken) / took_s, limit=limit, cost=used
        )

    async def _many_connections(self) -> Figure:
        body, done = self._body(), 0
        most = self.plan.share(0.15)
        before, held = await self._spent(), self.client.throttled
        going = self._time_and_count()

        async def submit_until_done() -> None:
            nonlocal done
            while going(done, most):
                done += 1
                await self.client.send("POST", "/jobs", body, self._key())

        await _run_all(submit_until_done() for _ in range(min(most, self.plan.connections)))
        self.submitted += done
        setting = f"single calls, {self.plan.connections} connections"
        return await self._rate(("submit", setting, done), before, held)

    async def _batches(
        self, name: str, most: int, settled: Callable[[], Awaitable[None]]
    ) -> Figure:
        size = max(1, min(BATCH, most // BATCH_CONNECTIONS))
        job = msgspec.Raw(self._body())
        body, done = encode({"jobs": [job] * size}), 0
        before, held = await self._spent(), self.client.throttled
        going = self._time_and_count()

        async def submit_until_done() -> None:
            nonlocal done
            while going(done, most - size + 1):
                done += size
                await self.client.send("POST", "/jobs/batch", body, self._key())

        await _run_all(submit_until_done() for _ in range(BATCH_CONNECTIONS))
        await settled()
        self.submitted += done
        setting = f"batches of {size:,}, {BATCH_CONNECTIONS} connections"
        return await self._rate((name, setting, done), before, held)

    async def _drain(self) -> Figure:
        waiting = sum((await self._depth()).values())
        before, held = await self._spent(), self.client.throttled
        await _pause(self.client, paused=False)
        await self._wait_empty()
        return await self._rate(("drain", "all that was submitted so far", waiting), before, held)

    async def _pickups(self) -> list[Figure] | None:
        if not await self._has_other_worker():
            self.notes.append(
                f"pickup was left out: no worker that is online takes jobs of the queue {QUEUE};"
                " one started without --queue does"
            )
            return None
        needs = {"cpu": 0.1}
        body = encode(self._job() | {"task": TRUE_TASK, "requirements": needs})
        handed: list[float] = []
        ended: list[float] = []
        going = self._time_and_count()
        while going(len(ended), min(PICKUPS, self.plan.share(0.05))):
            await asyncio.sleep(IDLE_S)
            job = await self._run_one(body)
            created = datetime.fromisoformat(job["created_at"])
            for stamps, at in ((handed, job["started_at"]), (ended, job["finished_at"])):
                stamps.append((datetime.fromisoformat(at) - created).total_seconds() * 1_000)
        return [
            _times("pickup", "accepted until handed to one of your workers", handed),
            _times("pickup", "accepted until `true` has run there", ended),
        ]

    async def _run_one(self, body: bytes) -> Any:
        content = await self.client.send("POST", "/jobs", body, self._key())
        self.submitted += 1
        path = f"/jobs/{msgspec.json.decode(content)['job_id']}"
        deadline = self.client.clock.elapsed_s() + SETTLE_S_MAX
        while (job := await self.client.ask("GET", path))["status"] not in FINAL:
            if self.client.clock.elapsed_s() > deadline:
                raise Failure(f"a job that only runs `true` has not ended: rota why {path[6:]}")
            await asyncio.sleep(POLL_S)
        if job["status"] != "succeeded":
            raise Failure(f"a job that only runs `true` has {job['status']}: {job['error']}")
        return job

    # What it is measured with

    def _job(self) -> dict[str, Any]:
        return {"name": LABEL, "queue": QUEUE, "labels": {LABEL: self.tag}}

    def _body(self) -> bytes:
        needs = {"cpu": 1, "capabilities": [self.capability]}
        return encode(self._job() | {"task": {"kind": "noop"}, "requirements": needs})

    def _key(self) -> str:
        return f"{LABEL}-{self.tag}-{next(self._numbers)}"

    async def _has_other_worker(self) -> bool:
        page = await self.client.ask("GET", "/workers?status=online&limit=1000")
        return any(
            self.capability not in worker["capabilities"]
            and not worker.get("only")
            and (worker["queues"] is None or QUEUE in worker["queues"])
            for worker in page["items"]
        )

    async def _depth(self) -> dict[str, int]:
        depth: dict[str, int] = (await self.client.ask("GET", f"/queues/{QUEUE}"))["depth"]
        return depth

    async def _wait_projected(self) -> None:
        """Waits, by a read, until the tables have all that was accepted."""
        await self.client.send("GET", f"/jobs?queue={QUEUE}&limit=1")

    async def _wait_empty(self) -> None:
        deadline = self.client.clock.elapsed_s() + SETTLE_S_MAX
        while any((await self._depth()).values()):
            if self.client.clock.elapsed_s() > deadline:
                raise Failure(f"jobs that do nothing have not ended after {SETTLE_S_MAX:g} s")
            await asyncio.sleep(POLL_S)
        await self._wait_projected()

    def _time_and_count(self) -> Callable[[int, int], bool]:
        """Returns a function that says whether to go on, by time and count."""
        end = self.client.clock.elapsed_s() + self.plan.seconds
        return lambda done, most: done < most and (not done or self.client.clock.elapsed_s() < end)

    async def _spent(self) -> Spent:
        metrics = (await self.client.send("GET", "/metrics")).decode()
        here = psutil.Process().cpu_times()
        return spent(metrics, self.client.clock.elapsed_s(), here.user + here.system)

    async def _rate(self, what: tuple[str, str, int], before: Spent, held: int) -> Figure:
        name, setting, done = what
        after = await self._spent()
        used = cost(before, after)
        return Figure(
            name=name,
            setting=setting,
            per_second=done / (after.at_s - before.at_s),
            count=done,
            limit=limit_of_rate(used, held_back=self.client.throttled > held),
            cost=used,
        )


def _times(name: str, setting: str, taken: list[float]) -> Figure:
    return Figure(
        name=name,
        setting=setting,
        p50_ms=percentile(taken, 50),
        p99_ms=percentile(taken, 99),
        count=len(taken),
    )


async def _run_all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all of them; if one fails or is cancelled, none goes on."""
    tasks = [asyncio.create_task(submit_until_done) for submit_until_done in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pause(client: BenchClient, *, paused: bool) -> None:
    """Pauses or resumes the bench's own queue, made if it is not there."""
    await client.ask("PUT", f"/queues/{QUEUE}", {"paused": paused})


@asynccontextmanager
async def cleaning_up(client: BenchClient, labels: dict[str, str]) -> AsyncIterator[list[int]]:
    """Removes all jobs with these labels when the block is left; the list then says how many."""
    removed: list[int] = []
    try:
        yield removed
    finally:
        click.echo("removing its jobs", err=True)
        removed.append(await clean(client, labels))


async def clean(client: BenchClient, labels: dict[str, str]) -> int:
    """Cancels what lives, removes what has ended, until nothing is left; answers how many."""
    chosen = {"queue": QUEUE} | ({"labels": labels} if labels else {})
    await _pause(client, paused=False)
    removed, deadline = 0, client.clock.elapsed_s() + SETTLE_S_MAX
    while True:
        await client.ask("POST", "/jobs/bulk", {"action": "cancel", "filter": chosen})
        spec = {"action": "delete", "filter": chosen, "limit": BATCH}
        while (done := await client.ask("POST", "/jobs/bulk", spec))["count"]:
            removed += done["count"]
        where = "".join(f"&label={key}:{value}" for key, value in labels.items())
        left = await client.ask("GET", f"/jobs?queue={QUEUE}&limit=1{where}")
        if not left["items"]:
            return removed
        if client.clock.elapsed_s() > deadline:
            raise Failure("some jobs of the bench could not be removed: rota bench --clean")
        await asyncio.sleep(POLL_S)
