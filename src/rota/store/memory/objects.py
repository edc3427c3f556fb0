"""References to objects, and objects themselves, kept in memory: for tests and the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from rota.core.model import ExecutionId, Instant
from rota.store.files.blobs import MARK_KEY, BlobMissingError, Link, check_key
from rota.store.files.spool import Draft
from rota.store.limits import OBJECT_BYTES_MAX
from rota.store.protocols.objects import Bundle, BundleQuery, Kept


class MemoryObjects:
    """The book, forgetful."""

    def __init__(self) -> None:
        self._kept: dict[tuple[ExecutionId, str], Kept] = {}
        self._doomed: dict[str, Instant] = {}
        self._bundles: dict[str, Bundle] = {}
        self._mark = ""

    async def intend(self, key: str, until: Instant) -> None:
        """An object will be put there."""
        self._doomed[key] = until

    async def keep(self, kept: Kept) -> None:
        """Takes up an output file."""
        await self.forget(kept.execution_id, kept.name)
        self._kept[kept.execution_id, kept.name] = kept
        self._doomed.pop(kept.key, None)

    async def forget(self, execution_id: ExecutionId, name: str) -> None:
        """Dooms one."""
        self._doom(self._kept.pop((execution_id, name), None))

    async def kept(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Kept]:
        """Those of these executions, by name."""
        return [self._kept[place] for place in sorted(self._kept) if place[0] in execution_ids]

    async def doomed(self, now: Instant, limit: int) -> Sequence[str]:
        """Keys of objects that are to be removed by now."""
        return [key for key, at in self._doomed.items() if at <= now][:limit]

    async def gone(self, keys: Sequence[str]) -> None:
        """These were removed."""
        for key in keys:
            self._doomed.pop(key, None)

    async def add_bundle(self, bundle: Bundle) -> Bundle:
        """Takes it up, unless its tenant has the same content."""
        for other in self._bundles.values():
            if (other.tenant, other.sha256) == (bundle.tenant, bundle.sha256):
                return other
        self._bundles[bundle.id] = bundle
        self._doomed.pop(bundle.key, None)
        return bundle

    async def bundles(self, bundle_ids: Sequence[str]) -> Sequence[Bundle]:
        """Those that exist."""
        return [self._bundles[one] for one in bundle_ids if one in self._bundles]

    async def find_bundles(self, query: BundleQuery) -> Sequence[Bundle]:
        """A page, newest first."""
        found = [one for one in self._bundles.values() if _matches(one, query)]
        return sorted(found, key=lambda one: one.id, reverse=True)[: query.limit]

    async def use_bundles(self, bundle_ids: Sequence[str], now: Instant) -> None:
        """Notes that they are of use."""
        for one in await self.bundles(bundle_ids):
            self._bundles[one.id] = replace(one, used_at=max(one.used_at, now))

    async def drop_bundle(self, bundle_id: str) -> bool:
        """Forgets it, and dooms its content."""
        bundle = self._bundles.pop(bundle_id, None)
        self._doom(bundle)
        return bundle is not None

    async def mark_storage(self, mark: str, *, replace: bool = False) -> str:
        """Which storage the references lead to."""
        self._mark = mark if replace else self._mark or mark
        return self._mark

    def forget_now(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Their jobs were deleted."""
        for place in [one for one in self._kept if one[0] in execution_ids]:
            self._doom(self._kept.pop(place))

    def _doom(self, one: Kept | Bundle | None) -> None:
        if one is not None and one.key:
            self._doomed[one.key] = 0


def _matches(bundle: Bundle, query: BundleQuery) -> bool:
    return (
        query.tenant in (None, bundle.tenant)
        and query.sha256 in (None, bundle.sha256)
        and (query.unused_since is None or bundle.used_at < query.unused_since)
        and (query.before is None or bundle.id < query.before)
    )


class MemoryBlobs:
    """Object storage as byte strings."""

    bytes_max = OBJECT_BYTES_MAX

    where = "this server's memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, key: str, draft: Draft) -> None:
        """Keeps the draft's content."""
        check_key(key)
        self.objects[key] = draft.path.read_bytes()

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        if key not in self.objects:
            raise BlobMissingError(f"there is no object {key}")
        return _in_one_piece(self.objects[key][start:end])

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these."""
        for key in keys:
            self.objects.pop(key, None)

    async def link(self, key: str, expires_s: int) -> Link | None:
        """Memory has no addresses."""
        return None

    async def mark(self, wanted: str) -> str:
        """Says which storage this is."""
        return self.objects.setdefault(MARK_KEY, wanted.encode()).decode()

    async def close(self) -> None:
        """Nothing to give back."""


async def _in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content
