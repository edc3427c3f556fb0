"""The time zone database: the one that is installed with Rota, the same on every machine.

The system's own is left alone, so that two servers of a cell mean the same by a name.
"""

from __future__ import annotations

import re
from datetime import UTC
from functools import lru_cache
from importlib import metadata, resources
from zoneinfo import ZoneInfo

from rota.core.time_zones import Zone

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9][A-Za-z0-9_+-]*){0,3}", re.ASCII)
"""Nothing that could lead out of the folder they are in."""


@lru_cache(maxsize=1000)
def load_zone(name: str) -> Zone | None:
    """A zone such as `Europe/Berlin`, the same for all who ask; None: there is no such zone."""
    if name == "UTC":
        return Zone(name, UTC)
    if not _NAME.fullmatch(name):
        return None
    file = resources.files("tzdata") / "zoneinfo"
    for part in name.split("/"):
        file = file / part
    try:
        with file.open("rb") as rules:
            return Zone(name, ZoneInfo.from_file(rules, key=name))
    except (OSError, ValueError):
        return None


def zone_names() -> list[str]:
    """All names, sorted."""
    listed = (resources.files("tzdata") / "zones").read_text(encoding="utf-8")
    return sorted(listed.split())


def zone_data() -> str:
    """Which edition of the database it is."""
    return f"tzdata {metadata.version('tzdata')}"
