"""What was learned of the runs of a name, as it is written."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.record import Millis, Record

JobName: TypeAlias = tuple[str, str]
"""(tenant, name): whose jobs, and what they are called."""
SketchCounts: TypeAlias = tuple[tuple[int, int], ...]
"""(step, how often): a sketch of usage.py."""


class UsageDay(Record, frozen=True):
    """What jobs of a name asked for and took on one day: cpu in ms, memory in MiB times ms."""

    day: int
    """Since 1970."""
    runs: int = 0
    cpu_asked: int = 0
    cpu_used: int = 0
    memory_asked: int = 0
    memory_used: int = 0


class UsageStats(Record, frozen=True):
    """What jobs of a name take, as usage.py has it."""

    runs: int = 0
    cpu: SketchCounts = ()
    memory: SketchCounts = ()
    runtime: SketchCounts = ()
    cpu_max: int = 0
    memory_max: int = 0
    runtime_max: Millis = 0
    asked_cpu: int = 0
    asked_memory: int = 0
    days: tuple[UsageDay, ...] = ()


class RuntimeStats(Record, frozen=True):
    """How long jobs of a name took, newest first, and what else is known of them."""

    tenant: str
    name: str
    recent: tuple[Millis, ...] = ()
    usage: UsageStats | None = None
