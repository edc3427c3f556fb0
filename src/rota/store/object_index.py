"""The index of object storage: references to bundles of code and to large output files.

They stay out of the journal: the core decides nothing by them. Thanks to the index no object is
ever forgotten, and nothing needs to list the storage: before an object is put, its key is noted for
deletion at a later time, and the transaction that refers to it removes that note. What a deleted
job or bundle leaves behind is noted too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from rota.core.model import ExecutionId, Instant
from rota.store.checksums import opened, sealed

Format: TypeAlias = Literal["file", "zip", "tar"]


class LargeOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Large output file of an execution."""

    execution_id: ExecutionId
    name: str
    size: int
    sha256: str
    key: str
    """Its key in object storage; empty: it is kept with the small ones, for there is no storage."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Bundle of code or data for jobs. Stored by the names of its fields."""

    id: str
    tenant: str
    name: str
    """The file's name in the folder of a job."""
    size: int
    sha256: str
    """Together with the tenant its identity: the same content again is the same bundle."""
    format: Format
    key: str
    created_at: Instant
    used_at: Instant
    """When a job last named or fetched it; within the hour."""


class BundleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for bundles, newest first; None: any."""

    tenant: str | None = None
    sha256: str | None = None
    unused_since: Instant | None = None
    before: str | None = None
    """Ids below this one."""
    limit: int = 50


class ObjectIndex(Protocol):
    """Index of object storage; every call goes to the store, so all servers of a cell agree."""

    async def intend(self, key: str, until: Instant) -> None:
        """Notes that an object will be put; if nothing refers to it, it is deleted after
        `until`."""
        ...

    async def keep(self, kept: LargeOutput) -> None:
        """Refers to an output file, in place of one of the same name, which is to be deleted."""
        ...

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        """Has one deleted; none is no error."""
        ...

    async def large_outputs(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        """Returns the large output files of these, by name."""
        ...

    async def deletions_due(self, now: Instant, limit: int) -> Sequence[str]:
        """Returns keys of objects that are to be deleted by now."""
        ...

    async def confirm_deleted(self, keys: Sequence[str]) -> None:
        """Forgets the keys of objects that were deleted."""
        ...

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        """Adds it; returns the one that is there if its tenant has the same content."""
        ...

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        """Returns those that exist."""
        ...

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
        """Returns a page, newest (largest id) first."""
        ...

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        """Notes when they were last used."""
        ...

    async def drop_bundle(self, bundle_id: str) -> bool:
        """Removes it, and has its content deleted; False: there is none."""
        ...

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        """Returns the id of the storage that the references lead to: the first one noted, unless
        it is replaced."""
        ...


def to_large_output(execution_id: str, name: str, size: int, sha256: str, key: str) -> LargeOutput:
    return LargeOutput(
        execution_id=ExecutionId(execution_id), name=name, size=size, sha256=sha256, key=key
    )


def encode_bundle(bundle: Bundle) -> bytes:
    """Encodes it for the table; the time of last use has a column of its own."""
    return sealed(bundle.id, _encode(bundle))


def decode_bundle(bundle_id: str, body: bytes, used_at: Instant) -> Bundle:
    return msgspec.structs.replace(_decode(opened("bundle", bundle_id, body)), used_at=used_at)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Bundle).decode
