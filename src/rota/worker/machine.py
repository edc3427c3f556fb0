"""What this machine has to give: cpus, memory, disk and gpus, as far as this process may use them.

A container sees the whole machine in /proc but is held to its cgroup's limits, so the smaller of
both counts. Everything is read below `root`, which tests replace by a tree of their own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

V1_MEMORY_NONE = 1 << 60
"""Version 1 says "no limit" with a number near 2**63."""


class Machine(msgspec.Struct, frozen=True):
    """What was found."""

    cpu: float
    memory: int
    storage: int
    gpu: int
    capabilities: tuple[str, ...]


def detect(work_dir: Path, root: Path = Path("/")) -> Machine:
    """Looks at the machine; `work_dir` is where jobs will write."""
    return Machine(
        cpu=detect_cpu(root, len(os.sched_getaffinity(0))),
        memory=detect_memory(root),
        storage=shutil.disk_usage(work_dir).free,
        gpu=len(gpu_indices(root)),
        capabilities=(sys.platform, platform.machine()),
    )


def detect_cpu(root: Path, allowed: int) -> float:
    """The cpus this process may run on, cut by the quotas of its cgroups."""
    quotas = [_v2_quota(folder) for folder in _folders(root, "")]
    quotas += [_v1_quota(folder) for folder in _folders(root, "cpu")]
    return min([float(allowed), *(round(quota, 3) for quota in quotas if quota is not None)])


def detect_memory(root: Path) -> int:
    """The machine's memory, cut by the limits of the cgroups this process is in."""
    limits = [_number(folder / "memory.max") for folder in _folders(root, "")]
    limits += [_number(folder / "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    found = [limit for limit in limits if limit is not None and limit < V1_MEMORY_NONE]
    total = re.search(r"MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"))
    if total is not None:
        found.append(int(total.group(1)) * 1024)
    return min(found, default=0)


def gpu_indices(root: Path = Path("/")) -> list[int]:
    """The NVIDIA devices that are there, by number."""
    names = (device.name for device in root.glob("dev/nvidia*"))
    return sorted(int(name[6:]) for name in names if re.fullmatch(r"nvidia\d+", name))


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and of all above it; "" means version 2."""
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
