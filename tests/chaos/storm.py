"""A steady load on a real cell while what it runs on is killed, frozen, cut and replaced.

One seed decides what is submitted and what is done to whom; the machine decides the moments, so the
same seed gives the same storm but not the same history.
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
"""Nothing in a storm lasts this long: who waits longer waits in vain."""
SLOTS = 4

Strike: TypeAlias = Callable[[], str]
"""Hurts somebody, mends it, and says what was seen to happen."""


class MissedError(Exception):
    """The strike met nobody: it does not count."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One fault: what was meant, what was seen to come of it, when (milliseconds since 1970)."""

    kind: str
    effect: str
    began: int
    ended: int


class Choice(NamedTuple):
    """One kind of fault, and how often it is taken beside the others."""

    weight: int
    strike: Strike


class Havoc:
    """Strikes by dice, one at a time, and keeps a diary of it."""

    def __init__(
        self,
        choices: Mapping[str, Choice],
        seed: int,
        *,
        pause_s_max: float = 2.0,
        plan: Sequence[str] | None = None,
    ) -> None:
        """With a plan it does this, in this order, once; else what the dice say, for ever."""
        self.deeds: list[Deed] = []
        self.plan = plan
        self.missed: Counter[str] = Counter()
        self._choices = choices
        self._dice = random.Random(seed)
        self._pause_s_max = pause_s_max

    def rage(self, calm: threading.Event) -> None:
        """Until it is calm, or the plan is done."""
        for kind in self._kinds():
            if calm.wait(self._dice.uniform(0.1, 1.0) * self._pause_s_max):
                return
            self.strike(kind)

    def _kinds(self) -> Iterator[str]:
        if self.plan is not None:
            yield from self.plan
            return
        names = list(self._choices)
        weights = [self._choices[name].weight for name in names]
        while True:
            yield self._dice.choices(names, weights)[0]

    def strike(self, kind: str) -> None:
        """Does this one."""
        began = time.time_ns() // 1_000_000
        try:
            effect = self._choices[kind].strike()
        except MissedError:
            self.missed[kind] += 1
            return
        self.deeds.append(Deed(kind, effect, began, time.time_ns() // 1_000_000))


class Crew:
    """The workers of a storm: always as many, each with a name that no other ever had."""

    def __init__(self, cell: Cell, size: int, history: History) -> None:
        self.members: list[tuple[str, Daemon]] = []
        self._cell = cell
        self._history = history
        self._hired = 0
        for _ in range(size):
            self.members.append(self._hire())

    def _hire(self) -> tuple[str, Daemon]:
        self._hired += 1
        name = f"crew-{self._hired}"
        self._history.slots[name] = SLOTS
        return name, self._cell.worker(name, "--cpu", str(SLOTS))

    def replace(self, place: int, *signals: int) -> str:
        """One leaves by these signals, another takes its place."""
        name, leaver = self.members[place]
        for number in signals:
            leaver.signal(number)
        self.members[place] = self._hire()
        code = leaver.wait()
        return f"{name} ended with {code}, {self.members[place][0]} came"


class Storm:
    """Load and havoc on one cell, and the history of it."""

    def __init__(self, cell: Cell, seed: int, *, workers: int = 2, clients: int = 1) -> None:
        self._calm = threading.Event()
        self._trouble: list[BaseException] = []
        self.havocs: list[Havoc] = []
        """All that ever raged here."""
        self.dice = random.Random(seed)
        self.notes = Notes(cell.witness)
        self.loads = [
            Load(cell.client(PATIENCE_S), self.notes, number, self.dice.getrandbits(64))
            for number in range(clients)
        ]
        self.crew = Crew(cell, workers, self.notes.history)

    def rage(self, seconds: float, *havocs: Havoc) -> None:
        """So long; then all is mended. May be called again."""
        until = time.monotonic() + seconds
        self._rage(lambda threads: time.monotonic() < until, *havocs)

    def rage_until_done(self, havoc: Havoc) -> None:
        """Until its plan is."""
        assert havoc.plan is not None
        self._rage(lambda threads: any(thread.is_alive() for thread in threads), havoc)

    def _rage(self, goes_on: Callable[[Sequence[threading.Thread]], bool], *havocs: Havoc) -> None:
        self._calm.clear()
        self.havocs.extend(havocs)
        strikes = [self._thread(havoc.rage) for havoc in havocs]
        others = [self._thread(load.go_on) for load in self.loads[1:]]
        try:
            while goes_on(strikes) and not self._trouble:
                self.loads[0].act(self._calm)
        finally:
            self._calm.set()
            for thread in (*strikes, *others):
                thread.join()
            if self._trouble:  # why the load failed, if it did
                raise self._trouble[0]

    def settle(self) -> History:
        """Everything may end; then the history is complete."""
        return self.loads[0].settle(PATIENCE_S)

    def _thread(self, work: Callable[[threading.Event], None]) -> threading.Thread:
        def top() -> None:
            try:
                work(self._calm)
            except BaseException as error:  # noqa: BLE001  (the thread's top: told to the test)
                self._trouble.append(error)

        thread = threading.Thread(target=top, name=work.__qualname__)
        thread.start()
        return thread


def freeze(one: Daemon, seconds: float) -> str:
    """For longer than a lease: when it wakes, what it led or ran has long been given up."""
    one.signal(signal.SIGSTOP)
    time.sleep(seconds)
    one.signal(signal.SIGCONT)
    return f"{one.pid} stood still for {seconds:.1f} s"


def one_server(cell: Cell, crew: Crew, seed: int) -> Havoc:
    """What may happen to a cell of one server. There are always as many of everything as before."""
    dice = random.Random(seed)

    def restart(number: int, away_s_max: float) -> str:
        cell.server.signal(number)
        code = cell.server.wait()
        time.sleep(dice.uniform(0.0, away_s_max))
        cell.up()
        return f"ended with {code}, {cell.server.pid} came"

    def anyone() -> int:
        return dice.randrange(len(crew.members))

    hurried = (signal.SIGTERM, signal.SIGTERM)
    choices = {
        "server killed": Choice(4, lambda: restart(signal.SIGKILL, 0.5)),
        "server killed for long": Choice(1, lambda: restart(signal.SIGKILL, 2.0 * LEASE_S)),
        "server stopped": Choice(2, lambda: restart(signal.SIGTERM, 0.5)),
        "server frozen": Choice(1, lambda: freeze(cell.server, 1.5 * LEASE_S)),
        "worker frozen": Choice(2, lambda: freeze(crew.members[anyone()][1], 1.5 * LEASE_S)),
        "worker killed": Choice(4, lambda: crew.replace(anyone(), signal.SIGKILL)),
        "worker drained": Choice(2, lambda: crew.replace(anyone(), signal.SIGTERM)),
        "worker hurried": Choice(1, lambda: crew.replace(anyone(), *hurried)),
    }
    return Havoc(choices, dice.getrandbits(64))
