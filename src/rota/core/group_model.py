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
    """Array: members with the indices 0 to `count` - 1, which run independently."""

    count: int
    max_parallel: int | None = None
    """Limit on the members that run at once; None: as many as there are free workers for."""
    todo: bytes = b""
    """After a manual retry, the indices to run again: bit i of byte i // 8; empty: all."""
    born: int = 0
    """Members with an index below this ran in an earlier life, and have a row."""


class Gang(Record, frozen=True, tag="g"):
    """Gang: members that start together or not at all."""

    size: int


class GroupMember(Record, frozen=True, tag="m"):
    """Member of a job group."""

    parent: str
    index: int
    in_gang: bool = False


JobGroup: TypeAlias = Array | Gang | GroupMember


class GroupContext(msgspec.Struct, frozen=True, gc=False):
    """Group of an execution, as its worker is told: its index, the size, and the gang's hosts."""

    group_id: str
    index: int
    size: int
    in_gang: bool = False
    hosts: tuple[str, ...] = ()
    """Of a gang: the workers' addresses of all members, by index."""


class GroupProgress(Record, frozen=True):
    """Progress of a job group, as counts of its members."""

    drawn: int = 0
    """Members that have become jobs, in this life of the group."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    """Members that were cancelled, before or after they had become jobs."""
    dropped: int = 0
    """Those of them that never became jobs."""
    hosts: tuple[str, ...] = ()
    """Addresses of the members of a running gang, by index."""
    cause: str = ""
    """Why a running gang has to stop; empty: it has not (groups/gangs.py)."""
    delay_ms: Millis = -1
    """Delay before the gang's retry, where a member has asked for it; -1: by its retry policy."""


def unsuccessful_count(progress: GroupProgress) -> int:
    """Members that ran in this life of the group and did not succeed."""
    return progress.failed + progress.cancelled - progress.dropped


def member_delete_refusal(member: str, group: str, state: str) -> str:
    """Message that a member cannot be deleted on its own."""
    return (
        f"job {member} is a member of {group}, which is {state}: it can be deleted with that, "
        "or once that has ended"
    )


def copies_of(group: JobGroup | None) -> int:
    """Number of jobs that a submission stands for."""
    match group:
        case Array():
            return group.count
        case Gang():
            return group.size
        case _:
            return 1
