"""Durations, sizes and times as people write them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.wire.formats import (
    ByteSize,
    Deadline,
    Duration,
    dec_hook,
    encode,
    from_instant,
    milli,
    number,
    parse_deadline,
    parse_duration,
    parse_size,
    to_instant,
)
from rota.wire.limits import BYTES_MAX, DURATION_MS_MAX


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (0, 0),
        (1.5, 1_500),
        ("90s", 90_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        (" 2 h ", 7_200_000),
        ("250ms", 250),
        ("1w", 604_800_000),
        ("0.5d", 43_200_000),
        ("7", 7_000),
    ],
)
def test_a_duration_is_read_in_every_notation(written: object, ms: int) -> None:
    assert parse_duration(written) == Duration(ms)


@pytest.mark.parametrize(
    "written", ["", "soon", "5 minutes", "5m!", "-1s", -1, 1e308, True, None, [], "9" * 100, "1e3s"]
)
def test_text_that_is_not_a_duration_is_refused_with_a_hint(written: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (0, 0),
        (1024, 1024),
        ("512MiB", 512 << 20),
        ("2GB", 2_000_000_000),
        ("1.5 KiB", 1536),
        ("10b", 10),
        ("3k", 3000),
        ("1TiB", 1 << 40),
    ],
)
def test_a_size_is_read_in_every_notation(written: object, size: int) -> None:
    assert parse_size(written) == ByteSize(size)


@pytest.mark.parametrize(
    "written", ["", "big", "5 XB", -1, "-5MiB", True, None, BYTES_MAX * 2, "9" * 100]
)
def test_text_that_is_not_a_size_is_refused_with_a_hint(written: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(written)


@given(st.text(max_size=80))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert 0 <= parse_duration(text).ms <= DURATION_MS_MAX


@given(st.text(max_size=80))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert 0 <= parse_size(text).bytes <= BYTES_MAX


@given(st.integers(min_value=0, max_value=10**9))
def test_thousandths_come_back_as_they_were_written(amount: int) -> None:
    assert milli(number(amount)) == amount


def test_a_tiny_amount_is_not_rounded_to_zero() -> None:
    assert (milli(0.0), milli(0.0001), milli(0.0015), milli(0.1)) == (0, 1, 2, 100)


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_a_time_that_is_answered_can_be_sent_back(instant: int) -> None:
    text = from_instant(instant)
    assert text.endswith("Z")
    assert to_instant(datetime.fromisoformat(text)) == instant


def test_an_offset_does_not_change_the_moment() -> None:
    berlin = datetime(2026, 7, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    assert to_instant(berlin) == to_instant(datetime(2026, 7, 1, 10, 0, tzinfo=UTC))


def test_a_wrong_unit_names_the_field_it_stands_in() -> None:
    class Body(msgspec.Struct):
        timeout: Duration

    with pytest.raises(msgspec.ValidationError, match=r"\$\.timeout"):
        msgspec.json.decode(b'{"timeout": "soon"}', type=Body, dec_hook=dec_hook)
    assert encode(Body(Duration(1500))) == b'{"timeout":1.5}'


def test_a_deadline_is_a_time_or_a_length() -> None:
    at = datetime(2026, 1, 31, 9, tzinfo=UTC)
    assert parse_deadline("2026-01-31T10:00:00+01:00") == Deadline(at=at)
    assert parse_deadline("1h30m") == Deadline(within=Duration(5_400_000))
    assert parse_deadline(90) == Deadline(within=Duration(90_000))
    for deadline in (Deadline(at=at), Deadline(within=Duration(90_000))):
        assert msgspec.json.decode(encode(deadline), type=Deadline, dec_hook=dec_hook) == deadline


@pytest.mark.parametrize("written", ["soon", 0, "0s", "2026-01-31T09:00:00", "2026-99-31", None])
def test_text_that_is_not_a_deadline_is_refused_with_a_hint(written: object) -> None:
    with pytest.raises(ValueError, match=r"duration|time|deadline"):
        parse_deadline(written)
