"""Rows of a measurement, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")

HEADINGS = ("measurement", "setting", "best", "median", "unit", "note")


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of the measurements: all, or just enough to see that everything runs."""

    quick: bool = False
    store: str = "sqlite"
    """What the servers keep everything in: `sqlite` or `postgres`."""
    names: tuple[str, ...] = ()
    """`peers`: only these of them."""
    rounds: int | None = None
    """Repeats of each figure, if given."""
    keep: bool = False
    """`smoke`: these ratios are what later runs are compared with."""

    def of(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    @property
    def repeats(self) -> int:
        """Repeats of each figure; the table shows the best and the median."""
        return self.rounds or self.of(3, 1)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    setting: str
    values: Sequence[float]
    unit: str
    note: str = ""
    less_is_better: bool = False

    @property
    def best(self) -> float:
        return min(self.values) if self.less_is_better else max(self.values)

    @property
    def cells(self) -> tuple[str, ...]:
        middle = median(self.values) if len(self.values) > 1 else None
        shown = "" if middle is None else number(middle)
        return (self.name, self.setting, number(self.best), shown, self.unit, self.note)


def number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def count(value: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size and value % size == 0:
            return f"{value // size} {letter}"
    return f"{value:,}"


def markdown(rows: Iterable[Row]) -> str:
    """The table, readable on a terminal and as Markdown."""
    lines = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    figures = (2, 3)
    ruler = tuple(
        "-" * (width - 1) + ":" if i in figures else "-" * width for i, width in enumerate(widths)
    )
    return "\n".join(
        "| "
        + " | ".join(
            text.rjust(width) if i in figures else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in (lines[0], ruler, *lines[1:])
    )
