"""What has just left memory: closes the gap between reading a record and using it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.limits import RECALL_WINDOW_MS
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobState,
    KeyRecord,
    Millis,
)


class _Batch:
    """What left memory at one time."""

    __slots__ = ("at", "ended", "jobs", "keys")

    def __init__(self, at: Instant) -> None:
        self.at = at
        self.jobs: list[JobId] = []
        self.ended: list[ExecutionId] = []
        self.keys: list[str] = []


class Recent:
    """Jobs that departed, executions that ended and keys that were used, of the last seconds.

    A caller reads the tables at `t`, and its input is stepped a little later. Whatever left memory
    in between is here, so a stale record is noticed; whatever left before `t` is in the record.
    """

    def __init__(self, since: Instant) -> None:
        self.since = since
        """Before this nothing is known: a record read earlier is stale."""
        self.departed: dict[JobId, tuple[Instant, JobState | None]] = {}
        """When it left, and how it had ended; None: it is gone for good."""
        self._ended: dict[ExecutionId, Execution] = {}
        self._reported: dict[ExecutionId, ExecutionState] = {}
        """What the worker said of executions that did not end as it said. One is rare, and a pair
        for each of hundreds of thousands would be what the collector looks at most of its time."""
        self._keys: dict[str, KeyRecord] = {}
        self._batch = _Batch(since)
        """The last of those that follow: what leaves now."""
        self._batches = deque([self._batch])

    def depart(self, job_id: JobId, now: Instant, state: JobState | None = None) -> None:
        """The job has left memory: it ended in that state, or was removed."""
        self.departed[job_id] = (now, state)
        batch = self._batch if self._batch.at == now else self._begin(now)
        batch.jobs.append(job_id)

    def depart_together(
        self, job_ids: Sequence[JobId], now: Instant, state: JobState | None
    ) -> None:
        """Jobs have left memory in the same way."""
        self.departed.update(dict.fromkeys(job_ids, (now, state)))
        batch = self._batch if self._batch.at == now else self._begin(now)
        batch.jobs += job_ids

    def returned(self, job_id: JobId) -> None:
        """The job is back in memory."""
        self.departed.pop(job_id, None)

    def departed_at(self, job_id: JobId) -> Instant | None:
        """When the job left, if that was just now."""
        left = self.departed.get(job_id)
        return None if left is None else left[0]

    def final_state(self, job_id: JobId) -> JobState | None:
        """How the job ended, if that was just now and it is still there to be asked for."""
        left = self.departed.get(job_id)
        return None if left is None else left[1]

    def end(self, execution: Execution, reported: ExecutionState, now: Instant) -> None:
        """The execution's completion was accepted as `reported`."""
        if not (execution.result is None and execution.error is None and execution.usage is None):
            execution = replace(execution, result=None, error=None, usage=None)
        self._ended[execution.id] = execution
        if execution.state is not reported:
            self._reported[execution.id] = reported
        batch = self._batch if self._batch.at == now else self._begin(now)
        batch.ended.append(execution.id)

    def ended(self, execution_id: ExecutionId) -> tuple[ExecutionState, Execution] | None:
        """(as reported, the execution without its results) of a completion just accepted."""
        execution = self._ended.get(execution_id)
        if execution is None:
            return None
        return self._reported.get(execution_id, execution.state), execution

    def use(self, record: KeyRecord) -> None:
        """The key was used."""
        self._keys[record.key] = record
        batch = self._batch if self._batch.at == record.at else self._begin(record.at)
        batch.keys.append(record.key)

    def key(self, key: str) -> KeyRecord | None:
        """What the key was just used for."""
        return self._keys.get(key)

    def is_stale(self, read_at: Instant, now: Instant) -> bool:
        """Whether a record read then may have been overtaken without a trace here."""
        return not max(self.since, now - RECALL_WINDOW_MS) <= read_at <= now

    def forget(self, now: Instant) -> None:
        """Drops what no record in flight can need any more: twice the window, to be safe."""
        oldest, departed, ended = now - 2 * RECALL_WINDOW_MS, self.departed, self._ended
        while self._batches and self._batches[0].at < oldest:
            batch = self._batches.popleft()
            for execution_id in batch.ended:
                ended.pop(execution_id, None)
            for execution_id in batch.ended if self._reported else ():
                self._reported.pop(execution_id, None)
            for job_id in batch.jobs:
                left = departed.get(job_id)
                if left is not None and left[0] == batch.at:
                    del departed[job_id]
            for key in batch.keys:
                self._keys.pop(key, None)
        if not self._batches:
            self._begin(now)

    def _begin(self, now: Instant) -> _Batch:
        self._batch = _Batch(now)
        self._batches.append(self._batch)
        return self._batch

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much; records read before that are read again."""
        self.since += by
        departed = self.departed.items()
        self.departed = {job_id: (at + by, state) for job_id, (at, state) in departed}
        for batch in self._batches:
            batch.at += by
