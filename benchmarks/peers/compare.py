"""Compares Rota with its peers and with the raw limit, in one run, taking turns.

Every round starts each system anew, one after the other, so that what else the machine does hits
them alike. Whoever cannot be installed or fails is left out, and a line on stderr says why.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from shutil import which

from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.installing import UnavailableError
from benchmarks.peers.systems import (
    Figures,
    Load,
    installed,
    peer_round,
    raw_round,
    rota_functions_round,
    rota_round,
)
from benchmarks.pickup import percentile
from benchmarks.table import Row, Scale, number
from tests.postgres.server import binaries

Round = Callable[[], Figures]
Taken = Mapping[str, Sequence[Figures]]
ROTA = "Rota"
PROJECTED = "raw, journal and projection"
IN_PLACE = "raw, tables in place"
NAMES = (PROJECTED, IN_PLACE, *(peer.name for peer in PEERS))
"""Whom one can ask for, beside Rota, who is always there."""


def measure(scale: Scale) -> Iterator[Row]:
    """Rows by measurement, each with its ratio to Rota; whole lives also with the ratio to the raw
    limit."""
    load = Load(scale.of(20_000, 3_000), scale.of(3_000, 500), scale.of(150, 20))
    rounds = _chosen(_rounds(load), scale.names)
    print(f"- peers: {', '.join(versions(rounds))}\n", flush=True)
    taken = _taken(rounds, scale.repeats)
    lives = f"whole life, {load.lives:,} together"
    yield from _compared(lives, _values(taken, lambda one: one.steady_s), "jobs/s")
    drain = f"drain of {load.lives:,}"
    yield from _compared(drain, _values(taken, lambda one: one.drain_s), "jobs/s")
    spins = f"{load.spins:,} functions of 1 ms"
    yield from _compared(spins, _values(taken, lambda one: one.spins_s), "jobs/s")
    for share in (50, 99):
        values = _values(taken, partial(_pickup, share))
        yield from _compared(f"pickup, p{share}", values, "ms")


def versions(names: Iterable[str]) -> list[str]:
    """Versions of the measured systems and of their brokers and databases."""
    pins = [pin for peer in PEERS if peer.name in names for pin in peer.pins]
    programs = (
        (str(binaries() / "postgres"), "--version"),
        ("redis-server", "--version"),
        ("node", "--version"),
        ("slurmd", "-V"),
    )
    programs_found = [_first_line(argv) for argv in programs if which(argv[0])]
    return list(dict.fromkeys([*programs_found, *pins]))


def _first_line(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    line = done.stdout.partition("\n")[0]
    return f"node {line}" if argv[0] == "node" else line.partition(" sha=")[0]


def unknown(words: Sequence[str]) -> list[str]:
    return [word for word in words if not any(_has(name, word) for name in NAMES)]


def _has(name: str, word: str) -> bool:
    return word.casefold() in name.casefold()


def _rounds(load: Load) -> dict[str, Round]:
    shared = {"PEERS_ASYNC": "1", "PEERS_CPU": "0.01"}
    rounds: dict[str, Round] = {
        ROTA: partial(rota_round, load),
        "Rota, async def": partial(rota_functions_round, load, shared, "--cpu", "2"),
        PROJECTED: partial(raw_round, "projected", load),
        IN_PLACE: partial(raw_round, "in place", load),
    }
    return rounds | {peer.name: partial(peer_round, peer, load) for peer in PEERS}


def _chosen(rounds: Mapping[str, Round], wanted: Sequence[str]) -> dict[str, Round]:
    """Rota and the peers whose name contains one of the words; without words all."""
    chosen = {
        name: take
        for name, take in rounds.items()
        if name == ROTA or not wanted or any(_has(name, word) for word in wanted)
    }
    for peer in PEERS:
        if peer.name in chosen:
            try:
                installed(peer)
            except UnavailableError as reason:
                print(f"\n  without {peer.name}: {reason}", file=sys.stderr)
                del chosen[peer.name]
    return chosen


def _taken(rounds: Mapping[str, Round], repeats: int) -> dict[str, list[Figures]]:
    taken: dict[str, list[Figures]] = {name: [] for name in rounds}
    for repeat in range(repeats):
        for name, take in rounds.items():
            print(f"\n  {repeat + 1}/{repeats} {name}", end=" ", file=sys.stderr, flush=True)
            try:
                taken[name].append(take())
            except (UnavailableError, RuntimeError, subprocess.SubprocessError, OSError) as reason:
                if name == ROTA:
                    raise
                print(f"failed: {reason}", end="", file=sys.stderr)
    return {name: figures for name, figures in taken.items() if figures}


def _pickup(share: int, figures: Figures) -> float | None:
    return percentile(figures.pickup_ms, share) if figures.pickup_ms else None


def _values(taken: Taken, of: Callable[[Figures], float | None]) -> dict[str, list[float]]:
    found = {name: [of(figures) for figures in rounds] for name, rounds in taken.items()}
    return {
        name: [value for value in values if value is not None]
        for name, values in found.items()
        if any(value is not None for value in values)
    }


def _compared(name: str, values: Mapping[str, list[float]], unit: str) -> Iterator[Row]:
    less = unit == "ms"
    rows = {
        system: Row(name, system, taken, unit, less_is_better=less)
        for system, taken in values.items()
    }
    for system, row in rows.items():
        others = [ROTA] if system != ROTA else [PROJECTED, IN_PLACE]
        notes = [
            f"{number(row.best / rows[other].best)} of {other}" for other in others if other in rows
        ]
        yield Row(name, system, row.values, unit, ", ".join(notes), less)
