"""Prometheus metrics of the gateway itself; the cells expose those of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rota.gateway.cells import Cell

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class GatewayMetrics:
    """Counts requests and calls to cells."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()

    def served(self, method: str, status: int) -> None:
        """Counts an answered request."""
        self.requests[method, str(status)] += 1

    def called(self, cell: str, *, answered: bool) -> None:
        """Counts a request to a cell."""
        self.calls[cell, "answered" if answered else "away"] += 1

    def expose(self, cells: Iterable[Cell], streams: int) -> bytes:
        """Writes all metrics in Prometheus' format."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_MetricsCollector(self, list(cells), streams))
        return generate_latest(registry)


class _MetricsCollector(Collector):
    """Collects the metrics of one moment."""

    def __init__(self, metrics: GatewayMetrics, cells: Sequence[Cell], streams: int) -> None:
        self._metrics = metrics
        self._cells = cells
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "rota_gateway_requests", "Requests answered.", labels=("method", "status")
        )
        for labels, count in self._metrics.requests.items():
            requests.add_metric(labels, count)
        calls = CounterMetricFamily(
            "rota_gateway_cell_calls", "Requests to a cell.", labels=("cell", "outcome")
        )
        for labels, count in self._metrics.calls.items():
            calls.add_metric(labels, count)
        up = GaugeMetricFamily(
            "rota_gateway_cell_up", "1 if some server of the cell is there.", labels=("cell",)
        )
        for cell in self._cells:
            up.add_metric((cell.name,), int(cell.up))
        streams = GaugeMetricFamily("rota_gateway_streams", "Streams of changes open now.")
        streams.add_metric((), self._streams)
        yield from (requests, calls, up, streams)
