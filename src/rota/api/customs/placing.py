"""Affinity between wire and core, and what a report says of what was used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.model import Affinity, LabelSelector
from rota.core.runtime_estimates import MeasuredUsage
from rota.wire.affinity import AffinitySpec, AffinityView, LabelValues
from rota.wire.executions import CompletionSpec
from rota.wire.units import number

_NOTHING = Affinity()
_USED_MAX = 1 << 62


def affinity_of(asked: AffinitySpec) -> Affinity | None:
    """What was asked, as the core keeps it; None where it comes to nothing."""
    affinity = Affinity(
        _wanted_labels(asked.require),
        _wanted_labels(asked.prefer),
        asked.spread or "",
        asked.near is not None,
        asked.wait.ms,
        tuple(sorted(set(asked.tolerate))),
    )
    is_nothing = msgspec.structs.replace(affinity, wait_ms=_NOTHING.wait_ms) == _NOTHING
    return None if is_nothing else affinity


def _wanted_labels(labels: Mapping[str, LabelValues]) -> LabelSelector:
    return tuple(
        (label, (values,) if isinstance(values, str) else tuple(sorted(set(values))))
        for label, values in sorted(labels.items())
    )


def affinity_view(affinity: Affinity | None) -> AffinityView | None:
    """As it is shown."""
    if affinity is None:
        return None
    return AffinityView(
        require={label: list(values) for label, values in affinity.require},
        prefer={label: list(values) for label, values in affinity.prefer},
        spread=affinity.spread or None,
        near="previous" if affinity.near_previous else None,
        wait=number(affinity.wait_ms),
        tolerate=list(affinity.tolerate),
    )


def used_of(report: CompletionSpec) -> MeasuredUsage | None:
    """What the scheduler learns from a report; None: nothing."""
    if report.usage is None and report.status != "failed":
        return None
    usage = report.usage or {}
    cpu, peak = _amount(usage.get("cpu_seconds")), _amount(usage.get("memory_peak"))
    out_of_memory = report.status == "failed" and _is_out_of_memory(bytes(report.error))
    if cpu is None and peak is None and not out_of_memory:
        return None
    return MeasuredUsage(
        cpu_ms=None if cpu is None else round(cpu * 1000),
        memory_peak=None if peak is None else round(peak),
        out_of_memory=out_of_memory,
    )


def _amount(value: Any) -> float | None:
    """A figure that a worker gave, if it is one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _USED_MAX else None


def _is_out_of_memory(error: bytes) -> bool:
    """Whether the error says so: `reason` is `memory`, or `type` is Python's `MemoryError`."""
    if b"emory" not in error:
        return False
    try:
        said = msgspec.json.decode(error, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False
    return said.get("reason") == "memory" or said.get("type") == "MemoryError"
