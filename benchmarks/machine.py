"""Describes the machine, versions, commit and load of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import apsw
import psutil

HERE = Path(__file__).parent
PACKAGES = ("uvicorn", "httptools", "uvloop", "aiohttp", "msgspec", "apsw")


def header(work: Path) -> str:
    memory = psutil.virtual_memory().total / (1 << 30)
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return "\n".join(
        (
            f"- commit {_commit()}",
            f"- {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB,"
            f" {platform.system()} {platform.release()}, data on {_file_system(work)}",
            f"- Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {packages}",
            f"- load average at the start: {load}",
        )
    )


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return "unknown"
    return commit + (" and changes" if _git("status", "--porcelain", "--", "../src") else "")


def _git(*args: str) -> str:
    try:
        done = subprocess.run(
            ("git", *args), cwd=HERE, capture_output=True, text=True, check=False, timeout=10
        )
    except OSError:
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(work: Path) -> str:
    parts = sorted(psutil.disk_partitions(all=True), key=lambda part: -len(part.mountpoint))
    for part in parts:
        if work.resolve().is_relative_to(part.mountpoint):
            return part.fstype
    return "an unknown file system"
