"""Keys are looked up at once by one caller, and together by many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rota.core.model import KeyRecord
from rota.store.batched_lookup import FoundKeys, KeyLookup
from rota.store.limits import KEYS_PER_LOOKUP


class Tables:
    """Answers when a test lets it."""

    def __init__(self) -> None:
        self.looks: list[list[str]] = []
        self.open = asyncio.Event()
        self.broken = False

    async def read(self, keys: Sequence[str]) -> FoundKeys:
        self.looks.append(list(keys))
        await self.open.wait()
        if self.broken:
            raise OSError("no disk")
        return FoundKeys(None, {key: KeyRecord(key, "print", b"", 1) for key in keys})


async def asked(lookup: KeyLookup, *keys: str) -> list[asyncio.Task[KeyRecord | None]]:
    """Callers in a row, each of whom has asked."""

    async def look(key: str) -> KeyRecord | None:
        return (await lookup.look(key)).record

    tasks = [asyncio.create_task(look(key)) for key in keys]
    await asyncio.sleep(0)
    return tasks


async def test_one_caller_is_served_at_once_and_many_by_shared_lookups_of_a_bounded_size() -> None:
    tables = Tables()
    lookup = KeyLookup(tables.read)
    tasks = await asked(lookup, *(str(number) for number in range(KEYS_PER_LOOKUP + 3)))
    tables.open.set()
    found = await asyncio.gather(*tasks)
    assert [record.key for record in found if record] == [str(n) for n in range(len(tasks))]
    assert [len(look) for look in tables.looks] == [1, KEYS_PER_LOOKUP, 2]


async def test_a_caller_that_is_cancelled_takes_no_answer_from_the_others() -> None:
    tables = Tables()
    lookup = KeyLookup(tables.read)
    first, second, third = await asked(lookup, "a", "b", "c")
    first.cancel()
    second.cancel()
    tables.open.set()
    record = await third
    assert record is not None
    assert record.key == "c"


async def test_an_error_reaches_all_callers_of_a_lookup_and_none_after() -> None:
    tables = Tables()
    lookup = KeyLookup(tables.read)
    tasks = await asked(lookup, "a", "b", "c")
    tables.broken = True
    tables.open.set()
    for task in tasks:
        with pytest.raises(OSError, match="no disk"):
            await task
    tables.broken = False
    (later,) = await asked(lookup, "d")
    assert await later is not None
