"""Seed to verdict: a storm in which no promise may be broken, then calm in which all must end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from rota.sim.checkers import Verdict, judge
from rota.sim.checkers.evidence import Broken
from rota.sim.clock import StalledError, VirtualLoop
from rota.sim.cluster import Cluster
from rota.sim.dice import dice_for, seeded_secrets
from rota.sim.plan import Plan

CALM_S = 120.0
"""After the last fault everything must have ended within this."""
LOOK_S = 0.5
UNWIND_S = 1.0
"""For what was cut off in the middle to let go of what it holds."""
QUIET_S = 3.0
"""Nothing new for so long means that it is over."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run."""

    plan: Plan
    trace_hash: str
    verdicts: list[Verdict]
    simulated_s: float
    jobs: int
    counts: dict[str, int]
    story: list[str] = field(default_factory=list)
    """What is known of the jobs that a promise was broken to."""

    @property
    def ok(self) -> bool:
        """Whether all promises were kept."""
        return not self.verdicts


def run(plan: Plan, prepare: Callable[[Cluster], None] | None = None) -> Result:
    """The whole run; equal plans give equal results, to the last message.

    `prepare` may do more to the cluster than the plan says, before anything begins.
    """
    loop = VirtualLoop(dice_for(plan.seed, "order").getrandbits(32))
    asyncio.set_event_loop(loop)
    try:
        with seeded_secrets(plan.seed):
            cluster = loop.run_until_complete(_make(plan, loop))
            with _listening(cluster):
                try:
                    if prepare is not None:
                        prepare(cluster)
                    return loop.run_until_complete(_live(cluster))
                except StalledError as stalled:
                    broken = Verdict("time_passes", Broken(str(stalled)))
                    return _result(cluster, [broken])
    finally:
        loop.set_exception_handler(lambda *_: None)
        loop.close()
        asyncio.set_event_loop(None)
        # Loading freezes what it made for the collector; of a run nothing is to stay.
        gc.unfreeze()


async def _make(plan: Plan, loop: VirtualLoop) -> Cluster:
    return Cluster(plan, loop)


async def _live(cluster: Cluster) -> Result:
    cluster.begin()
    await asyncio.sleep(cluster.plan.options.storm_s + 0.001)
    cluster.heal()
    ended = await _calm(cluster)
    history = await cluster.gather()
    verdicts = judge(history) if ended else _stuck(cluster)
    for machine in cluster.machines():
        for error in machine.broken():
            cluster.complain(f"a task of {machine.name} broke: {error!r}")
    verdicts += [Verdict("nothing_unexpected", Broken(bug)) for bug in cluster.bugs]
    for record in history.journal:
        cluster.trace.note(record.at, "record", record.seq, record.epoch, len(record.writes))
    result = _result(cluster, verdicts)
    cluster.switch_off()
    await asyncio.sleep(UNWIND_S)
    return result


def _result(cluster: Cluster, verdicts: list[Verdict]) -> Result:
    return Result(
        cluster.plan,
        cluster.trace.hash(),
        verdicts,
        cluster.loop.true_s,
        len(cluster.history.records),
        dict(cluster.trace.counts),
        _story(cluster, verdicts),
    )


async def _calm(cluster: Cluster) -> bool:
    """Waits until everything has ended and stays so; False if it does not."""
    loop = cluster.loop
    until, quiet_since = loop.true_s + CALM_S, loop.true_s
    while loop.true_s < until:
        await asyncio.sleep(LOOK_S)
        if cluster.unfinished():
            quiet_since = loop.true_s
        elif loop.true_s - quiet_since >= QUIET_S:
            return True
    return False


def _stuck(cluster: Cluster) -> list[Verdict]:
    """What is left over after a long calm; the other promises still count."""
    left = cluster.unfinished()
    verdicts = judge(cluster.history)
    leader = next((one.machine.name for one in cluster.servers if one.leads), "nobody")
    says = f"{len(left)} jobs have not ended {CALM_S:g} s after the last fault; {leader} leads"
    return [Verdict("all_ends", Broken(says, tuple(left[:3]))), *verdicts]


def _story(cluster: Cluster, verdicts: list[Verdict]) -> list[str]:
    """Of the first broken promise: what was seen of those involved, and the faults."""
    if not verdicts:
        return []
    about = verdicts[0].broken.about
    names = {record.key: record.job_id for record in cluster.history.records}
    wanted = [*about, *(names[one] for one in about if one in names)]
    return [
        f"{at:9.3f} s  {text}"
        for at, text in cluster.trace.tail
        if text.startswith("fault") or any(one in text for one in wanted)
    ]


@contextmanager
def _listening(cluster: Cluster) -> Iterator[None]:
    """What the product logs as a bug is one; the rest of its logs is left alone."""

    def hear(_logger: Any, _method: str, event: Any) -> Any:
        if event.get("exc_info"):
            error = event["exc_info"]
            cluster.complain(f"{event.get('event')}: {event.get('reason', '')} {error!r}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[hear], wrapper_class=structlog.make_filtering_bound_logger(40))
    cluster.loop.set_exception_handler(lambda _loop, context: _lost(cluster, context))
    try:
        yield
    finally:
        structlog.configure(**before)


def _lost(cluster: Cluster, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, Exception) and "Task" in context.get("message", ""):
        cluster.complain(f"a task broke: {error!r}")
