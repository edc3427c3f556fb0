"""Ids of jobs, of batches and of keys."""

from __future__ import annotations

import pytest

from rota.api.ids import IdMint, KeyedMint, key_time
from rota.core.commands import Key


def test_ids_rise_and_are_uuids_of_their_time_and_cell() -> None:
    mint = IdMint("blue")
    now = 0x0199_ABCD_EF01
    ids = [mint.mint(now)]
    for count in (1, 255, 0, 257, 487):
        ids += mint.mint_many(now, count)
    ids += [mint.mint(now), mint.mint(now + 1)]
    assert ids == sorted(ids)
    assert len(dict.fromkeys(ids)) == len(ids)
    for text in ids[:-1]:
        assert (text[:13], text[14], text[19] in "89ab") == ("0199abcd-ef01", "7", True)
        assert [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]
    assert ids[-1].startswith("0199abcd-ef02-7")


@pytest.mark.slow
def test_ids_continue_in_the_next_millisecond_when_one_is_used_up() -> None:
    # Each step is as long as it can be, from as far as a millisecond can begin.
    mint, now = IdMint("blue", lambda count: b"\xff" * count), 0x0199_ABCD_EF01
    ids = [one for _ in range(3) for one in mint.mint_many(now, 1_000_000)]
    assert ids == sorted(ids)
    assert ids[0].startswith("0199abcd-ef01-7")
    assert ids[-1].startswith("0199abcd-ef02-7")


def test_ids_of_one_key_and_time_are_the_same_wherever_they_are_made() -> None:
    key, now = Key(key="k", fingerprint="f"), 0x0199_ABCD_EF01
    ids, again = ([mint.mint(now + late) for late in range(600)] for mint in _mints(key, now))
    assert ids == again == sorted(ids)
    assert len(dict.fromkeys(ids)) == len(ids)
    assert all(text.startswith("0199abcd-ef01-7") for text in ids)
    for other in (Key(key="l", fingerprint="f"), Key(key="k", fingerprint="g")):
        assert KeyedMint("blue", other, now).mint(now) not in ids


def _mints(key: Key, at: int) -> tuple[KeyedMint, KeyedMint]:
    return KeyedMint("blue", key, at), KeyedMint("blue", key, at)


@pytest.mark.parametrize(
    ("key", "at"),
    [
        ("0199abcd-ef01-7abc-8abc-0123456789ab", 0x0199_ABCD_EF01),
        ("0199ABCD-EF01-7abc-8abc-0123456789ab", 0x0199_ABCD_EF01),
        ("0199abcd-0001-7abc-8abc-0123456789ab", None),
        ("0199abcd-ef01-4abc-8abc-0123456789ab", None),
        ("0199abcd-ef0x-7abc-8abc-0123456789ab", None),
        ("0199abcd-ef01-7abc-8abc-0123456789a-", None),
        ("order-17", None),
        ("", None),
    ],
)
def test_a_key_of_just_now_says_when_it_was_made(key: str, at: int | None) -> None:
    assert key_time(key, 0x0199_ABCD_EF01 + 1_000) == at
