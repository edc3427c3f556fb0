"""Base class of journaled records, and the units of time that they use."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""
Millis: TypeAlias = int
"""A length of time in milliseconds."""


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """The base of what is journaled: positional, so new fields go last and have defaults.

    Old records then stay readable. `gc=False` is safe because records hold only scalars, strings,
    bytes and tuples of records: nothing that can point back.
    """
