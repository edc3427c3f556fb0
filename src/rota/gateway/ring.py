"""Which cell a tenant's new jobs go to: weighted rendezvous hashing, the same in every gateway.

Each cell draws a number for the tenant, and the highest wins. Adding a cell therefore moves only
the tenants that the new cell wins, and taking one away only those that it had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

_BITS = 52
"""So many random bits and a half fit a float exactly: never 0, never 1."""


@dataclass(frozen=True, slots=True)
class TenantRouter:
    """Cells by weight. One of weight 0 gets nothing new, except tenants pinned to it."""

    weights: Mapping[str, float]
    pins: Mapping[str, str] = field(default_factory=dict)
    """Tenants whose cell a person chose."""

    def cell_of(self, tenant: str) -> str:
        """The cell of a tenant."""
        pinned = self.pins.get(tenant)
        if pinned is not None:
            return pinned
        drawn = {
            cell: _draw(cell, tenant, weight) for cell, weight in self.weights.items() if weight
        }
        # By name where two drew the same, so that the order of options does not matter.
        return max(sorted(drawn), key=drawn.__getitem__)


def _draw(cell: str, tenant: str, weight: float) -> float:
    """Wins against the others with a chance in proportion to the weight."""
    dice = blake2b(f"{cell}/{tenant}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    fraction = ((int.from_bytes(dice, "big") >> (64 - _BITS)) + 0.5) / (1 << _BITS)
    return -weight / math.log(fraction)
