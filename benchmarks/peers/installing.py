"""Provides what the peers need: environments of pinned versions, and programs of the distribution.

Each peer has an environment of its own in the user's cache folder, so that one that cannot be
installed keeps no other from being measured: `UnavailableError` says why it is left out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

INSTALL_S_MAX = 600


class UnavailableError(Exception):
    """A peer cannot be measured on this machine."""


def python_environment(pins: Sequence[str]) -> Path:
    """Installs packages at the first run; returns the folder of their programs."""
    place = _place("python", (*pins, sys.version))
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        if pins:
            _run(str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *pins)
        (place / "complete").touch()
    return place / "bin"


def node_environment(pins: Sequence[str]) -> Path:
    """Installs packages at the first run; returns the folder with `node_modules`."""
    program("node", "nodejs")
    npm = program("npm", "npm")
    place = _place("node", pins)
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text("{}", "utf-8")
        _run(npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), *pins)
        (place / "complete").touch()
    return place


def program(name: str, package: str) -> str:
    """The path of a program, installed from the distribution's package if possible."""
    if found := shutil.which(name):
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnavailableError(f"there is no {name}: install one, e.g. apt install {package}")
    _run("apt-get", "install", "--yes", "--no-install-recommends", package)
    if found := shutil.which(name):
        return found
    raise UnavailableError(f"the package {package} brought no {name}")


def _place(kind: str, parts: Sequence[str]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rota-bench"
    key = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
    return cache / f"{kind}-{key}"


def _run(*argv: str) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=INSTALL_S_MAX)
    except subprocess.CalledProcessError as error:
        message = (error.stderr.strip().splitlines() or ["no output"])[-1]
        raise UnavailableError(f"{' '.join(argv[:4])} … failed: {message}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{argv[0]}: {error}") from error
