"""Metrics of one worker for Prometheus, on a port that is opened only if configured.

They cover this agent alone and name no job; the servers export the metrics of the whole cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

STATUSES = ("succeeded", "failed", "timed_out", "cancelled")
OPENMETRICS = "application/openmetrics-text"


class DoorError(Exception):
    """Raised when the metrics address cannot be listened on."""


class Figures(Protocol):
    """State of the agent that the metrics show."""

    @property
    def held(self) -> int:
        """Executions that this worker holds."""
        ...

    @property
    def owed(self) -> int:
        """Reports that no server has confirmed yet."""
        ...

    @property
    def ended(self) -> Mapping[str, int]:
        """How many executions ended here, by status."""
        ...


@dataclass(frozen=True)
class AgentCollector(Collector):
    """Collects the figures at each scrape."""

    figures: Figures

    def collect(self) -> Iterator[Metric]:
        running, owed = self.figures.held, self.figures.owed
        yield GaugeMetricFamily("rota_agent_executions", "Executions it has", value=running)
        yield GaugeMetricFamily("rota_agent_reports_owed", "Reports not answered yet", value=owed)
        ended = CounterMetricFamily(
            "rota_agent_executions_ended", "Executions that ended here", labels=["status"]
        )
        for status in STATUSES:
            ended.add_metric([status], self.figures.ended.get(status, 0))
        yield ended


class MetricsDoor:
    """HTTP server for the metrics; does nothing without an address."""

    def __init__(self, address: tuple[str, int] | None, figures: Figures) -> None:
        self._address = address
        self._registry = CollectorRegistry()
        self._registry.register(AgentCollector(figures))
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Raises DoorError if it cannot listen there."""
        if self._address is None:
            return
        ProcessCollector(registry=self._registry)
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, *self._address).start()
        except OSError as error:
            where = "{}:{}".format(*self._address)
            raise DoorError(f"cannot listen on {where} for metrics: {error.strerror}") from error

    @property
    def port(self) -> int:
        """Port that is listened on; the system chose one where 0 was configured."""
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        wants = OPENMETRICS in request.headers.get("accept", "")
        encode, kind = choose_encoder(f"{OPENMETRICS}; version=1.0.0" if wants else "")
        return web.Response(body=encode(self._registry), headers={"Content-Type": kind})
