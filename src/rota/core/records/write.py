"""The base of what a journal record is made of; the kinds are in outcome.py and event_writes.py."""

from __future__ import annotations

import msgspec


class Write(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """The base of the facts that one journal record is made of."""
