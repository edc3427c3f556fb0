"""What a checker is given, and what it says of a promise that was broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from rota.sim.history import History, Line, lines_by_key
from rota.sim.replay import Replayed, replay


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was not kept: what happened, and to whom (keys or ids)."""

    says: str
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A history, laid out."""

    history: History
    journal: Replayed
    lines: defaultdict[str, list[Line]]
    """The witness, by key."""

    @staticmethod
    def of(history: History) -> Evidence:
        """Laid out once, for all checkers."""
        return Evidence(history, replay(history.journal), lines_by_key(history.lines))


Check: TypeAlias = Callable[[Evidence], Iterator[Broken]]
