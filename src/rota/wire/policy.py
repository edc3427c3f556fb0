"""Scheduling policy of a cell, and simulations of recorded jobs or of a trace under
other policies.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.formats import PLAIN, ByteSize, SomeTime
from rota.wire.jobs import Moment, Time
from rota.wire.limits import SIMULATION_CPUS_MAX, SIMULATION_POLICIES_MAX, SIMULATION_WORKERS_MAX

HALF_LIFE_MIN_MS = 60_000

OrderName = Literal["fair", "priority", "fifo", "round_robin"]
BackfillName = Literal["none", "easy", "conservative", "greedy"]
CandidateName = Literal["order", "shortest"]
PresetName = Literal["default", "strict", "fcfs", "easy", "conservative", "easy-sjf"]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class PolicySpec(msgspec.Struct, forbid_unknown_fields=True):
    """A policy to set; fields that are left out have the value of the preset."""

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
            raise ValueError("half_life must be at least one minute")


class PolicyView(msgspec.Struct):
    """Policy in force; times in seconds."""

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


ReplayName = Literal[
    "recorded", "current", "default", "strict", "fcfs", "easy", "conservative", "easy-sjf"
]

ReplayNames: TypeAlias = Annotated[
    list[ReplayName], Meta(min_length=1, max_length=SIMULATION_POLICIES_MAX)
]


Workers: TypeAlias = Annotated[int, Meta(ge=1, le=SIMULATION_WORKERS_MAX)]
Cpus: TypeAlias = Annotated[int, Meta(ge=1, le=SIMULATION_CPUS_MAX)]
Cpu: TypeAlias = Annotated[float, Meta(ge=0.001, le=SIMULATION_CPUS_MAX)]


class SimulationSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A simulation of recorded jobs: the period, the number of workers, the policies."""

    start: Moment = msgspec.field(name="from")
    """Jobs submitted after this."""
    end: Moment | None = msgspec.field(name="to", default=None)
    """Jobs submitted before this; left out: until now."""
    workers: Workers | None = None
    """Number of workers, shaped like the present ones in turn; left out: the present workers."""
    policies: ReplayNames = msgspec.field(default_factory=lambda: ["recorded", "current"])
    """Presets; `current` is the policy in force, `recorded` what really happened."""


class TraceQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A simulation of a trace: the machines and the policies."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            pattern=PLAIN,
            description="The trace's name in errors.",
        ),
    ] = "trace"
    cpus: Annotated[
        Cpus | None, Meta(description="Run on one pool of this many processors.", examples=[128])
    ] = None
    workers: Annotated[
        Workers | None,
        Meta(
            description="Run on this many workers, with `cpu` and `memory` each. Without these: "
            "like the workers in the trace, else like the present ones, in turn.",
            examples=[12],
        ),
    ] = None
    cpu: Annotated[Cpu | None, Meta(description="Cores of each worker.", examples=[16])] = None
    memory: Annotated[ByteSize | None, Meta(description="Of each worker.", examples=["64GiB"])] = (
        None
    )
    policies: Annotated[ReplayNames, Meta(examples=[["current", "easy"]])] = msgspec.field(
        default_factory=lambda: ["current", "easy"]
    )


class ReplayView(msgspec.Struct):
    """Result of a simulation under one policy; times in seconds."""

    policy: ReplayName
    avg_wait: float
    p50_wait: float
    p95_wait: float
    max_wait: float
    slowdown: float
    """Mean of (wait + run) / run, where a run shorter than 10 s counts as 10 s."""
    utilisation: float
    """Used share of the processors, between the first and the last arrival."""
    makespan: float
    """Seconds from the first arrival to the last end."""
    preemptions: int
    peak_waiting: int | None
    """The most jobs that waited at once; null: the recording does not have it."""
    waits: list[float | None]
    """Mean wait of the jobs that arrived in each slice of the period; null: none arrived."""
    uses: list[float]
    """Share of the processors in use in each slice."""


class SimulationView(msgspec.Struct):
    """Results of the same jobs under each policy."""

    start: Time | None = msgspec.field(name="from")
    """When the first job arrived; null: the trace does not say."""
    jobs: int
    left_out: int
    """Jobs that no worker could run."""
    is_cut: bool
    """There were more jobs than one simulation takes: these are the newest recorded jobs, or the
    first of a trace.
    """
    workers: int
    cpus: float
    load: float | None
    """Arriving work divided by the capacity of the workers in that time; null: all work arrived at
    once.
    """
    span: float
    """Seconds that the slices cover, from the first arrival."""
    policies: list[ReplayView]
