"""How long jobs run: what they say themselves, else what earlier runs of the same name took.

The mean of the last two runs is known to predict as well as anything elaborate. A prediction
orders and reserves; it never ends a job.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.core.learned import JobName
from rota.core.limits import (
    RUNTIME_CHANGE_WRITTEN,
    RUNTIME_GUESS_MS,
    RUNTIMES_KEPT,
    SHORT_MEAN_RUNS,
    SHORT_MS,
    SHORT_RUNS,
)
from rota.core.model import Instant, Millis, RuntimeStats, Terms
from rota.core.records.usage import UsageHistories

_STEP_MS = 60_000


class _Known(msgspec.Struct, gc=False):
    """What is known of one name."""

    recent: tuple[Millis, ...] = ()
    """The last two runs, the newest first."""
    expected: Millis = 0
    """How long the next will run."""
    short: int = 0
    """How many in a row were short."""
    before: Millis | None = None
    """What the last `SHORT_MEAN_RUNS` of those came to, up to where `total` begins."""
    total: Millis = 0
    """What those since then come to."""
    runs: int = 0
    """And how many they are."""

    @property
    def mean(self) -> Millis:
        """Of the last runs that were short, rounded up.

        Ends that a worker tells of together all seem to have run for no time but the first: only
        many of them say how long one takes.
        """
        earlier = 0 if self.before is None else SHORT_MEAN_RUNS
        return -(-(self.total + (self.before or 0)) // max(1, self.runs + earlier))

    def note(self, runs: Sequence[Millis]) -> None:
        """These have ended, one after the other."""
        for ran in runs:
            if ran > SHORT_MS:
                self.short, self.before, self.total, self.runs = 0, None, 0, 0
                continue
            self.short += 1
            self.total += ran
            self.runs += 1
            if self.runs == SHORT_MEAN_RUNS:
                self.before, self.total, self.runs = self.total, 0, 0


_NOTHING = _Known()


class RuntimeEstimates:
    """The last runs of each (tenant, name)."""

    def __init__(self, most: int = RUNTIMES_KEPT) -> None:
        self._most = most
        self._known: dict[tuple[str, str], _Known] = {}
        self._newest: tuple[JobName | None, _Known] = (None, _NOTHING)
        """The last of these, which was heard of last; None: to be looked up."""
        self.changes = 0
        """Grows when any name is expected to run longer or shorter than before, or may be."""
        self._written: dict[tuple[str, str], Millis] = {}
        self.usages = UsageHistories()
        """What they took besides time."""

    def restore(self, runtime: RuntimeStats) -> None:
        """As it was written."""
        key = (runtime.tenant, runtime.name)
        self._written[key] = mean = _mean(runtime.recent)
        short = sum(1 for ran in runtime.recent if ran <= SHORT_MS)
        self._known[key] = _Known(runtime.recent, _coarse(mean), short)
        self._newest = (None, _NOTHING)
        self.changes += 1

    def estimate(self, terms: Terms) -> Millis:
        """How long a job like this will probably run; never longer than it may."""
        if terms.expected_runtime_ms is not None:
            return terms.expected_runtime_ms
        known, timeout = self._known.get((terms.tenant, terms.name)), terms.timeout_ms
        if known is None:
            return RUNTIME_GUESS_MS if timeout is None else timeout
        expected = known.expected
        return expected if timeout is None or expected < timeout else timeout

    def recent(self, key: JobName) -> tuple[Millis, ...]:
        """How long the last runs took, the newest first."""
        return self._known.get(key, _NOTHING).recent

    def short_runtime(self, terms: Terms) -> Millis | None:
        """How long jobs of this name run if that is known to be short; None: it is not."""
        expected = terms.expected_runtime_ms
        if expected is not None:
            return expected if expected <= SHORT_MS else None
        known = self._known.get((terms.tenant, terms.name), _NOTHING)
        # Two in a row that were longer than the mean are believed at once.
        return max(known.mean, min(known.recent)) if known.short >= SHORT_RUNS else None

    def learn(self, terms: Terms, runs: Sequence[Millis]) -> bool:
        """Jobs succeeded, one after the other; whether what is known now is worth writing down."""
        if terms.expected_runtime_ms is not None:
            return False
        key = (terms.tenant, terms.name)
        if len(runs) == 1:
            return self.learn_one(key, runs[0])
        newest, known = self._newest
        if key != newest:
            known = self._move_to_end(key)
        known.note(runs)
        return self._update(key, known, (runs[-1], runs[-2]))

    def learn_one(self, key: JobName, ran: Millis) -> bool:
        """The same of one job of this name, which did not say how long it would run."""
        newest, known = self._newest
        if key != newest:
            known = self._move_to_end(key)
        if ran <= SHORT_MS or known.short:
            known.note((ran,))
        before = known.recent
        recent = (ran, before[0]) if before else (ran,)
        return recent != before and self._update(key, known, recent)

    def _update(self, key: JobName, known: _Known, recent: tuple[Millis, ...]) -> bool:
        """These were the last two; whether that is worth writing down."""
        if recent == known.recent:
            return False  # that was asked when it was new
        mean, written = (recent[0] + recent[-1]) // 2, self._written.get(key)
        known.recent, expected = recent, _coarse(mean)
        if expected != known.expected:
            known.expected = expected
            self.changes += 1
        if len(recent) < 2:
            return False  # a name that comes once is no name
        if written is not None and abs(mean - written) <= max(
            1_000, RUNTIME_CHANGE_WRITTEN * written
        ):
            return False
        self._written[key] = mean
        return True

    def _move_to_end(self, key: JobName) -> _Known:
        """What is known of a name; it is the last from now on, for the first of them goes.

        Also for one that was known: after a restart there may be too many.
        """
        known = self._known.pop(key, None) or _Known()
        if len(self._known) >= self._most:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._written.pop(oldest, None)
            self.changes += 1
        self._known[key] = known
        self._newest = (None if len(self._known) > self._most else key, known)
        return known


def _coarse(length: Millis) -> Millis:
    """Up to the next of two steps for each doubling, and a second at least.

    So that jobs of a name, which never run equally long, are mostly taken to.
    """
    step = 1 << max(0, length.bit_length() - 2)
    return max(1_000, -(-length // step) * step)


def _mean(recent: tuple[Millis, ...]) -> Millis:
    return sum(recent) // len(recent)


def next_estimate(since: Instant, timeout: Millis | None, now: Instant) -> Instant:
    """The next guess for a job that has outlived the last: half as long again as it has run."""
    ran = now - since
    guess = now + max(_STEP_MS, ran // 2)
    return guess if timeout is None else max(now + 1, min(guess, since + timeout))
