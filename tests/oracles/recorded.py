"""Recorded hashes of the outcomes of stories."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.oracles.play import digest, play
from tests.oracles.stories import Story

FILE = Path(__file__).parent / "golden/story_hashes.json"
SEEDS = range(300)
RENEW = (
    "If this change means to decide otherwise, run `make oracles-renew` and commit the new hashes "
    "on their own, with the reason. If not, `make oracles-against REV=<commit before>` shows the "
    "first difference."
)


def hash_of(seed: int) -> str:
    """Plays one story and hashes its outcomes."""
    return digest(play(Story(seed).write()))


def hashes(seeds: Iterable[int]) -> dict[str, str]:
    """Plays stories on all cores; returns their hashes."""
    numbers = list(seeds)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        played = pool.map(hash_of, numbers, chunksize=5)
        return {str(seed): found for seed, found in zip(numbers, played, strict=True)}


def differences(seeds: Iterable[int]) -> list[str]:
    """Names stories whose outcomes differ from the recorded ones."""
    known = json.loads(FILE.read_text())
    wrong = [seed for seed, found in hashes(seeds).items() if known.get(seed) != found]
    if not wrong:
        return []
    return [f"Other outcomes than recorded in {len(wrong)} stories: {', '.join(wrong)}.", RENEW]


def renew() -> None:
    """Records the present hashes."""
    FILE.write_text(json.dumps(hashes(SEEDS), indent=0) + "\n")
