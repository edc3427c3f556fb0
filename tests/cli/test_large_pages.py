"""What a process keeps lies on large pages, where the system has them and they are full."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.start import large_pages, loops
from rota.cli.start.large_pages import SIZE, gather
from rota.cli.start.loops import run_on_quick_loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nobody else has such a call")

SMALL = mmap.PAGESIZE


def in_large_pages() -> int:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")) * 1024


def address_of(place: mmap.mmap) -> int:
    """Of the first large page that is all within it."""
    first = ctypes.addressof(ctypes.c_char.from_buffer(place))
    return -(-first // SIZE) * SIZE


def touch(place: mmap.mmap, share: float) -> None:
    """Uses so much of every large page of it."""
    for at in range(0, len(place), SMALL):
        if at % SIZE < SIZE * share:
            place[at] = at // SMALL % 255 + 1


def private(pages: int) -> mmap.mmap:
    return mmap.mmap(-1, pages * SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def test_what_is_gathered_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    place = private(4)
    touch(place, 1)
    before = bytes(place)
    span = (address_of(place), address_of(place) + 3 * SIZE)
    monkeypatch.setattr(large_pages, "_private_ranges", lambda: iter([span]))
    made = gather()
    if not made:
        pytest.skip("this system has no large pages to give")
    assert made == 3
    assert in_large_pages() >= made * SIZE
    assert bytes(place) == before


def test_pages_on_end_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [0, 1, 2, 5, 7, 8]
    monkeypatch.setattr(large_pages, "_worthwhile", lambda: iter([at * SIZE for at in pages]))
    asked = [(first // SIZE, length // SIZE) for first, length in large_pages._stretches()]
    assert asked == [(0, 3), (5, 1), (7, 2)]


def test_a_page_that_is_mostly_empty_is_not_made_large(monkeypatch: pytest.MonkeyPatch) -> None:
    full, empty = private(3), private(3)
    touch(full, 1)
    touch(empty, 0.5)
    ranges = [(address_of(one), address_of(one) + SIZE) for one in (full, empty)]
    monkeypatch.setattr(large_pages, "_private_ranges", lambda: iter(ranges))
    assert list(large_pages._worthwhile()) == [address_of(full)]


@pytest.mark.parametrize(
    ("enabled", "size"), [("always madvise [never]", SIZE), ("[always] madvise never", 32 * SIZE)]
)
def test_nothing_is_asked_for_where_it_is_not_wanted_or_too_large(
    enabled: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "enabled").write_text(f"{enabled}\n")
    (tmp_path / "hpage_pmd_size").write_text(f"{size}\n")
    monkeypatch.setattr(large_pages, "_SETTINGS", tmp_path)
    touch(place := private(4), 1)
    assert gather() == 0
    assert place[0] == 1


def test_a_system_that_says_nothing_of_them_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_pages, "_SETTINGS", tmp_path)
    assert gather() == 0


def test_a_system_that_hides_where_memory_is_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden() -> Iterator[tuple[int, int]]:
        raise PermissionError("/proc/self/maps")
        yield

    monkeypatch.setattr(large_pages, "_are_to_be_had", lambda: True)
    monkeypatch.setattr(large_pages, "_private_ranges", hidden)
    assert gather() == 0


def test_a_process_that_stays_looks_again_and_again_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(loops, "SETTLED_S", 0.0)
    monkeypatch.setattr(loops, "GATHER_S", 0.001)
    monkeypatch.setattr(loops, "gather", lambda: looks.append(threading.current_thread().name))

    async def stay() -> None:
        async with asyncio.timeout(30):
            while len(looks) < 3:  # noqa: ASYNC110  (a thread says so, not the loop)
                await asyncio.sleep(0.001)

    usual = gc.get_threshold()
    try:
        run_on_quick_loop(stay())
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
    assert set(looks) == {"rota-large-pages"}
