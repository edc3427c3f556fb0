"""The index of object storage: references to bundles of code and to large output files.

They stay out of the journal: the core decides nothing by them. The index is also how no object is
ever forgotten: before one is put, its key is noted for deletion at a later time, and taking it up
removes that note in the same moment. What was put and never taken up goes when its time has come,
and so does what a deleted job or bundle leaves behind. Nothing needs to list the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from rota.core.model import ExecutionId, Instant

Format: TypeAlias = Literal["file", "zip", "tar"]


class LargeOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A large output file."""

    execution_id: ExecutionId
    name: str
    size: int
    sha256: str
    key: str
    """Where it is in object storage; empty: among the small ones, for there is no storage."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Code or data that somebody uploaded for jobs."""

    id: str
    tenant: str
    name: str
    """What the file is called where a job finds it."""
    size: int
    sha256: str
    """With the tenant its identity: the same content again is the same bundle."""
    format: Format
    key: str
    created_at: Instant
    used_at: Instant
    """When a job last named or fetched it; within the hour."""


class BundleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which bundles; None: any."""

    tenant: str | None = None
    sha256: str | None = None
    unused_since: Instant | None = None
    before: str | None = None
    """Ids below this one."""
    limit: int = 50


class ObjectIndex(Protocol):
    """Every call goes to the store, so all servers of a cell agree."""

    async def intend(self, key: str, until: Instant) -> None:
        """An object will be put there; unless it is taken up, it is removed after `until`."""
        ...

    async def keep(self, kept: LargeOutput) -> None:
        """Takes up an output file, in place of one of the same name, which is doomed."""
        ...

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        """Dooms one; none is no error."""
        ...

    async def large_outputs(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        """The large output files of these, by name."""
        ...

    async def deletions_due(self, now: Instant, limit: int) -> Sequence[str]:
        """Keys of objects that are to be removed by now."""
        ...

    async def confirm_deleted(self, keys: Sequence[str]) -> None:
        """These were removed."""
        ...

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        """Takes it up; answers the one that is there if its tenant has the same content."""
        ...

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        """Those that exist."""
        ...

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
        """A page, newest (largest id) first."""
        ...

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        """Notes that they are of use."""
        ...

    async def drop_bundle(self, bundle_id: str) -> bool:
        """Forgets it, and dooms its content; False: there is none."""
        ...

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        """Which storage the references lead to: the first one noted, unless it is replaced."""
        ...


def to_large_output(execution_id: str, name: str, size: int, sha256: str, key: str) -> LargeOutput:
    """From a row."""
    return LargeOutput(
        execution_id=ExecutionId(execution_id), name=name, size=size, sha256=sha256, key=key
    )


def encode_bundle(bundle: Bundle) -> bytes:
    """For the table; the time of last use has a column of its own."""
    return _encode(bundle)


def decode_bundle(body: bytes, used_at: Instant) -> Bundle:
    """From the table."""
    return msgspec.structs.replace(_decode(body), used_at=used_at)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Bundle).decode
