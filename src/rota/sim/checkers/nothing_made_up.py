"""No job exists that nobody asked for."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """What a schedule made says which."""
    sent = dict.fromkeys(evidence.history.sent)
    for record in evidence.history.records:
        if record.key not in sent and not record.made_by:
            yield Broken(f"{record.key} was submitted by nobody", (record.key,))
