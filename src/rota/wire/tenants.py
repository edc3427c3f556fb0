"""Tenants: their part of the fleet, and how much each may have at once."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.wire.queues import DepthView
from rota.wire.units import ByteSize

COUNT_MAX = 1_000_000_000


class QuotaSpec(msgspec.Struct, forbid_unknown_fields=True):
    """How much a tenant may have at once; left out or null: as much as there is."""

    running: Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None = None
    queued: Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None = None
    cpu: Annotated[float, Meta(ge=0, le=COUNT_MAX)] | None = None
    memory: ByteSize | None = None


class TenantSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A tenant's settings; what is left out goes to its default."""

    weight: Annotated[float, Meta(gt=0, le=1_000_000)] = 1.0
    quota: QuotaSpec | None = None


class QuotaView(msgspec.Struct):
    """The quota in force; memory in bytes."""

    running: int | None
    queued: int | None
    cpu: float | None
    memory: int | None


class TenantView(msgspec.Struct):
    """A tenant's settings, what it has, and how it stands with the others."""

    name: str
    weight: float
    quota: QuotaView
    depth: DepthView
    cpu: float
    """Cores that its executions hold."""
    memory: int
    share: float
    """The part of the fleet that it holds now, of the resource of which it holds the most."""
    entitlement: float
    """The part that its weight gives it among those with live jobs."""
    usage: float
    """What it has used, old use counting less: hours of the whole fleet."""


class TenantPage(msgspec.Struct):
    """All tenants with jobs or settings, by name."""

    items: list[TenantView]
    next_cursor: str | None
