"""Passes calls that only the leader can answer on to it, and its answers back as they come.

Nothing is passed on twice: who gets a forwarded call and does not lead says so. When the leader
goes away before it has answered, calls that may be repeated wait for the next one. Submissions do
not: they are accepted here, under the ids that they would have got from the leader.

Why: docs/decisions/0010-every-server-serves.md.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import parse_qsl

import aiohttp
import structlog
from starlette.types import Receive, Scope, Send
from yarl import URL

from rota.api.auth.authenticator import SECURITY_HEADERS, remote_of
from rota.api.auth.forwarded import (
    FORWARDED,
    LEADER,
    MINTED,
    REFUSED,
    is_forwarded,
    note_minted,
    sign,
)
from rota.api.auth.sessions import cookie_in, cookie_name
from rota.api.auth.token_cache import TokenCache
from rota.api.cancel_on_disconnect import first_of
from rota.api.cluster.parcels import Parcel, pack
from rota.api.cluster.succession import Succession
from rota.api.ids import key_time, mint_key
from rota.api.limits import (
    FORWARD_CONNECT_S,
    FORWARD_IDLE_S,
    FORWARD_LAST_S,
    FORWARD_LOOK_S,
    FORWARD_PATIENCE_MS,
    FORWARD_SHUN_MS,
    FORWARD_SILENT_BYTES_S,
    FORWARD_SILENT_S,
    STREAM_SEND_S,
)
from rota.api.parsing.request import header
from rota.engine.ports import Brain, UnavailableError
from rota.wire.problems import ClientDisconnectedError, ProblemError

log = structlog.get_logger(__name__)

_HOP_BY_HOP = (
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
)
_NOT_PASSED_IN = (
    *_HOP_BY_HOP,
    b"host",
    b"expect",
    b"origin",
    b"cookie",
    b"x-forwarded-for",
    b"x-forwarded-proto",
    FORWARDED,
    MINTED,
)
"""What is said between two neighbours, and what was checked here: the leader has other names."""
_NOT_PASSED_OUT = (
    *_HOP_BY_HOP,
    b"date",
    b"server",
    LEADER,
    *(name for name, _ in SECURITY_HEADERS),
)
"""What this server says itself."""
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_TROUBLE = (aiohttp.ClientError, OSError, TimeoutError)


class Manners(Protocol):
    """What must be known of a call to pass it on."""

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        ...

    @property
    def streams_in(self) -> bool:
        """Whether its body flows."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again though it writes."""
        ...

    @property
    def without_leader(self) -> bool:
        """Whether any server can answer it while nobody leads."""
        ...


class _UnsentError(Exception):
    """The leader has heard nothing of it."""


class _UnansweredError(Exception):
    """The leader may have heard of it."""


