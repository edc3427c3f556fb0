"""Changes of leader in a journal, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rota.core.outcome import AnyWrite, PutExecution, PutJob
from rota.store.protocol import JournalRecord
from rota.verify.replay import LEASED


class LeaderChange(NamedTuple):
    """A change of leader by the records of both, which share a machine's clock."""

    epoch: int
    silent_from: int
    """When the old one's last record was made, in milliseconds."""
    opened: int
    """When the new one's first was."""
    working: int | None
    """When the new one first took a job or gave one out."""


def leader_changes(records: Sequence[JournalRecord]) -> list[LeaderChange]:
    found = []
    for place, (before, after) in enumerate(pairwise(records), start=1):
        if after.epoch == before.epoch:
            continue
        works = (
            record.at
            for record in records[place:]
            if record.epoch == after.epoch and any(map(_is_work, record.writes))
        )
        found.append(LeaderChange(after.epoch, before.at, after.at, next(works, None)))
    return found


def _is_work(write: AnyWrite) -> bool:
    if isinstance(write, PutExecution):
        return write.execution.state in LEASED
    return isinstance(write, PutJob)
