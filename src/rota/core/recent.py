"""What has just left memory: closes the gap between reading a record and using it."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from rota.core.limits import RECALL_WINDOW_MS
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    KeyRecord,
    Millis,
)


class Recent:
    """Jobs that departed, executions that ended and keys that were used, of the last seconds.

    A caller reads the tables at `t`, and its input is stepped a little later. Whatever left memory
    in between is here, so a stale record is noticed; whatever left before `t` is in the record.
    """

    def __init__(self, since: Instant) -> None:
        self.since = since
        """Before this nothing is known: a record read earlier is stale."""
        self._departed: dict[JobId, Instant] = {}
        self._ended: dict[ExecutionId, tuple[ExecutionState, Execution]] = {}
        self._keys: dict[str, KeyRecord] = {}
        self._line: deque[tuple[Instant, str, str]] = deque()

    def depart(self, job_id: JobId, now: Instant) -> None:
        """The job has left memory."""
        self._departed[job_id] = now
        self._line.append((now, "job", job_id))

    def returned(self, job_id: JobId) -> None:
        """The job is back in memory."""
        self._departed.pop(job_id, None)

    def departed_at(self, job_id: JobId) -> Instant | None:
        """When the job left, if that was just now."""
        return self._departed.get(job_id)

    def end(self, execution: Execution, reported: ExecutionState, now: Instant) -> None:
        """The execution's completion was accepted as `reported`."""
        small = replace(execution, result=None, error=None, usage=None)
        self._ended[execution.id] = (reported, small)
        self._line.append((now, "execution", execution.id))

    def ended(self, execution_id: ExecutionId) -> tuple[ExecutionState, Execution] | None:
        """(as reported, the execution without its results) of a completion just accepted."""
        return self._ended.get(execution_id)

    def use(self, record: KeyRecord) -> None:
        """The key was used."""
        self._keys[record.key] = record
        self._line.append((record.at, "key", record.key))

    def key(self, key: str) -> KeyRecord | None:
        """What the key was just used for."""
        return self._keys.get(key)

    def is_stale(self, read_at: Instant, now: Instant) -> bool:
        """Whether a record read then may have been overtaken without a trace here."""
        return not max(self.since, now - RECALL_WINDOW_MS) <= read_at <= now

    def forget(self, now: Instant) -> None:
        """Drops what no record in flight can need any more: twice the window, to be safe."""
        while self._line and self._line[0][0] < now - 2 * RECALL_WINDOW_MS:
            at, kind, key = self._line.popleft()
            if kind == "execution":
                self._ended.pop(ExecutionId(key), None)
            elif kind == "job":
                if self._departed.get(JobId(key)) == at:
                    del self._departed[JobId(key)]
            else:
                self._keys.pop(key, None)

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much; records read before that are read again."""
        self.since += by
        self._departed = {job_id: at + by for job_id, at in self._departed.items()}
        self._line = deque((at + by, kind, key) for at, kind, key in self._line)
