"""Figures for Prometheus, read when they are asked for: nothing is counted here."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rota.alerts.conditions import COUNTED_SKIPS, lost_at, ready_ms
from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.rules import Severity
from rota.api.door.lobby import ConnectionLimit
from rota.api.limits import METRIC_KINDS_MAX, METRIC_QUEUES_MAX
from rota.core.deadlines import AT_RISK, MET, MISSED
from rota.core.info_model import QueueInfo, WorkerInfo
from rota.core.model import JobState, Resources, WorkerId, WorkerState
from rota.core.schedule_model import OccurrenceDecision
from rota.engine.durability import DurabilityMonitor
from rota.engine.membership import Membership
from rota.engine.metrics import Histogram
from rota.engine.ports import Brain
from rota.store.protocol import DurabilityLevel

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
