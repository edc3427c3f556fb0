"""One object for all that are equal: a million jobs that wait take less memory if they share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class InternPool(Generic[T]):
    """Values that never change. Past `most` it starts anew, and only memory is the worse."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._known: dict[T, T] = {}
        self._most = most

    def same(self, value: T) -> T:
        """The equal one that came first, or this."""
        known = self._known
        first = known.get(value)
        if first is None:
            if len(known) >= self._most:
                known.clear()
            first = known[value] = value
        return first
