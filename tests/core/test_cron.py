"""Cron expressions: the times they stand for, and the refusals of invalid ones."""

from __future__ import annotations

import pytest

from rota.core.schedules.cron import NICKNAMES, CronError, parse_cron


@pytest.mark.parametrize(
    ("text", "field", "numbers"),
    [
        ("5 * * * *", "minutes", (5,)),
        ("1-5 * * * *", "minutes", (1, 2, 3, 4, 5)),
        ("50-10/10 * * * *", "minutes", (0, 10, 50)),
        ("*/20 * * * *", "minutes", (0, 20, 40)),
        ("5/20 * * * *", "minutes", (5, 25, 45)),
        ("7,3,3,5-6 * * * *", "minutes", (3, 5, 6, 7)),
        ("0 22-2 * * *", "hours", (0, 1, 2, 22, 23)),
        ("*/30 0 0 1 1 *", "seconds", (0, 30)),
        ("0 0 * * *", "seconds", (0,)),
    ],
)
def test_fields_stand_for_numbers(text: str, field: str, numbers: tuple[int, ...]) -> None:
    assert getattr(parse_cron(text), field) == numbers


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [("MON-FRI", 0b0111110), ("fri-mon", 0b1100011), ("0", 1), ("7", 1), ("SUN,SAT", 0b1000001),
     ("5-7", 0b1100001), ("*", 0b1111111), ("*/2", 0b1010101), ("?", 0b1111111)],
)  # fmt: skip
def test_weekdays_have_names_and_sunday_two_numbers(text: str, weekdays: int) -> None:
    assert parse_cron(f"0 0 * * {text}").weekdays == weekdays


def test_months_have_names() -> None:
    assert parse_cron("0 0 1 jan,DEC *").months == 1 << 1 | 1 << 12


def test_only_a_wildcard_hour_follows_real_time() -> None:
    assert parse_cron("* * * * *").follows_real_time
    assert parse_cron("0 */2 * * *").follows_real_time
    assert not parse_cron("*/5 2 * * *").follows_real_time
    assert not parse_cron("0 0-23 * * *").follows_real_time


def test_two_kinds_of_day_that_are_both_named_mean_either() -> None:
    assert parse_cron("0 0 13 * FRI").either
    assert not parse_cron("0 0 */2 * FRI").either
    assert not parse_cron("0 0 13 * *").either


@pytest.mark.parametrize("word", NICKNAMES)
def test_words_stand_for_expressions(word: str) -> None:
    assert parse_cron(word.upper()) == parse_cron(NICKNAMES[word])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields: write five"),
        ("soon", "1 field: write five"),
        ("* * * * * * *", "7 fields"),
        ("60 * * * *", "minute: 60 is not from 0 to 59"),
        ("* 24 * * *", "hour: 24 is not from 0 to 23"),
        ("* * 0 * *", "day of month: 0 is not from 1 to 31"),
        ("* * * 13 *", "month: 13"),
        ("* * * * 8", "day of week: 8"),
        ("*/0 * * * *", "minute: a step of 0"),
        ("*/60 * * * *", "use an interval"),
        ("*/x * * * *", "no number after the slash"),
        ("1,,2 * * * *", "minute: '' is not a number"),
        ("a * * * *", "minute: 'a' is not a number"),
        ("-5 * * * *", "minute: '' is not a number"),
        ("* * * * MON#2", "MON#2"),
        ("* * 15W * *", "15W"),
        ("* * * FOO *", "JAN-DEC"),
        ("² * * * *", "is not a number"),
        ("@reboot", "@yearly"),
        ("0 0 30 2 *", "FEB has no day 30"),
        ("0 0 31 4,6 *", "APR, JUN has no day 31"),
        ("1," * 200 + "1 * * * *", "longer than 255"),
        ("9" * 100 + " * * * *", "is not from 0 to 59"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(CronError) as refused:
        parse_cron(text)
    assert words in str(refused.value)


def test_a_day_that_either_kind_allows_is_possible() -> None:
    assert parse_cron("0 0 31 2 MON").either
