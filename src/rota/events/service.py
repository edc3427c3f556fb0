"""Runs every source and sink of a configuration, each in a task of its own, and restarts those that
fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import structlog

from rota.events.config import (
    AnySink,
    AnySource,
    Config,
    ConfigError,
    FolderSource,
    PostgresSource,
)
from rota.events.limits import STEADY_S
from rota.events.publisher import EventBackoff, Offsets, Publisher
from rota.events.sinks import Follower, missing_package, open_transport
from rota.events.sources import FolderWatcher, PostgresListener
from rota.sdk import AsyncClient

log = structlog.get_logger("rota.events")

Routine: TypeAlias = Callable[[], Awaitable[None]]


async def serve(config: Config, client: AsyncClient) -> None:
    """Runs until it is cancelled."""
    # All are made before one starts: an error in the configuration ends the command at once.
    routines = list(_routines(config, client, Offsets(config.state)))
    async with asyncio.TaskGroup() as group:
        for name, run in routines:
            group.create_task(_run_forever(name, run), name=f"rota-events-{name}")


def _routines(
    config: Config, client: AsyncClient, offsets: Offsets
) -> Iterator[tuple[str, Routine]]:
    for source in config.source:
        yield source.name, _listener(source, Publisher(client, offsets, source.name), offsets)
    for sink in config.sink:
        yield sink.name, _follower(sink, client, offsets)


def _follower(sink: AnySink, client: AsyncClient, offsets: Offsets) -> Routine:
    return lambda: Follower(sink, client, open_transport(sink), offsets).run()


def _listener(source: AnySource, publisher: Publisher, offsets: Offsets) -> Routine:
    if isinstance(source, FolderSource):
        return FolderWatcher(source, publisher, offsets).run
    if isinstance(source, PostgresSource):
        return lambda: PostgresListener(source, publisher).run()
    from rota.events.brokers import subscription

    try:
        return subscription(source, publisher).run
    except ImportError as error:
        raise ConfigError(missing_package(source.name, error)) from error


async def _run_forever(name: str, run: Routine) -> None:
    backoff = EventBackoff(name)
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        try:
            log.info("started", name=name)
            await run()
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  (the loop's top: it starts again)
            reason = _reason(error)
        else:
            reason = "it ended"
        if loop.time() - began_s > STEADY_S:
            backoff.succeeded()
        pause_s = backoff.next_s()
        log.error("stopped", name=name, reason=reason, retry_s=pause_s)
        await asyncio.sleep(pause_s)


def _reason(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):  # of messages at once: the first error says why
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
