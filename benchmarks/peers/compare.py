"""Pickup of a function and of a command, and functions a second through one worker, beside peers.

Every round starts each system anew, one after the other, so that what else the machine does hits
them alike. The others keep everything in a Redis server's memory unless a row says otherwise;
every answer of Rota is on disk before it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.peers.installing import (
    PINS,
    UnavailableError,
    environment,
    redis_server,
    redis_version,
)
from benchmarks.peers.systems import PEERS, Figures, Load, peer_round, rota_round
from benchmarks.pickup import percentile
from benchmarks.table import Row, Scale, number

FORGETFUL = ("--save", "", "--appendonly", "no")
DURABLE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
ROTA = "Rota"
Round = Callable[[], Figures]


def measure(scale: Scale) -> Iterator[Row]:
    """Rows by what was measured, each with its ratio to Rota's first of the kind."""
    load = Load(scale.of(150, 20), scale.of(3_000, 500))
    drains = Load(0, load.calls)
    rounds: dict[str, Round] = {ROTA: partial(rota_round, load)}
    rounds["Rota, 16 at a time"] = partial(rota_round, drains, "add_16", "--concurrency", "16")
    rounds["Rota, async def"] = partial(rota_round, drains, "add_async")
    try:
        rounds |= _peers(environment(), redis_server(), load)
    except UnavailableError as reason:
        print(f"Rota alone, the peers are left out: {reason}", file=sys.stderr)
    taken = _taken(rounds, scale.repeats)
    yield from _pickup_rows(taken)
    yield from _rate_rows(taken, load.calls)


def _peers(programs: Path, redis: str, load: Load) -> dict[str, Round]:
    print(f"\n- peers: {', '.join(PINS)}, Redis {redis_version(redis)}\n", flush=True)
    rounds: dict[str, Round] = {
        peer.name: partial(peer_round, peer, load, programs, (redis, *FORGETFUL)) for peer in PEERS
    }
    drains = Load(0, load.calls)
    for peer in PEERS:
        rounds[f"{peer.name}, Redis syncs always"] = partial(
            peer_round, peer, drains, programs, (redis, *DURABLE)
        )
    return rounds


def _taken(rounds: dict[str, Round], repeats: int) -> dict[str, list[Figures]]:
    taken: dict[str, list[Figures]] = {name: [] for name in rounds}
    for repeat in range(repeats):
        for name, take in rounds.items():
            print(f"  {repeat + 1}/{repeats} {name}", file=sys.stderr, flush=True)
            taken[name].append(take())
    return taken


def _pickup_rows(taken: dict[str, list[Figures]]) -> Iterator[Row]:
    pickups: Sequence[tuple[str, Callable[[Figures], Sequence[float]]]] = (
        ("function", lambda figures: figures.function_ms),
        ("command", lambda figures: figures.command_ms),
    )
    for what, times in pickups:
        for share in (50, 99):
            values = {
                name: [percentile(times(figures), share) for figures in rounds]
                for name, rounds in taken.items()
                if times(rounds[0])
            }
            name = f"pickup of a {what}, p{share}"
            yield from _compared(name, values, "ms", less_is_better=True)


def _rate_rows(taken: dict[str, list[Figures]], calls: int) -> Iterator[Row]:
    values = {name: [one.calls_s for one in rounds] for name, rounds in taken.items()}
    yield from _compared(f"{calls:,} functions", values, "1/s", less_is_better=False)


def _compared(
    name: str, values: dict[str, list[float]], unit: str, *, less_is_better: bool
) -> Iterator[Row]:
    rows = [
        Row(name, system, taken, unit, less_is_better=less_is_better)
        for system, taken in values.items()
    ]
    for row in rows:
        note = "" if row is rows[0] else f"{number(row.best / rows[0].best)} of Rota's"
        yield Row(name, row.setting, row.values, unit, note, less_is_better)
