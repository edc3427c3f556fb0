"""Client load of a chaos run, and the answers: the clients' part of the history."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.sdk import Client, ConflictError, JobSearch, UnavailableError
from rota.verify.history import History, ObservedExecution, ObservedJob, WitnessLine
from rota.wire.jobs import JobView
from tests.process.cell import shell

SAMPLE = 100
DISK_FULL = 507
NOOP = "noop"
FLOCK = 25
"""Jobs of a batch that only need a worker's word: they make the numbers."""
LIFE = """
say() {{
  read -r now _ < /proc/uptime
  echo "{key} $ROTA_FENCE $1 $now $ROTA_WORKER" >> {witness}
}}
say begin
for _ in {ticks}; do sleep 0.1; say tick; done
{verdict} || exit 1
say end
"""


@dataclass(slots=True)
class Notes:
    witness: Path
    history: History = field(default_factory=History)
    ids: dict[str, str] = field(default_factory=dict)
    """By key, in the order of their acceptance."""


class Load:
    def __init__(self, client: Client, notes: Notes, number: int, seed: int) -> None:
        self.notes = notes
        self._client = client
        self._number = number
        self._rng = random.Random(seed)
        self._made = 0

    def act(self, stop: threading.Event) -> None:
        act = self._rng.choices(
            [
                *(self._plain, self._flaky, self._chain, self._once),
                *(self._cancel, self._repeat, self._flock),
            ],
            weights=[4, 2, 2, 1, 2, 1, 2],
        )[0]
        try:
            act()
            if self._number == 0:  # what two had seen could not be put in order
                self._look()
        except UnavailableError as refusal:
            if refusal.status != DISK_FULL:
                raise
            # Refused for certain, and nobody but a person can help: so much for that job.
        stop.wait(self._rng.uniform(0.0, 0.1))

    def go_on(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.act(stop)

    def _key(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._number}-{self._made}"

    def _job(self, key: str, verdict: str = "true", **more: Any) -> dict[str, Any]:
        ticks = " ".join("." * self._rng.randint(0, 8))
        script = LIFE.format(
            key=key, witness=self.notes.witness, ticks=ticks or '""', verdict=verdict
        )
        return shell(script, key, labels={"key": key}, **more)

    def _submit(self, key: str, job: dict[str, Any]) -> None:
        self.notes.history.sent.append(key)
        self._answered(key, self._client.submit(job, idempotency_key=key).job_id)

    def _submit_all(self, keys: list[str], jobs: list[dict[str, Any]]) -> None:
        self.notes.history.sent.extend(keys)
        ids = self._client.submit_batch(jobs, idempotency_key=keys[0])
        for key, job_id in zip(keys, ids, strict=True):
            self._answered(key, job_id)

    def _answered(self, key: str, job_id: str) -> None:
        self.notes.history.answered.append((key, job_id))
        self.notes.ids[key] = job_id

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
        """Submits a chain of three jobs, of which the first sometimes fails."""
        keys = [self._key("chain") for _ in range(3)]
        fails = self._rng.random() < 0.2
        jobs = [
            {**self._job(key, "false" if fails and not place else "true"), "ref": key}
            for place, key in enumerate(keys)
        ]
        for parent, child in zip(keys, jobs[1:], strict=False):
            child["dependencies"] = [f"ref:{parent}"]
        self._submit_all(keys, jobs)

    def _flock(self) -> None:
        keys = [self._key(NOOP) for _ in range(FLOCK)]
        task = {"kind": "noop"}
        self._submit_all(
            keys, [{"name": NOOP, "task": task, "labels": {"key": key}} for key in keys]
        )

    def _cancel(self) -> None:
        """Cancels one of the newest jobs, and records it in the witness file if it never runs
        again."""
        if not self.notes.ids:
            return
        key = self._rng.choice(list(self.notes.ids.copy())[-10:])
        try:
            job = self._client.cancel(self.notes.ids[key])
        except ConflictError:
            return
        if job.status == "cancelled":
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            with self.notes.witness.open("a") as file:
                file.write(f"{key} 0 cancelled {now:.2f} client\n")

    def _repeat(self) -> None:
        """Repeats a key, as a client does that lost the answer."""
        key = self._key("plain")
        job = self._job(key)
        self._submit(key, job)
        self._submit(key, job)

    def _look(self) -> None:
        page = self._client.jobs_page(JobSearch(limit=SAMPLE))
        self.notes.history.seen.extend((job.job_id, job.status) for job in page.items)

    # The end

    def settle(self, patience_s: float) -> History:
        """Waits until all jobs have ended; returns the complete history."""
        self._client.wait_all(self.notes.ids.values(), timeout_s=patience_s)
        runs = self._runs()
        jobs = list(self._client.jobs(JobSearch(limit=1000)))
        key_of = {job.job_id: job.labels["key"] for job in jobs}
        self.notes.history.jobs = [record(job, key_of, runs[job.job_id]) for job in jobs]
        for text in self.notes.witness.read_text().splitlines():
            key, fence, word, at, worker = text.split()
            self.notes.history.lines.append(WitnessLine(key, int(fence), word, float(at), worker))
        return self.notes.history

    def _runs(self) -> defaultdict[str, list[ObservedExecution]]:
        runs: defaultdict[str, list[ObservedExecution]] = defaultdict(list)
        cursor: str | None = None
        while True:
            page = self._client.executions(limit=1000, cursor=cursor)
            for run in page.items:
                runs[run.job_id].insert(0, ObservedExecution(run.fence, run.status))
            cursor = page.next_cursor
            if cursor is None:
                return runs


def record(job: JobView, key_of: dict[str, str], runs: list[ObservedExecution]) -> ObservedJob:
    return ObservedJob(
        job.job_id,
        job.labels["key"],
        job.status,
        job.fence,
        at_most_once=job.semantics == "at_most_once",
        after=[key_of[dependency.job_id] for dependency in job.dependencies],
        executions=runs,
        has_witness=job.name != NOOP,
        duplicate=job.reason == "duplicate",
    )
