"""What one round of forgetting old work came to."""

from __future__ import annotations

import msgspec


class Dropped(msgspec.Struct, frozen=True):
    """What one call of `drop_before` did."""

    jobs: int = 0
    """How many went; on PostgreSQL as many as its statistics say."""
    more: bool = False
    """Whether to call again: there may be more that is old enough."""
