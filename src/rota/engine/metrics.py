"""Engine metrics: counters, histograms and the projection lag, for `/metrics` and `/stats`.

They are plain numbers without a metrics library; the API writes them in Prometheus' format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from rota.core.model import Millis, RunCause
from rota.core.outcome import Ended, Outcome
from rota.engine.ports import Clock
from rota.store.protocol import Seq, Totals

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG_SECONDS = (*SECONDS, 300, 900, 3600, 4 * 3600, 24 * 3600)
SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000)


class Histogram:
    """Counts how many measurements were at or below each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def note(self, value: float, times: int = 1) -> None:
        """Adds a value that was measured `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def buckets(self) -> Sequence[tuple[float, int]]:
        """Returns (upper bound, how many were at or below it), rising; the last is infinity."""
        bounds = (*self._bounds, float("inf"))
        return list(zip(bounds, accumulate(self._counts), strict=True))

    def total(self) -> float:
        """Returns the sum of all values."""
        return self._total


class Metrics:
    """Counts what turns did. Totals continue from those in the store, so a restart loses none."""

    def __init__(self) -> None:
        self._submitted = 0
        self._finished: dict[tuple[str, str], int] = {}
        self._decided: dict[tuple[str, str], int] = {}
        self._reacted: dict[str, int] = {}
        self.reloads: dict[str, int] = {}
        self._waits = Histogram(LONG_SECONDS)
        self._runs = Histogram(LONG_SECONDS)
        self._dispatch = Histogram(SECONDS)
        self._appends = Histogram(SECONDS)
        self._append_jobs = Histogram(SIZES)
        self._lateness = Histogram(LONG_SECONDS)
        self._deadlines: dict[str, int] = {}

    def loaded(self, totals: Totals) -> None:
        """Takes over the totals that were read from the store."""
        self._submitted = totals.submitted
        self._finished = {(queue, state): count for queue, state, count in totals.finished}
        self._decided = {(decision, why): count for decision, why, count in totals.decided}
        self._reacted = dict(totals.reacted)

    def reloaded(self, reason: str) -> None:
        self.reloads[reason] = self.reloads.get(reason, 0) + 1

    def turn_committed(self, outcome: Outcome) -> None:
        """Counts what a durable turn did, before its answers leave."""
        self._submitted += outcome.submitted
        if outcome.ends:
            self._ended(outcome.ends)
        for one in outcome.occurrences:
            word = (one.decision.value, one.skip_reason.value)
            self._decided[word] = self._decided.get(word, 0) + 1
            if one.cause is RunCause.TIME and one.job_id is not None:
                self._lateness.note(one.late_ms / 1000)
        for reaction, count in outcome.event_counts.items():
            self._reacted[reaction] = self._reacted.get(reaction, 0) + count
        for verdict, count in outcome.deadlines.items():
            self._deadlines[verdict] = self._deadlines.get(verdict, 0) + count

    def turn_finished(self, outcome: Outcome, append_s: float, turn_s: float) -> None:
        """Notes how long a turn took, after its answers have left."""
        # Jobs that came together have equal waits and run times: one note for all of them.
        for wait_ms, times in Counter(outcome.waits).items():
            self._waits.note(wait_ms / 1000, times)
        orders = sum(len(answer.orders) for answer in outcome.answers)
        if orders:
            self._dispatch.note(turn_s, orders)
        if outcome.writes:
            self._appends.note(append_s)
            self._append_jobs.note(outcome.submitted + len(outcome.waits) + len(outcome.ends))

    def _ended(self, ends: Sequence[Ended]) -> None:
        for (queue, state), times in Counter((end.queue, end.state) for end in ends).items():
            key = (queue, state.value)
            self._finished[key] = self._finished.get(key, 0) + times
        for ran_ms, times in Counter(end.ran_ms for end in ends).items():
            if ran_ms is not None:
                self._runs.note(ran_ms / 1000, times)

    def submitted(self) -> int:
        """Returns the number of jobs accepted since the beginning."""
        return self._submitted

    def finished(self) -> Mapping[tuple[str, str], int]:
        """Returns the number of jobs finished since the beginning, by (queue, state)."""
        return self._finished

    def decided(self) -> Mapping[tuple[str, str], int]:
        """Returns decided instants of schedules since the beginning, by (decision, reason)."""
        return self._decided

    def reacted(self) -> Mapping[str, int]:
        """Returns events accepted and repeated, and reactions of triggers, since the beginning."""
        return self._reacted

    def deadlines(self) -> Mapping[str, int]:
        """Returns jobs that risk, met and missed their deadline, since this server started."""
        return self._deadlines

    def histograms(self) -> Mapping[str, Histogram]:
        """Returns histograms by the name of their metric, without the prefix `rota_`."""
        return {
            "job_wait_seconds": self._waits,
            "job_run_seconds": self._runs,
            "dispatch_latency_seconds": self._dispatch,
            "append_seconds": self._appends,
            "append_jobs": self._append_jobs,
            "schedule_lateness_seconds": self._lateness,
        }


class ProjectionLag:
    """Measures how long the projection has been behind the journal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: deque[tuple[Seq, Millis]] = deque()

    def appended(self, seq: Seq, projected: Seq) -> None:
        """Notes a durable record; the tables hold all records up to `projected`."""
        self._pending.append((seq, self._clock.steady()))
        self._forget(projected)

    def clear(self) -> None:
        self._pending.clear()

    def seconds(self, projected: Seq) -> float:
        """Returns for how long the oldest record missing from the tables has been durable."""
        self._forget(projected)
        return (self._clock.steady() - self._pending[0][1]) / 1000 if self._pending else 0.0

    def _forget(self, projected: Seq) -> None:
        while self._pending and self._pending[0][0] <= projected:
            self._pending.popleft()
