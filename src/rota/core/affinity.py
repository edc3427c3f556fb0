"""What a job says of where it is to run; labels.py and locality.py go by it."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.record import Millis, Record

LabelSelector: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels of workers, each with the values that will do; sorted."""


class Affinity(Record, frozen=True):
    """Where a job is to run, beyond what it needs."""

    require: LabelSelector = ()
    """A worker without one of these labels never gets it."""
    prefer: LabelSelector = ()
    spread: str = ""
    """The label over whose values jobs of the same name are spread."""
    near_previous: bool = False
    """Whether it is to run where it, or what came before it, ran."""
    wait_ms: Millis = 3_000
    """How long a preferred place is waited for while another would be free."""
    tolerate: tuple[str, ...] = ()
    """What workers may be kept for that take it all the same; sorted."""


def has_preference(affinity: Affinity | None) -> bool:
    """Whether it prefers some of the workers that would do to others."""
    return affinity is not None and bool(
        affinity.prefer or affinity.spread or affinity.near_previous
    )
