"""What a worker knows of one execution that it has."""

from __future__ import annotations

from enum import Enum

import msgspec

from rota.wire.workers import OrderView


class Phase(Enum):
    """How far it is."""

    WAITING = 1
    """Granted beyond the concurrency limit by two crossing answers: starts when there is room."""
    RUNNING = 2
    STOPPING = 3
    ABANDONED = 4
    PREFETCHED = 5
    """Prefetched: starts when the one that it is behind has ended."""


UNBEGUN = (Phase.WAITING, Phase.PREFETCHED)


class HeldExecution(msgspec.Struct):
    """An order and what has become of it."""

    order: OrderView
    deadline: float
    phase: Phase = Phase.WAITING
    confirmed: bool = False
    """The server has heard this worker name it, and knows that it runs."""
    progress: float | None = None
    message: str | None = None
    given_back: bool = False
    """It is stopped for no fault of its own: leaving gives it back, and the try does not count."""
