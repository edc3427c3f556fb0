"""Prints pip constraints that pin each dependency of Rota to the lowest version it allows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
_BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*])?>=(?P<version>[0-9.]+)(,<[0-9.]+)?(;.*)?")


def constraints() -> Iterator[str]:
    """Pins the dependencies of the package and its extras, not those of test tools."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    for line in (*project["dependencies"], *(one for extra in extras for one in extra)):
        found = _BOUND.fullmatch(line.replace(" ", ""))
        if found is None:
            raise SystemExit(f"a dependency needs a lowest version: {line}")
        yield f"{found['name']}=={found['version']}"


if __name__ == "__main__":
    print("\n".join(constraints()))
