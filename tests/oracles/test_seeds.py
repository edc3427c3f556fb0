from __future__ import annotations

from pathlib import Path

from tests.oracles import seeds


def test_a_seed_whose_hash_differs_from_the_recorded_one_is_named(tmp_path: Path) -> None:
    recorded = seeds.recorded_hashes()
    printed = tmp_path / "hashes"
    printed.write_text("".join(f"{seed} {found}\n" for seed, found in recorded.items()))
    assert seeds.differences(printed) == []
    printed.write_text(f"7 {recorded['7']}\n8 {recorded['7']}\n999 {recorded['7']}\n")
    found, how_to_renew = seeds.differences(printed)
    assert found == "Other hashes than recorded for seeds 8."
    assert "make sim-renew" in how_to_renew
