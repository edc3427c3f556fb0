"""Jobs and executions move only as their tables of moves say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from rota.core.lifecycle import EXECUTION_TRANSITIONS, JOB_TRANSITIONS, JobVerb
from rota.core.model import Life
from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.history import FINAL


def _reachable(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, None]]:
    """Where one record may take a thing: it tells only the last of a turn's moves."""
    steps: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for source, target in pairs:
        steps[source][target] = None
    reached: dict[str, dict[str, None]] = {}
    for source in list(steps):
        found: dict[str, None] = {}
        line = list(steps[source])
        while line:
            state = line.pop()
            if state not in found:
                found[state] = None
                line.extend(steps[state])
        reached[source] = found
    return reached


JOB_WAYS = _reachable(
    (source, target)
    for (source, verb), target in JOB_TRANSITIONS.items()
    if verb is not JobVerb.REVIVE
)
EXECUTION_WAYS = _reachable(
    (source, target) for (source, _), target in EXECUTION_TRANSITIONS.items()
)


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the journal. Only a person's retry leads out of a final state, into another life."""
    for move in evidence.journal.moves:
        before, after = move.before, move.after
        if before is not None and not _is_legal(before, after):
            says = f"job {move.job_id} went from {before.state} to {after.state}"
            yield Broken(f"record {move.seq}: {says}", (move.job_id,))
    for turn in evidence.journal.turns:
        if turn.before is None or turn.after.state == turn.before.state:
            continue
        if turn.after.state not in EXECUTION_WAYS.get(turn.before.state, ()):
            says = f"execution {turn.after.id} went from {turn.before.state} to {turn.after.state}"
            yield Broken(f"record {turn.seq}: {says}", (turn.after.job_id,))


def _is_legal(before: Life, after: Life) -> bool:
    if after == before or (after.lives > before.lives and before.state != "succeeded"):
        return True
    if after.state == before.state:
        return after.state not in FINAL
    return after.state in JOB_WAYS.get(before.state, ())
