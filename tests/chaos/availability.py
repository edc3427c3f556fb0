"""Availability of a cell under faults, second by second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rota.sdk import Client, RotaError
from tests.chaos.chaos_run import FaultRecord
from tests.chaos.load import LIFE, Notes
from tests.process.cell import shell

SECOND = 1.0
AFTERMATH_S = 6
"""A second that is lost so soon after a fault was mended is still its doing."""
NOBODY = "nobody's doing"
TAKES_THE_DATABASE = (
    "database restarted",
    "database restarted at once",
    "database killed",
    "database frozen",
    "journal locked",
    "connections exhausted",
)
"""While one of these lasts nothing can be made durable, whatever servers do: there is one database,
and it is away."""
START = "start"
"""Beside the submitters' names."""
GOOD, LOST = ".", "x"


@dataclass(slots=True)
class Availability:
    """The seconds in which something succeeded, of all whole seconds."""

    began: float
    """Seconds since 1970, by the clock of the faults."""
    seconds: int
    good: Mapping[str, Mapping[int, None]]
    """By what went well (a submitter's name: accepted within a second; `start`): the seconds."""
    faults: Sequence[FaultRecord] = ()

    def text(self) -> str:
        """A report: the shares, the cost of each kind of fault, and each fault by the second."""
        return "\n".join((*self._shares(), *self._kinds(), *self._by_second()))

    def _shares(self) -> Iterator[str]:
        away = [second for second in range(self.seconds) if self._is_away(second)]
        yield f"of {self.seconds} s, {len(self.faults)} faults included, it went well in"
        for what, good in self.good.items():
            others = self.seconds - len(away)
            among = sum(second in good for second in range(self.seconds) if second not in away)
            yield (
                f"  {_share(len(good), self.seconds)} {_of(what)}"
                f" ({_share(among, others)} of the {others} s in which the database was there)"
            )

    def _kinds(self) -> Iterator[str]:
        blamed = [self._cause_of(second) for second in range(self.seconds)]
        kinds = sorted({fault.kind for fault in self.faults})
        yield "seconds lost, and how many for each fault:"
        yield "  " + " ".join(f"{what:>15}" for what in self.good) + "   faults"
        for kind in (*kinds, NOBODY):
            count = sum(fault.kind == kind for fault in self.faults)
            lost = [
                sum(who is not None and who.kind == kind for who in self._of_lost(blamed, good))
                if kind != NOBODY
                else sum(who is None for who in self._of_lost(blamed, good))
                for good in self.good.values()
            ]
            each = [f"{one:4} ({one / count:.1f} each)" if count else f"{one:4}" for one in lost]
            yield "  " + " ".join(f"{one:>15}" for one in each) + f"   {count:2} {kind}"

    def _of_lost(
        self, blamed: Sequence[FaultRecord | None], good: Mapping[int, None]
    ) -> Iterator[FaultRecord | None]:
        return (blamed[second] for second in range(self.seconds) if second not in good)

    def _by_second(self) -> Iterator[str]:
        """For each fault the seconds lost from its start on."""
        yield f"second by second from each fault on ({LOST}: lost):"
        starts = [max(0, int(fault.began / 1000 - self.began)) for fault in self.faults]
        ends = [*starts[1:], self.seconds][: len(starts)]
        for fault, first, end in zip(self.faults, starts, ends, strict=True):
            last = min(end, int(fault.ended / 1000 - self.began) + AFTERMATH_S, self.seconds)
            seconds = range(first, max(first, last))
            strips = [
                f"{what} {''.join(GOOD if one in good else LOST for one in seconds)}"
                for what, good in self.good.items()
            ]
            yield f"  at {first:4} s {'  '.join(strips)}  {fault.kind}: {fault.effect}"

    def _cause_of(self, second: int) -> FaultRecord | None:
        """The last fault before the end of this second, unless it was long over."""
        end = (self.began + second + 1) * 1000
        before = [fault for fault in self.faults if fault.began < end]
        if not before or before[-1].ended + AFTERMATH_S * 1000 < end - 1000:
            return None
        return before[-1]

    def _is_away(self, second: int) -> bool:
        """Whether the database had a fault in this second."""
        start = (self.began + second) * 1000
        return any(
            fault.began < start + 1000 and start < fault.ended
            for fault in self.faults
            if fault.kind in TAKES_THE_DATABASE
        )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.2f} %"


def _of(what: str) -> str:
    return "a job started" if what == START else f"a submit was accepted, {what}"


@dataclass(slots=True)
class Submitter:
    name: str
    client: Client
    notes: Notes
    accepted: dict[int, None] = field(default_factory=dict)

    def submit(self, second: int) -> None:
        """Submits one job. The idempotency key is the client's; `key` is only its name."""
        key = f"probe-{self.name.replace(' ', '-')}-{second}"
        script = LIFE.format(key=key, witness=self.notes.witness, ticks='""', verdict="true")
        job = shell(script, key, labels={"key": key})
        self.notes.history.sent.append(key)
        began = time.monotonic()
        try:
            job_id = self.client.submit(job).job_id
        except RotaError:
            return
        self.notes.history.answered.append((key, job_id))
        self.notes.ids[key] = job_id
        if time.monotonic() - began <= SECOND:
            self.accepted[second] = None


class Probe:
    """Runs the submitters once a second, and records which seconds were good."""

    def __init__(self, *submitters: Submitter) -> None:
        self._submitters = submitters
        self._began = self._boot_began = 0.0
        self._seconds = 0
        self._threads: list[threading.Thread] = []

    def warm_up(self) -> None:
        """Waits until a first job has run, so that the workers are ready."""
        for one in self._submitters:
            one.submit(-1)
            one.client.wait_all(one.notes.ids.values())
            one.accepted.clear()

    def go_on(self, stop: threading.Event) -> None:
        """Runs until `stop`. A slow submission does not delay the next one."""
        self._began = time.time()
        self._boot_began = time.clock_gettime(time.CLOCK_BOOTTIME)
        while not stop.is_set():
            for one in self._submitters:
                thread = threading.Thread(target=one.submit, args=(self._seconds,))
                thread.start()
                self._threads.append(thread)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._seconds += 1
            passed_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self._boot_began
            stop.wait(max(0.0, self._seconds - passed_s))
        for thread in self._threads:
            thread.join()

    def availability(self, starts: Iterable[float], faults: Sequence[FaultRecord]) -> Availability:
        """Computes the availability; `starts` are the starts of jobs by the boot clock."""
        seconds = self._seconds
        began = (int(at - self._boot_began) for at in starts)
        good: dict[str, Mapping[int, None]] = {one.name: one.accepted for one in self._submitters}
        good[START] = {second: None for second in began if 0 <= second < seconds}
        return Availability(self._began, seconds, good, faults)
