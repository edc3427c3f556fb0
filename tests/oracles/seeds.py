"""Recorded hashes of simulated clusters: `rota verify --seeds 1..200 --hashes`."""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).parent / "golden/verify_hashes.json"
RENEW = (
    "If this change means to alter what the cluster does, run `make sim-renew` and commit the new "
    "hashes on their own, with the reason. If not, `rota verify --seed N` of both commits shows "
    "where the runs part."
)


def read_hashes(printed: Path) -> dict[str, str]:
    """Reads the lines that `rota verify --hashes` prints: seed and hash."""
    return dict(line.split() for line in printed.read_text().splitlines())


def recorded_hashes() -> dict[str, str]:
    recorded: dict[str, str] = json.loads(FILE.read_text())
    return recorded


def differences(printed: Path) -> list[str]:
    """Compares printed hashes with those recorded; seeds that were never recorded are ignored."""
    recorded = recorded_hashes()
    wrong = [
        seed
        for seed, found in read_hashes(printed).items()
        if seed in recorded and recorded[seed] != found
    ]
    if not wrong:
        return []
    return [f"Other hashes than recorded for seeds {', '.join(wrong)}.", RENEW]


def renew(printed: Path) -> None:
    """Records printed hashes."""
    FILE.write_text(json.dumps(read_hashes(printed), indent=0) + "\n")
