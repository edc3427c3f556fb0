"""How long jobs run: what they say themselves, else what earlier runs of the same name took.

The mean of the last two runs is known to predict as well as anything elaborate. A prediction
orders and reserves; it never ends a job.
"""

from __future__ import annotations

from rota.core.limits import RUNTIME_GUESS_MS, RUNTIME_NEWS, RUNTIMES_KEPT
from rota.core.model import Instant, Millis, Runtime, Terms

_STEP_MS = 60_000


class Runtimes:
    """The last two runs of each (tenant, name)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Millis, ...]] = {}
        self._written: dict[tuple[str, str], Millis] = {}

    def restore(self, runtime: Runtime) -> None:
        """As it was written."""
        key = (runtime.tenant, runtime.name)
        self._known[key] = runtime.recent
        self._written[key] = _mean(runtime.recent)

    def estimate(self, terms: Terms) -> Millis:
        """How long a job like this will probably run; never longer than it may."""
        if terms.expected_runtime_ms is not None:
            return terms.expected_runtime_ms
        recent = self._known.get((terms.tenant, terms.name))
        timeout = terms.timeout_ms
        if recent:
            known = _coarse(_mean(recent))
            return known if timeout is None else min(known, timeout)
        return RUNTIME_GUESS_MS if timeout is None else timeout

    def learn(self, terms: Terms, ran: Millis) -> Runtime | None:
        """A job succeeded after so long; answers what is worth writing down, if anything is."""
        if terms.expected_runtime_ms is not None:
            return None
        key = (terms.tenant, terms.name)
        before = self._known.pop(key, ())
        # In the order of when they were heard of, for the first of them goes.
        if len(self._known) >= RUNTIMES_KEPT:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._written.pop(oldest, None)
        recent = self._known[key] = (ran, *before[:1])
        if len(recent) < 2:
            return None  # a name that comes once is no name
        mean, written = _mean(recent), self._written.get(key)
        if written is not None and abs(mean - written) <= max(1_000, RUNTIME_NEWS * written):
            return None
        self._written[key] = mean
        return Runtime(terms.tenant, terms.name, recent)


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
