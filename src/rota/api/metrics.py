"""Metrics: `/metrics` in the format of Prometheus, and a short history in memory for the overview.

`/metrics` reads the engine's counts when asked and counts nothing itself. The history samples them
every few seconds; it is never stored, and begins again with every leader.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rota.alerts.conditions import COUNTED_SKIPS, lost_at, ready_ms
from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.rules import Severity
from rota.api.limits import (
    GROWTH_JOBS_MIN,
    GROWTH_STEPS,
    HISTORY_KINDS_MAX,
    HISTORY_LONG_S,
    HISTORY_LONG_STEPS,
    HISTORY_QUEUES_MAX,
    HISTORY_STEP_S,
    HISTORY_STEPS,
    METRIC_KINDS_MAX,
    METRIC_QUEUES_MAX,
    RATE_STEPS,
)
from rota.api.throttling import ConnectionLimit
from rota.core.deadlines import AT_RISK, MET, MISSED
from rota.core.info_model import QueueInfo, WorkerInfo
from rota.core.model import Instant, JobState, Resources, WorkerId, WorkerState
from rota.core.schedule_model import OccurrenceDecision
from rota.engine.background import BackgroundTask
from rota.engine.durability import DurabilityMonitor
from rota.engine.membership import Membership
from rota.engine.metrics import Histogram
from rota.engine.ports import Brain, UnavailableError
from rota.store.protocol import DurabilityLevel, Losses
from rota.wire.formats import from_instant
from rota.wire.service import SampleView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AUTOSCALE_TARGET_MS = 300_000
"""Default time within which all waiting jobs are to be started."""
OPENMETRICS_TYPE = "application/openmetrics-text"
OPENMETRICS = f"{OPENMETRICS_TYPE}; version=1.0.0"
OTHER_QUEUES = "(others)"
"""Label that sums up all queues without series of their own; no queue can have this name."""
ENDED = (
    *(JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.SKIPPED, JobState.EXPIRED),
)
LIVE = (JobState.PENDING, JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)
USAGE_KINDS = ("cpu", "memory", "storage", "gpu", "processes", "load")
"""Reported kinds with a series; labels chosen by workers would have no limit."""


class EngineMetrics(Protocol):
    """Counts of the engine; they cover the whole cell and survive restarts."""

    def submitted(self) -> int:
        """Returns jobs accepted since the cell began."""
        ...

    def finished(self) -> Mapping[tuple[str, str], int]:
        """Returns jobs finished since the cell began, by (queue, state)."""
        ...

    def decided(self) -> Mapping[tuple[str, str], int]:
        """Returns decided occurrences of schedules since the cell began, by (decision, reason)."""
        ...

    def reacted(self) -> Mapping[str, int]:
        """Returns events and decisions of triggers since the cell began, by outcome."""
        ...

    def deadlines(self) -> Mapping[str, int]:
        """Returns jobs whose deadline came at risk, was met or was missed, since the cell began."""
        ...

    def estimates(self) -> Mapping[str, int]:
        """Returns starts inside and outside the predicted interval, since the cell began."""
        ...

    def histograms(self) -> Mapping[str, Histogram]:
        """Returns histograms by the names in HISTOGRAMS."""
        ...

    def projection_lag_seconds(self) -> float:
        """Returns how far the projection is behind the journal."""
        ...

    def quarantined_jobs(self) -> int:
        """Returns jobs whose writes cannot be projected."""
        ...

    def losses(self) -> Losses:
        """Returns what failovers of the database have lost."""
        ...

    def processes(self) -> Mapping[str, int]:
        """Returns the processes of this server that run, by kind."""
        ...


class ReportedUsage(Protocol):
    """Usage of their machines that workers reported last."""

    def of(self, worker_id: WorkerId) -> Mapping[str, float]:
        """Returns a worker's usage by kind."""
        ...


