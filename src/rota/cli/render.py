"""Draws tables that fit the terminal, and prints answers as JSON for programs.

Colours only where a terminal shows them and NO_COLOR is not set; piped tables are never cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from rota.cli.text import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

GAP = 2
WIDE = 10_000
"""Into a pipe nothing is cut."""
SHRINKABLE_MIN = 8
"""A column that may be cut keeps this many characters, so that it still says something."""

STATUS_STYLES = {
    "pending": "dim",
    "queued": "yellow",
    "claimed": "cyan",
    "running": "cyan",
    "cancelling": "magenta",
    "succeeded": "green",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelled": "magenta",
    "preempted": "magenta",
    "skipped": "dim",
    "expired": "dim",
    "online": "green",
    "draining": "yellow",
    "unhealthy": "red",
    "offline": "dim",
    "paused": "yellow",
    "open": "green",
}


@dataclass(frozen=True, slots=True)
class Styled:
    """Cell with a colour."""

    text: str
    style: str


Cell: TypeAlias = str | Styled
Row: TypeAlias = Sequence[Cell]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """Column of a table: the one with the highest `spare` is left out first; 0 always stays."""

    title: str
    value: Callable[[T], Cell] = str
    """Reads its cell from the object of a row."""
    spare: int = 0
    right: bool = False
    cut: bool = False
    """May be shortened where the terminal is too narrow."""


Columns: TypeAlias = tuple[Column[T], ...]
Facts: TypeAlias = Sequence[tuple[str, Cell | None]]


def status_cell(status: str) -> Styled:
    """Returns a status in its colour."""
    return Styled(status, STATUS_STYLES.get(status, ""))


def fitting(columns: Sequence[Column[Any]], rows: Sequence[Row], width: int) -> list[int]:
    """Returns the numbers of the columns that fit, leaving out the most spare ones first."""
    needs = [_least_width(column, i, rows) for i, column in enumerate(columns)]
    kept = list(range(len(columns)))
    while len(kept) > 1 and sum(needs[i] for i in kept) + GAP * (len(kept) - 1) > width:
        sparest = max(kept, key=lambda i: (columns[i].spare, i))
        if columns[sparest].spare == 0:
            break
        kept.remove(sparest)
    return kept


def _least_width(column: Column[Any], index: int, rows: Sequence[Row]) -> int:
    natural = max([len(column.title), *(cell_width(row[index]) for row in rows)])
    return min(natural, max(SHRINKABLE_MIN, len(column.title))) if column.cut else natural


def cell_width(cell: Cell) -> int:
    """Counts the columns of a terminal that a cell takes."""
    from rich.cells import cell_len

    return cell_len(plain(_text_of(cell)))


def _text_of(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def rich_text(cell: Cell) -> Text:
    """Prepares a cell for rich: never read as markup, never with control characters."""
    from rich.text import Text

    return Text(plain(_text_of(cell)), style="" if isinstance(cell, str) else cell.style)


def widths(
    columns: Sequence[Column[Any]], rows: Sequence[Row], kept: Sequence[int], width: int
) -> list[int]:
    """Returns the width of each kept column; of those that may be cut the widest shrinks first."""
    natural = [max([len(columns[i].title), *(cell_width(row[i]) for row in rows)]) for i in kept]
    over = sum(natural) + GAP * (len(kept) - 1) - width
    while over > 0:
        widest = max(range(len(kept)), key=lambda at: (columns[kept[at]].cut, natural[at]))
        if not columns[kept[widest]].cut or natural[widest] <= SHRINKABLE_MIN:
            break
        natural[widest] -= 1
        over -= 1
    return natural


def table(columns: Columns[T], items: Sequence[T], width: int) -> Table:
    """Draws a row for each item, with the columns that fit."""
    from rich.table import Table

    rows = [[column.value(one) for column in columns] for one in items]
    kept = fitting(columns, rows, width)
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for i, wide in zip(kept, widths(columns, rows, kept, width), strict=True):
        drawn.add_column(
            columns[i].title,
            justify="right" if columns[i].right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=wide,
        )
    for row in rows:
        drawn.add_row(*(rich_text(row[i]) for i in kept))
    return drawn


def console(*, err: bool = False) -> Console:
    """Opens the terminal, or a pipe, which is as wide as the text."""
    from rich.console import Console

    file = sys.stderr if err else sys.stdout
    width = None if file.isatty() else WIDE
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(
        file=file, width=width, color_system=colours, markup=False, highlight=False, emoji=False
    )


def show_table(columns: Columns[T], items: Sequence[T], *, empty: str) -> None:
    """Prints a row for each item, or says that there is none."""
    if not items:
        print(empty, file=sys.stderr)
        return
    screen = console()
    put(screen, table(columns, items, screen.width))


def put(screen: Console, drawn: RenderableType) -> None:
    """Prints without the blanks that pad a table to its width."""
    if screen.is_terminal:
        screen.print(drawn)
        return
    with screen.capture() as captured:
        screen.print(drawn)
    for line in captured.get().splitlines():
        print(line.rstrip())


def show_facts(facts: Facts) -> None:
    """Prints `name  value` lines, leaving out values of None; long values are wrapped."""
    from rich.table import Table

    screen = console()
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value is not None:
            grid.add_row(name, rich_text(value))
    put(screen, grid)


def print_json(body: bytes) -> None:
    """Prints a document of the API, indented."""
    import msgspec

    sys.stdout.write(msgspec.json.format(body, indent=2).decode() + "\n")


def tell(text: str, facts: Mapping[str, object], *, as_json: bool) -> None:
    """Prints what was done: a line for people, or an object for programs."""
    if as_json:
        print_object(facts)
    else:
        print(text)


def print_object(value: object) -> None:
    """Prints a struct as JSON."""
    from rota.wire.units import encode

    print_json(encode(value))
