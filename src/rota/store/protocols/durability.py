"""What an accepted job survives, as the store itself says."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class DurabilityLevel(StrEnum):
    """What an accepted job survives; later ones survive more."""

    SINGLE = "single"
    """A crash of the one database server there is, if its disk survives."""
    ASYNC_HA = "async-ha"
    """The same; a failover to a replica may lose the last moments."""
    SYNC_HA = "sync-ha"
    """A failover too."""

    @property
    def rank(self) -> int:
        """0, 1, 2: for comparing, and for graphs."""
        return list(DurabilityLevel).index(self)


class Durability(msgspec.Struct, frozen=True):
    """The level, and what should worry an operator about it."""

    level: DurabilityLevel
    warnings: tuple[str, ...] = ()
    system: str = ""
    """The database cluster's own identity."""


ONE_DISK = Durability(DurabilityLevel.SINGLE)
"""Of a store in one directory."""
