"""Tells those who follow a log that there is more of it.

Only on the server that was sent the text: followers look by themselves now and then, so a ring that
nobody hears costs a moment and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rota.core.model import ExecutionId


class LogNotifier:
    """Rings for everyone who listens to one execution."""

    def __init__(self) -> None:
        self._listeners: dict[ExecutionId, list[asyncio.Event]] = {}

    def ring(self, execution_id: ExecutionId) -> None:
        """There is more text."""
        for heard in self._listeners.get(execution_id, ()):
            heard.set()

    @contextmanager
    def subscribed(self, execution_id: ExecutionId) -> Iterator[asyncio.Event]:
        """Set at each ring; the listener clears it before it looks, so that none is missed."""
        heard = asyncio.Event()
        self._listeners.setdefault(execution_id, []).append(heard)
        try:
            yield heard
        finally:
            self._listeners[execution_id].remove(heard)
            if not self._listeners[execution_id]:
                del self._listeners[execution_id]
