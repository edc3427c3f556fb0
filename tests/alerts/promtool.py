"""Runs Debian's promtool; installs it where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest


@cache
def _installed() -> bool:
    if shutil.which("promtool") and shutil.which("prometheus"):
        return True
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ["install", "-y", "-qq", "--no-install-recommends", "prometheus"]
    run = subprocess.run(["apt-get", *words], env=quiet, check=False, capture_output=True)
    return run.returncode == 0 and shutil.which("promtool") is not None


def need_prometheus() -> None:
    """Skips the test where promtool cannot be installed."""
    if not _installed():
        pytest.skip("no promtool: install Debian's package prometheus (needs root)")


def promtool(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    need_prometheus()
    return subprocess.run(
        ["promtool", *words], input=given, capture_output=True, text=True, check=False, timeout=60
    )
