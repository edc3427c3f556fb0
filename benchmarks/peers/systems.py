"""Runs one round of one system: starts it in a folder of its own, drives it, stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.cell import MANY_CPUS, Cell, workplace
from benchmarks.database_server import DatabaseServer
from benchmarks.lives import whole_lives
from benchmarks.peers.backends import backend
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.installing import node_environment, program, python_environment
from benchmarks.peers.processes import SIDES, free_port, running
from benchmarks.raw import postgres_in_place, postgres_material, postgres_projected
from benchmarks.throughput import drained, together
from benchmarks.traffic import run

DRIVE_S_MAX = 900
APP = "rota_side:app"
FEW_CALLS_FROM = 10
"""A peer that needs more ease than this takes seconds for a single call."""


@dataclass(frozen=True, slots=True)
class Load:
    lives: int
    """Jobs that do nothing, submitted and run together; and as many again, drained."""
    spins: int
    """Jobs of a millisecond."""
    calls: int
    """Single ones on an idle system."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Results of one round of one system; missing ones are left out."""

    steady_s: float | None = None
    drain_s: float | None = None
    spins_s: float | None = None
    pickup_ms: Sequence[float] = field(default_factory=tuple)


def rota_round(load: Load) -> Figures:
    """Measures no-op jobs with the load of the other benchmarks, and pickup and 1 ms with
    functions."""
    with workplace() as place, Cell(place / "noop", "postgres") as cell:
        cell.start_worker(*MANY_CPUS)
        steady = run(together(cell, (4, load.lives, 1_000), 1))
        drain = run(drained(cell, load.lives, 1))
    functions = rota_functions_round(Load(0, load.spins, load.calls), {}, "--cpu", "2")
    return Figures(steady[0], drain[0], functions.spins_s, functions.pickup_ms)


def rota_functions_round(load: Load, more: Mapping[str, str], *options: str) -> Figures:
    """Runs a server on PostgreSQL and a worker with an app, durable and with results."""
    environment = {"PEERS_SIGNAL_PORT": str(free_port()), **more}
    with (
        _visible({**environment, "PYTHONPATH": _python_path()}),
        workplace() as place,
        Cell(place / "functions", "postgres") as cell,
    ):
        seen = [word for name in environment for word in ("--env", name)]
        worker = cell.start_worker("--app", APP, *seen, *options)
        environment["ROTA_URL"] = f"http://{cell.host}:{cell.port}"
        environment["ROTA_TOKEN"] = cell.token
        environment["PEERS_WORKER"] = str(worker)
        return _drive([sys.executable, "drive.py", "rota_side"], load, environment)


def raw_round(way: str, load: Load) -> Figures:
    """Writes the same rows by hand: `projected`, or `in place`."""

    async def by_hand(dsn: str) -> float:
        material = await postgres_material(dsn, whole_lives(load.lives))
        write = postgres_projected if way == "projected" else postgres_in_place
        return (await write(dsn, material)).seconds

    with workplace() as place, ExitStack() as stack:
        database_server = DatabaseServer(place)
        stack.callback(database_server.remove)
        return Figures(steady_s=load.lives / run(by_hand(database_server.dsn)))


def installed(peer: Peer) -> Path:
    """Installs the system; returns the folder of its programs."""
    return node_environment(peer.pins) if peer.node else python_environment(peer.pins)


def peer_round(peer: Peer, load: Load) -> Figures:
    """Runs the peer's backend, its worker and its driver."""
    home = installed(peer)
    load = _eased(load, peer.ease)
    with workplace() as place, backend(peer.needs, place) as found, ExitStack() as stack:
        environment = {
            **found,
            **{name: str(free_port()) for name in ("PEERS_SIGNAL_PORT", "PEERS_PORT")},
            "PEERS_NODE": str(home),
            "PEERS_PLACE": str(place),
        }
        driver = _command(
            peer, home, ("node", "drive.mjs") if peer.node else ("python", "drive.py")
        )
        if peer.prepares:
            _checked(_preparing(peer, home, driver), environment)
        for _ in range(peer.workers if peer.worker else 0):
            argv = _command(peer, home, peer.worker)
            worker = stack.enter_context(running(argv, place, environment))
            environment["PEERS_WORKER"] = str(worker.pid)
        return _drive([*driver, peer.side], load, environment)


def _eased(load: Load, ease: int) -> Load:
    calls = load.calls if ease <= FEW_CALLS_FROM else load.calls * FEW_CALLS_FROM // ease
    return Load(load.lives // ease, load.spins // ease, calls)


def _preparing(peer: Peer, home: Path, driver: Sequence[str]) -> list[str]:
    if peer.node:
        return [*driver, peer.side, "prepare"]
    return [str(home / "python"), "-c", f"import {peer.side}; {peer.side}.prepare()"]


def _command(peer: Peer, home: Path, words: Sequence[str]) -> list[str]:
    first = program("node", "nodejs") if peer.node else str(home / words[0])
    return [first, *words[1:]]


def _drive(argv: Sequence[str], load: Load, environment: Mapping[str, str]) -> Figures:
    output = _checked(argv, {**environment, "PEERS_LOAD": json.dumps(asdict(load))})
    return Figures(**json.loads(output.splitlines()[-1]))


def _checked(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        argv,
        cwd=SIDES,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=DRIVE_S_MAX,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[-2:])} failed: {done.stderr[-2000:]}")
    return done.stdout


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(SIDES), os.environ.get("PYTHONPATH"))))


@contextmanager
def _visible(more: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for workers that are started in the block."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
