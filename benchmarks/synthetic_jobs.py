"""Synthetic jobs as a company might have them: many names, few of them frequent, some failures.

The shares are natural ones: names, tenants and customers fall off as one over their rank, most jobs
succeed at the first try, a few fail with errors that differ in numbers only, a few were tried
again, some wait for another one. From one seed comes the same past.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar

from rota.core.model import (
    Backoff,
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    Life,
    Needs,
    Resources,
    RetryPolicy,
    Spec,
    Terms,
    Worker,
    WorkerId,
)
from rota.store.rows import edge_rows, execution_row, job_row, label_rows

DAY_MS = 86_400_000
DAYS = 30
NAMES, QUEUES, TENANTS, CUSTOMERS, WORKERS = 300, 12, 40, 50_000, 40
CHAIN_EVERY = 20
"""One job in so many is followed by two that wait for it."""
WIDE_GRAPH = 1_500
"""Jobs that wait for the first of a day."""
RARE_PRIORITY = 900
_STATES = {
    JobState.SUCCEEDED: 0.94,
    JobState.FAILED: 0.03,
    JobState.CANCELLED: 0.015,
    JobState.SKIPPED: 0.01,
    JobState.EXPIRED: 0.005,
}
_RAN = (JobState.SUCCEEDED, JobState.FAILED)
_ERRORS = (
    ("ConnectionError", "could not connect to 10.0.{0}.{1}: timed out after {2} ms"),
    ("KeyError", "'customer-{2}'"),
    ("MemoryError", "could not allocate {2} bytes"),
    ("HTTPError", "503 for https://api.example.com/v1/invoices/{2}"),
    ("ValueError", "row {2} of file {0}: not a number"),
    ("TimeoutError", "no answer within {1} s"),
    ("exit", "exit code 1"),
    ("IntegrityError", "duplicate key value violates unique constraint: id {2}"),
)


@dataclass(frozen=True, slots=True)
class Trade:
    LONGEST_MS: ClassVar[int] = 40 * 60_000
    """From submission to end; the day's last jobs come this long before midnight."""
    terms: Terms
    task: bytes
    run_ms: int
    team: str


@dataclass(slots=True)
class Tables:
    jobs: list[Any] = field(default_factory=list)
    executions: list[Any] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    edges: list[Any] = field(default_factory=list)


def by_rank(count: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(1, count + 1)))


