"""How long jobs run: what they say themselves, else what earlier runs of the same name took.

The mean of the last two runs is known to predict as well as anything elaborate. A prediction
orders and reserves; it never ends a job.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.learned import Name
from rota.core.limits import (
    RUNTIME_GUESS_MS,
    RUNTIME_NEWS,
    RUNTIMES_KEPT,
    SHORT_MS,
    SHORT_RUNS,
)
from rota.core.model import Instant, Millis, Runtime, Terms
from rota.core.usage import Usages

_STEP_MS = 60_000


class Runtimes:
    """The last two runs of each (tenant, name)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[tuple[Millis, ...], Millis, int]] = {}
        """(the runs, what is expected of the next, how many in a row were short)."""
        self._written: dict[tuple[str, str], Millis] = {}
        self.usages = Usages()
        """What they took besides time."""

    def restore(self, runtime: Runtime) -> None:
        """As it was written."""
        key = (runtime.tenant, runtime.name)
        self._written[key] = mean = _mean(runtime.recent)
        short = sum(1 for ran in runtime.recent if ran <= SHORT_MS)
        self._known[key] = (runtime.recent, _coarse(mean), short)

    def estimate(self, terms: Terms) -> Millis:
        """How long a job like this will probably run; never longer than it may."""
        if terms.expected_runtime_ms is not None:
            return terms.expected_runtime_ms
        known, timeout = self._known.get((terms.tenant, terms.name)), terms.timeout_ms
        if known is None:
            return RUNTIME_GUESS_MS if timeout is None else timeout
        return known[1] if timeout is None or known[1] < timeout else timeout

    def recent(self, key: Name) -> tuple[Millis, ...]:
        """How long the last runs took, the newest first."""
        return self._known.get(key, ((), 0, 0))[0]

    def short(self, terms: Terms) -> Millis | None:
        """How long jobs of this name run if that is known to be short; None: it is not."""
        expected = terms.expected_runtime_ms
        if expected is not None:
            return expected if expected <= SHORT_MS else None
        recent, _, short = self._known.get((terms.tenant, terms.name), ((), 0, 0))
        return max(recent) if short >= SHORT_RUNS else None

    def learn(self, terms: Terms, runs: Sequence[Millis]) -> bool:
        """Jobs succeeded, one after the other; whether what is known now is worth writing down."""
        if terms.expected_runtime_ms is not None:
            return False
        key = (terms.tenant, terms.name)
        before, _, short = self._known.pop(key, ((), 0, 0))
        for ran in runs:
            short = short + 1 if ran <= SHORT_MS else 0
        # In the order of when they were heard of, for the first of them goes.
        if len(self._known) >= RUNTIMES_KEPT:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._written.pop(oldest, None)
        recent = (*runs[:-3:-1], *before)[:2]
        mean, written = (recent[0] + recent[-1]) // 2, self._written.get(key)
        self._known[key] = (recent, _coarse(mean), short)
        if len(recent) < 2:
            return False  # a name that comes once is no name
        if written is not None and abs(mean - written) <= max(1_000, RUNTIME_NEWS * written):
            return False
        self._written[key] = mean
        return True


def _coarse(length: Millis) -> Millis:
    """Up to the next of two steps for each doubling, and a second at least.

    So that jobs of a name, which never run equally long, are mostly taken to.
    """
    step = 1 << max(0, length.bit_length() - 2)
    return max(1_000, -(-length // step) * step)


def _mean(recent: tuple[Millis, ...]) -> Millis:
    return sum(recent) // len(recent)


def stepped_up(since: Instant, timeout: Millis | None, now: Instant) -> Instant:
    """The next guess for a job that has outlived the last: half as long again as it has run."""
    ran = now - since
    guess = now + max(_STEP_MS, ran // 2)
    return guess if timeout is None else max(now + 1, min(guess, since + timeout))
