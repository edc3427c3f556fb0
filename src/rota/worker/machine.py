"""Detects what this machine offers (CPUs, memory, disk, GPUs), and allocates GPUs to executions.

A container sees the whole machine in /proc but is held to its cgroup's limits, so the smaller of
both counts. Everything is read below `root`; tests pass a tree of their own. GPUs are allocated by
number, and shared only by jobs that requested a fraction of one.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

V1_MEMORY_NONE = 1 << 60
"""Cgroup v1 writes "no limit" as a number near 2**63."""


class Machine(msgspec.Struct, frozen=True):
    """Detected resources and capabilities."""

    cpu: float
    memory: int
    storage: int
    gpu: int
    capabilities: tuple[str, ...]


def detect(work_dir: Path, root: Path = Path("/")) -> Machine:
    """Detects the machine's resources; `work_dir` is where jobs will write."""
    return Machine(
        cpu=detect_cpu(root, len(os.sched_getaffinity(0))),
        memory=detect_memory(root),
        storage=shutil.disk_usage(work_dir).free,
        gpu=len(gpu_indices(root)),
        capabilities=(sys.platform, platform.machine()),
    )


def detect_cpu(root: Path, allowed: int) -> float:
    """Counts the CPUs this process may run on, bounded by the quotas of its cgroups."""
    quotas = [_v2_quota(folder) for folder in _folders(root, "")]
    quotas += [_v1_quota(folder) for folder in _folders(root, "cpu")]
    return min([float(allowed), *(round(quota, 3) for quota in quotas if quota is not None)])


def detect_memory(root: Path) -> int:
    """Reads the machine's memory, bounded by the limits of this process's cgroups."""
    limits = [_number(folder / "memory.max") for folder in _folders(root, "")]
    limits += [_number(folder / "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    found = [limit for limit in limits if limit is not None and limit < V1_MEMORY_NONE]
    total = re.search(r"MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"))
    if total is not None:
        found.append(int(total.group(1)) * 1024)
    return min(found, default=0)


def gpu_indices(root: Path = Path("/")) -> list[int]:
    """Numbers of the NVIDIA devices of this machine."""
    names = (device.name for device in root.glob("dev/nvidia*"))
    return sorted(int(name[6:]) for name in names if re.fullmatch(r"nvidia\d+", name))


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's cgroup and of all above it; "" means version 2."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        top = mount / controller if controller else mount
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:depth])


def _v2_quota(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota.isdigit() or not period.strip().isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _v1_quota(folder: Path) -> float | None:
    quota = _number(folder / "cpu.cfs_quota_us")
    period = _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


WHOLE = 1000
"""One device, in the thousandths in which fractions are counted."""


def gpu_numbers(found: Sequence[int], configured: float | None) -> Sequence[int]:
    """Numbers of the devices that jobs may get; the operator may configure more than were
    detected."""
    count = math.ceil(configured or 0)
    return found if count <= len(found) else range(count)


class GpuAllocator:
    """Allocates this machine's GPUs, whole or in parts."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._free = dict.fromkeys(indices, WHOLE)
        self._taken: dict[str, dict[int, int]] = {}

    def take(self, execution_id: str, amount: float) -> list[int]:
        """Allocates devices for a job that requested `amount`; returns [] if there are not enough.

        Whole devices are taken first. The fraction goes to the fullest device that still has space,
        so that fractions share a device and the others stay whole.
        """
        whole, part = divmod(round(amount * WHOLE), WHOLE)
        picked = dict.fromkeys(
            [i for i, free in self._free.items() if free == WHOLE][:whole], WHOLE
        )
        if part:
            fits = [i for i, free in self._free.items() if free >= part and i not in picked]
            picked.update(dict.fromkeys(sorted(fits, key=self._free.__getitem__)[:1], part))
        if len(picked) < whole + bool(part):
            return []
        for index, taken in picked.items():
            self._free[index] -= taken
        self._taken[execution_id] = picked
        return sorted(picked)

    def give_back(self, execution_id: str) -> None:
        for index, taken in self._taken.pop(execution_id, {}).items():
            self._free[index] += taken
