"""The journal has one writer at a time: no gaps, and no record of an epoch that was over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the places and epochs of its records."""
    for before, after in pairwise(evidence.journal.records):
        if after.seq != before.seq + 1:
            yield Broken(f"record {after.seq} follows {before.seq}")
        if after.epoch < before.epoch:
            yield Broken(f"record {after.seq} is of epoch {after.epoch}, after {before.epoch}")
