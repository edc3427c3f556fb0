"""Metrics: what `/metrics` exposes to Prometheus, and their short history in memory.

The exposition reads the figures when it is asked and counts nothing itself. The history samples
them every few seconds for the overview, is never stored, and starts anew with every leader.
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
from rota.store.protocol import DurabilityLevel
from rota.wire.formats import from_instant
from rota.wire.service import SampleView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
AUTOSCALE_TARGET_MS = 300_000
"""Within which time everything is to be cleared when nobody says."""
OPENMETRICS_TYPE = "application/openmetrics-text"
OPENMETRICS = f"{OPENMETRICS_TYPE}; version=1.0.0"
OTHER_QUEUES = "(others)"
"""The queue whose figures are those of all that have no series of their own; none is named so."""
ENDED = (
    *(JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.SKIPPED, JobState.EXPIRED),
)
LIVE = (JobState.PENDING, JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING)
USAGE_KINDS = ("cpu", "memory", "storage", "gpu", "processes", "load")
"""The reported kinds that get a series; a label that workers could choose would never end."""


class EngineMetrics(Protocol):
    """What the engine counts; the counts cover the whole cell and survive restarts."""

    def submitted(self) -> int:
        """Jobs accepted since the beginning."""
        ...

    def finished(self) -> Mapping[tuple[str, str], int]:
        """Jobs ended since the beginning, by (queue, state)."""
        ...

    def decided(self) -> Mapping[tuple[str, str], int]:
        """Instants of schedules decided since the beginning, by (decision, why skipped)."""
        ...

    def reacted(self) -> Mapping[str, int]:
        """Events and what triggers made of them since the beginning, by outcome."""
        ...

    def deadlines(self) -> Mapping[str, int]:
        """Jobs with a deadline that came to be at risk, met it or missed it, since the start."""
        ...

    def estimates(self) -> Mapping[str, int]:
        """Starts inside and outside the interval that was told for them, since the start."""
        ...

    def histograms(self) -> Mapping[str, Histogram]:
        """By the names in HISTOGRAMS."""
        ...

    def projection_lag_seconds(self) -> float:
        """How far the tables are behind the journal."""
        ...


class ReportedUsage(Protocol):
    """What workers last said of their machines."""

    def of(self, worker_id: WorkerId) -> Mapping[str, float]:
        """By kind."""
        ...


HISTOGRAMS: Mapping[str, str] = {
    "job_wait_seconds": "From being ready to run to being claimed by a worker",
    "job_run_seconds": "From claimed to ended",
    "dispatch_latency_seconds": "From the decision to run a job to its order leaving the server",
    "append_seconds": "One append to the journal, until durable",
    "append_jobs": "Jobs touched by one append",
    "schedule_lateness_seconds": "From when a schedule's run was due to when its job was made",
    "estimate_error_seconds": "Real start minus the start that was told",
}


def worker_status(glance: WorkerInfo) -> str:
    """A silent worker is unhealthy before it is offline."""
    if glance.worker.state is WorkerState.OFFLINE or glance.healthy:
        return glance.worker.state.value
    return "unhealthy"


def amounts(resources: Resources) -> dict[str, float]:
    """Kinds and amounts, in the units that people use."""
    return {
        "cpu": resources.cpu_milli / 1000,
        "memory": resources.memory,
        "storage": resources.storage,
        "gpu": resources.gpu_milli / 1000,
        **{name: milli / 1000 for name, milli in resources.custom},
    }


@dataclass(frozen=True)
class ServerCollector(Collector):
    """Everything of ours, as it is at the moment of the scrape."""

    brain: Brain
    metrics: EngineMetrics
    usage: ReportedUsage
    disk_free: Callable[[], int | None]

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        if self.brain.ready:
            queues = self.brain.queues()
            yield from self._jobs(queues, _queues_with_series(queues))
            yield from self._workers()
        if not self._follows:
            # What the leader tells of the whole cell must not be told twice.
            yield from self._totals()
            if self.brain.ready:
                yield from self._autoscale()
            yield _gauge(
                "rota_fold_lag_seconds",
                "How far the tables are behind the journal",
                self.metrics.projection_lag_seconds(),
            )
        yield from self._histograms()
        if (free := self.disk_free()) is not None:
            yield _gauge("rota_data_disk_free_bytes", "Free space of the data disk", free)

    @property
    def _follows(self) -> bool:
        standing = self.brain.standing()
        return not standing.leads and standing.leader is not None

    def _totals(self) -> Iterator[Metric]:
        submitted = CounterMetricFamily("rota_jobs_submitted", "Jobs accepted")
        submitted.add_metric([], self.metrics.submitted())
        yield submitted
        decided = CounterMetricFamily(
            "rota_schedule_occurrences",
            "Instants of schedules, by what became of them and why they were skipped",
            labels=["outcome", "reason"],
        )
        left_out = {(OccurrenceDecision.SKIPPED.value, why.value): 0 for why in COUNTED_SKIPS}
        for (decision, why), count in (left_out | dict(self.metrics.decided())).items():
            decided.add_metric([decision, why], count)
        yield decided
        yield from self._events()
        # There from the start, as 0: Prometheus sees no increase where a series begins.
        came = dict.fromkeys((AT_RISK, MISSED, MET), 0) | dict(self.metrics.deadlines())
        yield _counted("rota_deadlines", "Jobs by what came of their deadline", came)
        yield _counted(
            "rota_estimates",
            "Starts inside and outside the interval that was told for them",
            self.metrics.estimates(),
        )

    def _events(self) -> Iterator[Metric]:
        received = CounterMetricFamily(
            "rota_events_received", "Events, new or sent again", labels=["outcome"]
        )
        judged = CounterMetricFamily(
            "rota_trigger_decisions", "What triggers made of events", labels=["outcome"]
        )
        for word, count in self.metrics.reacted().items():
            family = received if word in ("accepted", "repeated") else judged
            family.add_metric([word], count)
        yield received
        yield judged

    def _jobs(self, queues: Sequence[QueueInfo], named: Mapping[str, str]) -> Iterator[Metric]:
        live: Tally[tuple[str, str]] = Tally()
        for glance in queues:
            queue = named.get(glance.queue.name, OTHER_QUEUES)
            for state in LIVE:
                live[state.value, queue] += glance.depth.get(state, 0)
        yield _by_status("rota_jobs", "Jobs that have not ended", live, GaugeMetricFamily)
        ended: Tally[tuple[str, str]] = Tally()
        # There from the start, as 0: Prometheus sees no increase where a series begins.
        ended.update({(one.value, queue): 0 for queue in named.values() for one in ENDED})
        for (name, status), count in self.metrics.finished().items():
            ended[status, named.get(name, OTHER_QUEUES)] += count
        yield _by_status("rota_jobs_finished", "Jobs ended", ended, CounterMetricFamily)
        yield _gauge(
            "rota_queues_without_series",
            f"Queues that are told of together, as {OTHER_QUEUES}",
            len(queues) - len(named),
        )
        ready = ready_ms(queues, self.brain.ready_since(), self.brain.clock.now())
        yield _gauge(
            "rota_ready_wait_seconds",
            "For how long the longest waiting of the jobs that come next has been ready",
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
            "Workers that would clear what waits in five minutes",
            "queue",
            workers,
        )
        yield _by_label(
            "rota_autoscale_work_seconds",
            "How long what waits will run together, as far as can be told",
            "queue",
            seconds,
        )

    def _workers(self) -> Iterator[Metric]:
        statuses = dict.fromkeys(("online", "draining", "unhealthy", "offline"), 0)
        capacity: Tally[str] = Tally()
        used: Tally[str] = Tally()
        usage: Tally[str] = Tally()
        workers = self.brain.workers()
        for glance in workers:
            statuses[worker_status(glance)] += 1
            if glance.worker.state is WorkerState.OFFLINE:
                continue
            capacity.update(amounts(glance.worker.capacity))
            used.update(amounts(glance.used))
            reported = self.usage.of(glance.worker.id)
            usage.update({kind: reported[kind] for kind in USAGE_KINDS if kind in reported})
        yield _by_label("rota_workers", "Workers known", "status", statuses)
        lost = sum(1 for _ in lost_at(workers, self.brain.timing.lease_ttl_ms))
        yield _gauge("rota_workers_lost", "Workers known that are gone without a word", lost)
        kinds = _kinds(capacity)
        have = {kind: capacity[kind] for kind in kinds}
        held = {kind: used[kind] for kind in kinds}
        yield _by_label("rota_resource_capacity", "What workers have", "kind", have)
        yield _by_label("rota_resource_used", "What running jobs hold", "kind", held)
        yield _by_label("rota_worker_usage", "What workers measured in use", "kind", usage)

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
class AlertCollector(Collector):
    """What the built-in alerts say; the leader's alone."""

    brain: Brain
    watch: AlertEvaluator

    def collect(self) -> Iterator[Metric]:
        """Those that fire, by how much they matter."""
        if self.brain.ready:
            firing = dict.fromkeys((one.value for one in Severity), 0.0)
            for rule in self.watch.firing():
                firing[rule.severity.value] += 1
            yield _by_label("rota_alerts", "Alerts that fire", "severity", firing)
            unsent = len(self.watch.saved.outbox.letters)
            yield _gauge("rota_alert_notices_waiting", "Notices that nobody took yet", unsent)


