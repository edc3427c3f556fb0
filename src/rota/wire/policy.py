"""The scheduling policy of a cell, and simulations of recorded jobs or of a trace under other
policies.
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
    """Which past, on how many workers, under which policies."""

    start: Moment = msgspec.field(name="from")
    """Jobs that were submitted after this."""
    end: Moment | None = msgspec.field(name="to", default=None)
    """And before this; left out: until now."""
    workers: Workers | None = None
    """So many workers, like those of now in turn; left out: those of now."""
    policies: ReplayNames = msgspec.field(default_factory=lambda: ["recorded", "current"])
    """Presets; `current` is the policy in force, `recorded` what happened in truth."""


class TraceQuery(msgspec.Struct, forbid_unknown_fields=True):
    """On which machines a trace runs, and under which policies."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=255, pattern=PLAIN, description="What an error calls it."),
    ] = "trace"
    cpus: Annotated[
        Cpus | None, Meta(description="On one pool of so many processors.", examples=[128])
    ] = None
    workers: Annotated[
        Workers | None,
        Meta(
            description="On so many workers: of `cpu` and `memory` each, or without these like "
            "those that the trace names, else those of now, in turn.",
            examples=[12],
        ),
    ] = None
    cpu: Annotated[Cpu | None, Meta(description="Of each worker.", examples=[16])] = None
    memory: Annotated[ByteSize | None, Meta(description="Of each machine.", examples=["64GiB"])] = (
        None
    )
    policies: Annotated[ReplayNames, Meta(examples=[["current", "easy"]])] = msgspec.field(
        default_factory=lambda: ["current", "easy"]
    )


class ReplayView(msgspec.Struct):
    """What a policy would have made of it; times in seconds."""

    policy: ReplayName
    avg_wait: float
    p50_wait: float
    p95_wait: float
    max_wait: float
    slowdown: float
    """The mean of (wait + run) / run, where a run shorter than 10 s counts as 10 s."""
    utilisation: float
    """Of the processors, between the first and the last arrival."""
    makespan: float
    """From the first arrival to the last end."""
    preemptions: int
    peak_waiting: int | None
    """The most that waited at once; null: of what was recorded nobody counted it."""
    waits: list[float | None]
    """The mean wait of the jobs that came in each slice of the time shown; null: none came."""
    uses: list[float]
    """The part of the processors in use in each slice."""


class SimulationView(msgspec.Struct):
    """The same jobs under each policy, side by side."""

    start: Time | None = msgspec.field(name="from")
    """When the first of the jobs came; null: a trace that does not say."""
    jobs: int
    left_out: int
    """Jobs that none of the workers could run."""
    is_cut: bool
    """There were more jobs than one simulation takes: these are the newest of the past, or the
    first of a trace."""
    workers: int
    cpus: float
    load: float | None
    """Work that arrives against what the workers can do in that time; null: it came at once."""
    span: float
    """Seconds that the slices cover, from the first arrival on."""
    policies: list[ReplayView]
