"""Runs a plan: a storm in which no promise may be broken, then calm in which all jobs must end.

A run that fails can be shrunk to fewer faults and actions that still break the same promise. Every
fault and action has its own random numbers, so those that are left do the same as before.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import structlog

from rota.store.protocol import TablesBehindError
from rota.verify.checkers import BrokenPromise, Violation, judge
from tests.simtest.clock import StalledError, VirtualLoop
from tests.simtest.cluster import Cluster
from tests.simtest.plan import SimulationPlan
from tests.simtest.rng import rng_for, seeded_secrets

CALM_S = 120.0
"""Time after the last fault in which all jobs must end."""
LOOK_S = 0.5
UNWIND_S = 1.0
"""Time for tasks that were cancelled to unwind."""
QUIET_S = 3.0
"""A run ends when all jobs have been at their end for so long."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Result of one run."""

    plan: SimulationPlan
    trace_hash: str
    verdicts: list[BrokenPromise]
    simulated_s: float
    jobs: int
    counts: dict[str, int]
    story: list[str] = field(default_factory=list)
    """Events of the jobs for which a promise is broken."""

    @property
    def ok(self) -> bool:
        return not self.verdicts


def run(plan: SimulationPlan, prepare: Callable[[Cluster], None] | None = None) -> SimulationResult:
    """Runs a plan; equal plans give equal results, to the last message.

    `prepare` may change the cluster before anything begins.
    """
    loop = VirtualLoop(rng_for(plan.seed, "order").getrandbits(32))
    asyncio.set_event_loop(loop)
    try:
        with seeded_secrets(plan.seed):
            cluster = loop.run_until_complete(_make(plan, loop))
            with _catching_bugs(cluster):
                try:
                    if prepare is not None:
                        prepare(cluster)
                    return loop.run_until_complete(_live(cluster))
                except StalledError as stalled:
                    broken = BrokenPromise("time_passes", Violation(str(stalled)))
                    return _result(cluster, [broken])
    finally:
        loop.set_exception_handler(lambda *_: None)
        loop.close()
        asyncio.set_event_loop(None)
        # Loading a store freezes its objects for the collector: they must not stay.
        gc.unfreeze()


async def _make(plan: SimulationPlan, loop: VirtualLoop) -> Cluster:
    return Cluster(plan, loop)


async def _live(cluster: Cluster) -> SimulationResult:
    cluster.begin()
    watching = asyncio.create_task(cluster.watch_tables())
    await asyncio.sleep(cluster.plan.options.storm_s + 0.001)
    cluster.heal()
    ended = await _calm(cluster)
    try:
        history = await cluster.gather()
    except TablesBehindError:
        ended, history = False, cluster.history  # what clients saw still counts
    verdicts = judge(history) if ended else await _stuck(cluster)
    watching.cancel()
    wrong = await cluster.audit_tables()
    verdicts += [BrokenPromise("tables_equal_journal", Violation(one)) for one in wrong]
    for machine in cluster.machines():
        for error in machine.broken():
            cluster.report_bug(f"a task of {machine.name} broke: {error!r}")
    verdicts += [BrokenPromise("nothing_unexpected", Violation(bug)) for bug in cluster.bugs]
    for record in history.journal:
        cluster.trace.note(record.at, "record", record.seq, record.epoch, len(record.writes))
    result = _result(cluster, verdicts)
    cluster.switch_off()
    await asyncio.sleep(UNWIND_S)
    return result


def _result(cluster: Cluster, verdicts: list[BrokenPromise]) -> SimulationResult:
    return SimulationResult(
        cluster.plan,
        cluster.trace.hash(),
        verdicts,
        cluster.loop.true_s,
        len(cluster.history.jobs),
        dict(cluster.trace.counts),
        _story(cluster, verdicts),
    )


async def _calm(cluster: Cluster) -> bool:
    """Waits until all jobs have ended and stay so; False if they do not."""
    loop = cluster.loop
    until, quiet_since = loop.true_s + CALM_S, loop.true_s
    while loop.true_s < until:
        await asyncio.sleep(LOOK_S)
        if await cluster.unfinished():
            quiet_since = loop.true_s
        elif loop.true_s - quiet_since >= QUIET_S:
            return True
    return False


async def _stuck(cluster: Cluster) -> list[BrokenPromise]:
    """Returns the verdicts of a run that does not end; the other promises still count."""
    left = await cluster.unfinished()
    verdicts = judge(cluster.history)
    leader = next((one.machine.name for one in cluster.servers if one.leads), "nobody")
    message = f"{len(left)} jobs have not ended {CALM_S:g} s after the last fault; {leader} leads"
    return [BrokenPromise("all_ends", Violation(message, tuple(left[:3]))), *verdicts]


def _story(cluster: Cluster, verdicts: list[BrokenPromise]) -> list[str]:
    """Returns the faults, and the events of the jobs in the first violation."""
    if not verdicts:
        return []
    about = verdicts[0].violation.about
    names = {record.key: record.job_id for record in cluster.history.jobs}
    wanted = [*about, *(names[one] for one in about if one in names)]
    return [
        f"{at:9.3f} s  {text}"
        for at, text in cluster.trace.tail
        if text.startswith("fault") or any(one in text for one in wanted)
    ]


@contextmanager
def _catching_bugs(cluster: Cluster) -> Iterator[None]:
    """Reports what the product logs as a bug; drops all other logs."""

    def report(_logger: Any, _method: str, event: Any) -> Any:
        if event.get("exc_info"):
            error = event["exc_info"]
            cluster.report_bug(f"{event.get('event')}: {event.get('reason', '')} {error!r}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[report], wrapper_class=structlog.make_filtering_bound_logger(40)
    )
    cluster.loop.set_exception_handler(lambda _loop, context: _lost(cluster, context))
    try:
        yield
    finally:
        structlog.configure(**before)


def _lost(cluster: Cluster, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, Exception) and "Task" in context.get("message", ""):
        cluster.report_bug(f"a task broke: {error!r}")


T = TypeVar("T")

TRIES_MAX = 150


class Shrinking:
    """Shrinks a failed run to a smaller one that breaks the same promise."""

    def __init__(self, failed: SimulationResult) -> None:
        self.best = failed
        self.tries = 0
        self._promise = failed.verdicts[0].promise

    def go(self) -> SimulationResult:
        """Returns the smallest run found."""
        self._fewer(lambda plan: plan.faults, lambda plan, left: _with(plan, faults=left))
        self._fewer(lambda plan: plan.actions, lambda plan, left: _with(plan, actions=left))
        self._fewer(lambda plan: plan.faults, lambda plan, left: _with(plan, faults=left))
        return self.best

    def _fewer(
        self,
        parts: Callable[[SimulationPlan], Sequence[T]],
        change: Callable[[SimulationPlan, tuple[T, ...]], SimulationPlan],
    ) -> None:
        """Leaves out halves, then quarters, and so on, as long as it still fails."""
        size = len(parts(self.best.plan))
        while size >= 1 and self.tries < TRIES_MAX:
            place = 0
            while place < len(parts(self.best.plan)) and self.tries < TRIES_MAX:
                every = parts(self.best.plan)
                left = (*every[:place], *every[place + size :])
                if not self._fails(change(self.best.plan, left)):
                    place += size
            size //= 2

    def _fails(self, plan: SimulationPlan) -> bool:
        self.tries += 1
        result = run(plan)
        if not any(verdict.promise == self._promise for verdict in result.verdicts):
            return False
        self.best = result
        return True


def _with(plan: SimulationPlan, **changed: object) -> SimulationPlan:
    return msgspec.structs.replace(plan, **changed)