@dataclass(frozen=True)
class LeadershipCollector(Collector):
    """This server's part in its cell."""

    brain: Brain
    durability: DurabilityMonitor
    membership: Membership | None

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        standing = self.brain.standing()
        yield _gauge("rota_leader", "1 on the server that decides", float(standing.leads))
        yield _gauge(
            "rota_epoch", "The number of the leadership: one more a change", standing.epoch
        )
        levels = {level.value: float(level is self.durability.level) for level in DurabilityLevel}
        yield _by_label("rota_durability_level", "1 for what a commit is worth", "level", levels)
        if self.membership is not None:
            me = self.membership.announced
            yield _gauge("rota_standby_lag_records", "Records a follower lacks", me.behind_records)
            yield _gauge(
                "rota_standby_lag_seconds", "For how long it lacks them", me.behind_ms / 1000
            )


@dataclass(frozen=True)
class ConnectionCollector(Collector):
    """Who is connected to this server."""

    connections: ConnectionLimit

    def collect(self) -> Iterator[Metric]:
        """How many, of how many, and how many could not stay."""
        yield _gauge("rota_connections", "Connections open at this server", len(self.connections))
        yield _gauge("rota_connections_max", "How many it takes at once", self.connections.limit)
        away = {"closed": self.connections.evicted, "refused": self.connections.refused}
        yield _counted("rota_connections_turned_away", "Those beyond the limit", away)


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
    told = family(name, text, labels=["status", "queue"])
    for (status, queue), count in counts.items():
        told.add_metric([status, queue], count)
    return told


def _queues_with_series(queues: Sequence[QueueInfo]) -> dict[str, str]:
    """Queues with series of their own: the first that were made, for these are always the same.

    A counter that went from one label to another would look like jobs that ended.
    """
    oldest = sorted(queues, key=lambda one: (one.queue.created_at, one.queue.name))
    return {one.queue.name: one.queue.name for one in oldest[:METRIC_QUEUES_MAX]}


def _kinds(capacity: Mapping[str, float]) -> list[str]:
    """The kinds every worker has, then those that people made up, as many as there may be."""
    usual = [kind for kind in amounts(Resources()) if kind in capacity]
    return [*usual, *sorted(kind for kind in capacity if kind not in usual)][:METRIC_KINDS_MAX]


def expose(accept: str, *collectors: Collector) -> tuple[bytes, str]:
    """(text, its type) out of a registry of this server alone; OpenMetrics for who asks for it."""
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
