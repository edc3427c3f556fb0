"""Starts the broker or database of a peer, on loopback in a folder of its own, and stops it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.database_server import DatabaseServer
from benchmarks.peers.catalogue import Needs
from benchmarks.peers.installing import UnavailableError, program
from benchmarks.peers.processes import free_port, running, until_listening
from benchmarks.peers.slurm import slurm

FORGETFUL = ("--save", "", "--appendonly", "no")
DURABLE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
RABBIT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""What the command on the path would run, without its change to another user."""


@contextmanager
def backend(needs: Needs, place: Path) -> Iterator[dict[str, str]]:
    """Runs the backend while the block runs; yields the environment for the side."""
    match needs:
        case Needs.NOTHING:
            yield {}
        case Needs.POSTGRES:
            database_server = DatabaseServer(place)
            try:
                yield {"PEERS_DSN": database_server.dsn}
            finally:
                database_server.remove()
        case Needs.REDIS | Needs.REDIS_DURABLE:
            with _redis(place, DURABLE if needs is Needs.REDIS_DURABLE else FORGETFUL) as found:
                yield found
        case Needs.SLURM:
            with slurm(place) as found:
                yield found
        case Needs.RABBITMQ:
            with _redis(place, FORGETFUL) as results, _rabbitmq(place) as broker:
                yield results | broker


@contextmanager
def _redis(place: Path, settings: Sequence[str]) -> Iterator[dict[str, str]]:
    port = free_port()
    command = (program("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1")
    with running((*command, "--dir", str(place), *settings), place, {}):
        until_listening(port)
        yield {"PEERS_REDIS_PORT": str(port)}


@contextmanager
def _rabbitmq(place: Path) -> Iterator[dict[str, str]]:
    program("rabbitmq-server", "rabbitmq-server")
    if not RABBIT.exists():
        raise UnavailableError(f"there is no {RABBIT}")
    port = free_port()
    environment = {
        "HOME": str(place),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_PID_FILE": str(place / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    try:
        with running((str(RABBIT),), place, environment):
            until_listening(port)
            yield {"PEERS_AMQP": f"amqp://guest:guest@127.0.0.1:{port}//"}
    finally:
        _end_marked("RABBITMQ_NODENAME", environment["RABBITMQ_NODENAME"])


def _end_marked(name: str, value: str) -> None:
    """Ends detached processes, found by a mark in their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(name) == value:
                process.kill()
