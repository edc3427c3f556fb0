"""Finds a smaller run that still breaks the same promise: fewer faults, fewer acts, better weather.

Every fault and act has dice of its own, so what is left does what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from rota.sim.plan import Plan
from rota.sim.run import Result, run

T = TypeVar("T")

TRIES_MAX = 150


class Shrinking:
    """One search."""

    def __init__(self, failed: Result) -> None:
        self.best = failed
        self.tries = 0
        self._promise = failed.verdicts[0].promise

    def go(self) -> Result:
        """The smallest found."""
        self._fewer(lambda plan: plan.faults, lambda plan, left: _with(plan, faults=left))
        self._fewer(lambda plan: plan.acts, lambda plan, left: _with(plan, acts=left))
        self._fewer(lambda plan: plan.faults, lambda plan, left: _with(plan, faults=left))
        return self.best

    def _fewer(
        self,
        parts: Callable[[Plan], Sequence[T]],
        change: Callable[[Plan, tuple[T, ...]], Plan],
    ) -> None:
        """Leaves out halves, then quarters, and so on, as long as it still fails."""
        size = len(parts(self.best.plan))
        while size >= 1 and self.tries < TRIES_MAX:
            place = 0
            while place < len(parts(self.best.plan)) and self.tries < TRIES_MAX:
                every = parts(self.best.plan)
                left = (*every[:place], *every[place + size :])
                if not self._fails(change(self.best.plan, left)):
                    place += size
            size //= 2

    def _fails(self, plan: Plan) -> bool:
        self.tries += 1
        result = run(plan)
        if not any(verdict.promise == self._promise for verdict in result.verdicts):
            return False
        self.best = result
        return True


def _with(plan: Plan, **changed: object) -> Plan:
    return msgspec.structs.replace(plan, **changed)
