"""A real cell on loopback: one server process, worker processes, and clients that ask them.

Everything it starts carries a mark in its environment. Servers and agents that still carry it at
the end are killed, and nothing else is: an agent's own supervisor must end what the agent leaves.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import psutil

from rota.sdk import Client, Endpoint, Patience
from rota.wire.jobs import JobView

T = TypeVar("T")

PATIENCE_S = 30.0
"""Shared cores stall for seconds; only a test that fails waits this long."""
LOOK_S = 0.02
LEASE_TTL = "2s"
PORTS = range(15_000, 32_000)
MARK = "ROTA_TEST_CELL"
UP = "is up at "


def until(look: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """What `look` answers once that is true; other processes send no signals."""
    deadline = time.monotonic() + patience_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {patience_s:g} s in vain: {what}"
        time.sleep(LOOK_S)
    return seen


def free_port() -> int:
    """A port that stays free while its server is down.

    Above PORTS the system hands ports to clients, so that a worker asking for a dead server could
    be given that server's own port.
    """
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", PORTS[secrets.randbelow(len(PORTS))]))
            except OSError:
                continue
            return int(probe.getsockname()[1])


def is_alive(pid: int) -> bool:
    """Whether it runs; one that only waits to be collected does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def marked(mark: str) -> list[int]:
    """The living processes with this in their command line.

    A job may know its processes by other numbers than the machine does, and may clear all else.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(mark in word for word in process.cmdline()) and is_alive(process.pid):
                found.append(process.pid)
    return found


def shell(script: str, name: str = "shell", **more: Any) -> dict[str, Any]:
    """A job that runs a shell script."""
    task = {"kind": "command", "argv": ["sh", "-c", script]}
    return {"name": name, "task": task, **more}


class Daemon:
    """A process of ours, with all it says kept in a file."""

    def __init__(self, args: Sequence[str], env: dict[str, str], said: Path) -> None:
        self.said = said
        with said.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rota", *args],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def text(self) -> str:
        """What it has said so far."""
        return self.said.read_text("utf-8", "replace")

    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Its exit code; below 0: the signal that ended it."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end; its output:\n{self.text()}") from None

    def kill(self) -> None:
        """Ends it without a word."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Asks it to end, and waits."""
        self.signal(signal.SIGTERM)
        return self.wait()


class Cell:
    """One data folder, one port, one server at a time, any number of workers."""

    def __init__(self, folder: Path, lease_ttl: str = LEASE_TTL) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.witness = folder / "witness"
        self.lease_ttl = lease_ttl
        self.port = free_port()
        self.workers: list[Daemon] = []
        self._mark = secrets.token_hex(16)
        self._clients: list[Client | httpx2.Client] = []
        self._server: Daemon | None = None
        self._daemons: list[Daemon] = []
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            client.close()
        until(lambda: not self._end_all(), "the end of all that this cell started, guards too")

    # Processes

    @property
    def env(self) -> dict[str, str]:
        """The environment of everything here; its user has no other server."""
        home = {"XDG_STATE_HOME": str(self.folder / "state"), MARK: self._mark}
        return {**os.environ, **home}

    @property
    def server(self) -> Daemon:
        """The one that was started last."""
        assert self._server is not None
        return self._server

    @property
    def url(self) -> str:
        """Where the server is, or was."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The one its first start wrote."""
        return (self.data / "token").read_text().strip()

    def launch(self, *args: str) -> Daemon:
        """Any `rota` command, beside the test."""
        self._started += 1
        said = self.folder / f"said-{self._started}-{args[0]}"
        daemon = Daemon(args, self.env, said)
        self._daemons.append(daemon)
        return daemon

    def run(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Any `rota` command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "rota", *args],
            env=self.env,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def begin_up(self, *more: str) -> Daemon:
        """`rota up`, not waited for; without workers unless `more` says so."""
        args = [
            *("up", "--port", str(self.port), "--data", str(self.data)),
            *("--lease-ttl", self.lease_ttl, "--workers", "0", *more),
        ]
        self._server = self.launch(*args)
        return self._server

    def up(self, *more: str) -> Daemon:
        """`rota up`, once it answers. A restart keeps port and data."""
        server = self.begin_up(*more)
        until(lambda: UP in server.text() or server.ended(), "a server that is up")
        assert not server.ended(), server.text()
        self.port = int(server.text().split(UP)[1].split()[0].rpartition(":")[2])
        return server

    def worker(self, name: str = "w", *more: str) -> Daemon:
        """`rota worker` for this server."""
        args = ("--server", self.url, "--name", name, "--work-dir", str(self.folder / "work"))
        # The token is not in its environment: a worker on the server's machine finds it.
        worker = self.launch("worker", *args, "--cpu", "8", "--grace", "1s", *more)
        self.workers.append(worker)
        return worker

    def _end_all(self) -> list[int]:
        mine = list(self._mine())
        for process, args in mine:
            # A supervisor must live until it has ended its dead agent's jobs; then it exits too.
            if args[1:3] == ["-m", "rota"]:
                process.kill()
        # One that is just dying has no environment to be known by any more.
        dying = [daemon.pid for daemon in self._daemons if not daemon.ended()]
        return [*(process.pid for process, _ in mine), *dying]

    def _mine(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark and is_alive(process.pid):
                    yield process, process.cmdline()
            except psutil.Error:
                continue  # gone, or owned by another user

    # Asking

    def client(self, patience_s: float = PATIENCE_S) -> Client:
        """The SDK's client; it goes on asking a server that is away."""
        endpoint = Endpoint(self.url, self.token, "the test", "the test", ())
        client = Client(endpoint, patience=Patience(retry_for_s=patience_s, read_s=patience_s))
        self._clients.append(client)
        return client

    def http(self, token: str | None = None) -> httpx2.Client:
        """Plain HTTP, which repeats nothing; with the cell's token unless another ("": none)."""
        given = self.token if token is None else token
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)
        self._clients.append(client)
        return client

    # Looking

    def witnessed(self, name: str = "") -> list[str]:
        """The lines that jobs have written; those of one name."""
        try:
            lines = self.witness.read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line for line in lines if line.split()[0] == name or not name]

    def witness_job(self, name: str, then: str = "true", **more: Any) -> dict[str, Any]:
        """A job that writes one line for each of its runs: its name, its fence, its process."""
        note = f'echo "{name} $ROTA_FENCE $$" >> {self.witness}'
        return shell(f"{note}; {then}", name, **more)

    def until_witnessed(self, name: str, lines: int = 1) -> list[str]:
        """Waits until a job has begun so many times."""
        return (
            until(
                lambda: seen if len(seen := self.witnessed(name)) >= lines else None,
                f"{lines} runs of {name}",
            )
            or []
        )

    def until_status(self, client: Client, job_id: str, *statuses: str) -> JobView:
        """Waits until the job is in one of these."""

        def look() -> JobView | None:
            job = client.job(job_id)
            return job if job.status in statuses else None

        job = until(look, f"job {job_id} in {statuses}")
        assert job is not None
        return job
