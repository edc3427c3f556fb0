"""Conversion of submitted jobs, and the ids of batches and keys."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from rota.api.convert.jobs import JobBatch, terms_of
from rota.api.ids import IdMint, KeyedMint, key_time
from rota.core.commands import Key
from rota.wire.formats import dec_hook
from rota.wire.jobs import BatchSpec

PLAIN: dict[str, Any] = {"name": "report", "task": {"kind": "command", "argv": ["true"]}}
OTHERS: list[dict[str, Any]] = [
    {"name": "invoice"},
    {"queue": "bulk"},
    {"tenant": "acme"},
    {"priority": 7},
    {"requirements": {"cpu": 2}},
    {"requirements": {"capabilities": ["gpu"]}},
    {"retry": {"max_attempts": 3}},
    {"retry": {"delay": "2s"}},
    {"semantics": "at_most_once"},
    {"timeout": "5s"},
    {"expected_runtime": "5s"},
    {"preemptible": True},
    {"affinity": {"require": {"zone": "a"}}},
    {"gang": {"size": 2}},
    {"task": {"kind": "container", "image": "busybox", "argv": ["true"]}},
    {"task": None},
]


def _batch(*jobs: dict[str, Any]) -> tuple[BatchSpec, JobBatch]:
    raw = msgspec.json.encode({"jobs": jobs})
    spec = msgspec.json.decode(raw, type=BatchSpec, dec_hook=dec_hook)
    return spec, JobBatch(spec.jobs, IdMint(), 1)


def test_alike_jobs_of_a_batch_share_their_terms_whatever_their_payload() -> None:
    _, batch = _batch({**PLAIN, "payload": {"a": 1}}, {**PLAIN, "labels": {"a": "b"}}, PLAIN)
    first, second, third = (new.spec for new in batch.new_jobs())
    assert first.terms is second.terms is third.terms
    assert (first.payload, second.labels) == (b'{"a":1}', (("a", "b"),))


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_a_job_that_differs_from_the_one_before_has_terms_of_its_own(other: dict[str, Any]) -> None:
    sent, batch = _batch(PLAIN, {**PLAIN, **other}, PLAIN)
    terms = [new.spec.terms for new in batch.new_jobs()]
    assert terms == [terms_of(job) for job in sent.jobs]
    assert terms[0] != terms[1]


def test_ids_rise_and_are_uuids_of_their_time_and_cell() -> None:
    mint = IdMint("blue")
    now = 0x0199_ABCD_EF01
    ids = [mint.mint(now) for _ in range(1000)] + [mint.mint(now + 1)]
    assert ids == sorted(ids)
    assert len(dict.fromkeys(ids)) == len(ids)
    for text in ids[:-1]:
        assert (text[:13], text[14], text[19] in "89ab") == ("0199abcd-ef01", "7", True)
        assert [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]
    assert ids[-1].startswith("0199abcd-ef02-7")


@pytest.mark.parametrize("counts", [(0,), (1,), (3, 700, 1), (255, 256, 257, 1000)], ids=str)
def test_many_ids_at_once_equal_ids_one_by_one(counts: tuple[int, ...]) -> None:
    one_by_one, at_once = (IdMint("blue", Random(7).randbytes) for _ in range(2))
    for now, count in enumerate(counts, 0x0199_ABCD_EF01):
        ids = at_once.mint_many(now, count)
        assert ids == [one_by_one.mint(now) for _ in range(count)]
    assert at_once.mint(0) == one_by_one.mint(0)


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