HISTOGRAMS: Mapping[str, str] = {
    "job_wait_seconds": "Time from ready to run until claimed by a worker",
    "job_run_seconds": "Time from claimed until finished",
    "dispatch_latency_seconds": "Time from the decision to run a job until its order is sent",
    "append_seconds": "Time of one append to the journal, until durable",
    "append_jobs": "Jobs touched by one append",
    "schedule_lateness_seconds": "Time from when an occurrence was due until its job was created",
    "estimate_error_seconds": "Actual start minus predicted start",
}


def worker_status(info: WorkerInfo) -> str:
    """Returns a worker's status; a silent worker is unhealthy before it is offline."""
    if info.worker.state is WorkerState.OFFLINE or info.healthy:
        return info.worker.state.value
    return "unhealthy"


def amounts(resources: Resources) -> dict[str, float]:
    """Returns resources by kind, in the units that people use."""
    return {
        "cpu": resources.cpu_milli / 1000,
        "memory": resources.memory,
        "storage": resources.storage,
        "gpu": resources.gpu_milli / 1000,
        **{name: milli / 1000 for name, milli in resources.custom},
    }


def follows(brain: Brain) -> bool:
    """Whether another server leads, which exposes the metrics of the whole cell."""
    standing = brain.standing()
    return not standing.leads and standing.leader is not None


