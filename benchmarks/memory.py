"""Bytes of memory for each job that waits, in the scheduler alone.

Counted twice: what Python's allocator was asked for, and what the process really grew by. What the
whole server needs is measured by restart.py.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import psutil

from benchmarks.fleet import Fleet
from benchmarks.new_process import in_new_process
from benchmarks.table import Row, Scale, count


def measure(scale: Scale) -> Iterator[Row]:
    waiting = scale.of(1_000_000, 20_000)
    setting = f"scheduler alone, {count(waiting)} waiting"
    resident = [in_new_process(resident_bytes, waiting) / waiting]
    traced = [in_new_process(traced_bytes, waiting) / waiting]
    yield Row("memory", f"{setting}, by RSS", resident, "bytes/job", "aim: 500")
    yield Row("memory", f"{setting}, by tracemalloc", traced, "bytes/job")


def resident_bytes(waiting: int) -> int:
    Fleet(1, 1_000)
    before = psutil.Process().memory_info().rss
    fleet = Fleet(0, waiting)
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    assert fleet.scheduler.live_jobs() == waiting
    return int(grown)


def traced_bytes(waiting: int) -> int:
    tracemalloc.start()
    fleet = Fleet(0, waiting)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    assert fleet.scheduler.live_jobs() == waiting
    return used
