"""The memory budget that request bodies and long answers share, over all clients."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from starlette.responses import Response
from starlette.types import Message, Receive, Send

from rota.api.limits import BODY_BUDGET_BYTES
from rota.api.problems import RETRY_AFTER_S
from rota.wire.problems import ProblemError


class RequestBytes:
    """What one request has brought and what its answer still has to take along."""

    def __init__(self, hold: BodyBudget) -> None:
        self._budget = hold
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._budget.give_back(self.size)

    def add(self, size: int) -> None:
        """Counts more, or refuses it: then nothing of it is counted."""
        self._budget.take(size)
        self.size += size

    def counted(self, receive: Receive) -> Receive:
        """The same request; its body is counted as it comes, whatever its length is said to be."""

        async def counting() -> Message:
            message = await receive()
            if body := message.get("body"):
                self.add(len(body))
            return message

        return counting

    async def deliver(self, response: Response, send: Send, piece_bytes: int) -> None:
        """Sends a long answer piece by piece, so that it counts for as long as nobody takes it."""
        body = bytes(response.body)
        head = {"type": "http.response.start", "status": response.status_code}
        await send({**head, "headers": response.raw_headers})
        for at in range(0, len(body), piece_bytes):
            piece = body[at : at + piece_bytes]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class BodyBudget:
    """All that is carried at once."""

    def __init__(self, limit: int = BODY_BUDGET_BYTES) -> None:
        self._limit = limit
        self._held = 0

    def take(self, size: int) -> None:
        """Refuses what is too much at the moment; one alone is never too much."""
        if self._held and self._held + size > self._limit:
            detail = "too many large requests or answers at once: ask again later"
            # The rest of a body is not read, so the connection cannot be used again.
            headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
            raise ProblemError(429, "busy", detail, headers=headers)
        self._held += size

    def give_back(self, size: int) -> None:
        """What was taken before."""
        self._held -= size

    def for_request(self) -> RequestBytes:
        """One request's part, given back when all is over."""
        return RequestBytes(self)
