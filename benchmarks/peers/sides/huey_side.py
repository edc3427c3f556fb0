"""Huey's side: its Redis queue, read by blocking, with results in one hash."""

from __future__ import annotations

import os
import subprocess
import time

from huey import RedisHuey
from huey.api import Result

queue = RedisHuey("peers", host="127.0.0.1", port=int(os.environ["PEERS_REDIS_PORT"]))
LOOK_S = 0.002
"""Between two looks for a result: Huey has no way to wait for one but looking."""
WAIT_S_MAX = 60


@queue.task()
def now() -> int:
    """When it runs."""
    return time.time_ns()


@queue.task()
def command() -> int:
    """When the program runs."""
    return int(subprocess.run(["date", "+%s%N"], capture_output=True, check=True).stdout)


@queue.task()
def add(a: int, b: int) -> int:
    """Next to nothing."""
    return a + b


def when() -> int:
    """By a function."""
    return result(now())


def date() -> int:
    """By a function that starts the program: there are no other kinds of task."""
    return result(command())


def pour(count: int) -> list[Result]:
    """One after the other."""
    return [add(number, number) for number in range(count)]


def recorded() -> int:
    """All results that nobody has fetched yet."""
    return queue.result_count()


def result(handle: Result) -> int:
    """From the hash."""
    deadline = time.perf_counter() + WAIT_S_MAX
    while (found := handle.get()) is None:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"no result after {WAIT_S_MAX} s")
        time.sleep(LOOK_S)
    return found
