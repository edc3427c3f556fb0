"""Drives one system from its own Python: `drive.py SIDE TRIES CALLS`, figures as JSON on stdout.

Runs where only that system is installed, so it imports nothing of this project. A side is a module
beside this one with

    when() -> int                 call a function that answers the time at which it runs
    date() -> int                 start the program `date`, which prints that time
    pour(count) -> list           submit count calls of add(i, i) in one go
    recorded() -> int             results recorded so far
    result(handle) -> int         what one of the calls returned

All times are of the machine's one clock, in nanoseconds.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

IDLE_S = 0.02
"""Between two calls: nobody has anything to do."""
LOOK_S = 0.01
"""Between two looks at how many results there are."""
WARM_CALLS = 200
DRAIN_S_MAX = 300


def main() -> None:
    """Warms everything up first; what is not measured is not in the figures."""
    side = importlib.import_module(sys.argv[1])
    tries, calls = int(sys.argv[2]), int(sys.argv[3])
    _drained(side, WARM_CALLS)
    figures = {
        "function_ms": _pickups(side.when, tries),
        "command_ms": _pickups(side.date, tries),
        "calls_s": calls / _drained(side, calls),
    }
    print(json.dumps(figures))


def _pickups(call: Callable[[], int], tries: int) -> list[float]:
    """Milliseconds from the submission to the call's first act."""
    taken = []
    for number in range(tries + 3 if tries else 0):
        time.sleep(IDLE_S)
        sent = time.time_ns()
        started = call()
        if number >= 3:  # the first ones warm up this kind of call
            taken.append((started - sent) / 1e6)
    return taken


def _drained(side: Any, calls: int) -> float:
    """Seconds from the first submission until the last result is recorded."""
    before = side.recorded()
    began = time.perf_counter()
    handles = side.pour(calls)
    while side.recorded() < before + calls:
        if time.perf_counter() - began > DRAIN_S_MAX:
            raise TimeoutError(f"{side.recorded() - before} of {calls} after {DRAIN_S_MAX} s")
        time.sleep(LOOK_S)
    took = time.perf_counter() - began
    for number in (0, calls // 2, calls - 1):
        assert side.result(handles[number]) == 2 * number, "a wrong result"
    return took


if __name__ == "__main__":
    main()
