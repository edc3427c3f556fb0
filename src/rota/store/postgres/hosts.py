"""Finds the primary among the hosts of an address, without waiting for those that are dead.

The driver asks one host after the other and has one time-out for all of them: a first host that
has vanished without a word would use it up, and the second never be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from rota.store.limits import NEXT_HOST_S

C = TypeVar("C")


def address_of_each_host(dsn: str) -> list[str]:
    """The same address, once for each host that it names."""
    parts = urlsplit(dsn)
    who, at, hosts = parts.netloc.rpartition("@")
    return [
        urlunsplit(parts._replace(netloc=f"{who}{at}{host}")) for host in hosts.split(",") if host
    ] or [dsn]


async def first_to_connect(
    dsns: Sequence[str], attempt: Callable[[str], Awaitable[C]], drop: Callable[[C], None]
) -> C:
    """What `attempt` answers for the first host that does; raises the last failure if none does.

    Each is given a moment before the next one is asked too. Later answers are dropped.
    """
    waiting = list(dsns)
    trying: dict[asyncio.Future[C], None] = {}
    failure: BaseException | None = None
    try:
        while waiting or trying:
            if waiting:
                trying[asyncio.ensure_future(attempt(waiting.pop(0)))] = None
            patience_s = NEXT_HOST_S if waiting else None
            done, _ = await asyncio.wait(
                trying, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                del trying[one]
            connected = [one for one in done if one.exception() is None]
            if connected:
                _drop_others(connected[1:], drop)
                return connected[0].result()
            failure = next((one.exception() for one in done), failure)
    finally:
        for late in trying:
            late.add_done_callback(lambda ended: _drop_others([ended], drop))
            late.cancel()
    assert failure is not None, "an address names at least one host"
    raise failure


def _drop_others(ended: Sequence[asyncio.Future[C]], drop: Callable[[C], None]) -> None:
    for one in ended:
        if not one.cancelled() and one.exception() is None:
            drop(one.result())
