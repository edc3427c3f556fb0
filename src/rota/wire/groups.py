"""Arrays and gangs (job groups): one submission that stands for many jobs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.limits import ARRAY_COUNT_MAX, GANG_SIZE_MAX

Count: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=ARRAY_COUNT_MAX,
        description="An array of so many members, each run with its own ROTA_ARRAY_INDEX.",
    ),
]
MaxParallel: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=ARRAY_COUNT_MAX, description="Members of an array under way at once."),
]


class GangSpec(msgspec.Struct, forbid_unknown_fields=True):
    """So many copies that start all at once or not at all; one alone would be just a job."""

    size: Annotated[int, Meta(ge=2, le=GANG_SIZE_MAX)]


class ArrayView(msgspec.Struct):
    """How many members of an array are where; those that wait for another try count as queued."""

    count: int
    max_parallel: int | None
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class GangView(msgspec.Struct):
    """How many members of a gang are where, and on which machines it runs, by index."""

    size: int
    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    hosts: list[str] = []


class PlaceView(msgspec.Struct):
    """Of an array's member: of which array, and the index among so many."""

    array_id: str
    index: int
    count: int


class RankView(msgspec.Struct):
    """Of a gang's member: of which gang, the index among so many, and the machines of all."""

    gang_id: str
    index: int
    size: int
    hosts: list[str]
