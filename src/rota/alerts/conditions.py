"""Alert conditions: samples the leader's metrics, keeps the samples of an hour, and compares them
with a rule.

A sample costs what there is of queues, workers and classes, never what waits.
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

_ENDED = (JobState.SUCCEEDED.value, JobState.FAILED.value)
COUNTED_SKIPS = (SkipReason.MISSED, SkipReason.TOO_OLD, SkipReason.BACKLOG)
"""Why runs of schedules are skipped that somebody may have counted on."""

Buckets = Sequence[tuple[float, int]]


class MetricsSource(Protocol):
    """What the engine counts."""

    def finished(self) -> Mapping[tuple[str, str], int]:
        """Jobs ended, by (queue, state)."""
        ...

    def decided(self) -> Mapping[tuple[str, str], int]:
        """Instants of schedules, by (decision, why skipped)."""
        ...

    def deadlines(self) -> Mapping[str, int]:
        """Jobs with a deadline, by what came of it."""
        ...

    def histograms(self) -> Mapping[str, Histogram]:
        """By name."""
        ...

    def projection_lag_seconds(self) -> float:
        """How far the tables are behind the journal."""
        ...


class QueueSample(msgspec.Struct, frozen=True):
    """One queue, or all of them."""

    waiting: int = 0
    ended: int = 0
    """Succeeded or failed."""
    failed: int = 0
    ready_ms: Millis = 0
    """How long the longest waiting of those that come next has been ready."""


class Sample(msgspec.Struct, frozen=True):
    """The figures of one moment."""

    at: Millis
    """By the steady clock."""
    queues: Mapping[str, QueueSample]
    """"" is all of them; others only if a rule names them."""
    online: int
    lost: tuple[Instant, ...]
    """When each worker that is gone without a word was given up."""
    missed: int
    at_risk: int
    """Jobs that were ever found unlikely to end in time ..."""
    overdue: int
    """... and that did not."""
    appends: Buckets
    lateness: Buckets
    behind_s: float
    disk_free: int | None
    wall: Instant


class Sampler:
    """Takes looks."""

    def __init__(
        self, brain: Brain, counted: MetricsSource, disk_free: Callable[[], int | None]
    ) -> None:
        self._brain = brain
        self._metrics = counted
        self._disk_free = disk_free

    def sample(self, named: Iterable[str]) -> Sample:
        """Now; the brain must be settled. `named` are the queues that rules ask for."""
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
            disk_free=self._disk_free(),
            wall=now,
        )

    def _queues(self, now: Instant, named: Mapping[str, None]) -> dict[str, QueueSample]:
        queues = self._brain.queues()
        waiting = {one.queue.name: one.depth.get(JobState.QUEUED, 0) for one in queues}
        ready = ready_ms(queues, self._brain.ready_since(), now)
        ended = self._metrics.finished()
        everybody = QueueSample(
            sum(waiting[one.queue.name] for one in queues if not one.queue.paused),
            sum(count for (_, state), count in ended.items() if state in _ENDED),
            sum(count for (_, state), count in ended.items() if state == JobState.FAILED.value),
            max(ready.values(), default=0),
        )
        return {"": everybody} | {
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
    """By queue, for how long a job that comes next has been ready; paused ones wait on purpose."""
    return {
        one.queue.name: max(0, now - since[one.queue.name])
        for one in queues
        if one.queue.name in since and not one.queue.paused
    }


def lost_at(workers: Sequence[WorkerInfo], patience: Millis) -> Iterator[Instant]:
    """When each worker that is lost was given up: it had been silent for its lease.

    One that leaves says so.
    """
    for one in workers:
        gone, seen = one.worker.gone_at, one.last_seen
        away = one.worker.state is WorkerState.OFFLINE
        if away and gone is not None and seen is not None and gone - seen >= patience:
            yield gone


class SampleHistory:
    """The looks of the longest window, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self.leader_changes: deque[Millis] = deque(maxlen=100)
        """When, by the steady clock, another server was found to lead."""

    def add(self, look: Sample) -> None:
        """The newest; those that no window reaches go."""
        self._samples.append(look)
        while look.at - self._samples[0].at > WINDOW_MS_MAX:
            self._samples.popleft()

    @property
    def newest(self) -> Sample:
        """The last one."""
        return self._samples[-1]

    def before(self, window_ms: Millis) -> Sample:
        """The oldest that is no older than the window."""
        edge = self.newest.at - window_ms
        return next(one for one in self._samples if one.at >= edge)

    def covers(self, window_ms: Millis, queue: str = "") -> bool:
        """Whether a whole window was seen, of this queue too if one is named."""
        seen = self.newest.at - self._samples[0].at >= window_ms
        return seen and (not queue or queue in self.before(window_ms).queues)

    def with_one_more(self, look: Sample) -> SampleHistory:
        """The same and another look, for a question that is not to be remembered."""
        made = SampleHistory()
        made._samples.extend(self._samples)
        made.leader_changes.extend(self.leader_changes)
        made.add(look)
        return made

    def leader_changes_within(self, window_ms: Millis) -> int:
        """How many there were within the window."""
        return sum(self.newest.at - at <= window_ms for at in self.leader_changes)


