"""What jobs of a name really take, beside what they ask for: small sketches, and sums by day.

A sketch counts values in steps of an eighth of a doubling. Old runs fade: whenever a sketch is full
all its counts are halved, so it tells of the last few hundred runs. Sums are kept by day.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rota.core.learned import JobName, SketchCounts, UsageDay, UsageStats
from rota.core.limits import USAGE_DAYS_KEPT, USAGE_RUNS_SKETCHED, USAGE_WRITTEN_MS, USAGES_KEPT
from rota.core.model import Resources, Terms
from rota.core.record import Instant, Millis

DAY_MS = 86_400_000
_MIB = 1 << 20
_STEP_BITS = 3
_SURE_RUNS = 5
"""Fewer runs than this suggest nothing."""


class MeasuredUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an execution took, as its worker says; None: nobody measured."""

    cpu_ms: Millis | None = None
    memory_peak: int | None = None
    out_of_memory: bool = False


def step_of(value: int) -> int:
    """The number of the step that a value falls into."""
    spare = value.bit_length() - 1 - _STEP_BITS
    return value if spare <= 0 else (spare << _STEP_BITS) + (value >> spare)


def top_of(step: int) -> int:
    """The largest value of a step."""
    spare = (step >> _STEP_BITS) - 1
    return step if spare <= 0 else ((step - (spare << _STEP_BITS) + 1) << spare) - 1


class Sketch:
    """How often values of about each size were seen, and the largest ever."""

    __slots__ = ("_counts", "_seen", "largest")

    def __init__(self, counts: SketchCounts = (), largest: int = 0) -> None:
        self._counts = dict(counts)
        self._seen = sum(self._counts.values())
        self.largest = largest

    def add(self, value: int) -> None:
        """One more."""
        step = step_of(max(0, value))
        self._counts[step] = self._counts.get(step, 0) + 1
        self._seen += 1
        self.largest = max(self.largest, value)
        if self._seen > USAGE_RUNS_SKETCHED:
            self._counts = {step: count // 2 for step, count in self._counts.items() if count > 1}
            self._seen = sum(self._counts.values())

    def quantile(self, part: float) -> int:
        """A value that at least this part of those seen did not exceed."""
        left = part * self._seen
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 0:
                return min(top_of(step), self.largest)
        return self.largest

    def counts(self) -> SketchCounts:
        """As it is written."""
        return tuple(sorted(self._counts.items()))


class UsageHistory:
    """All that is known of the runs of one name."""

    __slots__ = ("asked", "cpu", "days", "memory", "runs", "runtime", "written_at")

    def __init__(self, usage: UsageStats | None = None, now: Instant = 0) -> None:
        usage = usage or UsageStats()
        self.runs = usage.runs
        self.cpu = Sketch(usage.cpu, usage.cpu_max)
        """Thousandths of a core, on average over a run."""
        self.memory = Sketch(usage.memory, usage.memory_max)
        self.runtime = Sketch(usage.runtime, usage.runtime_max)
        self.asked = Resources(usage.asked_cpu, usage.asked_memory)
        """By the newest run."""
        self.days = {day.day: day for day in usage.days}
        self.written_at = now

    def add(self, asked: Resources, used: MeasuredUsage, ran: Millis, now: Instant) -> None:
        """One more run."""
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
        """As it is written."""
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
        """The sums of the days from then on; the day of `start` counts whole."""
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
    """What is known of each (tenant, name)."""

    def __init__(self) -> None:
        self._known: dict[JobName, UsageHistory] = {}

    def restore(self, key: JobName, usage: UsageStats, now: Instant) -> None:
        """As it was written."""
        self._known[key] = UsageHistory(usage, now)

    def learn(self, terms: Terms, used: MeasuredUsage, ran: Millis, now: Instant) -> bool:
        """An execution ended; whether what is known by now is worth writing down."""
        if used.cpu_ms is None and used.memory_peak is None:
            return False
        key = (terms.tenant, terms.name)
        account = self._known.pop(key, None) or UsageHistory(now=now)
        # In the order of when they were heard of, for the first of them goes.
        if len(self._known) >= USAGES_KEPT:
            del self._known[next(iter(self._known))]
        self._known[key] = account
        account.add(terms.needs.resources, used, ran, now)
        runs = account.runs
        if runs < 2 or (runs & (runs - 1) and now - account.written_at < USAGE_WRITTEN_MS):
            return False
        account.written_at = now
        return True

    def record(self, key: JobName) -> UsageStats | None:
        """What there is to write of a name."""
        account = self._known.get(key)
        return None if account is None else account.record()

    def all(self) -> Iterator[tuple[JobName, UsageHistory]]:
        """Everything, by tenant and name."""
        for key in sorted(self._known):
            yield key, self._known[key]


def suggested_resources(account: UsageHistory) -> Resources | None:
    """What to ask for instead: the most that was seen and a little more; None: who knows.

    Of memory the largest peak counts, for a job that gets less is ended. Of cpu 19 runs of 20 do.
    """
    if account.runs < _SURE_RUNS:
        return None
    cpu = -(-account.cpu.quantile(0.95) // 100) * 100
    memory = -(-account.memory.largest * 6 // 5 // _MIB) * _MIB
    return Resources(cpu_milli=max(100, cpu), memory=memory)
