"""Event sources without a broker: watches a folder, and listens to a PostgreSQL channel (NOTIFY).

A folder is watched by listing it, which works on every file system, also over a network. What is
notified while nobody listens is lost in PostgreSQL already.
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

import asyncpg
import structlog

from rota.events.config import FolderSource, PostgresSource
from rota.events.limits import FILES_MAX
from rota.events.publisher import EventDict, Offsets, Publisher, event_of_message
from rota.sdk.calls import uuid7
from rota.sdk.clock import SystemClock

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


class PostgresListener:
    """One connection that listens."""

    def __init__(self, source: PostgresSource, teller: Publisher) -> None:
        self._source = source
        self._publisher = teller
        self._clock = SystemClock()
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()

    async def run(self) -> None:
        """Until the connection is lost, which is an error."""
        connection = await asyncpg.connect(self._source.dsn)
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(self._source.channel, self._hear)
            while (payload := await self._heard.get()) is not None:
                await self._publisher.publish([self._event(payload)])
        finally:
            await connection.close(timeout=5)
        raise ConnectionError(f"the connection to channel {self._source.channel} was lost")

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: Any) -> None:
        self._heard.put_nowait(str(payload))

    def _lost(self, _connection: Any) -> None:
        self._heard.put_nowait(None)

    def _event(self, payload: str) -> EventDict:
        # A notification has no name of its own; it comes once, so neither does it need one.
        fresh = uuid7(self._clock.now_ms(), secrets.token_bytes(10))
        plain: EventDict = {
            "specversion": "1.0",
            "id": fresh,
            "source": f"/postgres/{self._source.name}",
            "type": self._source.type or f"postgres.{self._source.channel}",
        }
        return event_of_message(payload.encode(), plain)
