"""Alert conditions: samples the leader's metrics, keeps the samples of an hour, and compares them
with rules.

The cost of a sample grows with queues, workers and classes, never with waiting jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from rota.alerts.limits import WINDOW_MS_MAX
from rota.alerts.rules import CONDITION_INFOS, AlertRule, Condition
from rota.core.deadlines import AT_RISK, MISSED
from rota.core.info_model import QueueInfo, WorkerInfo
from rota.core.model import Instant, JobState, Millis, WorkerState
from rota.core.schedule_model import OccurrenceDecision, SkipReason
from rota.engine.metrics import Histogram
from rota.engine.ports import Brain
from rota.store.protocol import Loss, Losses

_ENDED = (JobState.SUCCEEDED.value, JobState.FAILED.value)
COUNTED_SKIPS = (SkipReason.MISSED, SkipReason.TOO_OLD, SkipReason.BACKLOG)
"""Reasons to skip a schedule's run that a user may have relied on."""

Buckets = Sequence[tuple[float, int]]


class MetricsSource(Protocol):
    """Metrics of the engine that alerts read."""

    def finished(self) -> Mapping[tuple[str, str], int]:
        """Returns finished jobs by (queue, state)."""
        ...

    def decided(self) -> Mapping[tuple[str, str], int]:
        """Returns instants of schedules by (decision, reason of a skip)."""
        ...

    def deadlines(self) -> Mapping[str, int]:
        """Returns jobs with a deadline by its status."""
        ...

    def histograms(self) -> Mapping[str, Histogram]: ...

    def projection_lag_seconds(self) -> float:
        """Returns how far the tables are behind the journal."""
        ...

    def quarantined_jobs(self) -> int:
        """Returns jobs whose writes cannot be projected."""
        ...

    def losses(self) -> Losses:
        """Returns what failovers of the database have lost."""
        ...


class QueueSample(msgspec.Struct, frozen=True):
    """Metrics of one queue, or of all together."""

    waiting: int = 0
    ended: int = 0
    """Succeeded or failed."""
    failed: int = 0
    ready_ms: Millis = 0
    """How long the longest waiting first job of a class has been ready."""


class Sample(msgspec.Struct, frozen=True):
    """Metrics of one moment."""

    at: Millis
    """The steady clock's time."""
    queues: Mapping[str, QueueSample]
    """By name, if a rule names it; "" is all queues together."""
    online: int
    lost: tuple[Instant, ...]
    """When each lost worker was found to be lost."""
    missed: int
    at_risk: int
    """Jobs that have ever been at risk to miss their deadline."""
    overdue: int
    """Jobs that have missed it."""
    appends: Buckets
    lateness: Buckets
    behind_s: float
    quarantined: int
    losses: tuple[Loss, ...]
    """Losses of records, as they were noticed."""
    disk_free: int | None
    wall: Instant


class Sampler:
    """Takes samples of the metrics."""

    def __init__(
        self, brain: Brain, metrics: MetricsSource, disk_free: Callable[[], int | None]
    ) -> None:
        self._brain = brain
        self._metrics = metrics
        self._disk_free = disk_free

    def sample(self, named: Iterable[str]) -> Sample:
        """Takes a sample, with the queues that rules name; call `settled` before."""
        now = self._brain.clock.now()
        workers = self._brain.workers()
        measured = self._metrics.histograms()
        decided = self._metrics.decided()
        deadlines = self._metrics.deadlines()
        return Sample(
            at=self._brain.clock.steady(),
            queues=self._queues(now, dict.fromkeys(named)),
            online=sum(one.worker.state is not WorkerState.OFFLINE for one in workers),
            lost=tuple(lost_at(workers, self._brain.timing.lease_ttl_ms)),
            missed=sum(
                decided.get((OccurrenceDecision.SKIPPED.value, why.value), 0)
                for why in COUNTED_SKIPS
            ),
            at_risk=deadlines.get(AT_RISK, 0),
            overdue=deadlines.get(MISSED, 0),
            appends=measured["append_seconds"].buckets(),
            lateness=measured["schedule_lateness_seconds"].buckets(),
            behind_s=self._metrics.projection_lag_seconds(),
            quarantined=self._metrics.quarantined_jobs(),
            losses=self._metrics.losses().each,
            disk_free=self._disk_free(),
            wall=now,
        )

    def _queues(self, now: Instant, named: Mapping[str, None]) -> dict[str, QueueSample]:
        queues = self._brain.queues()
        waiting = {one.queue.name: one.depth.get(JobState.QUEUED, 0) for one in queues}
        ready = ready_ms(queues, self._brain.ready_since(), now)
        ended = self._metrics.finished()
        total = QueueSample(
            sum(waiting[one.queue.name] for one in queues if not one.queue.paused),
            sum(count for (_, state), count in ended.items() if state in _ENDED),
            sum(count for (_, state), count in ended.items() if state == JobState.FAILED.value),
            max(ready.values(), default=0),
        )
        return {"": total} | {
            name: QueueSample(
                waiting.get(name, 0),
                sum(ended.get((name, state), 0) for state in _ENDED),
                ended.get((name, JobState.FAILED.value), 0),
                ready.get(name, 0),
            )
            for name in named
        }


