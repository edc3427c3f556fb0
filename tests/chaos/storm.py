"""A steady load on a real cell while servers and workers are killed, frozen and replaced.

One seed decides what is submitted and what is done to whom; the machine decides the moments, so the
same seed gives the same storm but not the same history.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from rota.sdk import ConflictError, JobSearch
from rota.wire.jobs import JobView
from tests.chaos.checker import History, Line, Record, Run
from tests.process.cell import Cell, Daemon, shell

LEASE_S = 2.0
PATIENCE_S = 90.0
"""Nothing in a storm lasts this long: who waits longer waits in vain."""
WORKERS = 2
SAMPLE = 100
LIFE = """
say() {{ echo "{key} $ROTA_FENCE $1" >> {witness}; }}
say begin
for _ in {ticks}; do sleep 0.1; say tick; done
{verdict} || exit 1
say end
"""


class Storm:
    """Load and havoc on one cell, and the history of it."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self.cell = cell
        self.history = History()
        self.deeds: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._calm = threading.Event()
        self._trouble: list[BaseException] = []
        self._ids: dict[str, str] = {}
        self._made = 0
        cell.lease_ttl = f"{LEASE_S:g}s"
        cell.up()
        self._crew = [self._hire() for _ in range(WORKERS)]
        self._client = cell.client(PATIENCE_S)

    def rage(self, seconds: float) -> History:
        """So long; then all is mended, everything may end, and the history is complete."""
        havoc = Havoc(self.cell, self._crew, self.deeds, self._dice.getrandbits(64))
        thread = threading.Thread(target=self._havoc, args=(havoc,), name="havoc")
        thread.start()
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until and not self._trouble:
                self._load()
        finally:
            self._calm.set()
            thread.join()
            if self._trouble:  # why the load failed, if it did
                raise self._trouble[0]
        self._client.wait_all(self._ids.values(), timeout_s=PATIENCE_S)
        self._collect()
        return self.history

    def _hire(self) -> Daemon:
        return self.cell.worker("crew", "--cpu", "4")

    def _havoc(self, havoc: Havoc) -> None:
        try:
            while not self._calm.wait(havoc.pause_s()):
                havoc.strike()
        except BaseException as error:  # noqa: BLE001  (the thread's top: told to the test)
            self._trouble.append(error)

    # Load

    def _load(self) -> None:
        act = self._dice.choices(
            [self._plain, self._flaky, self._chain, self._once, self._cancel, self._repeat],
            weights=[4, 2, 2, 1, 2, 1],
        )[0]
        act()
        self._look()
        self._calm.wait(self._dice.uniform(0.0, 0.1))

    def _key(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _job(self, key: str, verdict: str = "true", **more: Any) -> dict[str, Any]:
        ticks = " ".join("." * self._dice.randint(0, 8))
        script = LIFE.format(
            key=key, witness=self.cell.witness, ticks=ticks or '""', verdict=verdict
        )
        return shell(script, key, labels={"key": key}, **more)

    def _submit(self, key: str, job: dict[str, Any]) -> None:
        self.history.sent.append(key)
        self._answered(key, self._client.submit(job, idempotency_key=key).job_id)

    def _answered(self, key: str, job_id: str) -> None:
        self.history.answered.append((key, job_id))
        self._ids[key] = job_id

    def _plain(self) -> None:
        key = self._key("plain")
        self._submit(key, self._job(key))

    def _flaky(self) -> None:
        key = self._key("flaky")
        retry = {"max_attempts": 3, "delay": "200ms", "backoff": "fixed"}
        self._submit(key, self._job(key, '[ "$ROTA_ATTEMPT" -ge 2 ]', retry=retry))

    def _once(self) -> None:
        key = self._key("once")
        self._submit(key, self._job(key, semantics="at_most_once"))

    def _chain(self) -> None:
        """Three in a row, the first of which sometimes fails for good."""
        keys = [self._key("chain") for _ in range(3)]
        fails = self._dice.random() < 0.2
        jobs = [
            {**self._job(key, "false" if fails and not place else "true"), "ref": key}
            for place, key in enumerate(keys)
        ]
        for parent, child in zip(keys, jobs[1:], strict=False):
            child["dependencies"] = [f"ref:{parent}"]
        self.history.sent.extend(keys)
        ids = self._client.submit_batch(jobs, idempotency_key=keys[0])
        for key, job_id in zip(keys, ids, strict=True):
            self._answered(key, job_id)

    def _cancel(self) -> None:
        """One of the newest; if it never runs again, the witness file hears of it."""
        if not self._ids:
            return
        key = self._dice.choice(list(self._ids)[-10:])
        try:
            job = self._client.cancel(self._ids[key])
        except ConflictError:
            return
        if job.status == "cancelled":
            with self.cell.witness.open("a") as file:
                file.write(f"{key} 0 cancelled\n")

    def _repeat(self) -> None:
        """The same key once more, as a client does that lost the answer."""
        key = self._key("plain")
        job = self._job(key)
        self._submit(key, job)
        self._submit(key, job)

    # Looking

    def _look(self) -> None:
        page = self._client.jobs_page(JobSearch(limit=SAMPLE))
        self.history.seen.extend((job.job_id, job.status) for job in page.items)

    def _collect(self) -> None:
        runs = self._runs()
        jobs = list(self._client.jobs(JobSearch(limit=1000)))
        key_of = {job.job_id: job.labels["key"] for job in jobs}
        self.history.records = [record(job, key_of, runs[job.job_id]) for job in jobs]
        for text in self.cell.witnessed():
            key, fence, word = text.split()
            self.history.lines.append(Line(key, int(fence), word))

    def _runs(self) -> defaultdict[str, list[Run]]:
        """By job, oldest first."""
        runs: defaultdict[str, list[Run]] = defaultdict(list)
        cursor: str | None = None
        while True:
            page = self._client.executions(limit=1000, cursor=cursor)
            for run in page.items:
                runs[run.job_id].insert(0, Run(run.fence, run.status))
            cursor = page.next_cursor
            if cursor is None:
                return runs


def record(job: JobView, key_of: dict[str, str], runs: list[Run]) -> Record:
    """A job as the checker sees it."""
    return Record(
        job.job_id,
        job.labels["key"],
        job.status,
        job.fence,
        at_most_once=job.semantics == "at_most_once",
        after=[key_of[dependency.job_id] for dependency in job.dependencies],
        runs=runs,
    )


class Havoc:
    """What happens to processes. Each strike ends with as many servers and workers as before."""

    def __init__(self, cell: Cell, crew: list[Daemon], deeds: Counter[str], seed: int) -> None:
        self._cell = cell
        self._crew = crew
        self._deeds = deeds
        self._dice = random.Random(seed)
        self._choices: dict[str, tuple[int, Callable[[], None]]] = {
            "server killed": (4, lambda: self._restart(signal.SIGKILL, 0.5)),
            "server killed for long": (1, lambda: self._restart(signal.SIGKILL, 2.0 * LEASE_S)),
            "server stopped": (2, lambda: self._restart(signal.SIGTERM, 0.5)),
            "server frozen": (1, lambda: self._freeze(self._cell.server)),
            "worker frozen": (2, lambda: self._freeze(self._dice.choice(self._crew))),
            "worker killed": (4, lambda: self._replace(signal.SIGKILL)),
            "worker drained": (2, lambda: self._replace(signal.SIGTERM)),
            "worker hurried": (1, lambda: self._replace(signal.SIGTERM, signal.SIGTERM)),
        }

    def pause_s(self) -> float:
        """Until the next strike."""
        return self._dice.uniform(0.2, 2.0)

    def strike(self) -> None:
        """Does one of them."""
        names = list(self._choices)
        name = self._dice.choices(names, weights=[self._choices[one][0] for one in names])[0]
        self._choices[name][1]()
        self._deeds[name] += 1

    def _restart(self, number: int, away_s_max: float) -> None:
        self._cell.server.signal(number)
        self._cell.server.wait()
        time.sleep(self._dice.uniform(0.0, away_s_max))
        self._cell.up()

    def _freeze(self, one: Daemon) -> None:
        """For longer than a lease: when it wakes, what it led or ran has long been given up."""
        one.signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE_S)
        one.signal(signal.SIGCONT)

    def _replace(self, *numbers: int) -> None:
        place = self._dice.randrange(len(self._crew))
        leaver = self._crew[place]
        for number in numbers:
            leaver.signal(number)
        self._crew[place] = self._cell.worker("crew", "--cpu", "4")
        leaver.wait()
