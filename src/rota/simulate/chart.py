"""Draws how waiting and use went over time, in characters that any terminal has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.simulate.metrics import JobHistory, makespan_ms

BARS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], top: float) -> str:
    """One character a value, as high as its part of `top`; what is not nothing shows."""
    steps = len(BARS) - 1
    if top <= 0:
        return BARS[0] * len(values)
    return "".join(
        BARS[max(1 if value > 0 else 0, min(steps, round(value / top * steps)))] for value in values
    )


def waits(diary: JobHistory, columns: int, until_ms: int) -> list[float]:
    """The mean wait in seconds of the jobs that became ready in each of so many slices."""
    return [one or 0.0 for one in mean_waits(diary, columns, until_ms)]


def mean_waits(diary: JobHistory, columns: int, until_ms: int) -> list[float | None]:
    """The same; None where no job became ready."""
    sums, counts = [0] * columns, [0] * columns
    for ready, start in zip(diary.ready, diary.start, strict=True):
        column = min(columns - 1, ready * columns // max(1, until_ms))
        sums[column] += start - ready
        counts[column] += 1
    return [
        total / count / 1000 if count else None for total, count in zip(sums, counts, strict=True)
    ]


def uses(diary: JobHistory, slices: tuple[int, int], cpu_milli: int) -> list[float]:
    """The part of the processors in use in each slice; `slices` are how many, and until when."""
    columns, until_ms = slices
    width = max(1.0, until_ms / columns)
    busy = [0.0] * (columns + 1)
    for start, run, cpus in zip(diary.start, diary.run, diary.cpu_milli, strict=True):
        _spread(busy, start / width, (start + run) / width, cpus)
    return [min(1.0, one / cpu_milli) for one in busy[:columns]]


def _spread(busy: list[float], begin: float, end: float, cpus: int) -> None:
    """Adds a job to the slices it ran in, to each by the part of it."""
    first, last = int(begin), min(int(end), len(busy) - 1)
    for column in range(first, last + 1):
        busy[column] += cpus * (min(end, column + 1) - max(begin, column))


def span_ms(diaries: Iterable[JobHistory]) -> int:
    """The time that a chart of all of them covers."""
    return max((makespan_ms(diary) for diary in diaries), default=0)
