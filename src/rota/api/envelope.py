"""One packet an answer: its head waits for the body that follows at once."""

from __future__ import annotations

import asyncio
from typing import Any

_HEAD = b"HTTP/1."


class Envelope:
    """A connection's transport, with the head of an answer held back for a moment.

    uvicorn writes head and body apart. Each write wakes the other side, the first one for nothing;
    and where there are few cores, whoever wakes up takes the processor from the server that has the
    body still to write. A head that nothing follows leaves with the loop's next round.
    """

    __slots__ = ("_head", "_loop", "_posted", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._posted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends it, with what was held back before it."""
        if self._posted:
            self._posted -= 1
        elif self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def post(self, answer: bytes) -> None:
        """Sends a whole answer now; its head and its body, when they are written, are known."""
        self._posted = 2
        self._transport.write(answer)

    def close(self) -> None:
        """Closes once all is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Closes at once; what was held back is lost with all that was not sent."""
        self._head = b""
        self._transport.abort()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        # The other side may have gone in the meantime.
        if head and not self._transport.is_closing():
            self._transport.write(head)
