"""The asynchronous client with the manners of the other, so that one suite tries both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias, cast

from rota.sdk import AsyncClient, Client

OpenClient: TypeAlias = Callable[..., Client]


class Blocking:
    """Waits for each call in an event loop of its own."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*args, **more)

    def __enter__(self) -> Client:
        return cast("Client", self)

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        asynchronous = getattr(self._client, name)
        if not callable(asynchronous):
            return asynchronous

        def call(*args: Any, **more: Any) -> Any:
            came = asynchronous(*args, **more)
            if inspect.iscoroutine(came):
                return self._runner.run(came)
            return self._iterate(came)

        return call

    def _iterate(self, source: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> list[Any]:
            return [item async for item in _first(source)]

        try:
            while item := self._runner.run(following()):
                yield item[0]
        finally:
            self._runner.run(cast("Any", source).aclose())


async def _first(source: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        yield await anext(source)
    except StopAsyncIteration:
        return


KINDS: dict[str, Any] = {"Client": Client, "AsyncClient": Blocking}
