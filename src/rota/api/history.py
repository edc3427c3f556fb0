"""How the figures moved: notes them every few seconds in memory; nothing of it is stored.

It begins anew with every start and every leader: Prometheus is for the longer view.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import structlog

from rota.api.limits import (
    GROWTH_JOBS_MIN,
    GROWTH_STEPS,
    HISTORY_KINDS_MAX,
    HISTORY_LONG_S,
    HISTORY_LONG_STEPS,
    HISTORY_QUEUES_MAX,
    HISTORY_STEP_S,
    HISTORY_STEPS,
    RATE_STEPS,
)
from rota.api.metrics import EngineMetrics, amounts
from rota.core.model import Instant, JobState, WorkerState
from rota.engine.background import BackgroundTask
from rota.engine.ports import Brain, UnavailableError
from rota.wire.overview import SampleView
from rota.wire.units import from_instant

log = structlog.get_logger(__name__)

WAITING = (JobState.PENDING, JobState.QUEUED)
RUNNING = (JobState.RUNNING, JobState.CANCELLING)
WAIT = "job_wait_seconds"


@dataclass(frozen=True, slots=True)
class CumulativeCounts:
    """Counts that only grow, as they were at one moment."""

    at: Instant
    submitted: int
    finished: Mapping[str, int]
    waits: Sequence[tuple[float, int]]
    """(upper bound, how many waits were at or below it)."""


@dataclass(frozen=True, slots=True)
class GaugeValues:
    """What was at one moment."""

    waiting: int = 0
    running: int = 0
    resources: Mapping[str, dict[str, float | int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistorySample:
    """The time between two totals, and what was at its end."""

    before: CumulativeCounts
    after: CumulativeCounts
    gauges: GaugeValues

    def view(self) -> SampleView:
        """As it is answered."""
        ended = {
            state: self.after.finished.get(state, 0) - self.before.finished.get(state, 0)
            for state in self.after.finished
        }
        known = {state: max(0, count) for state, count in ended.items()}
        waits = _histogram_between(self.before.waits, self.after.waits)
        return SampleView(
            at=from_instant(self.after.at),
            span=max(1, self.after.at - self.before.at) / 1000,
            waiting=self.gauges.waiting,
            running=self.gauges.running,
            submitted=max(0, self.after.submitted - self.before.submitted),
            succeeded=known.get(JobState.SUCCEEDED, 0),
            failed=known.get(JobState.FAILED, 0),
            other=sum(known.values())
            - known.get(JobState.SUCCEEDED, 0)
            - known.get(JobState.FAILED, 0),
            wait_p50=quantile(waits, 0.5),
            wait_p95=quantile(waits, 0.95),
            resources={kind: dict(amount) for kind, amount in self.gauges.resources.items()},
        )


class MetricsHistory:
    """Keeps an hour in fine steps and a day in coarse ones, while this server leads."""

    def __init__(self, brain: Brain, figures: EngineMetrics) -> None:
        self._brain = brain
        self._metrics = figures
        self._fine: deque[HistorySample] = deque(maxlen=HISTORY_STEPS)
        self._coarse: deque[HistorySample] = deque(maxlen=HISTORY_LONG_STEPS)
        self._depths: deque[Mapping[str, int]] = deque(maxlen=GROWTH_STEPS)
        self._ended: deque[tuple[Instant, Counter[str]]] = deque(maxlen=RATE_STEPS + 1)
        self._last: CumulativeCounts | None = None
        self._last_coarse: CumulativeCounts | None = None
        self._task = BackgroundTask("rota-history")

    def start(self) -> None:
        """From now on."""
        self._task.start(self._run())

    async def stop(self) -> None:
        """Nothing is left to be done."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except UnavailableError as error:
                log.debug("figures not noted", cause=str(error))
            await asyncio.sleep(HISTORY_STEP_S)

    async def sample(self) -> None:
        """One more stretch, up to now; a server that does not lead forgets what it had."""
        if not (self._brain.ready and self._brain.standing().leads):
            self._last = self._last_coarse = None
            self._ended.clear()
            return
        await self._brain.settled()
        totals, gauges = self._totals(), self._gauges()
        if self._last is not None and totals.submitted >= self._last.submitted:
            self._fine.append(HistorySample(self._last, totals, gauges))
        self._last = totals
        coarse = self._last_coarse
        if coarse is None:
            self._last_coarse = totals
        elif totals.at - coarse.at >= HISTORY_LONG_S * 1000:
            self._coarse.append(HistorySample(coarse, totals, gauges))
            self._last_coarse = totals

    def last_hour(self) -> list[SampleView]:
        """The last hour."""
        return [stretch.view() for stretch in self._fine]

    def last_day(self) -> list[SampleView]:
        """The last day."""
        return [stretch.view() for stretch in self._coarse]

    def newest(self) -> SampleView | None:
        """The last stretch that is over."""
        return self._fine[-1].view() if self._fine else None

    def growing(self) -> dict[str, int]:
        """Queues with many more waiting jobs than minutes ago, and how many more."""
        if len(self._depths) < 2:
            return {}
        then, now = self._depths[0], self._depths[-1]
        grown = {name: depth - then.get(name, 0) for name, depth in now.items()}
        return {
            name: more
            for name, more in grown.items()
            if more >= GROWTH_JOBS_MIN and more * 5 >= now[name]
        }

    def rate(self, queue: str) -> float | None:
        """Jobs of a queue that ended, a second, in the last minute; None: it is too soon to say."""
        if len(self._ended) < 2:
            return None
        (then, before), (now, after) = self._ended[0], self._ended[-1]
        return max(0, after[queue] - before[queue]) / (max(1, now - then) / 1000)

    def _totals(self) -> CumulativeCounts:
        now = self._brain.clock.now()
        finished: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        for (queue, status), count in self._metrics.finished().items():
            finished[status] += count
            ended[queue] += count
        self._ended.append((now, ended))
        waits = self._metrics.histograms()[WAIT].buckets()
        return CumulativeCounts(now, self._metrics.submitted(), finished, waits)

    def _gauges(self) -> GaugeValues:
        depths: dict[str, int] = {}
        running = 0
        for glance in self._brain.queues():
            depths[glance.queue.name] = sum(glance.depth.get(state, 0) for state in WAITING)
            running += sum(glance.depth.get(state, 0) for state in RUNNING)
        self._depths.append(dict(list(depths.items())[:HISTORY_QUEUES_MAX]))
        capacity: Counter[str] = Counter()
        used: Counter[str] = Counter()
        for worker in self._brain.workers():
            if worker.worker.state is not WorkerState.OFFLINE:
                capacity.update(amounts(worker.worker.capacity))
                used.update(amounts(worker.used))
        kinds = [kind for kind, total in capacity.items() if total][:HISTORY_KINDS_MAX]
        resources: dict[str, dict[str, float | int]] = {
            kind: {"capacity": capacity[kind], "used": used[kind]} for kind in kinds
        }
        return GaugeValues(sum(depths.values()), running, resources)


def _histogram_between(
    before: Sequence[tuple[float, int]], after: Sequence[tuple[float, int]]
) -> list[tuple[float, int]]:
    """The same histogram of what came in between."""
    if len(before) != len(after) or after[-1][1] < before[-1][1]:
        return list(after)
    return [
        (bound, count - earlier) for (bound, count), (_, earlier) in zip(after, before, strict=True)
    ]


def quantile(buckets: Iterable[tuple[float, int]], share: float) -> float | None:
    """Where so many of the measurements lie below, as exactly as buckets tell; None: none were."""
    rising = [(0.0, 0), *buckets]
    wanted = rising[-1][1] * share
    if not wanted:
        return None
    for (low, below), (high, count) in pairwise(rising):
        if count >= wanted:
            part = (wanted - below) / max(1, count - below)
            return low if high == float("inf") else low + (high - low) * part
    return None
