"""How much of the time a cell is there for its users: second by second, faults included."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rota.sdk import Client, RotaError
from tests.chaos.load import NOOP, Notes

SECOND = 1.0


@dataclass(slots=True)
class Availability:
    """Of so many whole seconds, those in which something went as it should."""

    seconds: int
    accepted: dict[int, None] = field(default_factory=dict)
    """Seconds whose submission was accepted within a second."""
    started: dict[int, None] = field(default_factory=dict)
    """Seconds in which a job began to run."""

    def text(self) -> str:
        """For people."""
        return (
            f"of {self.seconds} s, faults included: a submit was accepted in"
            f" {self._share(self.accepted)}, a job started in {self._share(self.started)}"
        )

    def _share(self, good: dict[int, None]) -> str:
        return f"{100 * len(good) / max(1, self.seconds):.2f} %"


class Probe:
    """Submits one job every second, beside whatever else goes on."""

    def __init__(self, client: Client, notes: Notes) -> None:
        self._client = client
        self._notes = notes
        self._began = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._accepted: dict[int, None] = {}
        self._seconds = 0
        self._threads: list[threading.Thread] = []

    def go_on(self, calm: threading.Event) -> None:
        """Until it is calm. A submission that takes long does not keep the next one waiting."""
        while not calm.is_set():
            thread = threading.Thread(target=self._submit, args=(self._seconds,))
            thread.start()
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            self._seconds += 1
            calm.wait(max(0.0, self._began + self._seconds - _now()))
        for thread in self._threads:
            thread.join()

    def _submit(self, second: int) -> None:
        began, key = _now(), f"probe-{second}"
        job = {"name": NOOP, "task": {"kind": NOOP}, "labels": {"key": key}}
        self._notes.history.sent.append(key)
        try:
            job_id = self._client.submit(job, idempotency_key=key).job_id
        except RotaError:
            return
        self._notes.history.answered.append((key, job_id))
        self._notes.ids[key] = job_id
        if _now() - began <= SECOND:
            self._accepted[second] = None

    def availability(self, starts: Iterable[float]) -> Availability:
        """`starts`: when jobs began, by the machine's boot clock."""
        seconds = self._seconds
        started = (int(at - self._began) for at in starts)
        inside = {second: None for second in started if 0 <= second < seconds}
        return Availability(seconds, dict(self._accepted), inside)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
