"""Renders values, tables and JSON for the terminal: escaped texts, amounts in fitting units, tables
that fit.

Colours only where a terminal shows them and NO_COLOR is not set; piped tables are never cut.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from rota.sdk.clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


ID_SHOWN_CHARS = 8
"""Ids rise with time, so their ends tell them apart and their beginnings do not."""

_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
"""Colour and weight, which are harmless on a terminal."""
_UNFINISHED = re.compile(r"(\x1b(\[[0-9;:]{0,64})?|\r)\Z")

_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def plain(text: str, *, keep: str = "") -> str:
    """Escapes every character that a terminal might act on, so that data cannot control it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def plain_log(text: str, *, colours: bool = False) -> str:
    """Escapes a log the same way, but keeps its lines and tabs, and its colours if wanted."""
    text = text.replace("\r\n", "\n")
    if not colours:
        return plain(text, keep="\n\t")
    # Splitting by a pattern with a group keeps what it matched: every second piece is a colour.
    pieces = enumerate(_COLOUR.split(text))
    return "".join(piece if n % 2 else plain(piece, keep="\n\t") for n, piece in pieces)


def unfinished(text: str) -> int:
    """Counts the characters at the end that may begin a colour or a line's end."""
    found = _UNFINISHED.search(text)
    return len(text) - found.start() if found else 0


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def short(uuid: str | None) -> str:
    """Shortens an id to its end, which every command takes."""
    return uuid[-ID_SHOWN_CHARS:] if uuid else "-"


def moment(text: str) -> datetime:
    """Parses a time of the API."""
    return datetime.fromisoformat(text)


def local(text: str | None) -> str:
    """Writes a time of the API on the local clock."""
    return f"{moment(text).astimezone():%Y-%m-%d %H:%M:%S}" if text else "-"


def now_ms() -> int:
    """Returns the time of this machine, in milliseconds since 1970."""
    return SystemClock().now_ms()


def since_s(text: str, now: int) -> float:
    """Counts the seconds from a time of the API to now."""
    return (datetime.fromtimestamp(now / 1000, UTC) - moment(text)).total_seconds()


def age(text: str | None, now: int | None = None) -> str:
    """Tells how long ago, or in how long."""
    if text is None:
        return "-"
    seconds = since_s(text, now_ms() if now is None else now)
    return f"in {span(-seconds)}" if seconds <= -1 else span(max(0.0, seconds))


def between(start: str | None, end: str | None, now: int | None = None) -> str:
    """Tells how long something took, or has taken so far."""
    if start is None:
        return "-"
    now = now_ms() if now is None else now
    done_s = since_s(start, now) - (since_s(end, now) if end else 0.0)
    return span(max(0.0, done_s))


def span(seconds: float) -> str:
    """Writes a length of time in its largest two units at most."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for size, unit in _AGES:
        if whole >= size:
            rest = (whole % size) // (size // (24 if unit == "d" else 60))
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{whole // size}{unit}{rest}{smaller}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def size_text(amount: float) -> str:
    """Writes an amount of bytes."""
    value = float(amount)
    for unit in _SIZES[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if value % 1 == 0 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_SIZES[-1]}"


def count(number: float) -> str:
    """Writes a number with separated thousands."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"


def plural(number: int, noun: str) -> str:
    """Writes `1 job`, `2 jobs`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def amount(value: float) -> str:
    """Writes a number of cpus or gpus, without decimals if it has none."""
    return f"{value:g}"


def percent(fraction: float | None) -> str:
    """Writes a fraction as a percentage."""
    return "-" if fraction is None else f"{fraction * 100:.0f}%"


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
    from rota.wire.formats import encode

    print_json(encode(value))
