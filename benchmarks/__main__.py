"""Measures Rota on this machine: `python -m benchmarks [names…] [--quick] [--store postgres]`.

`python -m benchmarks peers [names…]` also measures the peers whose names contain one of the words.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import (
    backlog,
    commands,
    decisions,
    draining,
    due_schedules,
    estimates,
    flood,
    floor,
    footprint,
    graphs,
    hostile,
    idle,
    memory,
    open_dashboards,
    pickup,
    pickup_under_load,
    policies,
    restart,
    rows,
    simulating,
    smoke,
    submitting,
    throughput,
    workflows,
)
from benchmarks.cell import workplace
from benchmarks.machine import header
from benchmarks.peers import compare
from benchmarks.table import Row, Scale, markdown
from benchmarks.traffic import Connection

MEASUREMENTS: Mapping[str, Callable[[Scale], Iterator[Row]]] = {
    "smoke": smoke.measure,
    "floor": floor.measure,
    "submit": submitting.measure,
    "life": throughput.measure,
    "flood": flood.measure,
    "pickup": pickup.measure,
    "loaded": pickup_under_load.measure,
    "command": commands.measure,
    "graph": graphs.measure,
    "schedules": due_schedules.measure,
    "idle": idle.measure,
    "decisions": decisions.measure,
    "memory": memory.measure,
    "restart": restart.measure,
    "watched": open_dashboards.measure,
    "drain": draining.measure,
    "footprint": footprint.measure,
    "backlog": backlog.measure,
    "rows": rows.measure,
    "simulate": simulating.measure,
    "policies": policies.measure,
    "estimates": estimates.measure,
    "workflows": workflows.measure,
    "hostile": hostile.measure,
    "peers": compare.measure,
}
ONLY_WHEN_NAMED = (
    *("drain", "footprint", "backlog", "rows", "simulate"),
    *("policies", "estimates", "workflows", "hostile", "peers"),
)
"""Long, or with much disk, other people's logs, or their software."""


def main() -> None:
    names, scale = _asked()
    with workplace() as place:
        _print_header(place)
    taken: list[Row] = []
    for name in names:
        began = time.perf_counter()
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        postponed = Connection.postponed
        taken += MEASUREMENTS[name](scale)
        postponed = Connection.postponed - postponed
        late = f", {postponed} requests postponed by the server" if postponed else ""
        print(f"{time.perf_counter() - began:.0f} s{late}", file=sys.stderr)
    print(markdown(taken))
    if scale.keep:
        smoke.keep(taken)
    elif complaints := smoke.fallen(taken, smoke.kept_ratios()):
        sys.exit("\n".join(complaints))


def _asked() -> tuple[list[str], Scale]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = ", ".join(MEASUREMENTS)
    apart = ", ".join(ONLY_WHEN_NAMED)
    parser.add_argument("names", nargs="*", help=f"some of: {known}; else all but {apart}")
    parser.add_argument("--quick", action="store_true", help="small: checks that everything runs")
    parser.add_argument(
        "--store", choices=("sqlite", "postgres"), default="sqlite", help="the store of servers"
    )
    parser.add_argument("--keep", action="store_true", help="smoke: store these ratios")
    parser.add_argument("--rounds", type=int, help="how often each figure is taken; else 3, or 1")
    given = parser.parse_intermixed_args()
    names, systems = given.names or (["smoke"] if given.keep else []), ()
    if names[:1] == ["peers"]:
        names, systems = names[:1], tuple(names[1:])
        for word in compare.unknown(systems):
            parser.error(f"there is no peer {word!r}: the names are {', '.join(compare.NAMES)}")
    for name in names:
        if name not in MEASUREMENTS:
            parser.error(f"there is no measurement {name!r}: the names are {known}")
    usual = [name for name in MEASUREMENTS if name not in ONLY_WHEN_NAMED]
    return names or usual, Scale(given.quick, given.store, systems, given.rounds, given.keep)


def _print_header(place: Path) -> None:
    print(header(place), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
