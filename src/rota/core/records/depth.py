"""How many jobs live in each state: of one queue, or of one tenant."""

from __future__ import annotations

from rota.core.model import JobState

_QUEUED, _RUNNING = JobState.QUEUED, JobState.RUNNING


class Depth:
    """Two states have a number of their own: every job comes to wait, and to run."""

    __slots__ = ("_others", "queued", "running")

    def __init__(self) -> None:
        self.queued = 0
        self.running = 0
        self._others: dict[JobState, int] = {}

    def count(self, state: JobState, step: int) -> None:
        """So many more are in the state, or fewer."""
        if state is _QUEUED:
            self.queued += step
        elif state is _RUNNING:
            self.running += step
        else:
            self._others[state] = self._others.get(state, 0) + step

    def by_state(self) -> dict[JobState, int]:
        """Without the states that nobody is in."""
        counts = {**self._others, _QUEUED: self.queued, _RUNNING: self.running}
        return {state: counts[state] for state in JobState if counts.get(state)}
