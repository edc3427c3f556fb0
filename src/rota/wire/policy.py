"""The policy of a cell: by which rules its jobs are ordered and let past each other."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.units import SomeTime

HALF_LIFE_MIN_MS = 60_000

OrderName = Literal["fair", "priority", "fifo", "round_robin"]
BackfillName = Literal["none", "easy", "conservative", "greedy"]
CandidateName = Literal["order", "shortest"]
PresetName = Literal["default", "strict", "fcfs", "easy", "conservative", "easy-sjf"]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class PolicySpec(msgspec.Struct, forbid_unknown_fields=True):
    """A policy; what is left out is as in the preset."""

    preset: PresetName = "default"
    order: OrderName | UnsetType = UNSET
    backfill: BackfillName | UnsetType = UNSET
    candidates: CandidateName | UnsetType = UNSET
    beta: Annotated[float, Meta(ge=0, le=1_000_000_000)] | UnsetType = UNSET
    length_cap: SomeTime | UnsetType = UNSET
    priority_wait: SomeTime | UnsetType = UNSET
    half_life: SomeTime | UnsetType = UNSET
    preempt_gap: Annotated[int, Meta(ge=1, le=2000)] | UnsetType | None = UNSET
    preempt_after: SomeTime | UnsetType = UNSET
    max_running: Count | UnsetType | None = UNSET
    max_queued: Count | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.half_life, UnsetType) and self.half_life.ms < HALF_LIFE_MIN_MS:
            raise ValueError("half_life is at least one minute")


class PolicyView(msgspec.Struct):
    """The policy in force; times in seconds."""

    order: OrderName
    backfill: BackfillName
    candidates: CandidateName
    beta: float
    length_cap: float | int
    priority_wait: float | int
    half_life: float | int
    preempt_gap: int | None
    preempt_after: float | int
    max_running: int | None
    max_queued: int | None
