"""The answer to a `lease` call: put into words while it becomes durable, sent as soon as it is."""

from __future__ import annotations

from typing import Protocol
from weakref import ref

from starlette.types import Scope

from rota.api.auth.authenticator import NO_STORE, SECURITY_HEADERS
from rota.api.convert.workers import order_views
from rota.api.deps import AppDeps
from rota.core.outcome import PollAnswer
from rota.wire.formats import encode
from rota.wire.workers import LeaseAnswer

JSON = "application/json"
_LINE = "rota.line"
_FIELDS = (*SECURITY_HEADERS, NO_STORE, (b"content-type", JSON.encode()))
_HEAD = b"".join(b"%s: %s\r\n" % field for field in _FIELDS)


class Line(Protocol):
    """The connection that a request came by."""

    def head(self, scope: Scope) -> bytes:
        """How a good answer to that request begins; empty if it has to go the usual way."""
        ...

    def post(self, scope: Scope, answer: bytes) -> None:
        """Sends a whole answer to that request, in the place of the one that is under way."""
        ...


def note_line(scope: Scope, line: ref[Line]) -> None:
    """Where this request came from. A connection must not be held by what came over it."""
    scope[_LINE] = line


class Letter:
    """What a worker is told, most often in words before it is known to be good."""

    def __init__(self, parts: AppDeps, scope: Scope) -> None:
        self._parts = parts
        self._scope = scope
        self._arrived = parts.brain.clock.steady()
        self._answer: PollAnswer | None = None
        self._text = self._whole = b""

    def write(self, answer: PollAnswer) -> None:
        """`held_for` is how long the call was held until this was decided: leases count from
        there, so that they end here rather too early than too late."""
        if answer.refusal is not None:
            return  # that is told as every other problem is
        brain = self._parts.brain
        self._text = encode(
            LeaseAnswer(
                executions=order_views(answer.orders, brain.timing, self._parts.naming),
                held_for=(brain.clock.steady() - self._arrived) / 1000,
                cancel=list(answer.cancel),
                lost=list(answer.lost),
            )
        )
        self._answer = answer
        line = self._line()
        head = b"" if line is None else line.head(self._scope)
        if head and len(self._text) <= self._parts.limits.answer_piece_bytes:
            length = b"content-length: %d\r\n\r\n" % len(self._text)
            self._whole = b"".join((head, _HEAD, length, self._text))

    def post(self, answer: PollAnswer) -> None:
        """To the worker, before the call's own task has gone on: that has a long way back."""
        line = self._line()
        if line is not None and self._whole and self._answer is answer:
            line.post(self._scope, self._whole)

    def text_of(self, answer: PollAnswer) -> bytes:
        """What was written of it, or is now."""
        if self._answer is not answer:
            self.write(answer)
        return self._text

    def _line(self) -> Line | None:
        line: ref[Line] | None = self._scope.get(_LINE)
        return None if line is None else line()
