"""No worker holds more than it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the jobs' own account of what ran at once, and by the journal at every record.

    A run that was killed says no end: it is taken to end with its last word, which is early.
    """
    yield from _by_witness(evidence)
    for holding in evidence.journal.holdings:
        who = f"record {holding.seq}: worker {holding.worker_id}"
        if holding.room is None:
            yield Broken(f"{who} was given work, and nobody registered it")
            continue
        for kind, amount in holding.used.items():
            room = holding.room.get(kind, 0)
            if amount > room:
                yield Broken(f"{who} has {room} {kind} and gave {amount}")


def _by_witness(evidence: Evidence) -> Iterator[Broken]:
    runs: dict[tuple[str, int, str], tuple[float, float]] = {}
    for line in evidence.history.lines:
        if line.word != "cancelled":
            run = (line.key, line.fence, line.worker)
            began, _ = runs.get(run, (line.at, line.at))
            runs[run] = (began, line.at)
    moments = [
        moment
        for (_, _, worker), (began, ended) in runs.items()
        for moment in ((began, 1, worker), (ended, -1, worker))
    ]
    at_once: defaultdict[str, int] = defaultdict(int)
    # Of one moment, the ends first: the clock has steps.
    for at, change, worker in sorted(moments):
        at_once[worker] += change
        room = evidence.history.slots.get(worker)
        if change > 0 and room is not None and at_once[worker] > room:
            yield Broken(f"{worker} has room for {room} and ran {at_once[worker]} at {at:.2f}")
