"""Estimates of run times, and statistics of cpu and memory used, by tenant and name of job.

A job's own `expected_runtime_ms` counts first, then the mean of the last two runs of its name,
which predicts as well as anything elaborate. An estimate orders and reserves; it never ends a job.
Use of cpu and memory is kept as sketches (quantiles) and sums by day; old runs fade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rota.core.limits import (
    RUNTIME_CHANGE_WRITTEN,
    RUNTIME_GUESS_MS,
    RUNTIMES_KEPT,
    SHORT_MEAN_RUNS,
    SHORT_MS,
    SHORT_RUNS,
    USAGE_DAYS_KEPT,
    USAGE_RUNS_SKETCHED,
    USAGE_WRITTEN_MS,
    USAGES_KEPT,
)
from rota.core.model import (
    Instant,
    JobName,
    Millis,
    Resources,
    RuntimeStats,
    SketchCounts,
    Terms,
    UsageDay,
    UsageStats,
)

DAY_MS = 86_400_000
_MIB = 1 << 20
_STEP_BITS = 3
_SURE_RUNS = 5
"""Runs before a suggestion is made."""


class MeasuredUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Resources that an execution used, as measured by its worker; None: not measured."""

    cpu_ms: Millis | None = None
    memory_peak: int | None = None
    out_of_memory: bool = False


def step_of(value: int) -> int:
    """Step of the sketch that a value falls into."""
    shift = value.bit_length() - 1 - _STEP_BITS
    return value if shift <= 0 else (shift << _STEP_BITS) + (value >> shift)


def top_of(step: int) -> int:
    """Largest value of a step."""
    shift = (step >> _STEP_BITS) - 1
    return step if shift <= 0 else ((step - (shift << _STEP_BITS) + 1) << shift) - 1


