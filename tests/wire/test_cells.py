"""Ids carry their cell, whoever mints them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api.ids import IdMint
from rota.core.ids import execution_id
from rota.core.model import JobId
from rota.wire.formats import cell_tag, is_cell_name, make_cursor, parse_cursor, tag_in

NOW = 1_700_000_000_000


def test_a_cells_tag_is_the_start_of_its_names_sha_256() -> None:
    # printf north | sha256sum | cut -c1-3
    assert cell_tag("north") == "dc3"
    assert cell_tag("") == "000"


@pytest.mark.parametrize("cell", ["", "north", "eu-1"])
def test_ids_of_a_cell_carry_its_tag_rise_and_are_valid(cell: str) -> None:
    mint = IdMint(cell)
    ids = [mint.mint(NOW + tick // 500) for tick in range(2000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert {tag_in(one) for one in ids} == {cell_tag(cell)}
    parsed = [uuid.UUID(one) for one in ids]
    assert {(one.version, one.variant) for one in parsed} == {(7, uuid.RFC_4122)}


def test_ids_rise_although_the_clock_goes_back() -> None:
    mint = IdMint("north")
    ids = [mint.mint(NOW - tick) for tick in range(100)]
    assert ids == sorted(ids)


def test_people_can_tell_ids_apart_by_their_end() -> None:
    mint = IdMint("north")
    assert len({mint.mint(NOW)[-8:] for _ in range(2000)}) > 1990


@given(st.integers(0, 1 << 40), st.integers(1, 1000))
def test_an_execution_is_of_the_cell_of_its_job(now: int, fence: int) -> None:
    job = JobId(IdMint("south").mint(NOW))
    made = execution_id(job, fence, now)
    assert tag_in(made) == cell_tag("south")
    assert uuid.UUID(made).version == 7
    assert made != execution_id(job, fence + 1, now)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "press-9",
        "019a85c2-6b1e-4c3a-9f00-5e2d8a41c7b3",
        "019a85c2-6b1e-7c3a-9f00-5e2d8a41",
    ],
)
def test_text_that_is_not_an_id_of_a_cell_has_no_tag(text: str) -> None:
    assert tag_in(text) is None


def test_capital_letters_in_an_id_make_no_difference() -> None:
    one = IdMint("north").mint(NOW)
    assert tag_in(one.upper()) == tag_in(one)


@pytest.mark.parametrize(
    ("name", "good"),
    [
        *((name, True) for name in ("a", "eu-1", "0", "a" * 32)),
        *((name, False) for name in ("", "A", "a b", "a\n", "-a", "a" * 33, "a.b", "a=b")),
    ],
)
def test_a_cell_name_follows_the_rules_of_host_names(name: str, *, good: bool) -> None:
    assert is_cell_name(name) is good


@given(st.text(max_size=100))
def test_a_cursor_leads_back_to_what_it_was_made_of(last: str) -> None:
    assert parse_cursor(make_cursor(last), 1000) == last
