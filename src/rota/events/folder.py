"""Watches a folder by looking at it: works on every file system, also those over a network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

import structlog

from rota.events.config import FolderSource
from rota.events.limits import FILES_MAX
from rota.events.positions import Offsets
from rota.events.telling import EventDict, Publisher

log = structlog.get_logger("rota.events")

Stamp: TypeAlias = tuple[int, int]
"""When a file was last written, and its size."""
Files: TypeAlias = dict[str, Stamp]


class FolderWatcher:
    """Tells of each file once it looks the same twice in a row; remembers what it told."""

    def __init__(self, source: FolderSource, teller: Publisher, positions: Offsets) -> None:
        self._source = source
        self._publisher = teller
        self._offsets = positions
        self._before: Files = {}

    async def run(self) -> None:
        """For ever."""
        told = self._load()
        if told is None:
            told = {} if self._source.existing else await asyncio.to_thread(self._look)
            self._save(told)
        while True:
            told = await self.look_once(told)
            await asyncio.sleep(self._source.every)

    async def look_once(self, told: Files) -> Files:
        """Tells what is new and has settled since the last look; all that has been told now."""
        found = await asyncio.to_thread(self._look)
        settled = {name: stamp for name, stamp in found.items() if self._before.get(name) == stamp}
        self._before = found
        fresh = {name: stamp for name, stamp in settled.items() if told.get(name) != stamp}
        gone = [name for name in told if name not in found]
        if not fresh and not gone:
            return told
        await self._publisher.publish([self._event(name, told) for name in sorted(fresh)])
        # Only now: told twice is better than not at all, and the server knows the second.
        told = {name: stamp for name, stamp in (told | fresh).items() if name in found}
        self._save(told)
        return told

    def _look(self) -> Files:
        found: Files = {}
        for name, entry in self._entries(self._source.path, ""):
            if len(found) >= FILES_MAX:
                log.error("folder_too_full", source=self._source.name, looked_at=FILES_MAX)
                break
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found[name] = (status.st_mtime_ns, status.st_size)
        return found

    def _entries(self, folder: Path, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if self._source.recursive:
                        yield from self._entries(Path(entry.path), f"{name}/")
                elif entry.is_file(follow_symlinks=False) and fnmatch(
                    entry.name, self._source.pattern
                ):
                    yield name, entry

    def _event(self, name: str, told: Files) -> EventDict:
        written_ns, size = self._before[name]
        modified = datetime.fromtimestamp(written_ns / 1e9, UTC).isoformat()
        base = self._source.type or "file"
        return {
            "specversion": "1.0",
            "id": f"{name}:{written_ns}:{size}"[-1024:],
            "source": f"/folders/{self._source.name}",
            "type": f"{base}.{'changed' if name in told else 'created'}",
            "time": modified,
            "data": {
                "name": name,
                "path": str(self._source.path / name),
                "size": size,
                "modified_at": modified,
            },
        }

    def _load(self) -> Files | None:
        saved = self._offsets.load(self._source.name)
        if saved is None:
            return None
        return {name: (stamp[0], stamp[1]) for name, stamp in saved.items()}

    def _save(self, told: Files) -> None:
        self._offsets.save(self._source.name, told)
