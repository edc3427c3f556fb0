"""Recently finished jobs, executions and used keys, kept to answer repeats and notice stale reads.

A caller reads the tables, and its command is handled a little later; what left memory in between is
found here. Thousands may end each second, and a large dictionary takes tens of milliseconds to
grow: so each slice of time has a small one, and old entries are freed a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from rota.core.limits import PRELOAD_WINDOW_MS
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

_PARTS = 256
"""Of half a million entries each has two thousand, which take a tenth of a millisecond to copy."""
_LAST = _PARTS - 1

K = TypeVar("K")
V = TypeVar("V")


class ShardedDict(Generic[K, V]):
    """Dictionary in shards, so that none is slow to grow. It has no order: do not iterate it."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: list[dict[K, V]] = [{} for _ in range(_PARTS)]

    def shard(self, key: K) -> dict[K, V]:
        """Shard that the key is in, or would be."""
        return self._shards[hash(key) & _LAST]


SLICE_MS = 2_000
"""Longest time that one slice covers: so there are a dozen of them where little ends."""
SLICE_MAX = 5_000
"""Jobs or executions in a slice, after which the next instant begins another."""
DROPPED_MIN = 256
DROPPED_PART = 16
"""A turn frees this many entries of old slices, and one in `DROPPED_PART` of the rest."""

_SUCCEEDED = JobState.SUCCEEDED
Departure: TypeAlias = tuple[Instant, JobState | None]
"""(when a job left memory, the state in which it ended; None: it was deleted)."""


class _Slice:
    """Jobs and executions that left memory in one period."""

    __slots__ = ("departed", "ended", "first_at", "last_at", "latest", "shift", "succeeded")

    def __init__(self, now: Instant, latest: JobId) -> None:
        self.first_at = self.last_at = now
        self.succeeded: Departure = (now, _SUCCEEDED)
        """Shared by all jobs that succeeded at `last_at`."""
        self.departed: dict[JobId, Departure] = {}
        self.ended: dict[ExecutionId, Execution] = {}
        self.latest = latest
        """No job in this slice, or in one before it, has a greater id."""
        self.shift: Millis = 0
        """By how much the clock was set since: add it to the times in this slice."""

    def is_full(self, now: Instant, most: int) -> bool:
        """Whether a new slice should begin."""
        size = max(len(self.departed), len(self.ended))
        return size >= most or now - self.first_at >= SLICE_MS


