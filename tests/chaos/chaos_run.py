"""Chaos run: load on a real cell while its processes and connections fail.

One seed decides the jobs and the faults, the machine decides the timing. So the same seed gives the
same faults but not the same history.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rota.verify.history import History
from tests.chaos.load import Load, Notes
from tests.process.cell import Cell, Daemon

LEASE_S = 2.0
PATIENCE_S = 90.0
"""No fault lasts this long, so waiting longer is useless."""
SLOTS = 4

Strike: TypeAlias = Callable[[], str]
"""Injects a fault, repairs it, and returns a description of what happened."""


class MissedError(Exception):
    """The fault hit nothing and does not count."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One injected fault: its kind, its effect, its time (milliseconds since 1970)."""

    kind: str
    effect: str
    began: int
    ended: int


class Choice(NamedTuple):
    weight: int
    strike: Strike


class FaultInjector:
    """Injects random faults, one at a time, and records them."""

    def __init__(
        self,
        choices: Mapping[str, Choice],
        seed: int,
        *,
        pause_s_max: float = 2.0,
        plan: Sequence[str] | None = None,
    ) -> None:
        """With a plan, injects its faults in order, once; else random ones, for ever."""
        self.faults: list[FaultRecord] = []
        self.plan = plan
        self.missed: Counter[str] = Counter()
        self._choices = choices
        self._rng = random.Random(seed)
        self._pause_s_max = pause_s_max

    def run(self, stop: threading.Event) -> None:
        for kind in self._kinds():
            if stop.wait(self._rng.uniform(0.1, 1.0) * self._pause_s_max):
                return
            self.strike(kind)

    def _kinds(self) -> Iterator[str]:
        if self.plan is not None:
            yield from self.plan
            return
        names = list(self._choices)
        weights = [self._choices[name].weight for name in names]
        while True:
            yield self._rng.choices(names, weights)[0]

    def strike(self, kind: str) -> None:
        began = time.time_ns() // 1_000_000
        try:
            effect = self._choices[kind].strike()
        except MissedError:
            self.missed[kind] += 1
            return
        self.faults.append(FaultRecord(kind, effect, began, time.time_ns() // 1_000_000))


class WorkerPool:
    """The workers of a chaos run: a constant number, each with a unique name."""

    def __init__(self, cell: Cell, size: int, history: History) -> None:
        self.members: list[tuple[str, Daemon]] = []
        self._cell = cell
        self._history = history
        self._started = 0
        for _ in range(size):
            self.members.append(self._start_worker())

    def _start_worker(self) -> tuple[str, Daemon]:
        self._started += 1
        name = f"worker_pool-{self._started}"
        self._history.slots[name] = SLOTS
        return name, self._cell.worker(name, "--cpu", str(SLOTS))

    def replace(self, place: int, *signals: int) -> str:
        """Ends one worker by these signals and starts another."""
        name, leaver = self.members[place]
        for number in signals:
            leaver.signal(number)
        self.members[place] = self._start_worker()
        code = leaver.wait()
        return f"{name} ended with {code}, {self.members[place][0]} came"


class ChaosRun:
    """Load and faults on one cell, and the history."""

    def __init__(self, cell: Cell, seed: int, *, workers: int = 2, clients: int = 1) -> None:
        self._stop = threading.Event()
        self._trouble: list[BaseException] = []
        self.injectors: list[FaultInjector] = []
        """All injectors of this run."""
        self.rng = random.Random(seed)
        self.notes = Notes(cell.witness)
        self.loads = [
            Load(cell.client(PATIENCE_S), self.notes, number, self.rng.getrandbits(64))
            for number in range(clients)
        ]
        self.worker_pool = WorkerPool(cell, workers, self.notes.history)

    def run(self, seconds: float, *injectors: FaultInjector) -> None:
        """Injects faults for so long; then all are repaired. May be called again."""
        until = time.monotonic() + seconds
        self._run(lambda threads: time.monotonic() < until, *injectors)

    def run_until_done(self, injector: FaultInjector) -> None:
        assert injector.plan is not None
        self._run(lambda threads: any(thread.is_alive() for thread in threads), injector)

    def _run(
        self, goes_on: Callable[[Sequence[threading.Thread]], bool], *injectors: FaultInjector
    ) -> None:
        self._stop.clear()
        self.injectors.extend(injectors)
        strikes = [self._thread(injector.run) for injector in injectors]
        others = [self._thread(load.go_on) for load in self.loads[1:]]
        try:
            while goes_on(strikes) and not self._trouble:
                self.loads[0].act(self._stop)
        finally:
            self._stop.set()
            for thread in (*strikes, *others):
                thread.join()
            if self._trouble:  # why the load failed, if it did
                raise self._trouble[0]

    def settle(self) -> History:
        """Waits until all jobs have ended; returns the complete history."""
        return self.loads[0].settle(PATIENCE_S)

    def _thread(self, work: Callable[[threading.Event], None]) -> threading.Thread:
        def top() -> None:
            try:
                work(self._stop)
            except BaseException as error:  # noqa: BLE001  (the thread's top: raised in the test)
                self._trouble.append(error)

        thread = threading.Thread(target=top, name=work.__qualname__)
        thread.start()
        return thread


def freeze(one: Daemon, seconds: float) -> str:
    one.signal(signal.SIGSTOP)
    time.sleep(seconds)
    one.signal(signal.SIGCONT)
    return f"{one.pid} stood still for {seconds:.1f} s"


def one_server(cell: Cell, worker_pool: WorkerPool, seed: int) -> FaultInjector:
    rng = random.Random(seed)

    def restart(number: int, away_s_max: float) -> str:
        cell.server.signal(number)
        code = cell.server.wait()
        time.sleep(rng.uniform(0.0, away_s_max))
        cell.up()
        return f"ended with {code}, {cell.server.pid} came"

    def anyone() -> int:
        return rng.randrange(len(worker_pool.members))

    hurried = (signal.SIGTERM, signal.SIGTERM)
    choices = {
        "server killed": Choice(4, lambda: restart(signal.SIGKILL, 0.5)),
        "server killed for long": Choice(1, lambda: restart(signal.SIGKILL, 2.0 * LEASE_S)),
        "server stopped": Choice(2, lambda: restart(signal.SIGTERM, 0.5)),
        "server frozen": Choice(1, lambda: freeze(cell.server, 1.5 * LEASE_S)),
        "worker frozen": Choice(2, lambda: freeze(worker_pool.members[anyone()][1], 1.5 * LEASE_S)),
        "worker killed": Choice(4, lambda: worker_pool.replace(anyone(), signal.SIGKILL)),
        "worker drained": Choice(2, lambda: worker_pool.replace(anyone(), signal.SIGTERM)),
        "worker hurried": Choice(1, lambda: worker_pool.replace(anyone(), *hurried)),
    }
    return FaultInjector(choices, rng.getrandbits(64))
