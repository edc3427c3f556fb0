"""Runs every source and sink of a configuration, each on its own: one that fails holds up no
other.
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
    RedisSource,
)
from rota.events.limits import STEADY_S
from rota.events.publisher import EventBackoff, Offsets, Publisher
from rota.events.sinks import Follower, missing_package, open_transport
from rota.events.sources import FolderWatcher
from rota.sdk import AsyncClient

log = structlog.get_logger("rota.events")

Routine: TypeAlias = Callable[[], Awaitable[None]]


async def serve(config: Config, client: AsyncClient) -> None:
    """Until it is cancelled."""
    positions = Offsets(config.state)
    runs = list(_runs(config, client, positions))
    async with asyncio.TaskGroup() as group:
        for name, run in runs:
            group.create_task(_run_forever(name, run), name=f"rota-events-{name}")


def _runs(config: Config, client: AsyncClient, positions: Offsets) -> Iterator[tuple[str, Routine]]:
    for source in config.source:
        yield source.name, _listener(source, Publisher(client, positions, source.name), positions)
    for sink in config.sink:
        yield sink.name, _follower(sink, client, positions)


def _follower(sink: AnySink, client: AsyncClient, positions: Offsets) -> Routine:
    return lambda: Follower(sink, client, open_transport(sink), positions).run()


def _listener(source: AnySource, teller: Publisher, positions: Offsets) -> Routine:
    if isinstance(source, FolderSource):
        return FolderWatcher(source, teller, positions).run
    if isinstance(source, PostgresSource):
        from rota.events.sources import PostgresListener

        return lambda: PostgresListener(source, teller).run()
    try:
        if isinstance(source, RedisSource):
            from rota.events.brokers import RedisSubscription

            return RedisSubscription(source, teller).run
        from rota.events.brokers import subscription

        return subscription(source, teller).run
    except ImportError as error:
        raise ConfigError(missing_package(source.name, error)) from error


async def _run_forever(name: str, run: Routine) -> None:
    pauses = EventBackoff(name)
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        try:
            log.info("listening", name=name)
            await run()
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  (the top of this loop: it is tried again)
            reason = _reason(error)
        else:
            reason = "it ended"
        if loop.time() - began_s > STEADY_S:
            pauses.succeeded()
        pause_s = pauses.next_s()
        log.error("broke_off", name=name, reason=reason, again=pause_s)
        await asyncio.sleep(pause_s)


def _reason(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):  # messages are taken side by side; the first says why
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
