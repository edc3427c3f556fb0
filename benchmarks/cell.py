"""Starts a real server and real workers in a directory of their own, and stops them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psutil

from benchmarks.database_server import DatabaseServer

START_S_MAX = 300
STOP_S_MAX = 60
MANY_CPUS = ("--cpu", "1000")
"""Jobs ask for one cpu unless they say otherwise. A worker that gives this many runs 1,000 no-op
jobs at once, so that the figures are the scheduler's and not those of the machine's cpu count."""


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory on the measured disk, which TMPDIR chooses."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as path:
        yield Path(path)


class Cell:
    """One server process on one data directory, and its workers."""

    def __init__(
        self, data: Path, store: str | DatabaseServer = "sqlite", options: Sequence[str] = ()
    ) -> None:
        """Uses a database of its own, or one that was prepared."""
        self.data = data
        self.database_server = store if isinstance(store, DatabaseServer) else None
        if store == "postgres":
            self.database_server = DatabaseServer(data.parent)
        self._options = options
        self.ready_s = 0.0
        """How long the last start took, from the process's start to its first line."""
        self.host = "127.0.0.1"
        self.port = 0
        self._server: subprocess.Popen[str] | None = None
        self._workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()
        if self.database_server is not None:
            self.database_server.remove()

    @property
    def token(self) -> str:
        return (self.data / "token").read_text("utf-8").strip()

    @property
    def server(self) -> subprocess.Popen[str]:
        assert self._server is not None, "not started"
        return self._server

    @property
    def rss(self) -> int:
        return psutil.Process(self.server.pid).memory_info().rss

    def start(self) -> None:
        """Starts the server and waits until it listens."""
        self.data.mkdir(parents=True, exist_ok=True)
        where = ["--data", str(self.data)]
        if self.database_server is not None:
            where += ["--store", self.database_server.dsn]
            if not (self.data / "token").exists():
                (self.data / "token").write_text(self.database_server.new_token(), "utf-8")
        began = time.perf_counter()
        self._server = self._spawn("server", "--port", "0", *where, *self._options)
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        self.ready_s = time.perf_counter() - began
        url = urlsplit(line.split()[-1]) if " at http" in line else None
        if url is None or url.port is None:
            output = (self.data / "output").read_text("utf-8")
            raise RuntimeError(f"the server did not start: {line}{output}")
        self.port = url.port

    def start_worker(self, *options: str) -> int:
        """Starts one more worker process, in a process group of its own; returns its id."""
        url = f"http://{self.host}:{self.port}"
        folder = self.data / "work"
        folder.mkdir(exist_ok=True)
        worker = self._spawn("worker", "--server", url, "--work-dir", str(folder), *options)
        self._workers.append(worker)
        return worker.pid

    def stop(self) -> None:
        """Stops workers first, so that they can deregister."""
        _end(self._workers, signal.SIGTERM)
        self._workers = []
        if self._server is not None:
            _end([self._server], signal.SIGTERM)
            self._server = None

    def kill(self) -> None:
        _end([self.server], signal.SIGKILL)
        self._server = None

    def _spawn(self, *words: str) -> subprocess.Popen[str]:
        environment = dict(os.environ)
        # The measured server must not become the one that `rota submit` finds on this machine.
        environment["XDG_STATE_HOME"] = str(self.data / "state")
        if words[0] == "worker":
            environment["ROTA_TOKEN"] = self.token
        with (self.data / "output").open("a", encoding="utf-8") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "rota", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if words[0] == "server" else output,
                stderr=output,
                text=True,
                start_new_session=words[0] == "worker",
            )


def _end(processes: Sequence[subprocess.Popen[str]], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)
    for process in processes:
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
