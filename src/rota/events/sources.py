"""Event sources without a broker: a folder, and a PostgreSQL channel (NOTIFY).

A folder is watched by listing it, which works on every file system, also over a network. PostgreSQL
keeps no notifications while no listener is connected: those are lost.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from rota.events.config import FolderSource, PostgresSource
from rota.events.limits import FILES_MAX
from rota.events.publisher import EventDict, Offsets, Publisher, event_of_message
from rota.sdk.calls import uuid7
from rota.sdk.clock import SystemClock

log = structlog.get_logger("rota.events")

Stamp: TypeAlias = tuple[int, int]
"""Time of a file's last write, and its size."""
Files: TypeAlias = dict[str, Stamp]


class FolderWatcher:
    """Watches a folder: publishes each file once two looks in a row find it unchanged."""

    def __init__(self, source: FolderSource, publisher: Publisher, offsets: Offsets) -> None:
        self._source = source
        self._publisher = publisher
        self._offsets = offsets
        self._before: Files = {}

    async def run(self) -> None:
        """Runs until it is cancelled."""
        published = self._load()
        if published is None:
            published = {} if self._source.existing else await asyncio.to_thread(self._look)
            self._save(published)
        while True:
            published = await self.look_once(published)
            await asyncio.sleep(self._source.every)

    async def look_once(self, published: Files) -> Files:
        """Publishes files that are new and unchanged since the last look; returns all published."""
        found = await asyncio.to_thread(self._look)
        settled = {name: stamp for name, stamp in found.items() if self._before.get(name) == stamp}
        self._before = found
        fresh = {name: stamp for name, stamp in settled.items() if published.get(name) != stamp}
        removed = [name for name in published if name not in found]
        if not fresh and not removed:
            return published
        await self._publisher.publish([self._event(name, published) for name in sorted(fresh)])
        # Saved after publishing: a crash in between repeats them, and the server knows their ids.
        published = {name: stamp for name, stamp in (published | fresh).items() if name in found}
        self._save(published)
        return published

    def _look(self) -> Files:
        found: Files = {}
        for name, entry in self._entries(self._source.path, ""):
            if len(found) >= FILES_MAX:
                log.error("folder_too_full", source=self._source.name, files_read=FILES_MAX)
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

    def _event(self, name: str, published: Files) -> EventDict:
        written_ns, size = self._before[name]
        modified = datetime.fromtimestamp(written_ns / 1e9, UTC).isoformat()
        base = self._source.type or "file"
        return {
            "specversion": "1.0",
            "id": f"{name}:{written_ns}:{size}"[-1024:],
            "source": f"/folders/{self._source.name}",
            "type": f"{base}.{'changed' if name in published else 'created'}",
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

    def _save(self, published: Files) -> None:
        self._offsets.save(self._source.name, published)


class PostgresListener:
    """Listens to a PostgreSQL channel and publishes its notifications."""

    def __init__(self, source: PostgresSource, publisher: Publisher) -> None:
        self._source = source
        self._publisher = publisher
        self._clock = SystemClock()
        self._payloads: asyncio.Queue[str | None] = asyncio.Queue()
        """None: the connection is lost."""

    async def run(self) -> None:
        """Runs until the connection is lost, which is an error."""
        import asyncpg  # only here: a bridge without PostgreSQL does without its client

        connection = await asyncpg.connect(self._source.dsn)
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(self._source.channel, self._received)
            while (payload := await self._payloads.get()) is not None:
                await self._publisher.publish([self._event(payload)])
        finally:
            await connection.close(timeout=5)
        raise ConnectionError(f"the connection to channel {self._source.channel} was lost")

    def _received(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        self._payloads.put_nowait(str(payload))

    def _lost(self, _connection: Any) -> None:
        self._payloads.put_nowait(None)

    def _event(self, payload: str) -> EventDict:
        plain: EventDict = {
            "specversion": "1.0",
            # PostgreSQL sends a notification once, so its id need not recognise a repeat.
            "id": uuid7(self._clock.now_ms(), secrets.token_bytes(10)),
            "source": f"/postgres/{self._source.name}",
            "type": self._source.type or f"postgres.{self._source.channel}",
        }
        return event_of_message(payload.encode(), plain)