def open_http(tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Connections to other servers; `tls` says by which authorities they are known."""
    return aiohttp.ClientSession(
        # Every held poll is a connection of its own, so their number is the callers' affair.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=FORWARD_IDLE_S, ssl=tls or True),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=FORWARD_CONNECT_S),
    )


class Forwarder:
    """The way to whoever leads."""

    def __init__(
        self,
        brain: Brain,
        roster: TokenCache,
        node: str,
        closing: asyncio.Event,
        http: aiohttp.ClientSession,
    ) -> None:
        self._brain = brain
        self._roster = roster
        self._node = node
        self._closing = closing
        self._http = http
        self._noted: tuple[str, type[Exception]] | None = None
        self._accepts_at = 0
        """When the leader last answered a submission."""
        self._silent_until = 0
        """Until then no submission is passed on: the leader did not answer one just now."""
        self._succession = Succession(brain, self._trust_again, FORWARD_LOOK_S)

    async def stop(self) -> None:
        """Lets go of the connections."""
        await self._succession.stop()
        await self._http.close()

    async def carry(
        self, manners: Manners, scope: Scope, receive: Receive, send: Send
    ) -> Receive | None:
        """None: the leader has answered. Else it is to be answered here, read from what comes."""
        if self._brain.ready:
            return receive
        if is_forwarded(scope):
            raise self._not_leading()
        parcel = await pack(scope, receive, streams_in=manners.streams_in)
        with self._succession.watched():
            if _submits(manners, scope):
                return await self._carry_submission(scope, parcel, send)
            return await self._carry_patiently(manners, scope, parcel, send)

    async def _carry_patiently(
        self, manners: Manners, scope: Scope, parcel: Parcel, send: Send
    ) -> Receive | None:
        """Asks again, if that does no harm, until somebody leads and answers."""
        patient = (
            not manners.writes
            or manners.repeatable
            or header(scope, b"idempotency-key") is not None
        )
        until = self._brain.clock.steady() + FORWARD_PATIENCE_MS
        while not self._brain.ready:
            changed = self._succession.changed
            try:
                await self._pass_on(scope, parcel, send, submits=False)
                return None
            except _UnsentError as error:
                failure = _no_leader(str(error))
                if manners.without_leader:
                    break
            except _UnansweredError as error:
                failure = _no_answer(str(error))
            late = self._brain.clock.steady() >= until
            # A server that stops no longer sees who leads: there is nothing here to wait for.
            if not patient or parcel.opened or late or self._closing.is_set():
                raise failure
            await self._pause(changed, parcel)
        return parcel.receive

    async def _carry_submission(self, scope: Scope, parcel: Parcel, send: Send) -> Receive | None:
        """Asks the leader once. If it may have accepted it, that is under the same key and ids."""
        self._promise(scope)
        if self._brain.clock.steady() >= self._silent_until:
            try:
                await self._pass_on(scope, parcel, send, submits=True)
            except (_UnsentError, _UnansweredError):
                return parcel.receive
            return None
        return parcel.receive

    def _promise(self, scope: Scope) -> None:
        """Settles under which key and ids it is accepted, by the leader or, in the end, here."""
        key, now = _text(scope, b"idempotency-key"), self._brain.clock.now()
        if not key:
            scope["headers"] = [*scope["headers"], (b"idempotency-key", mint_key().encode())]
        note_minted(scope, key_time(key, now) or now)

    async def _pass_on(self, scope: Scope, parcel: Parcel, send: Send, *, submits: bool) -> None:
        # Else it would be given up when the next look sees the one who is asked here.
        self._succession.look()
        address = self._brain.standing().address
        if not address:
            raise _UnsentError("no server leads just now")
        response = await self._ask(scope, parcel, address, submits=submits)
        async with response:
            if response.status == 503 and response.headers.get(FORWARDED.decode()) == REFUSED:
                raise _UnsentError("the leader has just changed")
            if submits and response.status == 503:
                raise _UnansweredError(f"the leader at {address} could not accept it")
            if submits:
                self._accepts_at = self._brain.clock.steady()
            await first_of(self._give_back(response, address, send), parcel.sender_left())

    async def _ask(
        self, scope: Scope, parcel: Parcel, address: str, *, submits: bool
    ) -> aiohttp.ClientResponse:
        """The answer's head; given up when the leader changes, or nobody waits for it any more."""
        asking = asyncio.ensure_future(self._request(scope, parcel, address))
        left = asyncio.ensure_future(parcel.sender_left())
        changed = asyncio.ensure_future(self._succession.changed.wait())
        stopping = asyncio.ensure_future(self._stopping())
        silent = asyncio.ensure_future(self._silence(parcel, submits=submits))
        every = (asking, left, changed, stopping, silent)
        try:
            await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if left.done():
                raise ClientDisconnectedError
            if stopping.done():
                raise UnavailableError("the server is stopping")
            if silent.done():
                self._silent_until = self._brain.clock.steady() + FORWARD_SHUN_MS
                raise _UnansweredError(f"the leader at {address} accepts nothing just now")
            raise _UnansweredError("another server leads now")
        finally:
            for task in every:
                task.cancel()
            await asyncio.gather(*every, return_exceptions=True)

    async def _silence(self, parcel: Parcel, *, submits: bool) -> None:
        """Returns when the leader has accepted nothing at all for longer than it should take.

        Not when this one takes long while others are answered: a leader that has too much to do
        would have the more of it.
        """
        if not submits:
            await asyncio.Event().wait()
        patience_s = FORWARD_SILENT_S + parcel.size / FORWARD_SILENT_BYTES_S
        until = self._brain.clock.steady() + int(patience_s * 1000)
        while (left_ms := until - self._brain.clock.steady()) > 0:
            await asyncio.sleep(left_ms / 1000)
            until = max(until, self._accepts_at + int(patience_s * 1000))

    async def _request(self, scope: Scope, parcel: Parcel, address: str) -> aiohttp.ClientResponse:
        url = URL(address)
        query = scope["query_string"].decode("latin-1")
        target = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        try:
            return await self._http.request(
                scope["method"],
                URL(f"{str(url).rstrip('/')}{target}{'?' if query else ''}{query}", encoded=True),
                data=parcel.content(),
                headers=self._headers(scope, url),
                allow_redirects=False,
            )
        except _UNSENT as error:
            self._note(address, error)
            raise _UnsentError(f"this server cannot reach it at {address}") from error
        except _TROUBLE as error:
            if parcel.trouble is not None:
                raise parcel.trouble from error
            self._note(address, error)
            raise _UnansweredError(f"the leader at {address} went away") from error

    def _note(self, address: str, error: Exception) -> None:
        """Says once what keeps this server from the leader: thousands may try at the same time."""
        trouble = (address, type(error))
        if trouble != self._noted:
            log.warning("leader not reached", leader=address, cause=str(error) or repr(error))
        self._noted = trouble

    def _headers(self, scope: Scope, leader: URL) -> list[tuple[str, str]]:
        kept = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _NOT_PASSED_IN and not name.startswith(b"sec-")
        ]
        session = cookie_in(_text(scope, b"cookie"), _text(scope, b"host"))
        if session is not None:
            # A session is good on every server, but its cookie is named after the server's port.
            host = leader.host or ""
            name = cookie_name(host if leader.is_default_port() else f"{host}:{leader.port}")
            kept.append(("Cookie", f"{name}={session}"))
        if (minted := scope.get("rota.minted")) is not None:
            kept.append((MINTED.decode(), str(minted)))
        kept.append((FORWARDED.decode(), sign(self._roster.secret, self._node, remote_of(scope))))
        return kept

    async def _give_back(self, response: aiohttp.ClientResponse, address: str, send: Send) -> None:
        headers = [*_passed_out(response.raw_headers), (LEADER, address.encode("latin-1"))]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            async for piece in response.content.iter_any():
                async with asyncio.timeout(STREAM_SEND_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except _TROUBLE as error:
            # Left without an end, so that the reader knows it was cut off and asks again.
            log.warning("forwarded answer cut off", leader=address, cause=repr(error))
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _not_leading(self) -> ProblemError:
        standing = self._brain.standing()
        headers = {"Retry-After": "1", FORWARDED.decode(): REFUSED}
        if standing.address:
            headers[LEADER.decode()] = standing.address
        detail = (
            f"{self._node} does not lead: {self._brain.trouble or 'it has just lost leadership'}"
        )
        return ProblemError(503, "not_leader", detail, headers=headers)

    # Who leads

    def _trust_again(self) -> None:
        """Another leads than the one who did not answer."""
        self._silent_until = 0

    async def _pause(self, changed: asyncio.Event, parcel: Parcel) -> None:
        """Until somebody else leads, or a moment has passed: the same one may be back."""
        pausing = asyncio.ensure_future(changed.wait())
        left = asyncio.ensure_future(parcel.sender_left())
        try:
            await asyncio.wait(
                (pausing, left), timeout=FORWARD_LOOK_S * 2, return_when=asyncio.FIRST_COMPLETED
            )
            if left.done():
                raise ClientDisconnectedError
        finally:
            pausing.cancel()
            left.cancel()
            await asyncio.gather(pausing, left, return_exceptions=True)

    async def _stopping(self) -> None:
        """Returns a moment after the server began to stop: most answers are there by then."""
        await self._closing.wait()
        await asyncio.sleep(FORWARD_LAST_S)


def _submits(manners: Manners, scope: Scope) -> bool:
    """Whether it can be accepted here if the leader does not answer."""
    # A rehearsal changes nothing, and only the leader can play it.
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    is_rehearsal = dict(query).get("dry_run", "false").lower() not in ("false", "0")
    return manners.without_leader and manners.writes and not is_rehearsal


def _passed_out(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers if name.lower() not in _NOT_PASSED_OUT]


def _text(scope: Scope, name: bytes) -> str:
    return (header(scope, name) or b"").decode("latin-1")


def _no_leader(why: str) -> ProblemError:
    detail = f"only the leader can answer this, and {why}: ask again"
    return ProblemError(503, "no_leader", detail, headers={"Retry-After": "1"})


def _no_answer(why: str) -> ProblemError:
    detail = (
        f"{why}. What was asked may or may not have happened: ask again, with the same"
        " Idempotency-Key if there was one"
    )
    return ProblemError(503, "no_leader", detail, headers={"Retry-After": "1"})
