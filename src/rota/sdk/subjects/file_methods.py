"""What both clients can ask about files: bundles up, bundles and output files down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from rota.sdk.calls import Call
from rota.sdk.flows import Flow, Terms
from rota.sdk.subjects import file_calls as calls
from rota.sdk.subjects import file_flows as flows
from rota.sdk.subjects.file_flows import Source
from rota.wire.bundles import BundlePage, BundleView, Format, LinkView
from rota.wire.executions import ArtifactView

T = TypeVar("T")


@contextmanager
def arriving(path: Path) -> Iterator[IO[bytes]]:
    """A file that has its name when all of it is there; in folders that are made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class FileMethods:
    """For the client that blocks; whoever has it carries calls."""

    if TYPE_CHECKING:
        terms: Terms

        def call(self, call: Call[T], *, key: str | None = None) -> T: ...
        def run(self, flow: Flow[T]) -> T: ...
        def iterate(self, flow: Flow[Any]) -> Iterator[Any]: ...

    def push_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        tenant: str | None = None,
        format: Format | None = None,
    ) -> BundleView:
        """Uploads a program, a script or an archive; what the server has is not sent again."""
        source = Source(Path(path))
        return self.run(flows.push(self.terms, source, name or source.path.name, tenant, format))

    def bundles(
        self,
        *,
        tenant: str | None = None,
        unused_for: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> BundlePage:
        """A page of bundles, newest first."""
        return self.call(
            calls.list_bundles(tenant=tenant, unused_for=unused_for, limit=limit, cursor=cursor)
        )

    def bundle(self, bundle_id: str) -> BundleView:
        """One bundle."""
        return self.call(calls.get_bundle(bundle_id))

    def delete_bundle(self, bundle_id: str) -> None:
        """Removes a bundle; jobs that name it and have not begun will fail."""
        self.call(calls.delete_bundle(bundle_id))

    def fetch_bundle(self, bundle_id: str, path: str | os.PathLike[str]) -> None:
        """Downloads a bundle to a file."""
        self._save(flows.download_bundle(self.terms, bundle_id), Path(path))

    def artifacts(self, execution_id: str) -> list[ArtifactView]:
        """An execution's output files, by name."""
        return self.call(calls.list_artifacts(execution_id)).items

    def artifact_link(self, execution_id: str, name: str) -> LinkView:
        """Where an output file can be fetched."""
        return self.call(calls.artifact_link(execution_id, name))

    def read_artifact(self, execution_id: str, name: str) -> bytes:
        """What is in an output file, checked."""
        return b"".join(self.iterate(flows.download_artifact(self.terms, execution_id, name)))

    def fetch_artifact(
        self, execution_id: str, name: str | ArtifactView, path: str | os.PathLike[str]
    ) -> None:
        """Downloads an output file to a file, checked; of many, give those that were listed."""
        self._save(flows.download_artifact(self.terms, execution_id, name), Path(path))

    def _save(self, flow: Flow[None], path: Path) -> None:
        with arriving(path) as file:
            for chunk in self.iterate(flow):
                file.write(chunk)


class AsyncFileMethods:
    """For the client that awaits."""

    if TYPE_CHECKING:
        terms: Terms

        async def call(self, call: Call[T], *, key: str | None = None) -> T: ...
        async def run(self, flow: Flow[T]) -> T: ...
        def iterate(self, flow: Flow[Any]) -> AsyncIterator[Any]: ...

    async def push_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        tenant: str | None = None,
        format: Format | None = None,
    ) -> BundleView:
        """Uploads a program, a script or an archive; what the server has is not sent again."""
        source = await asyncio.to_thread(Source, Path(path))
        named = name or source.path.name
        return await self.run(flows.push(self.terms, source, named, tenant, format))

    async def bundles(
        self,
        *,
        tenant: str | None = None,
        unused_for: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> BundlePage:
        """A page of bundles, newest first."""
        return await self.call(
            calls.list_bundles(tenant=tenant, unused_for=unused_for, limit=limit, cursor=cursor)
        )

    async def bundle(self, bundle_id: str) -> BundleView:
        """One bundle."""
        return await self.call(calls.get_bundle(bundle_id))

    async def delete_bundle(self, bundle_id: str) -> None:
        """Removes a bundle; jobs that name it and have not begun will fail."""
        await self.call(calls.delete_bundle(bundle_id))

    async def fetch_bundle(self, bundle_id: str, path: str | os.PathLike[str]) -> None:
        """Downloads a bundle to a file."""
        await self._save(flows.download_bundle(self.terms, bundle_id), Path(path))

    async def artifacts(self, execution_id: str) -> list[ArtifactView]:
        """An execution's output files, by name."""
        return (await self.call(calls.list_artifacts(execution_id))).items

    async def artifact_link(self, execution_id: str, name: str) -> LinkView:
        """Where an output file can be fetched."""
        return await self.call(calls.artifact_link(execution_id, name))

    async def read_artifact(self, execution_id: str, name: str) -> bytes:
        """What is in an output file, checked."""
        flow = flows.download_artifact(self.terms, execution_id, name)
        return b"".join([chunk async for chunk in self.iterate(flow)])

    async def fetch_artifact(
        self, execution_id: str, name: str | ArtifactView, path: str | os.PathLike[str]
    ) -> None:
        """Downloads an output file to a file, checked; of many, give those that were listed."""
        await self._save(flows.download_artifact(self.terms, execution_id, name), Path(path))

    async def _save(self, flow: Flow[None], path: Path) -> None:
        with arriving(path) as file:
            async for chunk in self.iterate(flow):
                await asyncio.to_thread(file.write, chunk)
