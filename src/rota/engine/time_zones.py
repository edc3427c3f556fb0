"""Time zones from the database that is installed with Rota, the same on every machine.

The system's own is not used, so that a name means the same on all servers of a cell.
"""

from __future__ import annotations

import re
from datetime import UTC
from functools import lru_cache
from importlib import metadata, resources
from zoneinfo import ZoneInfo

from rota.core.time_zones import Zone

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9][A-Za-z0-9_+-]*){0,3}", re.ASCII)
"""Names that cannot lead out of the database's folder."""


@lru_cache(maxsize=1000)
def load_zone(name: str) -> Zone | None:
    """Loads a zone such as `Europe/Berlin`; None: there is none of that name."""
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
    """Returns all names, sorted."""
    listed = (resources.files("tzdata") / "zones").read_text(encoding="utf-8")
    return sorted(listed.split())


def zone_data() -> str:
    """Returns the edition of the database."""
    return f"tzdata {metadata.version('tzdata')}"
