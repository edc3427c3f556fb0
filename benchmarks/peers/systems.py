"""Starts each system with one worker in a folder of its own, drives it, and ends it again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.cell import Cell, workplace

SIDES = Path(__file__).parent / "sides"
APP = "rota_side:app"
DRIVE_S_MAX = 900
START_S_MAX = 10
STOP_S_MAX = 20


@dataclass(frozen=True, slots=True)
class Load:
    """How much one round asks for."""

    tries: int
    calls: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What one round of one system took."""

    function_ms: Sequence[float]
    command_ms: Sequence[float]
    calls_s: float


@dataclass(frozen=True, slots=True)
class Peer:
    """How one of the others is started: its side, and its worker's command."""

    name: str
    side: str
    worker: tuple[str, ...]


PEERS = (
    Peer(
        "Celery",
        "celery_side",
        (
            *("celery", "--app", "celery_side:app", "worker", "--loglevel", "ERROR"),
            *("--pool", "prefork", "--concurrency", "2"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
    ),
    Peer(
        "Dramatiq",
        "dramatiq_side",
        ("dramatiq", "dramatiq_side", "--processes", "2", "--threads", "8"),
    ),
    Peer(
        "Huey",
        "huey_side",
        (
            *("huey_consumer", "huey_side.queue", "--workers", "2", "--worker-type", "process"),
            *("--no-periodic", "--quiet"),
        ),
    ),
)


def rota_round(load: Load, function: str = "add", *options: str) -> Figures:
    """A server and a worker that gives two cpus; answers are durable, results recorded."""
    environment = {"PEERS_FUNCTION": function}
    with _importable(SIDES), workplace() as place, Cell(place / "data") as cell:
        cell.hire("--cpu", "2", "--app", APP, *options)
        environment["ROTA_URL"] = f"http://{cell.host}:{cell.port}"
        environment["ROTA_TOKEN"] = cell.token
        return _drive(sys.executable, "rota_side", load, environment)


def peer_round(peer: Peer, load: Load, programs: Path, redis: Sequence[str]) -> Figures:
    """A Redis server of its own, and one worker of two processes."""
    with workplace() as place:
        port = _free_port()
        environment = {"PEERS_REDIS_PORT": str(port), "PYTHONDONTWRITEBYTECODE": "1"}
        server = (*redis, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place))
        with _running(server, place, {}):
            _until_listening(port)
            worker = (str(programs / peer.worker[0]), *peer.worker[1:])
            with _running(worker, place, environment):
                return _drive(str(programs / "python"), peer.side, load, environment)


def _drive(python: str, side: str, load: Load, environment: Mapping[str, str]) -> Figures:
    done = subprocess.run(
        [python, str(SIDES / "drive.py"), side, str(load.tries), str(load.calls)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=DRIVE_S_MAX,
    )
    if done.returncode:
        raise RuntimeError(f"{side} could not be driven: {done.stderr[-2000:]}")
    return Figures(**json.loads(done.stdout))


@contextmanager
def _running(argv: Sequence[str], place: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A process that is ended, with those it started, when the block is left."""
    with (place / "said").open("ab") as said:
        process = subprocess.Popen(
            argv,
            cwd=SIDES,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for one in psutil.wait_procs(family, timeout=1)[1]:
        one.kill()


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Workers started in the block find the modules of this folder."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _until_listening(port: int) -> None:
    deadline = time.perf_counter() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
