"""Lanes: jobs of one class, tenant, priority and length, which go by arrival alone.

What lane a job is in depends on what was asked for and on nothing else, neither on the policy nor
on what was learned. So the line of the store that holds a lane's rear (shelving.py) is the same for
ever.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from rota.core.memory.cells import OrderKey
from rota.core.model import JobId, Life, Millis, Spec, Terms

FifoGroupKey: TypeAlias = tuple[str, int, Millis, int]
"""(tenant, priority, length or -1, 0); a line of the store that fits none has its number last."""

_LENGTH_BITS = 5


def fifo_group_key(terms: Terms) -> FifoGroupKey:
    """The lane of jobs like this."""
    length = terms.expected_runtime_ms
    return (terms.tenant, terms.priority, -1 if length is None else rounded_length(length), 0)


def rounded_length(length: Millis) -> Millis:
    """To sixteen steps for each doubling: jobs of about the same length are alike."""
    spare = length.bit_length() - _LENGTH_BITS
    return length if spare <= 0 else length >> spare << spare


def power_of_four_below(length: Millis) -> Millis:
    """The largest power of four that is no longer."""
    return 1 << (length.bit_length() - 1 & ~1) if length > 0 else 0


class FifoGroup:
    """The jobs of one lane, in memory and on the shelf."""

    __slots__ = (
        "boundary",
        "boundary_spec",
        "class_index",
        "complete",
        "empty",
        "in_memory",
        "key",
        "left_since_request",
        "request_id",
        "run",
        "run_end",
        "spill_marker",
        "spill_queue",
        "spilled",
        "spilled_life",
        "spilled_since_request",
        "urgent",
    )

    def __init__(self, class_index: int, key: FifoGroupKey) -> None:
        self.class_index = class_index
        self.key = key
        self.in_memory = 0
        """Jobs in memory that stand in line."""
        self.run: deque[Any] | None = None
        """Their entries in line, as far as they came in order (row.py); None: there were few."""
        self.run_end: OrderKey = (0, 0, JobId(""))
        """The newest of these, if there are any."""
        self.spilled = 0
        """Jobs on the shelf."""
        self.spill_queue = key[3]
        """The line of the store; 0 as long as none was needed."""
        self.boundary = 0
        """No job on the shelf arrived before this."""
        self.boundary_spec: Spec | None = None
        """The first job on the shelf, or the last before it: tells where the mark stands."""
        self.spill_marker: OrderKey | None = None
        """What stands in line for the first job on the shelf."""
        self.request_id = 0
        """The ticket of the question to the store that is under way; 0: none is."""
        self.empty = False
        """Whether a worker had room for a job that is on the shelf."""
        self.urgent = False
        """Whether the question under way is answered as soon as can be."""
        self.complete = False
        """Whether what the store had on the shelf behind the edge, whenever it is read, is still on
        it: nobody has left it by name since it was last known to be so, and it was not short."""
        self.spilled_since_request = 0
        """Jobs put on the shelf since the store was asked."""
        self.left_since_request: dict[JobId, None] = {}
        """Jobs from behind the edge that left the store's line since it was asked."""
        self.spilled_life: Life | None = None
        """The life of the jobs put on the shelf in this turn: one for all of them."""

    def left_by_name(self, job_id: JobId) -> None:
        """A job has left the shelf from behind the edge; the store may be read before it knows."""
        if self.request_id:
            self.left_since_request[job_id] = None
        else:
            self.complete = False
