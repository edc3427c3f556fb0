from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.story import Story

ROOT = Path(__file__).parents[2]
SCRIPT = "import sys; from tests.core.story import Story; print(Story(int(sys.argv[1])).play())"


def played_elsewhere(seed: int, hash_seed: str) -> str:
    """The same story in another process, whose strings hash otherwise."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(seed)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("seed", range(5))
def test_the_same_inputs_at_the_same_times_give_the_same_bytes(seed: int) -> None:
    assert Story(seed).play() == Story(seed).play()


def test_another_seed_gives_other_bytes() -> None:
    assert Story(1).play() != Story(2).play()


def test_the_hash_seed_of_python_changes_nothing() -> None:
    here = Story(42).play()
    assert played_elsewhere(42, "0") == here
    assert played_elsewhere(42, "4711") == here


def test_the_random_stories_contain_every_kind_of_event() -> None:
    story = Story(42)
    story.play()
    states = [record.life.state.value for record in story.world.ledger.jobs.values()]
    for state in ("succeeded", "failed", "cancelled", "skipped", "expired", "queued"):
        assert states.count(state) >= 3, f"{states.count(state)} {state} of {len(states)}"