def measured_between(earlier: Buckets, later: Buckets) -> list[tuple[float, int]]:
    """(lower bound of a bucket, how many fell into it since then)."""
    found = []
    low, before, after = 0.0, 0, 0
    old = dict(earlier)
    for bound, count in later:
        found.append((low, (count - after) - (old.get(bound, 0) - before)))
        low, before, after = bound, old.get(bound, 0), count
    return found


def exceeded_by(found: Sequence[tuple[float, int]], part: float) -> float:
    """What this part of all measurements was above, as far as the buckets tell; 0 if none."""
    wanted = max(1.0, part * sum(count for _, count in found))
    above = 0
    for low, count in reversed(found):
        above += count
        if above >= wanted:
            return low
    return 0.0


ONE_IN_TWENTY = 0.05
ANY = 0.0
AT_ONCE = (Condition.WAIT, Condition.NO_WORKERS, Condition.TABLES_BEHIND, Condition.DISK_LOW)
"""What one look tells; the others compare with the beginning of the window."""


class Finding(msgspec.Struct, frozen=True):
    """What a rule's figure is, and whether that is what it watches for."""

    value: float
    holds: bool
    said: str
    """For people."""


Measure = Callable[[AlertRule, SampleHistory], float | None]
"""A rule's figure; None: there is too little to tell."""


def evaluate_rule(rule: AlertRule, history: SampleHistory) -> Finding | None:
    """None: nothing can be said yet."""
    value = _MEASURES[rule.condition](rule, history)
    if value is None:
        return None
    below = rule.condition is Condition.DISK_LOW
    holds = value < rule.threshold if below else value >= rule.threshold
    seen = rule.condition in AT_ONCE or history.covers(rule.window_ms, rule.queue)
    if not holds and not seen:
        # A new leader has not seen what an old one saw, nor anybody a queue that no rule named
        # before: that it is over cannot be said yet.
        return None
    return Finding(value, holds, describe(rule, value))


def describe(rule: AlertRule, value: float) -> str:
    """One line: what is watched for, where, the figure and the threshold."""
    sense = CONDITION_INFOS[rule.condition]
    place = f" of queue {rule.queue}" if rule.queue else ""
    limit = "at most" if rule.condition is Condition.DISK_LOW else "from"
    figure = f"{_amount(value, sense.unit)} ({limit} {_amount(rule.threshold, sense.unit)})"
    return f"{rule.condition.value.replace('_', ' ')}{place}: {figure}; {sense.meaning}"


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
    # A queue that was not looked at then begins with what it is now.
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
    edge = history.newest.wall - rule.window_ms
    return sum(at >= edge for at in history.newest.lost)


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
    Condition.DISK_LOW: _disk,
}
