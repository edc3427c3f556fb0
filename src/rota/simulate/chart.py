"""Draws waits and utilisation over time as bars of characters, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.simulate.metrics import JobHistory, makespan_ms

BARS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], top: float) -> str:
    """Draws one character for each value, relative to `top`; any value above 0 is visible."""
    steps = len(BARS) - 1
    if top <= 0:
        return BARS[0] * len(values)
    return "".join(
        BARS[max(1 if value > 0 else 0, min(steps, round(value / top * steps)))] for value in values
    )


def waits(history: JobHistory, columns: int, until_ms: int) -> list[float]:
    """Returns the mean wait in seconds of the jobs that became ready in each slice of time."""
    return [one or 0.0 for one in mean_waits(history, columns, until_ms)]


def mean_waits(history: JobHistory, columns: int, until_ms: int) -> list[float | None]:
    """Returns these mean waits; None where no job became ready."""
    sums, counts = [0] * columns, [0] * columns
    for ready, start in zip(history.ready, history.start, strict=True):
        column = min(columns - 1, ready * columns // max(1, until_ms))
        sums[column] += start - ready
        counts[column] += 1
    return [
        total / count / 1000 if count else None for total, count in zip(sums, counts, strict=True)
    ]


def uses(history: JobHistory, slices: tuple[int, int], cpu_milli: int) -> list[float]:
    """Returns the share of processors in use in each slice; `slices` has their number and end."""
    columns, until_ms = slices
    width = max(1.0, until_ms / columns)
    busy = [0.0] * (columns + 1)
    for start, run, cpus in zip(history.start, history.run, history.cpu_milli, strict=True):
        _spread(busy, start / width, (start + run) / width, cpus)
    return [min(1.0, one / cpu_milli) for one in busy[:columns]]


def _spread(busy: list[float], begin: float, end: float, cpus: int) -> None:
    """Adds a job to the slices in which it ran, by the part of each."""
    first, last = int(begin), min(int(end), len(busy) - 1)
    for column in range(first, last + 1):
        busy[column] += cpus * (min(end, column + 1) - max(begin, column))


def span_ms(histories: Iterable[JobHistory]) -> int:
    """Returns the time that a chart of all of them covers."""
    return max((makespan_ms(history) for history in histories), default=0)
