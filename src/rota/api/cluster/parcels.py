"""A request on its way to another server: its body, and whether its sender is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Message, Receive, Scope

from rota.api.cancel_on_disconnect import client_disconnected
from rota.api.limits import BODY_READ_S
from rota.api.parsing.request import read_body, too_slow
from rota.wire.limits import BODY_BYTES_MAX
from rota.wire.problems import ClientDisconnectedError, ProblemError


class Parcel:
    """A body that is whole, and can be sent any number of times."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body = body
        self._receive = receive
        self._read_again = False

    @property
    def size(self) -> int:
        """Bytes, as far as they are here."""
        return len(self._body)

    @property
    def opened(self) -> bool:
        """Whether something of it is used up, so that it cannot be sent again."""
        return False

    @property
    def trouble(self) -> ProblemError | None:
        """What was wrong with the sender."""
        return None

    def content(self) -> bytes | AsyncIterator[bytes] | None:
        """What to send."""
        return self._body or None

    async def sender_left(self) -> None:
        """Returns when nobody waits for an answer any more."""
        await client_disconnected(self._receive)

    async def receive(self) -> Message:
        """The same request once more, to be answered here."""
        if self._read_again:
            return await self._receive()
        self._read_again = True
        return {"type": "http.request", "body": self._body, "more_body": False}


class Flow(Parcel):
    """A body that goes through piece by piece, once: files and logs may be large."""

    def __init__(self, receive: Receive) -> None:
        super().__init__(b"", receive)
        self._opened = False
        self._trouble: ProblemError | None = None
        self._through = asyncio.Event()

    @property
    def opened(self) -> bool:
        """Whether a piece has been taken."""
        return self._opened

    @property
    def trouble(self) -> ProblemError | None:
        """Set when the sender stopped sending."""
        return self._trouble

    def content(self) -> AsyncIterator[bytes]:
        """The pieces as they come."""
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        self._opened = True
        more = True
        try:
            while more:
                message = await self._next()
                more = message.get("more_body", False)
                yield message.get("body", b"")
        finally:
            self._through.set()

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(BODY_READ_S):
                message = await self._receive()
        except TimeoutError:
            self._trouble = too_slow()
            raise self._trouble from None
        if message["type"] != "http.request":
            raise ClientDisconnectedError
        return message

    async def sender_left(self) -> None:
        """Returns when nobody waits for an answer any more."""
        # Until the body is through, it is the one that reads.
        await self._through.wait()
        await super().sender_left()

    async def receive(self) -> Message:
        """The request as it comes: nothing of it was used."""
        assert not self._opened, "a body that was sent in part cannot be read here"
        return await self._receive()


async def pack(scope: Scope, receive: Receive, *, streams_in: bool) -> Parcel:
    """What is read whole here anyway is kept whole; the rest flows."""
    if streams_in:
        return Flow(receive)
    if scope["method"] in ("GET", "HEAD"):
        return Parcel(b"", receive)
    return Parcel(await read_body(scope, receive, BODY_BYTES_MAX), receive)
