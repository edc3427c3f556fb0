"""Starts real brokers on loopback, each in a folder of its own, and ends them whatever happens."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rota.sdk.clock import SystemClock


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Returns its path; skips the test, with the reason, where it is not installed."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


@contextmanager
def running(command: list[str], port: int, env: Mapping[str, str] | None = None) -> Iterator[None]:
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=env)
    try:
        _await_port(process, port)
        yield
    finally:
        process.kill()
        process.wait(10)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    clock = SystemClock()
    deadline_s = clock.elapsed_s() + 60
    while clock.elapsed_s() < deadline_s:
        assert process.poll() is None, "the broker ended before it began"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        clock.sleep(0.02)
    raise AssertionError("the broker did not start in time")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    with running([*command, "--dir", str(folder), "--save", ""], port):
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def rabbitmq_server(folder: Path) -> Iterator[str]:
    port = free_port()
    env = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    program("rabbitmq-server")
    # The command on the path changes to a user of its own; this is what it would run.
    command = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
    try:
        with running(command, port, env):
            yield f"amqp://guest:guest@127.0.0.1:{port}/"
    finally:
        _end_all_with("RABBITMQ_NODENAME", env["RABBITMQ_NODENAME"])


def _end_all_with(name: str, value: str) -> None:
    """Ends processes that detached themselves, by a mark in their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(name) == value:
                process.kill()


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js"]
    with running([*command, "-sd", str(folder)], port):
        yield f"nats://127.0.0.1:{port}"