class SyntheticJobs:
    def __init__(self, seed: int) -> None:
        self.trades = [_trade(number) for number in range(NAMES)]
        self._rng = random.Random(seed)
        self._by_name = by_rank(NAMES)
        self._by_customer = by_rank(CUSTOMERS)
        self._by_state = list(accumulate(_STATES.values()))
        self._made = 0
        self._upstream: JobId | None = None
        self._widest: JobId | None = None

    def ended(self, times: Sequence[int]) -> Tables:
        tables, rng = Tables(), self._rng
        count = len(times)
        trades = rng.choices(self.trades, cum_weights=self._by_name, k=count)
        customers = rng.choices(range(CUSTOMERS), cum_weights=self._by_customer, k=count)
        states = rng.choices(list(_STATES), cum_weights=self._by_state, k=count)
        for at, trade, customer, state in zip(times, trades, customers, states, strict=True):
            job_id = self.new_id(at)
            spec = self._spec(trade, customer, at, self._needed())
            self._note(job_id)
            life, tries = self._life(job_id, trade, state, at)
            row = job_row(job_id, spec, life)
            tables.jobs.append((*row[:8], life.finished_at, *row[8:]))
            tables.executions += [execution_row(one) for one in tries]
            tables.labels += label_rows(job_id, spec)
            tables.edges += edge_rows(job_id, spec)
        return tables

    def waiting(self, now: int, count: int) -> Tables:
        tables, rng = Tables(), self._rng
        trades = rng.choices(self.trades, cum_weights=self._by_name, k=count)
        for number, trade in enumerate(trades):
            at = now - 3_600_000 + 3_000_000 * number // max(1, count)
            job_id = self.new_id(at)
            spec = self._spec(trade, rng.randrange(CUSTOMERS), at, ())
            life = Life(JobState.QUEUED, "no_worker", ready_at=at)
            row = job_row(job_id, spec, life)
            tables.jobs.append((*row[:8], None, *row[8:]))
            tables.labels += label_rows(job_id, spec)
        return tables

    def workers(self, now: int) -> list[Worker]:
        capacity = Resources(cpu_milli=32_000, memory=128 << 30)
        return [
            Worker(worker_id(number), f"node-{number:03}", "gone", capacity, registered_at=now)
            for number in range(WORKERS)
        ]

    def new_id(self, at: int) -> JobId:
        rng = self._rng.getrandbits(74)
        text = f"{at:012x}7{rng >> 62:03x}{0x8000000000000000 | rng & (1 << 62) - 1:016x}"
        return JobId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")

    def _needed(self) -> tuple[Dependency, ...]:
        if self._widest is not None and 0 < self._made <= WIDE_GRAPH:
            return (Dependency(self._widest),)
        if self._upstream is not None and self._made % CHAIN_EVERY in (1, 2):
            return (Dependency(self._upstream),)
        return ()

    def _note(self, job_id: JobId) -> None:
        self._upstream = job_id
        self._widest = self._widest or job_id
        self._made += 1

    def _spec(self, trade: Trade, customer: int, at: int, needed: tuple[Dependency, ...]) -> Spec:
        payload = json.dumps({"customer": customer, "period": "2026-01", "lines": [1, 2, customer]})
        return Spec(
            trade.terms,
            trade.task,
            at,
            arrival_number=self._made,
            payload=payload.encode(),
            dependencies=needed,
            labels=(
                ("customer", f"c{customer}"),
                ("release", f"r{at // (DAY_MS * 3)}"),
                ("team", trade.team),
            ),
        )

    def _life(
        self, job_id: JobId, trade: Trade, state: JobState, at: int
    ) -> tuple[Life, list[Execution]]:
        rng = self._rng
        began = at + int(min(rng.expovariate(1 / 20_000), 600_000))
        ended = began + int(min(rng.expovariate(1 / trade.run_ms), 600_000))
        if state not in _RAN:
            return Life(state, "cancelled" if state is JobState.CANCELLED else "upstream_failed",
                        finished_at=ended), []  # fmt: skip
        error = self._error() if state is JobState.FAILED else None
        tries = self._tries(job_id, (began, ended), error)
        last = tries[-1]
        life = Life(
            state,
            "attempts_used" if error else "",
            attempt=last.attempt,
            fence=last.fence,
            started_at=began,
            finished_at=last.ended_at,
            execution_id=last.id,
            worker_id=last.worker_id,
            result=None if error else b'{"rows": 1421}',
            error=error,
        )
        return life, tries

    def _tries(self, job_id: JobId, time: tuple[int, int], error: bytes | None) -> list[Execution]:
        rng, (began, ended) = self._rng, time
        again = 2 if error else int(rng.random() < 0.02)
        tries = []
        for number in range(again + 1):
            last = number == again
            state = ExecutionState.FAILED
            if last and error is None:
                state = ExecutionState.SUCCEEDED
            elif rng.random() < 0.02:
                state = ExecutionState.LOST
            tries.append(
                Execution(
                    ExecutionId(self.new_id(began + number)),
                    job_id,
                    worker_id(rng.randrange(WORKERS)),
                    number + 1,
                    number + 1,
                    state,
                    began + number,
                    began + number,
                    ended if last else began + number + 1,
                    exit_code=0 if state is ExecutionState.SUCCEEDED else 1,
                    result=b'{"rows": 1421}' if state is ExecutionState.SUCCEEDED else None,
                    error=error,
                    usage=b'{"cpu_seconds": 12.5, "memory_peak": 73400320}',
                    memory=256 << 20,
                )
            )
        return tries

    def _error(self) -> bytes:
        rng = self._rng
        kind, text = rng.choice(_ERRORS)
        numbers = rng.randrange(256), rng.randrange(256), rng.randrange(10**6)
        return json.dumps({"type": kind, "message": text.format(*numbers)}).encode()


def worker_id(number: int) -> WorkerId:
    return WorkerId(f"018f0000-0000-7000-8000-{number:012x}")


def _trade(number: int) -> Trade:
    rng = random.Random(number)
    queue = rng.choices(range(QUEUES), cum_weights=by_rank(QUEUES))[0]
    tenant = rng.choices(range(TENANTS), cum_weights=by_rank(TENANTS))[0]
    needs = Needs(Resources(cpu_milli=1000, memory=rng.choice((256, 512, 2048)) << 20))
    priority = RARE_PRIORITY if number == NAMES - 1 else rng.choice((0, 0, 0, 0, 5, -10))
    name = f"{rng.choice(('bill', 'mail', 'scan', 'train', 'report'))}-{number:03}"
    terms = Terms(
        name,
        f"queue-{queue:02}",
        f"tenant-{tenant:02}",
        priority,
        needs,
        RetryPolicy(3, Backoff.EXPONENTIAL),
        timeout_ms=600_000,
    )
    task = {"kind": "command", "argv": ["python3", f"/srv/app/{name}.py", "--period", "2026-01"]}
    run_ms = rng.choice((2_000, 20_000, 90_000))
    return Trade(terms, json.dumps(task).encode(), run_ms, f"team-{tenant % 10}")
