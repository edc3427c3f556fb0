"""The token cache: all tokens in memory, refreshed when the store's revision changes."""

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
    """What is kept of a token. It has 256 random bits, so one round of hashing is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class TokenCache:
    """Who is known. While the store is away it goes on with what it has; expiry still counts."""

    def __init__(self, book: TokenStore, clock: Clock, limits: ApiLimits = API_LIMITS) -> None:
        self._store = book
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
        """Loads all, and looks for changes from then on."""
        await self.refresh()
        self._refreshing = asyncio.create_task(self._refresh_loop(), name="rota-roster")

    async def stop(self) -> None:
        """Looks no more."""
        tasks = [*self._soon_tasks, *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Loads all tokens, if anything has changed."""
        # One at a time: what was read first must not be put in place last.
        async with self._lock:
            if await self._store.revision() == self._revision:
                return
            loaded = await self._store.load(secrets.token_bytes(32))
            self._by_digest = {token.digest: token for token in loaded.tokens}
            self._by_id = {token.id: token for token in loaded.tokens}
            self.secret, self._revision = loaded.secret, loaded.revision

    async def refresh_soon(self) -> None:
        """Returns when all that had changed before is known; one look serves all who ask at once.

        A store that does not answer soon is not waited for.
        """
        if self._soon is None:
            self._soon = asyncio.create_task(self._refresh_soon(), name="rota-roster-now")
            self._soon_tasks.add(self._soon)
            self._soon.add_done_callback(self._soon_tasks.discard)
        await asyncio.wait((self._soon,), timeout=UNKNOWN_TOKEN_WAIT_S)

    async def _refresh_soon(self) -> None:
        await asyncio.sleep(self._limits.token_refresh_soon_s)
        # Whoever asks from here on needs another look: this one may not see their token.
        self._soon = None
        with suppress(StoreError):
            await self.refresh()

    async def next_refresh(self) -> None:
        """Returns when it has been looked again whether tokens changed."""
        await self._refreshed.wait()

    def find(self, token: str) -> Token | None:
        """The token's record, live or not.

        Found by its digest, whose place in a table of seeded hashes says nothing of the token; and
        then compared in constant time.
        """
        given = token_digest(token)
        found = self._by_digest.get(given)
        return found if found is not None and hmac.compare_digest(found.digest, given) else None

    def by_id(self, token_id: str) -> Token | None:
        """The record with this id."""
        return self._by_id.get(token_id)

    def by_tail(self, tail: str) -> Token | None:
        """The record whose id ends so."""
        return next((one for one in self._by_id.values() if id_suffix(one.id) == tail), None)

    def is_live(self, token_id: str) -> bool:
        """Whether this one still opens the door."""
        token = self._by_id.get(token_id)
        return token is not None and token.is_live(self._clock.now())

    def all_tokens(self) -> list[Token]:
        """All of them, newest first."""
        return sorted(self._by_id.values(), key=lambda one: (one.created_at, one.id), reverse=True)

    async def add(self, token: Token) -> None:
        """Makes one known, here at once and elsewhere within a second."""
        await self._store.add_token(token)
        await self.refresh()

    async def revoke(self, token_id: str, now: Instant) -> Token | None:
        """Ends one, here at once and elsewhere within a second."""
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
                        "tokens are those known so far: the store is away", cause=str(error)
                    )
                self._is_store_away = True
            except Exception as error:  # the top of the loop: it must go on
                log.error("looking for changed tokens failed", exc_info=error)
            else:
                self._is_store_away = False
            self._notify()

    def _notify(self) -> None:
        """Wakes those who wait for this look; others wait for the next."""
        self._refreshed.set()
        self._refreshed = asyncio.Event()


def caller_from(token: Token, proof: str, *, by_browser: bool = False) -> Caller:
    """Whoever holds this token."""
    return Caller(token.id, token.name, token.role, token.tenant, by_browser, proof)
