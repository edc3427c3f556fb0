"""The projection's watermark: how far journal and tables are. Readers wait here for the tables."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from rota.store.protocol import Seq, StoreError


class Watermark:
    """Set by the writer's thread, waited on from any other."""

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
        """Whether there is something to fold."""
        return self._projected < self._appended

    @property
    def awaited(self) -> bool:
        """Whether a reader waits for the fold."""
        return bool(self._waiting)

    def set_appended(self, seq: Seq) -> None:
        """The journal now ends here."""
        with self._lock:
            self._appended = seq

    def set_projected(self, seq: Seq) -> None:
        """The tables now are as of here."""
        with self._lock:
            self._projected = seq
            ready = [waiter for wanted, waiter in self._waiting if wanted <= seq]
            self._waiting = [entry for entry in self._waiting if entry[0] > seq]
        for waiter in ready:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)

    def fail(self, error: StoreError) -> None:
        """The fold cannot go on for now: tells those who wait for it."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if waiter.set_running_or_notify_cancel():
                waiter.set_exception(error)

    def caught_up(self) -> Future[None] | None:
        """To wait for until all that is durable now is in the tables; None: it is already."""
        return self.reached(self._appended)

    def reached(self, seq: Seq) -> Future[None] | None:
        """The same for a record that is known to be durable, perhaps by somebody else's hand."""
        with self._lock:
            if self._projected >= seq:
                return None
            self._appended = max(self._appended, seq)
            waiter: Future[None] = Future()
            self._waiting.append((seq, waiter))
            return waiter
