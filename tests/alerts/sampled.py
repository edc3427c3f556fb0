"""Looks at a cell that nobody runs, one every ten seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rota.alerts.conditions import QueueSample, Sample, SampleHistory
from rota.engine.metrics import LONG_SECONDS, SECONDS, Histogram

STEP_MS = 10_000


class Scene:
    """A history that a test writes."""

    def __init__(self) -> None:
        self.history = SampleHistory()
        self.appends = Histogram(SECONDS)
        self.lateness = Histogram(LONG_SECONDS)
        self.now = 0
        self._last: dict[str, Any] = {
            "queues": {"": QueueSample()}, "online": 1, "lost": (), "missed": 0, "at_risk": 0,
            "overdue": 0, "behind_s": 0.0, "disk_free": 1 << 40,
        }  # fmt: skip

    def pass_by(self, seconds: float = 10, **given: Any) -> None:
        """Time goes on; what is not given stays as it was."""
        self._last.update(given)
        end = self.now + int(seconds * 1000)
        while self.now < end:
            self.now += STEP_MS
            self.history.add(self._look())

    def queue(self, name: str = "", **given: Any) -> None:
        """The same with other figures of a queue."""
        queues: Mapping[str, QueueSample] = self._last["queues"]
        self._last["queues"] = {
            **queues, name: replace(queues.get(name, QueueSample()), **given)
        }  # fmt: skip
        self.pass_by()

    def _look(self) -> Sample:
        return Sample(
            at=self.now,
            wall=self.now,
            appends=self.appends.buckets(),
            lateness=self.lateness.buckets(),
            **self._last,
        )
