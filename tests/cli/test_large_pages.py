"""A process moves its memory onto large pages, where the system has them and they are full."""

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

from rota.processes.event_loop import (
    SIZE,
    MemoryUpkeep,
    filled_pages,
    run_event_loop,
    use_large_pages,
)

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


def test_memory_keeps_its_contents_when_it_is_moved() -> None:
    place = private(4)
    touch(place, 1)
    before = bytes(place)
    span = (address_of(place), address_of(place) + 3 * SIZE)
    made = use_large_pages(ranges=lambda: [span])
    if not made:
        pytest.skip("this system has no large pages to give")
    assert made == 3
    assert in_large_pages() >= made * SIZE
    assert bytes(place) == before


def test_a_page_that_is_mostly_empty_is_not_made_large() -> None:
    full, empty = private(3), private(3)
    touch(full, 1)
    touch(empty, 0.5)
    ranges = [(address_of(one), address_of(one) + SIZE) for one in (full, empty)]
    assert list(filled_pages(ranges)) == [address_of(full)]


@pytest.mark.parametrize(
    ("enabled", "size"), [("always madvise [never]", SIZE), ("[always] madvise never", 32 * SIZE)]
)
def test_large_pages_that_are_switched_off_or_too_large_are_not_used(
    enabled: str, size: int, tmp_path: Path
) -> None:
    (tmp_path / "enabled").write_text(f"{enabled}\n")
    (tmp_path / "hpage_pmd_size").write_text(f"{size}\n")
    touch(place := private(4), 1)
    assert use_large_pages(tmp_path) == 0
    assert place[0] == 1


def test_a_system_without_settings_for_large_pages_has_none(tmp_path: Path) -> None:
    assert use_large_pages(tmp_path) == 0


def test_a_container_that_hides_the_memory_map_gets_no_large_pages(tmp_path: Path) -> None:
    def hidden() -> Iterator[tuple[int, int]]:
        raise PermissionError("/proc/self/maps")
        yield

    (tmp_path / "enabled").write_text("[always] madvise never\n")
    (tmp_path / "hpage_pmd_size").write_text(f"{SIZE}\n")
    assert use_large_pages(tmp_path, hidden) == 0


def test_a_long_running_process_moves_its_memory_again_and_again_in_a_thread() -> None:
    moves: list[str] = []
    upkeep = MemoryUpkeep(0.0, 0.001, lambda: moves.append(threading.current_thread().name))

    async def stay() -> None:
        async with asyncio.timeout(30):
            while len(moves) < 3:  # noqa: ASYNC110  (a thread says so, not the loop)
                await asyncio.sleep(0.001)

    usual = gc.get_threshold()
    try:
        run_event_loop(stay(), upkeep)
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
    assert set(moves) == {"rota-large-pages"}