class RecentlyFinished:
    """Recently finished jobs, ended executions and used idempotency keys of the last seconds.

    A caller reads the tables at `t`, and its command is handled a little later. Everything that
    left memory in between is here, so a stale record is noticed; what left before `t` is in the
    record.
    """

    def __init__(self, since: Instant, slice_max: int = SLICE_MAX) -> None:
        self._slice_max = slice_max
        self.since = since
        """A record read before this is stale, because nothing is known of that time."""
        self._oldest: Instant = 0
        """Departures before this are forgotten, even if their slice is kept. Never in the future:
        the clock may be behind what it was at the start."""
        self._slice = _Slice(since, JobId(""))
        """The newest of `_slices`."""
        self._slices = deque([self._slice])
        self._over: deque[dict[Any, Any]] = deque()
        """Dictionaries of old slices, to be freed."""
        self._reported: dict[ExecutionId, ExecutionState] = {}
        """States that workers reported of executions that ended in another state. These are rare,
        and a pair for each of hundreds of thousands would cost the garbage collector most of its
        time."""
        self._keys: ShardedDict[str, KeyRecord] = ShardedDict()
        self._used: deque[tuple[Instant, list[str]]] = deque()
        """(when, keys used then), the oldest first."""

    # Jobs

    def remember_job(self, job_id: JobId, now: Instant, state: JobState | None = None) -> None:
        """Notes that the job left memory: it ended in that state, or was deleted."""
        slice_ = self._slice if self._slice.last_at == now else self._slice_at(now)
        slice_.departed[job_id] = (now, state)
        if job_id > slice_.latest:
            slice_.latest = job_id

    def remember_jobs(self, job_ids: Sequence[JobId], now: Instant, state: JobState | None) -> None:
        """Notes that jobs left memory in the same way."""
        slice_ = self._slice if self._slice.last_at == now else self._slice_at(now)
        slice_.departed.update(dict.fromkeys(job_ids, (now, state)))
        slice_.latest = max(slice_.latest, max(job_ids))

    @property
    def latest_id(self) -> JobId:
        """Greatest id of the jobs that left memory recently."""
        return self._slice.latest

    def returned(self, job_id: JobId) -> None:
        """Notes that the job is in memory again."""
        for slice_ in reversed(self._slices):
            if job_id > slice_.latest:
                return
            slice_.departed.pop(job_id, None)

    def departed_at(self, job_id: JobId) -> Instant | None:
        """When the job left memory, if that was recently."""
        left = self._left(job_id)
        return None if left is None else left[0]

    def final_state(self, job_id: JobId) -> JobState | None:
        """State in which the job ended, if that was recently and it was not deleted."""
        left = self._left(job_id)
        return None if left is None else left[1]

    def _left(self, job_id: JobId) -> Departure | None:
        for slice_ in reversed(self._slices):
            if job_id > slice_.latest:
                return None
            left = slice_.departed.get(job_id)
            if left is not None:
                at = left[0] + slice_.shift
                return (at, left[1]) if at >= self._oldest else None
        return None

    # Executions

    def remember_execution(
        self, execution: Execution, reported: ExecutionState, now: Instant
    ) -> None:
        """Notes that the execution ended now, and that its worker reported the state `reported`."""
        if not (execution.result is None and execution.error is None and execution.usage is None):
            execution = replace(execution, result=None, error=None, usage=None)
        slice_ = self._slice if self._slice.last_at == now else self._slice_at(now)
        slice_.ended[execution.id] = execution
        if execution.state is not reported:
            self._reported[execution.id] = reported

    def remember_execution_and_job(self, execution: Execution, job_id: JobId, now: Instant) -> None:
        """Notes both for a success, as reported: `remember_execution` and `remember_job` in one."""
        if not (execution.result is None and execution.error is None and execution.usage is None):
            execution = replace(execution, result=None, error=None, usage=None)
        slice_ = self._slice if self._slice.last_at == now else self._slice_at(now)
        slice_.ended[execution.id] = execution
        slice_.departed[job_id] = slice_.succeeded
        if job_id > slice_.latest:
            slice_.latest = job_id

    def ended(self, execution_id: ExecutionId) -> tuple[ExecutionState, Execution] | None:
        """(state as reported, the execution without its results), if it ended recently."""
        for slice_ in reversed(self._slices):
            execution = slice_.ended.get(execution_id)
            if execution is not None:
                assert execution.ended_at is not None
                if execution.ended_at + slice_.shift < self._oldest:
                    return None
                return self._reported.get(execution_id, execution.state), execution
        return None

    # Keys

    def remember_key(self, record: KeyRecord) -> None:
        """Notes that the idempotency key was used."""
        self._keys.shard(record.key)[record.key] = record
        if not self._used or self._used[-1][0] != record.at:
            self._used.append((record.at, []))
        self._used[-1][1].append(record.key)

    def key(self, key: str) -> KeyRecord | None:
        """Record of a key that was used recently."""
        return self._keys.shard(key).get(key)

    # Time

    def is_stale(self, read_at: Instant, now: Instant) -> bool:
        """Whether a record read then may have changed without a trace here."""
        return not max(self.since, now - PRELOAD_WINDOW_MS) <= read_at <= now

    def forget(self, now: Instant) -> None:
        """Forgets what no preloaded record can need any more: twice the window, to be safe."""
        oldest = self._oldest = min(max(self._oldest, now - 2 * PRELOAD_WINDOW_MS), now)
        while self._slices[0].last_at < oldest:
            self._drop(self._slices.popleft())
            if not self._slices:
                self._begin(now)
        while self._used and self._used[0][0] < oldest:
            for key in self._used.popleft()[1]:
                self._keys.shard(key).pop(key, None)
        if self._over:
            self._free_some()

    def _drop(self, slice_: _Slice) -> None:
        if self._reported:
            for execution_id in slice_.ended:
                self._reported.pop(execution_id, None)
        self._over += [part for part in (slice_.departed, slice_.ended) if part]

    def _free_some(self) -> None:
        """Frees a part of what was dropped: to free thousands of records at once takes too long."""
        over = self._over
        left = DROPPED_MIN + sum(len(part) for part in over) // DROPPED_PART
        while over:
            part = over[0]
            for _ in range(min(left, len(part))):
                part.popitem()
                left -= 1
            if part:
                return
            over.popleft()

    def _slice_at(self, now: Instant) -> _Slice:
        """Slice for what leaves memory now."""
        if self._slice.is_full(now, self._slice_max):
            self._begin(now)
        self._slice.last_at = now
        self._slice.succeeded = (now, _SUCCEEDED)
        return self._slice

    def _begin(self, now: Instant) -> None:
        self._slice = _Slice(now, self._slice.latest)
        self._slices.append(self._slice)

    def follow_clock(self, by: Millis) -> None:
        """Follows a change of the system clock; records read before it are stale."""
        self.since += by
        self._oldest += by
        for slice_ in self._slices:
            slice_.last_at += by
            slice_.shift += by
        self._begin(self._slice.last_at)  # new entries have the new clock's times
        self._used = deque((at + by, keys) for at, keys in self._used)
