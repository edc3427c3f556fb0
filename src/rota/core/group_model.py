"""Model of job groups: an array's members run one by one, a gang's members all at once.

The group is a job with a row of its own. Its members become jobs only as they start, so that a
million of them wait in one row. Which members have started and how they ended is kept as a
`GroupProgress` of a few numbers, written with every turn that changes it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from rota.core.record import Millis, Record


class Array(Record, frozen=True, tag="a"):
    """Members with the indices 0 to `count` - 1."""

    count: int
    max_parallel: int | None = None
    """At most so many members are under way at once; None: as many as there is room for."""
    todo: bytes = b""
    """Of one that was started over, the indices to run again: bit i of byte i // 8; empty: all."""
    born: int = 0
    """Members with an index below this have run in an earlier life, and have a row."""


class Gang(Record, frozen=True, tag="g"):
    """Members that start together or not at all."""

    size: int


class GroupMember(Record, frozen=True, tag="m"):
    """One job of a band."""

    parent: str
    index: int
    in_gang: bool = False


JobGroup: TypeAlias = Array | Gang | GroupMember


class GroupContext(msgspec.Struct, frozen=True, gc=False):
    """What a member is told of those it runs with."""

    group_id: str
    index: int
    size: int
    in_gang: bool = False
    hosts: tuple[str, ...] = ()
    """Of a gang: where all its members are, by index."""


class GroupProgress(Record, frozen=True):
    """How far a band is."""

    drawn: int = 0
    """Members that have become jobs, in this life of the band."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    """Those called off, before or after they had become jobs."""
    dropped: int = 0
    """Those of them that never were jobs."""
    hosts: tuple[str, ...] = ()
    """Where the members of a gang that runs are, by index."""
    cause: str = ""
    """Why a gang that runs has to stop; empty: it has not (gangs.py)."""
    delay_ms: Millis = -1
    """When the gang is to try again, where a member has said so; -1: as its policy says."""


def unsuccessful_count(tally: GroupProgress) -> int:
    """Members that ran in this life of the band and did not succeed."""
    return tally.failed + tally.cancelled - tally.dropped


def member_delete_refusal(member: str, group: str, state: str) -> str:
    """Why a member cannot be deleted on its own."""
    return (
        f"job {member} is a member of {group}, which is {state}: it can be deleted with that, "
        "or once that has ended"
    )


def copies_of(group: JobGroup | None) -> int:
    """How many jobs a submission stands for."""
    match group:
        case Array():
            return group.count
        case Gang():
            return group.size
        case _:
            return 1
