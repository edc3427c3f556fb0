"""Time zones of the database that comes with the program."""

from __future__ import annotations

import itertools
import struct
from importlib import resources

import pytest

from rota.core.time_zones import ZONE_STEP_S
from rota.engine.time_zones import load_zone, zone_data, zone_names

SINCE = 365 * 24 * 3600


def changes_in_file(name: str) -> list[int]:
    """Reads when the offset changes since 1971, from the file's own table (RFC 9636)."""
    file = resources.files("tzdata") / "zoneinfo"
    for part in name.split("/"):
        file = file / part
    data = file.read_bytes()
    start = 44 + sum(n * w for n, w in zip(_counts(data, 0), (1, 1, 8, 5, 6, 1), strict=True))
    _, _, _, changes, types, _ = _counts(data, start)
    body = start + 44
    times = struct.unpack(f">{changes}q", data[body : body + 8 * changes])
    kinds = data[body + 8 * changes : body + 9 * changes]
    offsets = [struct.unpack(">l", data[body + 9 * changes + 6 * n :][:4])[0] for n in range(types)]
    before = [offsets[0], *(offsets[kind] for kind in kinds)]
    moved = zip(times, before, (offsets[kind] for kind in kinds), strict=False)
    return [at for at, old, new in moved if old != new and at > SINCE]


def _counts(data: bytes, start: int) -> tuple[int, ...]:
    return struct.unpack(">6l", data[start + 20 : start + 44])


def test_no_zone_changes_its_offset_twice_between_two_samples() -> None:
    apart = [
        (two - one, name)
        for name in zone_names()
        for times in [changes_in_file(name)]
        for one, two in itertools.pairwise(times)
    ]
    assert min(apart) > (2 * ZONE_STEP_S, "")


@pytest.mark.parametrize(
    "name", ["Africa/Cairo", "Africa/Casablanca", "America/Recife", "Asia/Gaza"]
)
def test_every_change_of_the_file_is_found(name: str) -> None:
    zone = load_zone(name)
    assert zone is not None
    recorded = [at for at in changes_in_file(name) if at > 2 * SINCE]
    found = [change.at for year in range(1972, 2037) for change in zone.changes(year)]
    # After the last one that is listed the file goes on with a rule.
    assert [at for at in found if at <= recorded[-1]] == [at for at in recorded if at <= found[-1]]


def test_names_that_lead_out_of_the_folder_are_no_zones() -> None:
    for name in (
        "../../etc/passwd",
        "Europe/../UTC",
        "/etc/localtime",
        "Europe",
        "",
        "zones",
        "e\n",
    ):
        assert load_zone(name) is None


def test_every_listed_zone_can_be_loaded_and_is_shared() -> None:
    assert len(zone_names()) > 400
    assert all(load_zone(name) is not None for name in zone_names())
    assert load_zone("Europe/Berlin") is load_zone("Europe/Berlin")
    assert zone_data().startswith("tzdata 2")