class Sketch:
    """Sketch of a distribution: counts of values by size in steps, and the largest value."""

    __slots__ = ("_counts", "_seen", "largest")

    def __init__(self, counts: SketchCounts = (), largest: int = 0) -> None:
        self._counts = dict(counts)
        self._seen = sum(self._counts.values())
        self.largest = largest

    def add(self, value: int) -> None:
        step = step_of(max(0, value))
        self._counts[step] = self._counts.get(step, 0) + 1
        self._seen += 1
        self.largest = max(self.largest, value)
        if self._seen > USAGE_RUNS_SKETCHED:
            self._counts = {step: count // 2 for step, count in self._counts.items() if count > 1}
            self._seen = sum(self._counts.values())

    def quantile(self, part: float) -> int:
        """Value that at least this part of the values did not exceed."""
        left = part * self._seen
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 0:
                return min(top_of(step), self.largest)
        return self.largest

    def counts(self) -> SketchCounts:
        """Counts as they are stored."""
        return tuple(sorted(self._counts.items()))


class UsageHistory:
    """Usage statistics of the jobs of one name."""

    __slots__ = ("asked", "cpu", "days", "memory", "runs", "runtime", "written_at")

    def __init__(self, usage: UsageStats | None = None, now: Instant = 0) -> None:
        usage = usage or UsageStats()
        self.runs = usage.runs
        self.cpu = Sketch(usage.cpu, usage.cpu_max)
        """Thousandths of a core, on average over a run."""
        self.memory = Sketch(usage.memory, usage.memory_max)
        self.runtime = Sketch(usage.runtime, usage.runtime_max)
        self.asked = Resources(usage.asked_cpu, usage.asked_memory)
        """Requested by the newest run."""
        self.days = {day.day: day for day in usage.days}
        self.written_at = now

    def add(self, asked: Resources, used: MeasuredUsage, ran: Millis, now: Instant) -> None:
        """Adds a run."""
        self.runs += 1
        self.asked = asked
        self.runtime.add(ran)
        if used.cpu_ms is not None:
            self.cpu.add(used.cpu_ms * 1000 // max(1, ran))
        if used.memory_peak is not None:
            self.memory.add(used.memory_peak)
        self._add_to_day(asked, used, ran, now // DAY_MS)

    def _add_to_day(self, asked: Resources, used: MeasuredUsage, ran: Millis, number: int) -> None:
        before = self.days.get(number) or UsageDay(number)
        measured = used.memory_peak is not None
        self.days[number] = UsageDay(
            number,
            before.runs + 1,
            before.cpu_asked + asked.cpu_milli * ran // 1000,
            before.cpu_used + (used.cpu_ms or 0),
            before.memory_asked + (_mib_ms(asked.memory, ran) if measured else 0),
            before.memory_used + _mib_ms(used.memory_peak or 0, ran),
        )
        if len(self.days) > USAGE_DAYS_KEPT:
            del self.days[min(self.days)]

    def record(self) -> UsageStats:
        """Statistics as they are stored."""
        return UsageStats(
            self.runs,
            self.cpu.counts(),
            self.memory.counts(),
            self.runtime.counts(),
            self.cpu.largest,
            self.memory.largest,
            self.runtime.largest,
            self.asked.cpu_milli,
            self.asked.memory,
            tuple(self.days[day] for day in sorted(self.days)),
        )

    def since(self, start: Instant) -> UsageDay:
        """Sums of the days from then on; the day of `start` counts whole."""
        days = [day for number, day in self.days.items() if number >= start // DAY_MS]
        return UsageDay(
            start // DAY_MS,
            sum(day.runs for day in days),
            sum(day.cpu_asked for day in days),
            sum(day.cpu_used for day in days),
            sum(day.memory_asked for day in days),
            sum(day.memory_used for day in days),
        )


def _mib_ms(amount: int, ran: Millis) -> int:
    return amount * ran // _MIB


class UsageHistories:
    """Usage statistics by (tenant, name of job)."""

    def __init__(self) -> None:
        self._known: dict[JobName, UsageHistory] = {}

    def restore(self, key: JobName, usage: UsageStats, now: Instant) -> None:
        """Restores stored statistics."""
        self._known[key] = UsageHistory(usage, now)

    def learn(self, terms: Terms, used: MeasuredUsage, ran: Millis, now: Instant) -> bool:
        """Adds an ended execution; returns whether the statistics are worth writing."""
        if used.cpu_ms is None and used.memory_peak is None:
            return False
        key = (terms.tenant, terms.name)
        history = self._known.pop(key, None) or UsageHistory(now=now)
        # The dictionary stays in the order of use, so the first one is the one to drop.
        if len(self._known) >= USAGES_KEPT:
            del self._known[next(iter(self._known))]
        self._known[key] = history
        history.add(terms.needs.resources, used, ran, now)
        runs = history.runs
        if runs < 2 or (runs & (runs - 1) and now - history.written_at < USAGE_WRITTEN_MS):
            return False
        history.written_at = now
        return True

    def record(self, key: JobName) -> UsageStats | None:
        """Statistics to write for a name."""
        history = self._known.get(key)
        return None if history is None else history.record()

    def all(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """All statistics, by tenant and name."""
        for key in sorted(self._known):
            yield key, self._known[key]


def suggested_resources(history: UsageHistory) -> Resources | None:
    """Suggests resources: the most that was seen and a little more; None: too few runs.

    For memory the largest peak counts, because a job that exceeds its limit is killed. For cpu it
    is the quantile 0.95.
    """
    if history.runs < _SURE_RUNS:
        return None
    cpu = -(-history.cpu.quantile(0.95) // 100) * 100
    memory = -(-history.memory.largest * 6 // 5 // _MIB) * _MIB
    return Resources(cpu_milli=max(100, cpu), memory=memory)


_STEP_MS = 60_000


class _Known(msgspec.Struct, gc=False):
    """Run times of the jobs of one name."""

    recent: tuple[Millis, ...] = ()
    """The last two runs, the newest first."""
    expected: Millis = 0
    """Expected run time of the next one."""
    short: int = 0
    """Number of short runs in a row."""
    before: Millis | None = None
    """Sum of the `SHORT_MEAN_RUNS` short runs before those in `total`."""
    total: Millis = 0
    """Sum of the short runs since then."""
    runs: int = 0
    """Number of runs in `total`."""

    @property
    def mean(self) -> Millis:
        """Mean of the last short runs, rounded up.

        When a worker reports several ends together, all but the first seem to have taken no time:
        only the mean of many says how long one takes.
        """
        earlier = 0 if self.before is None else SHORT_MEAN_RUNS
        return -(-(self.total + (self.before or 0)) // max(1, self.runs + earlier))

    def note(self, runs: Sequence[Millis]) -> None:
        """Adds runs, the oldest first."""
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
    """Run time estimates by (tenant, name of job), from their last runs."""

    def __init__(self, most: int = RUNTIMES_KEPT) -> None:
        self._most = most
        self._known: dict[tuple[str, str], _Known] = {}
        self._newest: tuple[JobName | None, _Known] = (None, _NOTHING)
        """(key, its runs) of the newest of these; None: to be looked up."""
        self.changes = 0
        """Grows when an estimate changed, or may have."""
        self._written: dict[tuple[str, str], Millis] = {}
        self.usages = UsageHistories()
        """Usage of resources other than time."""

    def restore(self, runtime: RuntimeStats) -> None:
        """Restores stored run times."""
        key = (runtime.tenant, runtime.name)
        self._written[key] = mean = _mean(runtime.recent)
        short = sum(1 for ran in runtime.recent if ran <= SHORT_MS)
        self._known[key] = _Known(runtime.recent, _coarse(mean), short)
        self._newest = (None, _NOTHING)
        self.changes += 1

    def estimate(self, terms: Terms) -> Millis:
        """Expected run time of a job with these terms; never longer than its timeout."""
        if terms.expected_runtime_ms is not None:
            return terms.expected_runtime_ms
        known, timeout = self._known.get((terms.tenant, terms.name)), terms.timeout_ms
        if known is None:
            return RUNTIME_GUESS_MS if timeout is None else timeout
        expected = known.expected
        return expected if timeout is None or expected < timeout else timeout

    def recent(self, key: JobName) -> tuple[Millis, ...]:
        """Last runs, the newest first."""
        return self._known.get(key, _NOTHING).recent

    def short_runtime(self, terms: Terms) -> Millis | None:
        """Expected run time if jobs of this name are known to be short; None: they are not."""
        expected = terms.expected_runtime_ms
        if expected is not None:
            return expected if expected <= SHORT_MS else None
        known = self._known.get((terms.tenant, terms.name), _NOTHING)
        # Two runs in a row that were longer than the mean count at once.
        return max(known.mean, min(known.recent)) if known.short >= SHORT_RUNS else None

    def learn(self, terms: Terms, runs: Sequence[Millis]) -> bool:
        """Adds successful runs, the oldest first; returns whether they are worth writing."""
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
        """Adds one successful run of jobs of this name that have no `expected_runtime_ms`."""
        newest, known = self._newest
        if key != newest:
            known = self._move_to_end(key)
        if ran <= SHORT_MS or known.short:
            known.note((ran,))
        before = known.recent
        recent = (ran, before[0]) if before else (ran,)
        return recent != before and self._update(key, known, recent)

    def _update(self, key: JobName, known: _Known, recent: tuple[Millis, ...]) -> bool:
        """Sets the last two runs; returns whether they are worth writing."""
        if recent == known.recent:
            return False  # nothing new to write
        mean, written = (recent[0] + recent[-1]) // 2, self._written.get(key)
        known.recent, expected = recent, _coarse(mean)
        if expected != known.expected:
            known.expected = expected
            self.changes += 1
        if len(recent) < 2:
            return False  # a name with one run may never come again
        if written is not None and abs(mean - written) <= max(
            1_000, RUNTIME_CHANGE_WRITTEN * written
        ):
            return False
        self._written[key] = mean
        return True

    def _move_to_end(self, key: JobName) -> _Known:
        """Runs of a name, which becomes the newest; the oldest name is dropped if needed.

        Names that are known are moved too: after a restart there may be too many.
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
    """Rounds up to the next of two steps for each doubling, and to a second at least.

    So the estimate rarely changes from run to run: a change costs work (`changes`).
    """
    step = 1 << max(0, length.bit_length() - 2)
    return max(1_000, -(-length // step) * step)


def _mean(recent: tuple[Millis, ...]) -> Millis:
    return sum(recent) // len(recent)


def next_estimate(since: Instant, timeout: Millis | None, now: Instant) -> Instant:
    """Next estimate for a job that ran longer than the last one: 1.5 times what it has run."""
    ran = now - since
    guess = now + max(_STEP_MS, ran // 2)
    return guess if timeout is None else max(now + 1, min(guess, since + timeout))
