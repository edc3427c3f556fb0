"""All tokens in memory, kept fresh by a look at one number twice a second."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from contextlib import suppress

import structlog

from rota.api.door.roles import Caller
from rota.api.limits import API_LIMITS, ROSTER_PATIENCE_S, ApiLimits
from rota.core.model import Instant
from rota.engine.beat import beat
from rota.engine.ports import Clock
from rota.store.protocol import StoreError
from rota.store.protocols.access import Token, TokenStore, id_suffix

log = structlog.get_logger(__name__)


def digest(token: str) -> bytes:
    """What is kept of a token. It has 256 random bits, so one round of hashing is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Roster:
    """Who is known. While the store is away it goes on with what it has; expiry still counts."""

    def __init__(self, book: TokenStore, clock: Clock, limits: ApiLimits = API_LIMITS) -> None:
        self._book = book
        self._limits = limits
        self._clock = clock
        self._revision = -1
        self._by_digest: Mapping[bytes, Token] = {}
        self._by_id: Mapping[str, Token] = {}
        self._away = False
        self._turn = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._hurry: asyncio.Task[None] | None = None
        self._hurries: set[asyncio.Task[None]] = set()
        self._looked = asyncio.Event()
        self.secret = b""

    async def start(self) -> None:
        """Loads all, and looks for changes from then on."""
        await self.refresh()
        self._looking = asyncio.create_task(self._look(), name="rota-roster")

    async def stop(self) -> None:
        """Looks no more."""
        tasks = [*self._hurries, *([self._looking] if self._looking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self) -> None:
        """Loads all tokens, if anything has changed."""
        # One at a time: what was read first must not be put in place last.
        async with self._turn:
            if await self._book.revision() == self._revision:
                return
            loaded = await self._book.load(secrets.token_bytes(32))
            self._by_digest = {token.digest: token for token in loaded.tokens}
            self._by_id = {token.id: token for token in loaded.tokens}
            self.secret, self._revision = loaded.secret, loaded.revision

    async def look_now(self) -> None:
        """Returns when all that had changed before is known; one look serves all who ask at once.

        A store that does not answer soon is not waited for.
        """
        if self._hurry is None:
            self._hurry = asyncio.create_task(self._look_soon(), name="rota-roster-now")
            self._hurries.add(self._hurry)
            self._hurry.add_done_callback(self._hurries.discard)
        await asyncio.wait((self._hurry,), timeout=ROSTER_PATIENCE_S)

    async def _look_soon(self) -> None:
        await asyncio.sleep(self._limits.roster_hurry_s)
        # Whoever asks from here on needs another look: this one may not see their token.
        self._hurry = None
        with suppress(StoreError):
            await self.refresh()

    async def next_look(self) -> None:
        """Returns when it has been looked again whether tokens changed."""
        await self._looked.wait()

    def find(self, token: str) -> Token | None:
        """The token's record, live or not.

        Found by its digest, whose place in a table of seeded hashes says nothing of the token; and
        then compared in constant time.
        """
        given = digest(token)
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

    def everyone(self) -> list[Token]:
        """All of them, newest first."""
        return sorted(self._by_id.values(), key=lambda one: (one.created_at, one.id), reverse=True)

    async def add(self, token: Token) -> None:
        """Makes one known, here at once and elsewhere within a second."""
        await self._book.add_token(token)
        await self.refresh()

    async def revoke(self, token_id: str, now: Instant) -> Token | None:
        """Ends one, here at once and elsewhere within a second."""
        found = await self._book.revoke_token(token_id, now)
        await self.refresh()
        self._tell()
        return found

    async def _look(self) -> None:
        while True:
            await beat(self._limits.roster_look_s)
            try:
                await self.refresh()
            except StoreError as error:
                if not self._away:
                    log.warning(
                        "tokens are those known so far: the store is away", cause=str(error)
                    )
                self._away = True
            except Exception as error:  # the top of the loop: it must go on
                log.error("looking for changed tokens failed", exc_info=error)
            else:
                self._away = False
            self._tell()

    def _tell(self) -> None:
        """Wakes those who wait for this look; others wait for the next."""
        self._looked.set()
        self._looked = asyncio.Event()


def caller_from(token: Token, proof: str, *, by_browser: bool = False) -> Caller:
    """Whoever holds this token."""
    return Caller(token.id, token.name, token.role, token.tenant, by_browser, proof)
