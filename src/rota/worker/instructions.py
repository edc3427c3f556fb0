"""What the session tells the agent to do, and the calls it wants carried."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from rota.wire.workers import HeartbeatSpec, LeaseSpec, OrderView
from rota.worker.reports import StopReason


class Start(msgspec.Struct, frozen=True):
    """Run this."""

    order: OrderView


class Stop(msgspec.Struct, frozen=True):
    """End it with grace, and report."""

    execution_id: str
    reason: StopReason


class Abandon(msgspec.Struct, frozen=True):
    """End it at once, and report nothing: it is no longer this worker's."""

    execution_id: str
    why: str


Action: TypeAlias = Start | Stop | Abandon


class LeaseCall(msgspec.Struct, frozen=True):
    """One `lease` call: what it says, and what its answer will mean."""

    number: int
    sent_at: float
    named: tuple[str, ...]
    carried: tuple[str, ...]
    spec: LeaseSpec
    known_to_run: tuple[str, ...] = ()
    """Of what is named: what the server will know to run once it has heard this."""


class HeartbeatCall(msgspec.Struct, frozen=True):
    """One heartbeat."""

    sent_at: float
    named: tuple[str, ...]
    spec: HeartbeatSpec
