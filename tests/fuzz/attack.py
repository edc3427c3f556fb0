"""Runs an attack on a server, and measures another client meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from tests.fuzz.abuse import STARTED
from tests.process.cell import PATIENCE_S, Cell

ROOT = Path(__file__).parents[2]
VISITS = 20
CALLS = 5
"""Submits of one visit, and as many reads."""
NOOP = {"name": "meanwhile", "task": {"kind": "noop"}}


@dataclass(frozen=True)
class ClientResult:
    statuses: Sequence[int]
    seconds: Sequence[float]
    """Of each call, from the shortest to the longest."""

    def at(self, share: float) -> float:
        """The time within which this share of the calls was answered."""
        return self.seconds[min(len(self.seconds) - 1, int(len(self.seconds) * share))]


def memory(cell: Cell) -> int:
    return int(psutil.Process(cell.server.pid).memory_info().rss)


def connections(cell: Cell) -> int:
    found = psutil.Process(cell.server.pid).net_connections("tcp")
    return sum(1 for one in found if one.raddr)


def measure_client(cell: Cell, visits: int = VISITS) -> ClientResult:
    """Submits and reads, one call after the other; each visit is a new connection."""
    statuses: list[int] = []
    seconds: list[float] = []
    who = {"Authorization": f"Bearer {cell.token}"}
    for _ in range(visits):
        with httpx2.Client(base_url=cell.url, headers=who, timeout=PATIENCE_S) as http:
            for _ in range(CALLS):
                began = time.perf_counter()
                made = http.post("/jobs", json=NOOP)
                submitted = time.perf_counter()
                read = http.get(f"/jobs/{made.json().get('job_id', '-')}")
                seconds += [submitted - began, time.perf_counter() - submitted]
                statuses += [made.status_code, read.status_code]
    return ClientResult(statuses, sorted(seconds))


@contextmanager
def abused(cell: Cell, name: str) -> Iterator[None]:
    abuser = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.abuse", name, str(cell.port), cell.token],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert abuser.stdin is not None
    assert abuser.stdout is not None
    try:
        assert abuser.stdout.readline().strip() == STARTED, "the abuser gave up"
        yield
        assert abuser.poll() is None, "the abuser gave up"
        abuser.stdin.close()
        abuser.wait(30)
    finally:
        abuser.kill()
        abuser.wait()
        abuser.stdout.close()
        abuser.stdin.close()
