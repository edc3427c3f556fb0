"""Drives one system from its own Python: `drive.py SIDE`, PEERS_LOAD in, figures as JSON out.

Runs where only that system is installed, so it imports nothing of this project. A side is a module
beside this one with

    submit_jobs(kind, count)   submit so many jobs of kind `noop` or `spin`, as its documents advise
    call()                     submit one job that sends the start signal
    recorded() -> int          jobs whose end is recorded so far

PEERS_WORKER is the process group of the workers, if they are processes of their own: it is frozen
while the jobs come in that are to be drained.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

from start_signal import StartSignal

IDLE_S = 0.02
"""Between two calls: nobody has anything to do."""
LOOK_S = 0.02
"""Between two looks at how much is recorded: counting is work for some."""
SETTLE_S = 0.3
"""Before each measurement: what the one before has left is recorded by then."""
WARM = 200
WARM_CALLS = 3
PATIENCE_S = 300


def main() -> None:
    side = importlib.import_module(sys.argv[1])
    load: dict[str, int] = json.loads(os.environ["PEERS_LOAD"])
    group = int(os.environ.get("PEERS_WORKER", "0"))
    _together(side, "noop", min(WARM, load["lives"] or load["calls"] or WARM))
    figures: dict[str, Any] = {}
    if load["lives"]:
        figures["steady_s"] = load["lives"] / _together(side, "noop", load["lives"])
    if load["calls"]:
        figures["pickup_ms"] = _pickups(side, load["calls"])
    if load["spins"]:
        figures["spins_s"] = load["spins"] / _together(side, "spin", load["spins"])
    if load["lives"] and group:
        figures["drain_s"] = load["lives"] / _drained(side, group, load["lives"])
    print(json.dumps(figures), flush=True)
    # Some clients keep threads that would keep the process.
    os._exit(0)


def _pickups(side: Any, calls: int) -> list[float]:
    """Milliseconds from the submission to the job's start signal."""
    started, taken = StartSignal(), []
    for number in range(calls + WARM_CALLS):
        time.sleep(IDLE_S)
        sent = time.perf_counter()
        side.call()
        started.wait()
        if number >= WARM_CALLS:
            taken.append((time.perf_counter() - sent) * 1e3)
    return taken


def _together(side: Any, kind: str, count: int) -> float:
    """Seconds from the first submission until the last end is recorded, while workers run."""
    time.sleep(SETTLE_S)
    before = side.recorded()
    began = time.perf_counter()
    side.submit_jobs(kind, count)
    _until(side, before + count)
    return time.perf_counter() - began


def _drained(side: Any, group: int, count: int) -> float:
    """Seconds from when the workers continue until the last end is recorded."""
    time.sleep(SETTLE_S)
    before = side.recorded()
    os.killpg(group, signal.SIGSTOP)
    try:
        side.submit_jobs("noop", count)
    finally:
        began = time.perf_counter()
        os.killpg(group, signal.SIGCONT)
    _until(side, before + count)
    return time.perf_counter() - began


def _until(side: Any, wanted: int) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while (done := side.recorded()) < wanted:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{wanted - done} jobs are missing after {PATIENCE_S} s")
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
