"""Starts processes in groups of their own, waits until they listen, ends them with all theirs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

SIDES = Path(__file__).parent / "sides"
START_S_MAX = 60
STOP_S_MAX = 20


@contextmanager
def running(
    argv: Sequence[str], place: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process in its own process group while the block runs, and ends the group."""
    with (place / "output").open("ab") as output:
        process = subprocess.Popen(
            argv,
            cwd=SIDES,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until_listening(port: int) -> None:
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