def ready_ms(
    queues: Sequence[QueueInfo], since: Mapping[str, Instant], now: Instant
) -> dict[str, Millis]:
    """Returns by queue how long its first job has been ready; paused queues wait on purpose."""
    return {
        one.queue.name: max(0, now - since[one.queue.name])
        for one in queues
        if one.queue.name in since and not one.queue.paused
    }


def lost_at(workers: Sequence[WorkerInfo], lease_ms: Millis) -> Iterator[Instant]:
    """Yields when each lost worker went offline: after silence for a lease.

    A worker that deregisters goes offline sooner.
    """
    for one in workers:
        gone, seen = one.worker.gone_at, one.last_seen
        offline = one.worker.state is WorkerState.OFFLINE
        if offline and gone is not None and seen is not None and gone - seen >= lease_ms:
            yield gone


class SampleHistory:
    """Keeps the samples of the longest window, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self.leader_changes: deque[Millis] = deque(maxlen=100)
        """Times, by the steady clock, at which another server was found to lead."""

    def add(self, sample: Sample) -> None:
        """Adds the newest sample; drops those older than the longest window."""
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_MS_MAX:
            self._samples.popleft()

    @property
    def newest(self) -> Sample:
        return self._samples[-1]

    def before(self, window_ms: Millis) -> Sample:
        """Returns the oldest sample of the window."""
        start = self.newest.at - window_ms
        return next(one for one in self._samples if one.at >= start)

    def covers(self, window_ms: Millis, queue: str = "") -> bool:
        """Whether there are samples of a whole window, with this queue if one is named."""
        seen = self.newest.at - self._samples[0].at >= window_ms
        return seen and (not queue or queue in self.before(window_ms).queues)

    def with_one_more(self, sample: Sample) -> SampleHistory:
        """Returns a copy with another sample, for an evaluation that changes nothing."""
        copy = SampleHistory()
        copy._samples.extend(self._samples)
        copy.leader_changes.extend(self.leader_changes)
        copy.add(sample)
        return copy

    def leader_changes_within(self, window_ms: Millis) -> int:
        return sum(self.newest.at - at <= window_ms for at in self.leader_changes)


def measured_between(earlier: Buckets, later: Buckets) -> list[tuple[float, int]]:
    """Returns (lower bound of a bucket, measurements that fell into it between two samples)."""
    found = []
    low, before, after = 0.0, 0, 0
    old = dict(earlier)
    for bound, count in later:
        found.append((low, (count - after) - (old.get(bound, 0) - before)))
        low, before, after = bound, old.get(bound, 0), count
    return found


def exceeded_by(found: Sequence[tuple[float, int]], part: float) -> float:
    """Returns the bound that this part of all measurements exceeded, by buckets; 0 if none."""
    wanted = max(1.0, part * sum(count for _, count in found))
    above = 0
    for low, count in reversed(found):
        above += count
        if above >= wanted:
            return low
    return 0.0


ONE_IN_TWENTY = 0.05
ANY = 0.0
AT_ONCE = (
    *(Condition.WAIT, Condition.NO_WORKERS, Condition.DISK_LOW),
    *(Condition.TABLES_BEHIND, Condition.JOBS_QUARANTINED, Condition.RECORDS_LOST),
)
"""Conditions that one sample shows; the others compare it with the beginning of the window."""


class Finding(msgspec.Struct, frozen=True):
    """Result of a rule: its value, and whether its condition holds."""

    value: float
    holds: bool
    said: str
    """The message."""


Measure = Callable[[AlertRule, SampleHistory], float | None]
"""Computes a rule's value; None: there is too little data."""


def evaluate_rule(rule: AlertRule, history: SampleHistory) -> Finding | None:
    """Compares the samples with a rule; None: there is too little data yet."""
    value = _MEASURES[rule.condition](rule, history)
    if value is None:
        return None
    below = rule.condition is Condition.DISK_LOW
    holds = value < rule.threshold if below else value >= rule.threshold
    seen = rule.condition in AT_ONCE or history.covers(rule.window_ms, rule.queue)
    if not holds and not seen:
        # A new leader has no samples of the last one, and there are none of a queue that no rule
        # named before: whether the condition has ended is unknown.
        return None
    return Finding(value, holds, describe(rule, value))


