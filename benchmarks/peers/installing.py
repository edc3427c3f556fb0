"""Provides what the peers need: a virtual environment of pinned versions, and a Redis server.

Both may be impossible on a machine; then `UnavailableError` says why, and Rota is measured alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PINS = (
    "celery[redis]==5.7.0",
    "dramatiq[redis]==2.2.1",
    "huey==3.5.4",
    "redis==8.1.0",
    "hiredis==3.5.0",
)
INSTALL_S_MAX = 600


class UnavailableError(Exception):
    """The peers cannot be measured here, and why."""


def environment() -> Path:
    """The folder of the peers' programs, installed there at the first run."""
    key = hashlib.sha256(" ".join((*PINS, sys.version)).encode()).hexdigest()[:12]
    place = _cache() / f"peers-{key}"
    complete = place / "complete"
    if not complete.exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        _run(str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *PINS)
        complete.touch()
    return place / "bin"


def redis_server() -> str:
    """The program, installed from the distribution's package where that is possible."""
    if found := shutil.which("redis-server"):
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(
            "there is no redis-server: install one, e.g. apt install redis-server"
        )
    _run("apt-get", "install", "--yes", "--no-install-recommends", "redis-server")
    if found := shutil.which("redis-server"):
        return found
    raise UnavailableError("the package redis-server brought no redis-server")


def redis_version(program: str) -> str:
    """As in `v=7.0.15`."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return next((word[2:] for word in told.stdout.split() if word.startswith("v=")), "unknown")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rota-bench"


def _run(*argv: str) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=INSTALL_S_MAX)
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UnavailableError(f"{' '.join(argv[:4])} … failed: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{argv[0]}: {error}") from error
