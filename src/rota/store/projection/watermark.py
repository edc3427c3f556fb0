"""Watermark of the projection: how far journal and tables are. Readers wait here for the tables."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from rota.store.protocol import Seq, StoreError


class Watermark:
    """Watermark of the projection; set by the writer's thread, waited on from any other."""

    def __init__(self, projected: Seq, appended: Seq) -> None:
        self._lock = threading.Lock()
        self._projected = projected
        self._appended = appended
        self._waiting: list[tuple[Seq, Future[None]]] = []

    @property
    def projected(self) -> Seq:
        """The newest record that is in the tables."""
        return self._projected

    @property
    def appended(self) -> Seq:
        """The newest record that is durable."""
        return self._appended

    @property
    def lags(self) -> bool:
        """Whether there is something to project."""
        return self._projected < self._appended

    @property
    def awaited(self) -> bool:
        """Whether a reader waits for the projection."""
        return bool(self._waiting)

    def set_appended(self, seq: Seq) -> None:
        """Notes that the journal ends here."""
        with self._lock:
            self._appended = seq

    def set_projected(self, seq: Seq) -> None:
        """Notes that the tables are as of this record, and wakes those who wait for it."""
        with self._lock:
            self._projected = seq
            ready = [waiter for wanted, waiter in self._waiting if wanted <= seq]
            self._waiting = [entry for entry in self._waiting if entry[0] > seq]
        for waiter in ready:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)

    def fail(self, error: StoreError) -> None:
        """Raises the error in those who wait: the projection cannot go on for now."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if waiter.set_running_or_notify_cancel():
                waiter.set_exception(error)

    def caught_up(self) -> Future[None] | None:
        """Returns a future of the tables having all that is durable now; None: they have it."""
        return self.reached(self._appended)

    def reached(self, seq: Seq) -> Future[None] | None:
        """Returns the same for a record that is durable, perhaps appended by another process."""
        with self._lock:
            if self._projected >= seq:
                return None
            self._appended = max(self._appended, seq)
            waiter: Future[None] = Future()
            self._waiting.append((seq, waiter))
            return waiter
