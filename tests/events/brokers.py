"""Real brokers on loopback, each in a folder of its own, ended whatever happens."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.sdk.clock import SystemClock


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Where it is; skips the test, with the reason, where it is not."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_port(process, port)
        yield
    finally:
        process.kill()
        process.wait(10)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    clock = SystemClock()
    deadline_s = clock.elapsed_s() + 20
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
def nats_server(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js"]
    with running([*command, "-sd", str(folder)], port):
        yield f"nats://127.0.0.1:{port}"
