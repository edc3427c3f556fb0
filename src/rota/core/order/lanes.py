"""Lanes: jobs of one class, tenant, priority and length, which go by arrival alone.

What lane a job is in depends on what was asked for and on nothing else, neither on the policy nor
on what was learned. So the line of the store that holds a lane's rear (shelving.py) is the same for
ever.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from rota.core.memory.cells import LineKey
from rota.core.model import JobId, Life, Millis, Spec, Terms

LaneKey: TypeAlias = tuple[str, int, Millis, int]
"""(tenant, priority, length or -1, 0); a line of the store that fits none has its number last."""

_LENGTH_BITS = 5


def lane_key(terms: Terms) -> LaneKey:
    """The lane of jobs like this."""
    length = terms.expected_runtime_ms
    return (terms.tenant, terms.priority, -1 if length is None else rounded(length), 0)


def rounded(length: Millis) -> Millis:
    """To sixteen steps for each doubling: jobs of about the same length are alike."""
    spare = length.bit_length() - _LENGTH_BITS
    return length if spare <= 0 else length >> spare << spare


def down_to_power(length: Millis) -> Millis:
    """The largest power of four that is no longer."""
    return 1 << (length.bit_length() - 1 & ~1) if length > 0 else 0


class Lane:
    """The jobs of one lane, in memory and on the shelf."""

    __slots__ = (
        "arrived",
        "asked",
        "class_index",
        "dry",
        "edge",
        "gone",
        "hurried",
        "kept",
        "key",
        "life",
        "like",
        "mark",
        "number",
        "run",
        "run_end",
        "settled",
        "shelved",
    )

    def __init__(self, class_index: int, key: LaneKey) -> None:
        self.class_index = class_index
        self.key = key
        self.kept = 0
        """Jobs in memory that stand in line."""
        self.run: deque[Any] | None = None
        """Their entries in line, as far as they came in order (row.py); None: there were few."""
        self.run_end: LineKey = (0, 0, JobId(""))
        """The newest of these, if there are any."""
        self.shelved = 0
        """Jobs on the shelf."""
        self.number = key[3]
        """The line of the store; 0 as long as none was needed."""
        self.edge = 0
        """No job on the shelf arrived before this."""
        self.like: Spec | None = None
        """The first job on the shelf, or the last before it: tells where the mark stands."""
        self.mark: LineKey | None = None
        """What stands in line for the first job on the shelf."""
        self.asked = 0
        """The ticket of the question to the store that is under way; 0: none is."""
        self.dry = False
        """Whether a worker had room for a job that is on the shelf."""
        self.hurried = False
        """Whether the question under way is answered as soon as can be."""
        self.settled = False
        """Whether what the store had on the shelf behind the edge, whenever it is read, is still on
        it: nobody has left it by name since it was last known to be so, and it was not short."""
        self.arrived = 0
        """Jobs put on the shelf since the store was asked."""
        self.gone: dict[JobId, None] = {}
        """Jobs from behind the edge that left the store's line since it was asked."""
        self.life: Life | None = None
        """The life of the jobs put on the shelf in this turn: one for all of them."""

    def left_by_name(self, job_id: JobId) -> None:
        """A job has left the shelf from behind the edge; the store may be read before it knows."""
        if self.asked:
            self.gone[job_id] = None
        else:
            self.settled = False
