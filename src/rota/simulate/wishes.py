"""Where a recorded job was to run, as a line of history has it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.core.model import Affinity
from rota.simulate.limits import SPAN_MS_MAX


class AffinityLine(msgspec.Struct, omit_defaults=True):
    """The affinity of a job."""

    require: dict[str, list[str]] = {}
    prefer: dict[str, list[str]] = {}
    spread: str | None = None
    near: Literal["previous"] | None = None
    wait: Annotated[float, Meta(ge=0, le=SPAN_MS_MAX / 1000)] = 3.0
    tolerate: list[str] = []

    def affinity(self) -> Affinity:
        """As the scheduler has it."""
        require, prefer = (
            tuple((label, tuple(sorted(values))) for label, values in sorted(wanted.items()))
            for wanted in (self.require, self.prefer)
        )
        return Affinity(
            require,
            prefer,
            self.spread or "",
            self.near is not None,
            round(self.wait * 1000),
            tuple(sorted(self.tolerate)),
        )
