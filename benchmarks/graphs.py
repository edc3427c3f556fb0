"""Dependency graphs of no-op jobs: chain, fan-out, fan-in and random, over HTTP.

A rate is jobs a second from the first submission until the last has succeeded and the tables have
it. Of the chain it is all links one after the other, so its time for one link is shown as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.table import Row, Scale, count
from benchmarks.traffic import (
    NOOP,
    Connection,
    finished,
    open_connections,
    run,
    tables_caught_up,
    workers_registered,
)
from rota.core.ids import fraction

BATCH = 5_000
"""Jobs in a call; those of earlier calls are named by their ids."""
PARENTS_MAX = 3
FAN = 1_000
"""Parents of one job, or children of one: a wide graph has several such stars."""

Parents = Callable[[int], Sequence[int]]


def _chain(number: int) -> Sequence[int]:
    return (number - 1,) if number else ()


def _fan_out(number: int) -> Sequence[int]:
    return () if number % FAN == 0 else (number - number % FAN,)


def _fan_in(number: int) -> Sequence[int]:
    last = number % FAN == FAN - 1
    return range(number - FAN + 1, number) if last else ()


def _random(number: int) -> Sequence[int]:
    wanted = int(fraction("parents", number) * (PARENTS_MAX + 1)) if number else 0
    near = [
        int(fraction("way", number, which) ** 3 * min(number, BATCH)) for which in range(wanted)
    ]
    return tuple(dict.fromkeys(number - 1 - way for way in near))


SHAPES: Mapping[str, Parents] = {
    "chain": _chain,
    "fan-out": _fan_out,
    "fan-in": _fan_in,
    "random": _random,
}


def measure(scale: Scale) -> Iterator[Row]:
    """Measures each shape once a round, in a server of its own."""
    sizes = {shape: scale.of(100_000, 2_000) for shape in SHAPES}
    sizes["chain"] = scale.of(10_000, 200)
    rates: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(scale.rounds or 1):
        for shape, parents in SHAPES.items():
            with workplace() as place, Cell(place / "data", scale.store) as cell:
                cell.start_worker(*MANY_CPUS)
                rates[shape].append(run(_rate(cell, parents, sizes[shape])))
    for shape, taken in rates.items():
        yield Row("graph", f"{shape} of {count(sizes[shape])}", taken, "jobs/s")
    links = [1_000 / rate for rate in rates["chain"]]
    yield Row("graph", "a link of the chain", links, "ms", "aim: 5", less_is_better=True)


async def _rate(cell: Cell, parents: Parents, total: int) -> float:
    async with open_connections(cell, 1) as (connection,):
        await workers_registered(connection)
        began = time.perf_counter()
        await _submit(connection, parents, total)
        await finished(connection, total, total / 20)
        await tables_caught_up(connection)
        return total / (time.perf_counter() - began)


async def _submit(connection: Connection, parents: Parents, total: int) -> None:
    ids: list[str] = []
    for first in range(0, total, BATCH):
        jobs = [
            {
                **NOOP,
                "ref": str(number),
                "dependencies": [f"ref:{up}" if up >= first else ids[up] for up in parents(number)],
            }
            for number in range(first, min(total, first + BATCH))
        ]
        body = json.dumps({"jobs": jobs}).encode()
        ids += json.loads(await connection.send(connection.request("POST", "/jobs/batch", body)))[
            "job_ids"
        ]