@dataclass(frozen=True)
class ServerCollector(Collector):
    """Collects the metrics of this server and of the cell at the moment of the scrape."""

    brain: Brain
    metrics: EngineMetrics
    usage: ReportedUsage
    disk_free: Callable[[], int | None]

    def collect(self) -> Iterator[Metric]:
        if self.brain.ready:
            queues = self.brain.queues()
            yield from self._jobs(queues, _queues_with_series(queues))
            yield from self._workers()
        if not follows(self.brain):
            # The leader exposes the metrics of the whole cell; followers must not repeat them.
            yield from self._totals()
            if self.brain.ready:
                yield from self._autoscale()
        yield from self._histograms()
        if (free := self.disk_free()) is not None:
            yield _gauge("rota_data_disk_free_bytes", "Free space of the data disk", free)

    def _totals(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily("rota_jobs_submitted", "Jobs accepted")
        submitted.add_metric([], self.metrics.submitted())
        yield submitted
        decided = CounterMetricFamily(
            "rota_schedule_occurrences",
            "Occurrences of schedules, by outcome and reason",
            labels=["outcome", "reason"],
        )
        left_out = {(OccurrenceDecision.SKIPPED.value, why.value): 0 for why in COUNTED_SKIPS}
        for (decision, why), count in (left_out | dict(self.metrics.decided())).items():
            decided.add_metric([decision, why], count)
        yield decided
        yield from self._events()
        # Exposed as 0 from the start: Prometheus sees no increase where a series begins.
        came = dict.fromkeys((AT_RISK, MISSED, MET), 0) | dict(self.metrics.deadlines())
        yield _counted("rota_deadlines", "Jobs with a deadline, by outcome", came)
        yield _counted(
            "rota_estimates",
            "Starts inside and outside the predicted interval",
            self.metrics.estimates(),
        )

    def _events(self) -> Iterator[Metric]:
        received = CounterMetricFamily(
            "rota_events_received", "Events received, by outcome", labels=["outcome"]
        )
        judged = CounterMetricFamily(
            "rota_trigger_decisions",
            "Decisions of triggers about events, by outcome",
            labels=["outcome"],
        )
        for word, count in self.metrics.reacted().items():
            family = received if word in ("accepted", "repeated") else judged
            family.add_metric([word], count)
        yield received
        yield judged

    def _jobs(self, queues: Sequence[QueueInfo], named: Mapping[str, str]) -> Iterator[Metric]:
        live: Tally[tuple[str, str]] = Tally()
        for info in queues:
            queue = named.get(info.queue.name, OTHER_QUEUES)
            for state in LIVE:
                live[state.value, queue] += info.depth.get(state, 0)
        yield _by_status("rota_jobs", "Jobs that have not finished", live, GaugeMetricFamily)
        ended: Tally[tuple[str, str]] = Tally()
        # Exposed as 0 from the start: Prometheus sees no increase where a series begins.
        ended.update({(one.value, queue): 0 for queue in named.values() for one in ENDED})
        for (name, status), count in self.metrics.finished().items():
            ended[status, named.get(name, OTHER_QUEUES)] += count
        yield _by_status("rota_jobs_finished", "Jobs finished", ended, CounterMetricFamily)
        yield _gauge(
            "rota_queues_without_series",
            f"Queues counted together as {OTHER_QUEUES}",
            len(queues) - len(named),
        )
        ready = ready_ms(queues, self.brain.ready_since(), self.brain.clock.now())
        yield _gauge(
            "rota_ready_wait_seconds",
            "Longest time that a job next in its queue has been ready",
            max(ready.values(), default=0) / 1000,
        )

    def _autoscale(self) -> Iterator[Metric]:
        named = _queues_with_series(self.brain.queues())
        workers: Tally[str] = Tally()
        work_ms: Tally[str] = Tally()
        for queue in self.brain.demand(AUTOSCALE_TARGET_MS).queues:
            label = named.get(queue.name, OTHER_QUEUES)
            workers[label] += queue.workers.needed
            work_ms[label] += sum(one.shape.work for one in queue.shapes)
        seconds = {label: ms / 1000 for label, ms in work_ms.items()}
        yield _by_label(
            "rota_autoscale_workers",
            "Workers needed to start all waiting jobs within five minutes",
            "queue",
            workers,
        )
        yield _by_label(
            "rota_autoscale_work_seconds",
            "Estimated total run time of waiting jobs",
            "queue",
            seconds,
        )

    def _workers(self) -> Iterator[Metric]:
        statuses = dict.fromkeys(("online", "draining", "unhealthy", "offline"), 0)
        capacity: Tally[str] = Tally()
        used: Tally[str] = Tally()
        usage: Tally[str] = Tally()
        workers = self.brain.workers()
        for info in workers:
            statuses[worker_status(info)] += 1
            if info.worker.state is WorkerState.OFFLINE:
                continue
            capacity.update(amounts(info.worker.capacity))
            used.update(amounts(info.used))
            reported = self.usage.of(info.worker.id)
            usage.update({kind: reported[kind] for kind in USAGE_KINDS if kind in reported})
        yield _by_label("rota_workers", "Workers known", "status", statuses)
        lost = sum(1 for _ in lost_at(workers, self.brain.timing.lease_ttl_ms))
        yield _gauge("rota_workers_lost", "Workers that were lost without deregistering", lost)
        kinds = _kinds(capacity)
        have = {kind: capacity[kind] for kind in kinds}
        held = {kind: used[kind] for kind in kinds}
        yield _by_label("rota_resource_capacity", "Resources that workers have", "kind", have)
        yield _by_label("rota_resource_used", "Resources that running jobs hold", "kind", held)
        yield _by_label("rota_worker_usage", "Resources in use, as workers measured", "kind", usage)

    def _histograms(self) -> Iterator[Metric]:
        measured = self.metrics.histograms()
        for name, text in HISTOGRAMS.items():
            if (histogram := measured.get(name)) is None:
                continue
            family = HistogramMetricFamily(f"rota_{name}", text)
            buckets = [
                ("+Inf" if bound == float("inf") else str(float(bound)), float(count))
                for bound, count in histogram.buckets()
            ]
            family.add_metric([], buckets, histogram.total())
            yield family


@dataclass(frozen=True)
class StoreCollector(Collector):
    """Collects the state of the tables, on the leader, and of this server's processes."""

    brain: Brain
    metrics: EngineMetrics

    def collect(self) -> Iterator[Metric]:
        if not follows(self.brain):
            lag_s, text = (
                self.metrics.projection_lag_seconds(),
                "How far the projection is behind the journal",
            )
            yield _gauge("rota_projection_lag_seconds", text, lag_s)
            yield _gauge("rota_fold_lag_seconds", f"{text}: an older name", lag_s)
            quarantined = self.metrics.quarantined_jobs()
            text = "Jobs whose changes the tables refuse"
            yield _gauge("rota_quarantined_jobs", text, quarantined)
            text = "Journal records that failovers of the database have lost"
            lost = CounterMetricFamily("rota_lost_records", text)
            lost.add_metric([], self.metrics.losses().records)
            yield lost
        running = self.metrics.processes()
        yield _by_label("rota_processes", "Processes of this server that run", "kind", running)


@dataclass(frozen=True)
class AlertCollector(Collector):
    """Collects the state of the built-in alerts, on the leader only."""

    brain: Brain
    alerts: AlertEvaluator

    def collect(self) -> Iterator[Metric]:
        if self.brain.ready:
            firing = dict.fromkeys((one.value for one in Severity), 0.0)
            for rule in self.alerts.firing():
                firing[rule.severity.value] += 1
            yield _by_label("rota_alerts", "Alerts that are firing", "severity", firing)
            unsent = len(self.alerts.saved.outbox.letters)
            yield _gauge("rota_alert_notices_waiting", "Notifications not delivered yet", unsent)


@dataclass(frozen=True)
class LeadershipCollector(Collector):
    """Collects this server's role in its cell."""

    brain: Brain
    durability: DurabilityMonitor
    membership: Membership | None

    def collect(self) -> Iterator[Metric]:
        standing = self.brain.standing()
        yield _gauge("rota_leader", "1 on the leader", float(standing.leads))
        yield _gauge(
            "rota_epoch", "Epoch of the leadership, one larger with each change", standing.epoch
        )
        levels = {level.value: float(level is self.durability.level) for level in DurabilityLevel}
        yield _by_label(
            "rota_durability_level", "1 for the durability level of a commit", "level", levels
        )
        if self.membership is not None:
            me = self.membership.announced
            yield _gauge(
                "rota_standby_lag_records",
                "Journal records a follower is behind",
                me.behind_records,
            )
            yield _gauge(
                "rota_standby_lag_seconds", "Seconds a follower is behind", me.behind_ms / 1000
            )


@dataclass(frozen=True)
class ConnectionCollector(Collector):
    """Collects open connections of this server and its connection limit."""

    connections: ConnectionLimit

    def collect(self) -> Iterator[Metric]:
        yield _gauge("rota_connections", "Connections open at this server", len(self.connections))
        yield _gauge("rota_connections_max", "Limit of open connections", self.connections.limit)
        away = {"closed": self.connections.evicted, "refused": self.connections.refused}
        yield _counted(
            "rota_connections_turned_away",
            "Connections closed or refused because of the limit",
            away,
        )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counted(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["outcome"])
    for outcome, count in counts.items():
        family.add_metric([outcome], count)
    return family


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _by_status(
    name: str,
    text: str,
    counts: Mapping[tuple[str, str], int],
    family: type[GaugeMetricFamily | CounterMetricFamily],
) -> Metric:
    metric = family(name, text, labels=["status", "queue"])
    for (status, queue), count in counts.items():
        metric.add_metric([status, queue], count)
    return metric


def _queues_with_series(queues: Sequence[QueueInfo]) -> dict[str, str]:
    """Chooses queues with series of their own: the oldest, because these stay the same.

    A counter that moved from one label to another would look like finished jobs.
    """
    oldest = sorted(queues, key=lambda one: (one.queue.created_at, one.queue.name))
    return {one.queue.name: one.queue.name for one in oldest[:METRIC_QUEUES_MAX]}


def _kinds(capacity: Mapping[str, float]) -> list[str]:
    """Lists the built-in kinds of resources, then custom ones up to the limit."""
    usual = [kind for kind in amounts(Resources()) if kind in capacity]
    return [*usual, *sorted(kind for kind in capacity if kind not in usual)][:METRIC_KINDS_MAX]


def expose(accept: str, *collectors: Collector) -> tuple[bytes, str]:
    """Returns the metrics as text with its content type; OpenMetrics if the client asks for it."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    encoder, content_type = choose_encoder(OPENMETRICS if OPENMETRICS_TYPE in accept else "")
    return encoder(registry), content_type


log = structlog.get_logger(__name__)

WAITING = (JobState.PENDING, JobState.QUEUED)
RUNNING = (JobState.RUNNING, JobState.CANCELLING)
WAIT = "job_wait_seconds"


@dataclass(frozen=True, slots=True)
class CumulativeCounts:
    """Counts that only grow, at one moment."""

    at: Instant
    submitted: int
    finished: Mapping[str, int]
    waits: Sequence[tuple[float, int]]
    """(Upper bound, number of waits at or below it)."""


@dataclass(frozen=True, slots=True)
class GaugeValues:
    """Gauges at one moment."""

    waiting: int = 0
    running: int = 0
    resources: Mapping[str, dict[str, float | int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistorySample:
    """Sample of the history: the time between two counts, and the gauges at its end."""

    before: CumulativeCounts
    after: CumulativeCounts
    gauges: GaugeValues

    def view(self) -> SampleView:
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
    """History of metrics in memory, on the leader: an hour in fine steps and a day in coarse
    ones."""

    def __init__(self, brain: Brain, metrics: EngineMetrics) -> None:
        self._brain = brain
        self._metrics = metrics
        self._fine: deque[HistorySample] = deque(maxlen=HISTORY_STEPS)
        self._coarse: deque[HistorySample] = deque(maxlen=HISTORY_LONG_STEPS)
        self._depths: deque[Mapping[str, int]] = deque(maxlen=GROWTH_STEPS)
        self._ended: deque[tuple[Instant, Counter[str]]] = deque(maxlen=RATE_STEPS + 1)
        self._last: CumulativeCounts | None = None
        self._last_coarse: CumulativeCounts | None = None
        self._task = BackgroundTask("rota-history")

    def start(self) -> None:
        self._task.start(self._run())

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except UnavailableError as error:
                log.debug("metrics history not sampled", cause=str(error))
            await asyncio.sleep(HISTORY_STEP_S)

    async def sample(self) -> None:
        """Adds a sample up to now; a server that does not lead begins again."""
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
        return [sample.view() for sample in self._fine]

    def last_day(self) -> list[SampleView]:
        return [sample.view() for sample in self._coarse]

    def newest(self) -> SampleView | None:
        """Returns the newest complete sample."""
        return self._fine[-1].view() if self._fine else None

    def growing(self) -> dict[str, int]:
        """Returns queues with many more waiting jobs than minutes ago, and how many more."""
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
        """Returns finished jobs of a queue per second in the last minute; None: too early to
        say."""
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
        for info in self._brain.queues():
            depths[info.queue.name] = sum(info.depth.get(state, 0) for state in WAITING)
            running += sum(info.depth.get(state, 0) for state in RUNNING)
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
    """Returns the histogram of values between two moments."""
    if len(before) != len(after) or after[-1][1] < before[-1][1]:
        return list(after)
    return [
        (bound, count - earlier) for (bound, count), (_, earlier) in zip(after, before, strict=True)
    ]


def quantile(buckets: Iterable[tuple[float, int]], share: float) -> float | None:
    """Estimates a quantile from buckets; None if they are empty."""
    rising = [(0.0, 0), *buckets]
    wanted = rising[-1][1] * share
    if not wanted:
        return None
    for (low, below), (high, count) in pairwise(rising):
        if count >= wanted:
            part = (wanted - below) / max(1, count - below)
            return low if high == float("inf") else low + (high - low) * part
    return None
