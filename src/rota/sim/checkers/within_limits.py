"""No more jobs of one concurrency key run at once than its limit says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence
from rota.sim.replay import HOLDS


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the journal. A record may end a run and begin the next, so it is looked at as a whole."""
    running: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    touched: dict[tuple[str, str], None] = {}
    last_seq = 0
    for turn in evidence.journal.turns:
        if turn.seq != last_seq:
            yield from _over(running, touched, last_seq)
            last_seq, touched = turn.seq, {}
        if turn.spec is None or turn.spec.concurrency is None:
            continue
        group = (turn.spec.terms.tenant, turn.spec.concurrency.key)
        touched[group] = None
        if turn.after.state in HOLDS:
            running[group][turn.after.id] = turn.spec.concurrency.limit
        else:
            running[group].pop(turn.after.id, None)
    yield from _over(running, touched, last_seq)


def _over(
    running: defaultdict[tuple[str, str], dict[str, int]],
    touched: dict[tuple[str, str], None],
    seq: int,
) -> Iterator[Broken]:
    for group in touched:
        held = running[group]
        if held and len(held) > max(held.values()):
            says = f"{len(held)} jobs of key {group[1]} run at once, {max(held.values())} may"
            yield Broken(f"record {seq}: {says}")
