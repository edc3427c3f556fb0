"""Counts since the beginning, which go on through restarts."""

from __future__ import annotations

import msgspec


class Totals(msgspec.Struct, frozen=True):
    """Counts since the beginning, which deleting a job does not lower."""

    submitted: int = 0
    finished: tuple[tuple[str, str, int], ...] = ()
    """(queue, state, how many)."""
    decided: tuple[tuple[str, str, int], ...] = ()
    """(decision, why, how many) of schedules' instants."""
    reacted: tuple[tuple[str, int], ...] = ()
    """(word, how many) of events and what triggers made of them."""