def describe(rule: AlertRule, value: float) -> str:
    """Writes the message: condition, queue, value, threshold and meaning, in one line."""
    info = CONDITION_INFOS[rule.condition]
    where = f" of queue {rule.queue}" if rule.queue else ""
    limit = "at most" if rule.condition is Condition.DISK_LOW else "from"
    shown = f"{_amount(value, info.unit)} ({limit} {_amount(rule.threshold, info.unit)})"
    return f"{rule.condition.value.replace('_', ' ')}{where}: {shown}; {info.meaning}"


def _amount(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value:.1%}"
    if unit == "bytes":
        return f"{value / (1 << 30):.2f} GiB"
    if value == 1 and unit != "s":
        return f"1 {unit.removesuffix('s')}"
    shown = f"{value:g}" if value < 1_000 else f"{value:,.0f}"
    return f"{shown} {unit}"


def _queue(rule: AlertRule, history: SampleHistory) -> tuple[QueueSample, QueueSample]:
    nothing = QueueSample()
    now = history.newest.queues.get(rule.queue, nothing)
    # A queue that an older sample does not have begins with its present values.
    return history.before(rule.window_ms).queues.get(rule.queue, now), now


def _growth(rule: AlertRule, history: SampleHistory) -> float | None:
    then, now = _queue(rule, history)
    return now.waiting - then.waiting


def _wait(rule: AlertRule, history: SampleHistory) -> float | None:
    return _queue(rule, history)[1].ready_ms / 1000


def _failure_rate(rule: AlertRule, history: SampleHistory) -> float | None:
    then, now = _queue(rule, history)
    ended = now.ended - then.ended
    return 0.0 if ended < rule.at_least else (now.failed - then.failed) / ended


def _exhausted_jobs(rule: AlertRule, history: SampleHistory) -> float | None:
    then, now = _queue(rule, history)
    return now.failed - then.failed


def _lost_workers(rule: AlertRule, history: SampleHistory) -> float | None:
    start = history.newest.wall - rule.window_ms
    return sum(at >= start for at in history.newest.lost)


def _unserved(rule: AlertRule, history: SampleHistory) -> float | None:
    newest = history.newest
    return 0 if newest.online else newest.queues[""].waiting


def _lateness(rule: AlertRule, history: SampleHistory) -> float | None:
    then = history.before(rule.window_ms)
    return exceeded_by(measured_between(then.lateness, history.newest.lateness), ANY)


def _missed(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.missed - history.before(rule.window_ms).missed


def _at_risk(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.at_risk - history.before(rule.window_ms).at_risk


def _overdue(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.overdue - history.before(rule.window_ms).overdue


def _leaders(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.leader_changes_within(rule.window_ms)


def _slow_appends(rule: AlertRule, history: SampleHistory) -> float | None:
    then = history.before(rule.window_ms)
    found = measured_between(then.appends, history.newest.appends)
    enough = sum(count for _, count in found) >= rule.at_least
    return exceeded_by(found, ONE_IN_TWENTY) if enough else 0.0


def _behind(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.behind_s


def _quarantined(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.quarantined


def _lost_records(rule: AlertRule, history: SampleHistory) -> float | None:
    """Counts a loss of an unknown number of records as one."""
    newest = history.newest
    start = newest.wall - rule.window_ms
    return sum(max(1, loss.records) for loss in newest.losses if loss.at >= start)


def _disk(rule: AlertRule, history: SampleHistory) -> float | None:
    return history.newest.disk_free


_MEASURES: Mapping[Condition, Measure] = {
    Condition.BACKLOG_GROWS: _growth,
    Condition.WAIT: _wait,
    Condition.FAILURE_RATE: _failure_rate,
    Condition.DEAD_LETTERS: _exhausted_jobs,
    Condition.WORKER_LOST: _lost_workers,
    Condition.NO_WORKERS: _unserved,
    Condition.SCHEDULE_LATE: _lateness,
    Condition.SCHEDULE_MISSED: _missed,
    Condition.DEADLINE_AT_RISK: _at_risk,
    Condition.DEADLINE_MISSED: _overdue,
    Condition.LEADER_CHANGED: _leaders,
    Condition.STORE_SLOW: _slow_appends,
    Condition.TABLES_BEHIND: _behind,
    Condition.JOBS_QUARANTINED: _quarantined,
    Condition.RECORDS_LOST: _lost_records,
    Condition.DISK_LOW: _disk,
}
