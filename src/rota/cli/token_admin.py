"""Makes and revokes tokens: through the server, or in the store of one that does not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from rota.api.auth.token_cache import TokenCache
from rota.api.endpoints.tokens import new_token, new_token_view, token_view
from rota.api.ids import IdMint, mint_token
from rota.cli.connect import connected, every_item
from rota.cli.problems import Failure
from rota.engine.clock import SystemClock
from rota.sdk.methods import admin_calls
from rota.store.postgres.tokens import open_postgres_tokens
from rota.store.protocol import StoreError, StoreLockedError
from rota.store.sqlite.store import open_sqlite
from rota.store.tokens import TokenStore
from rota.wire.formats import dec_hook, encode
from rota.wire.problems import ProblemError
from rota.wire.tokens import NewTokenView, TokenSpec, TokenView

T = TypeVar("T")

COMMAND_LINE = "command line"
"""Creator of a token that was made without another token."""


def token_admin(store: str | None, data: Path | None) -> ServerTokens | StoreTokens:
    """Opens the named store, or the server."""
    return ServerTokens() if store is None and data is None else StoreTokens(store, data)


class ServerTokens:
    """Tokens of a running server."""

    def create(self, spec: TokenSpec) -> NewTokenView:
        with connected() as client:
            return client.call(admin_calls.create_token(spec))

    def all_tokens(self) -> list[TokenView]:
        with connected() as client:
            return every_item(client, admin_calls.list_tokens)

    def revoke(self, token_id: str) -> None:
        with connected() as client:
            client.call(admin_calls.revoke_token(token_id))


class StoreTokens:
    """Tokens in a store, whose owner needs no token. Running servers notice within a second."""

    def __init__(self, store: str | None, data: Path | None) -> None:
        self._store = store
        self._data = data
        self._clock = SystemClock()

    def create(self, spec: TokenSpec) -> NewTokenView:
        now, text = self._clock.now(), mint_token()
        try:
            checked = msgspec.json.decode(encode(spec), type=TokenSpec, dec_hook=dec_hook)
            token = new_token(checked, IdMint().mint(now), text, now, COMMAND_LINE)
        except (ProblemError, msgspec.ValidationError) as error:
            raise Failure(str(error)) from error
        self._run(lambda cache: cache.add(token))
        return new_token_view(token, text, now)

    def all_tokens(self) -> list[TokenView]:
        async def read(cache: TokenCache) -> list[TokenView]:
            return [token_view(one, self._clock.now()) for one in cache.all_tokens()]

        return self._run(read)

    def revoke(self, token_id: str) -> None:
        self._run(lambda cache: cache.revoke(token_id, self._clock.now()))

    def _run(self, work: Callable[[TokenCache], Awaitable[T]]) -> T:
        try:
            return asyncio.run(self._work(work))
        except StoreLockedError as error:
            hint = "a server runs there: leave --data out, and the command asks that server"
            raise Failure(f"{self._data}: {hint}") from error
        except StoreError as error:
            raise Failure(str(error)) from error

    async def _work(self, work: Callable[[TokenCache], Awaitable[T]]) -> T:
        async with self._opened() as tokens:
            cache = TokenCache(tokens, self._clock)
            await cache.refresh()
            return await work(cache)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[TokenStore]:
        if self._store is not None:
            async with open_postgres_tokens(self._store) as tokens:
                yield tokens
            return
        assert self._data is not None
        store = open_sqlite(self._data)
        try:
            yield store.tokens
        finally:
            await store.close()
