"""Job groups: arrays and gangs, one submission that stands for many jobs."""

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
        description="Number of members of an array; each runs with its own ROTA_ARRAY_INDEX.",
    ),
]
MaxParallel: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=ARRAY_COUNT_MAX, description="Members of an array that may be active at once."),
]


class GangSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Size of a gang: its copies all start at once or not at all; one alone would be just a job."""

    size: Annotated[int, Meta(ge=2, le=GANG_SIZE_MAX)]


class ArrayView(msgspec.Struct):
    """Members of an array by state; those that wait for another attempt count as queued."""

    count: int
    max_parallel: int | None
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class GangView(msgspec.Struct):
    """Members of a gang by state, and the machines it runs on, by index."""

    size: int
    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    hosts: list[str] = []


class PlaceView(msgspec.Struct):
    """Position of an array's member: its array, its index, and the number of members."""

    array_id: str
    index: int
    count: int


class RankView(msgspec.Struct):
    """Position of a gang's member: its gang, its index, the number of members, and the machines of
    all.
    """

    gang_id: str
    index: int
    size: int
    hosts: list[str]
