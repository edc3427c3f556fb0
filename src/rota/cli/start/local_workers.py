"""Starts the local workers of `rota up` as child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rota.cli.start.up import UpOptions
from rota.worker.machine import detect


class LocalWorkers:
    """Worker processes, each in its own session: Ctrl-C reaches them only through `signal`."""

    def __init__(self, url: str, token: str | None, options: UpOptions) -> None:
        self._url = url
        self._certificate = options.tls_cert
        self._token = token
        self._work = options.data.resolve() / "work"
        self._count = options.workers
        self._options = [] if options.app is None else ["--app", options.app]
        for name in options.env:
            self._options += ["--env", name]
        for place in options.http_allow:
            self._options += ["--http-allow", place]
        self._workers: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Starts them all; the machine is shared out evenly."""
        self._work.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._workers = [
            await self._spawn(number, shares(self._work, self._count))
            for number in range(1, self._count + 1)
        ]

    async def _spawn(self, number: int, share: Sequence[str]) -> asyncio.subprocess.Process:
        environment = dict(os.environ)
        if self._token is not None:
            environment["ROTA_TOKEN"] = self._token
        if self._certificate is not None:
            # They talk to this very server: its own certificate is the one to trust.
            environment.setdefault("SSL_CERT_FILE", str(self._certificate.resolve()))
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rota", "worker",
            "--server", self._url, "--name", f"local-{number}",
            "--work-dir", str(self._work), "--with-parent", *share, *self._options,
            env=environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def signal(self) -> None:
        """Asks them to drain; a second time, to hurry."""
        for worker in self._workers:
            if worker.returncode is None:
                worker.send_signal(signal.SIGTERM)

    async def wait(self) -> None:
        """Waits until all have ended."""
        await asyncio.gather(*(worker.wait() for worker in self._workers))


def shares(work: Path, count: int) -> list[str]:
    """Divides the machine evenly among several workers; one takes all it finds."""
    if count == 1:
        return []
    machine = detect(work)
    return [
        "--cpu", f"{machine.cpu / count:.3f}",
        "--memory", str(machine.memory // count),
        "--storage", str(machine.storage // count),
    ]  # fmt: skip
