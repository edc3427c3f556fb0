"""A mapping in many small ones, so that none of them takes long to grow.

A dictionary that is full is made anew, all of it at once. Of hundreds of thousands that come and go
that takes tens of milliseconds, in which nobody is answered. Here each part is made anew by itself.
"""

from __future__ import annotations

from typing import Generic, TypeVar

_PARTS = 256
"""Of half a million entries each has two thousand, which is a tenth of a millisecond."""
_LAST = _PARTS - 1

K = TypeVar("K")
V = TypeVar("V")


class ShardedDict(Generic[K, V]):
    """Has no order: which part a key is in differs from one process to the next."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: list[dict[K, V]] = [{} for _ in range(_PARTS)]

    def shard(self, key: K) -> dict[K, V]:
        """Where the key is, or would be."""
        return self._shards[hash(key) & _LAST]
