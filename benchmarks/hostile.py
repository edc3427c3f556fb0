"""Latency of a normal client beside a hostile one, and the server's memory.

Each abuse of tests/fuzz/abuse.py in its turn, from a process of its own. The client submits and
reads one job after the other, just before and then during the abuse: a machine that is busy
otherwise slows both alike. Those who send as fast as they can also take a processor for themselves;
on few cores that is part of what the client notices.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cell import workplace
from benchmarks.table import Row, Scale
from tests.fuzz.abuse import ABUSES
from tests.fuzz.attack import NOOP, abused, measure_client, memory
from tests.process.cell import Cell

MIB = 1024 * 1024
BATCHES = 2
LONG = {**NOOP, "payload": {"text": "x" * 10_000}}
"""So that there are ten megabytes to ask for."""


def measure(scale: Scale) -> Iterator[Row]:
    """Measures, for each attack, median and p99 of a client's calls, and the server's memory."""
    visits = scale.of(40, 4)
    with workplace() as place, Cell(place) as cell:
        cell.up()
        for _ in range(BATCHES):
            cell.client().submit_batch([LONG] * 500)
        measure_client(cell, visits)
        first = memory(cell)
        for name in ABUSES:
            alone = measure_client(cell, visits)
            with abused(cell, name):
                beside = measure_client(cell, visits)
                grown = (memory(cell) - first) / MIB
            answered = sum(status in (200, 201) for status in beside.statuses)
            note = f"{answered} of {len(beside.statuses)} answered"
            for share in (0.5, 0.99):
                ratio = beside.at(share) / alone.at(share)
                shown = f"{name}: {share:.0%} of calls within"
                yield Row("hostile", shown, [ratio], "times as long", note)
            yield Row("hostile", f"{name}: memory since the start", [grown], "MiB")
