"""The asynchronous client's short calls over kept lines; errors as its callers know them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from rota.sdk.calls import Call
from rota.sdk.errors import SilenceError, UnreachableError
from rota.sdk.lines.awaited_lines import Line, Lines
from rota.sdk.lines.messages import (
    KEPT_S,
    Address,
    BrokenError,
    address_of,
    head_lines,
    request_for,
    words,
)
from rota.sdk.request_plan import Answer

LINES_MAX = 100
"""Calls at a time; others wait, lest a program that asks for much at once runs out of files."""


class AwaitedCalls:
    """Calls to any server, of tasks of one event loop."""

    def __init__(
        self, headers: Mapping[str, str], connect_s: float, trust: Callable[[], ssl.SSLContext]
    ) -> None:
        """`trust` says, once it matters, whose certificates are believed."""
        self._common = head_lines(headers)
        self._lines = Lines({}, connect_s, kept_s=KEPT_S, trust=trust)
        self._seats = asyncio.Semaphore(LINES_MAX)

    async def send(
        self, server: str, call: Call[Any], headers: Mapping[str, str], quiet_s: float
    ) -> Answer:
        """Raises UnreachableError, where nothing came for `quiet_s` a SilenceError."""
        try:
            address = address_of(server)
            request = request_for(address, call, self._common + head_lines(headers))
            async with self._seats:
                line = await self._line_to(server, address)
                heard = await line.ask_for(request, quiet_s)
                self._lines.give_back(address, line)
        except TimeoutError:
            raise SilenceError(server, "no answer in time") from None
        except (BrokenError, OSError) as error:
            raise UnreachableError(server, words(error)) from error
        return Answer(*heard)

    async def close(self) -> None:
        """Lets go of the lines that are free; those in use end with their calls."""
        await self._lines.close()

    async def _line_to(self, server: str, address: Address) -> Line:
        try:
            return await self._lines.line_to(address)
        except TimeoutError:
            raise UnreachableError(server, "no connection in time", refused=True) from None
        except OSError as error:
            raise UnreachableError(server, words(error), refused=True) from error
