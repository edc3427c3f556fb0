"""Which GPUs each job may see: handed out by number, shared only where a job asked for a part."""

from __future__ import annotations

import math
from collections.abc import Sequence

WHOLE = 1000
"""A device in thousandths, as fractions of it are counted."""


def gpu_numbers(found: Sequence[int], said: float | None) -> Sequence[int]:
    """Of the devices that jobs may be given: who says that there are more knows better."""
    count = math.ceil(said or 0)
    return found if count <= len(found) else range(count)


class GpuAllocator:
    """The GPUs of this machine and how much of each is free."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._free = dict.fromkeys(indices, WHOLE)
        self._taken: dict[str, dict[int, int]] = {}

    def take(self, execution_id: str, amount: float) -> list[int]:
        """The devices for a job that asked for `amount` of them; empty if none can be named.

        Whole devices first; what is left of the amount goes to the fullest one that still fits,
        so that parts share and whole ones stay whole.
        """
        whole, part = divmod(round(amount * WHOLE), WHOLE)
        picked = dict.fromkeys(
            [i for i, free in self._free.items() if free == WHOLE][:whole], WHOLE
        )
        if part:
            fits = [i for i, free in self._free.items() if free >= part and i not in picked]
            picked.update(dict.fromkeys(sorted(fits, key=self._free.__getitem__)[:1], part))
        if len(picked) < whole + bool(part):
            return []
        for index, taken in picked.items():
            self._free[index] -= taken
        self._taken[execution_id] = picked
        return sorted(picked)

    def give_back(self, execution_id: str) -> None:
        """The job is over."""
        for index, taken in self._taken.pop(execution_id, {}).items():
            self._free[index] += taken
