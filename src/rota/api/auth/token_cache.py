"""Token cache: all tokens in memory, refreshed when the store's revision changes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from contextlib import suppress

import structlog

from rota.api.auth.roles import Caller
from rota.api.limits import API_LIMITS, UNKNOWN_TOKEN_WAIT_S, ApiLimits
from rota.core.model import Instant
from rota.engine.beat import beat
from rota.engine.ports import Clock
from rota.store.protocol import StoreError
from rota.store.tokens import Token, TokenStore, id_suffix

log = structlog.get_logger(__name__)


def token_digest(token: str) -> bytes:
    """Returns the digest that is stored. A token has 256 random bits: one round of hashing is
    enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class TokenCache:
    """Cache of all tokens in memory; while the store is unavailable it uses what it has.

    Tokens still expire then.
    """

    def __init__(self, store: TokenStore, clock: Clock, limits: ApiLimits = API_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._revision = -1
        self._by_digest: Mapping[bytes, Token] = {}
        self._by_id: Mapping[str, Token] = {}
        self._is_store_away = False
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._soon: asyncio.Task[None] | None = None
        self._soon_tasks: set[asyncio.Task[None]] = set()
        self._refreshed = asyncio.Event()
        self.secret = b""

    async def start(self) -> None:
        """Loads all tokens, and checks for changes from then on."""
        await self.refresh()
        self._refreshing = asyncio.create_task(self._refresh_loop(), name="rota-tokens")

    async def stop(self) -> None:
        tasks = [*self._soon_tasks, *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Loads all tokens, if any has changed."""
        # One at a time: an older result must not replace a newer one.
        async with self._lock:
            if await self._store.revision() == self._revision:
                return
            loaded = await self._store.load(secrets.token_bytes(32))
            self._by_digest = {token.digest: token for token in loaded.tokens}
            self._by_id = {token.id: token for token in loaded.tokens}
            self.secret, self._revision = loaded.secret, loaded.revision

    async def refresh_soon(self) -> None:
        """Returns when all earlier changes are loaded; one load serves all callers.

        It does not wait for a store that does not answer soon.
        """
        if self._soon is None:
            self._soon = asyncio.create_task(self._refresh_soon(), name="rota-tokens-now")
            self._soon_tasks.add(self._soon)
            self._soon.add_done_callback(self._soon_tasks.discard)
        await asyncio.wait((self._soon,), timeout=UNKNOWN_TOKEN_WAIT_S)

    async def _refresh_soon(self) -> None:
        await asyncio.sleep(self._limits.token_refresh_soon_s)
        # Callers from here on need another load: this one may miss their token.
        self._soon = None
        with suppress(StoreError):
            await self.refresh()

    async def next_refresh(self) -> None:
        """Returns after the next check for changed tokens."""
        await self._refreshed.wait()

    def find(self, token: str) -> Token | None:
        """Returns a token's record, valid or not.

        Found by its digest, whose place in a table of seeded hashes reveals nothing about the
        token, then compared in constant time.
        """
        given = token_digest(token)
        found = self._by_digest.get(given)
        return found if found is not None and hmac.compare_digest(found.digest, given) else None

    def by_id(self, token_id: str) -> Token | None:
        return self._by_id.get(token_id)

    def by_tail(self, tail: str) -> Token | None:
        """Returns the record whose id has this end."""
        return next((one for one in self._by_id.values() if id_suffix(one.id) == tail), None)

    def is_live(self, token_id: str) -> bool:
        """Whether the token is still valid."""
        token = self._by_id.get(token_id)
        return token is not None and token.is_live(self._clock.now())

    def all_tokens(self) -> list[Token]:
        """Returns all tokens, newest first."""
        return sorted(self._by_id.values(), key=lambda one: (one.created_at, one.id), reverse=True)

    async def add(self, token: Token) -> None:
        """Adds a token; other servers know it within a second."""
        await self._store.add_token(token)
        await self.refresh()

    async def revoke(self, token_id: str, now: Instant) -> Token | None:
        """Revokes a token; other servers know it within a second."""
        found = await self._store.revoke_token(token_id, now)
        await self.refresh()
        self._notify()
        return found

    async def _refresh_loop(self) -> None:
        while True:
            await beat(self._limits.token_refresh_s)
            try:
                await self.refresh()
            except StoreError as error:
                if not self._is_store_away:
                    log.warning(
                        "store unavailable: using the tokens known so far", cause=str(error)
                    )
                self._is_store_away = True
            except Exception as error:  # the top of the loop: it must go on
                log.error("checking for changed tokens failed", exc_info=error)
            else:
                self._is_store_away = False
            self._notify()

    def _notify(self) -> None:
        """Wakes those who wait for this check; later callers wait for the next."""
        self._refreshed.set()
        self._refreshed = asyncio.Event()


def caller_from(token: Token, proof: str, *, by_browser: bool = False) -> Caller:
    """Returns the caller that a token authenticates."""
    return Caller(token.id, token.name, token.role, token.tenant, by_browser, proof)
