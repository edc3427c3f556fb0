"""Planted bugs are found within the number of seeds that docs/guarantees.md states."""

from __future__ import annotations

import pytest

from tests.simtest.mutants import MUTANTS, Mutant
from tests.simtest.plan import draw
from tests.simtest.run import run
from tests.tidy.tree import ROOT


def first_found(mutant: Mutant, limit: int) -> int | None:
    """Returns the first seed that finds the bug."""
    with mutant.planted():
        for seed in range(1, limit + 1):
            if not run(draw(seed, profile=mutant.profile)).ok:
                return seed
    return None


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    assert first_found(mutant, mutant.within) is not None, f"{name} lived {mutant.within} seeds"


def test_the_table_of_planted_bugs_is_in_the_guarantees() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    for name, mutant in MUTANTS.items():
        assert f"| {name} | {mutant.rule} | `{mutant.profile}` | {mutant.within} | " in page, name
