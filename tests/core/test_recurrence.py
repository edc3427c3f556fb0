"""Instants around clock changes, computed by hand from the zones' rules, and by a scan."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.schedule_model import Gap, RepeatedTime
from rota.engine.time_zones import zone_names
from tests.core.calendars import first, instant, moment, short, walk, ways
from tests.example_counts import examples

JUMP, SKIP, SHIFT = {"gap": Gap.JUMP}, {"gap": Gap.SKIP}, {"gap": Gap.SHIFT}
FIRST, SECOND, BOTH = (
    {"fold": RepeatedTime.FIRST},
    {"fold": RepeatedTime.SECOND},
    {"fold": RepeatedTime.BOTH},
)

# Each: zone, expression, rules, after (UTC), and the instants (UTC) that must follow.
BY_HAND: list[tuple[str, str, dict[str, object], str, list[str]]] = [
    # New York: 02:00 EST -> 03:00 EDT at 07:00Z on 8 March 2026; back at 06:00Z on 1 November.
    ("America/New_York", "30 2 * * *", JUMP, "2026-03-07 00:00",
     ["2026-03-07 07:30", "2026-03-08 07:00", "2026-03-09 06:30"]),
    ("America/New_York", "30 2 * * *", SKIP, "2026-03-07 00:00",
     ["2026-03-07 07:30", "2026-03-09 06:30"]),
    ("America/New_York", "30 2 * * *", SHIFT, "2026-03-07 00:00",
     ["2026-03-07 07:30", "2026-03-08 07:30", "2026-03-09 06:30"]),
    ("America/New_York", "*/20 2 * * *", JUMP, "2026-03-08 00:00",
     ["2026-03-08 07:00", "2026-03-09 06:00", "2026-03-09 06:20"]),
    ("America/New_York", "0 2,3 * * *", SHIFT, "2026-03-08 00:00",
     ["2026-03-08 07:00", "2026-03-09 06:00", "2026-03-09 07:00"]),
    ("America/New_York", "30 1 * * *", FIRST, "2026-11-01 00:00",
     ["2026-11-01 05:30", "2026-11-02 06:30"]),
    ("America/New_York", "30 1 * * *", SECOND, "2026-11-01 00:00",
     ["2026-11-01 06:30", "2026-11-02 06:30"]),
    ("America/New_York", "30 1 * * *", BOTH, "2026-11-01 00:00",
     ["2026-11-01 05:30", "2026-11-01 06:30", "2026-11-02 06:30"]),
    ("America/New_York", "0,30 1 * * *", BOTH, "2026-11-01 00:00",
     ["2026-11-01 05:00", "2026-11-01 05:30", "2026-11-01 06:00", "2026-11-01 06:30"]),
    ("America/New_York", "0 * * * *", {}, "2026-11-01 04:30",
     ["2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00"]),
    ("America/New_York", "0 * * * *", SHIFT, "2026-03-08 05:30",
     ["2026-03-08 06:00", "2026-03-08 07:00", "2026-03-08 08:00"]),
    # London: 01:00 GMT -> 02:00 BST at 01:00Z on 29 March 2026; back at 01:00Z on 25 October.
    ("Europe/London", "30 1 * * *", JUMP, "2026-03-28 00:00",
     ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
    ("Europe/London", "30 1 * * *", FIRST, "2026-10-25 00:00",
     ["2026-10-25 00:30", "2026-10-26 01:30"]),
    ("Europe/London", "30 1 * * *", SECOND, "2026-10-25 00:00",
     ["2026-10-25 01:30", "2026-10-26 01:30"]),
    # Dublin keeps the same hours, though its winter time is the one that is "saved".
    ("Europe/Dublin", "30 1 * * *", BOTH, "2026-10-25 00:00",
     ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-26 01:30"]),
    # Berlin: 02:00 -> 03:00 at 01:00Z on 29 March 2026; 03:00 -> 02:00 at 01:00Z on 25 October.
    ("Europe/Berlin", "0 */2 * * *", {}, "2026-03-28 22:30",
     ["2026-03-28 23:00", "2026-03-29 02:00", "2026-03-29 04:00"]),
    ("Europe/Berlin", "0 */2 * * *", {}, "2026-10-24 21:30",
     ["2026-10-24 22:00", "2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 03:00"]),
    # Lord Howe moves by half an hour: 02:00 -> 01:30 at 15:00Z on 4 April 2026 (+11 -> +10:30),
    # 02:00 -> 02:30 at 15:30Z on 3 October (+10:30 -> +11).
    ("Australia/Lord_Howe", "45 1 * * *", FIRST, "2026-04-04 00:00",
     ["2026-04-04 14:45", "2026-04-05 15:15"]),
    ("Australia/Lord_Howe", "45 1 * * *", BOTH, "2026-04-04 00:00",
     ["2026-04-04 14:45", "2026-04-04 15:15", "2026-04-05 15:15"]),
    ("Australia/Lord_Howe", "15 2 * * *", JUMP, "2026-10-03 00:00",
     ["2026-10-03 15:30", "2026-10-04 15:15"]),
    ("Australia/Lord_Howe", "15 2 * * *", SHIFT, "2026-10-03 00:00",
     ["2026-10-03 15:45", "2026-10-04 15:15"]),
    # Sao Paulo has had no changes since 2019; before, midnight itself was skipped and repeated.
    ("America/Sao_Paulo", "0 0 * * *", {}, "2026-10-17 00:00",
     ["2026-10-17 03:00", "2026-10-18 03:00", "2026-10-19 03:00"]),
    ("America/Sao_Paulo", "0 0 * * *", JUMP, "2018-11-03 00:00",
     ["2018-11-03 03:00", "2018-11-04 03:00", "2018-11-05 02:00"]),
    ("America/Sao_Paulo", "30 23 * * *", BOTH, "2019-02-16 12:00",
     ["2019-02-17 01:30", "2019-02-17 02:30", "2019-02-18 02:30"]),
    # Apia skipped the whole of 30 December 2011, at 10:00Z (-10 -> +14).
    ("Pacific/Apia", "0 9 * * *", JUMP, "2011-12-29 00:00",
     ["2011-12-29 19:00", "2011-12-30 10:00", "2011-12-30 19:00"]),
    ("Pacific/Apia", "0 9 * * *", SKIP, "2011-12-29 00:00",
     ["2011-12-29 19:00", "2011-12-30 19:00"]),
    ("Pacific/Apia", "0 0 * * *", JUMP, "2011-12-28 11:00",
     ["2011-12-29 10:00", "2011-12-30 10:00", "2011-12-31 10:00"]),
    # Cairo skips midnight: 24 April 2026 begins at 01:00 (22:00Z on the 23rd).
    ("Africa/Cairo", "0 0 * * *", JUMP, "2026-04-22 12:00",
     ["2026-04-22 22:00", "2026-04-23 22:00", "2026-04-24 21:00"]),
    ("Africa/Cairo", "30 0 * * *", SHIFT, "2026-04-23 12:00",
     ["2026-04-23 22:30", "2026-04-24 21:30"]),
    ("Africa/Cairo", "30 23 * * *", FIRST, "2026-10-29 12:00",
     ["2026-10-29 20:30", "2026-10-30 21:30"]),
    # Casablanca goes back for Ramadan: 03:00 -> 02:00 at 02:00Z on 10 March 2024, and on at 02:00Z
    # on 14 April.
    ("Africa/Casablanca", "30 2 * * *", FIRST, "2024-03-09 12:00",
     ["2024-03-10 01:30", "2024-03-11 02:30"]),
    ("Africa/Casablanca", "30 2 * * *", JUMP, "2024-04-13 12:00",
     ["2024-04-14 02:00", "2024-04-15 01:30"]),
    # Troll moves by two hours: 01:00 -> 03:00 at 01:00Z on 29 March 2026.
    ("Antarctica/Troll", "30 1,2 * * *", JUMP, "2026-03-28 12:00",
     ["2026-03-29 01:00", "2026-03-29 23:30", "2026-03-30 00:30"]),
    ("Antarctica/Troll", "30 1,2 * * *", SHIFT, "2026-03-28 12:00",
     ["2026-03-29 01:30", "2026-03-29 02:30", "2026-03-29 23:30"]),
    ("Antarctica/Troll", "30 1 * * *", BOTH, "2026-10-24 12:00",
     ["2026-10-24 23:30", "2026-10-25 01:30", "2026-10-26 01:30"]),
    # St John's: half an hour off the hour, changes at 05:30Z and 04:30Z.
    ("America/St_Johns", "30 2 * * *", JUMP, "2026-03-08 00:00",
     ["2026-03-08 05:30", "2026-03-09 05:00"]),
    ("America/St_Johns", "30 1 * * *", BOTH, "2026-11-01 00:00",
     ["2026-11-01 04:00", "2026-11-01 05:00", "2026-11-02 05:00"]),
    # Chatham: 03:45 -> 02:45 at 14:00Z on 4 April 2026; 02:45 -> 03:45 at 14:00Z on 26 September.
    ("Pacific/Chatham", "0 3 * * *", SECOND, "2026-04-04 00:00",
     ["2026-04-04 14:15", "2026-04-05 14:15"]),
    ("Pacific/Chatham", "0 3 * * *", JUMP, "2026-09-26 00:00",
     ["2026-09-26 14:00", "2026-09-27 13:15"]),
    # Havana: midnight was skipped on 10 March 2024, and occurred twice on 3 November.
    ("America/Havana", "30 0 * * *", JUMP, "2024-03-10 00:00",
     ["2024-03-10 05:00", "2024-03-11 04:30"]),
    ("America/Havana", "30 0 * * *", FIRST, "2024-11-03 00:00",
     ["2024-11-03 04:30", "2024-11-04 05:30"]),
    # Kathmandu: never changes, and is a quarter of an hour off.
    ("Asia/Kathmandu", "0 6 * * MON", {}, "2026-03-01 00:00",
     ["2026-03-02 00:15", "2026-03-09 00:15"]),
]  # fmt: skip


@pytest.mark.parametrize(("zone", "cron", "rules", "after", "expected"), BY_HAND)
def test_instants_around_clock_changes_are_those_computed_by_hand(
    zone: str, cron: str, rules: dict[str, object], after: str, expected: list[str]
) -> None:
    assert first(cron, zone, after, len(expected), **rules) == expected


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29 00:00"]),
        ("0 0 L * *", "2027-01-31", ["2027-02-28 00:00", "2027-03-31 00:00", "2027-04-30 00:00"]),
        ("0 0 L 2 *", "2027-03-01", ["2028-02-29 00:00", "2029-02-28 00:00"]),
        ("0 0 31 * *", "2026-03-31", ["2026-05-31 00:00", "2026-07-31 00:00", "2026-08-31 00:00"]),
        ("0 12 15,L * *", "2026-02-01", ["2026-02-15 12:00", "2026-02-28 12:00"]),
        ("0 0 12 * FRI", "2026-02-01", ["2026-02-06 00:00", "2026-02-12 00:00"]),
        ("0 0 */10 * MON", "2026-05-01", ["2026-05-11 00:00", "2026-06-01 00:00"]),
        ("0 9 * * FRI-MON", "2026-11-16", ["2026-11-16 09:00", "2026-11-20 09:00"]),
        ("0 22-2/2 * * *", "2026-11-16", ["2026-11-16 02:00", "2026-11-16 22:00"]),
        ("@monthly", "2026-12-15", ["2027-01-01 00:00"]),
        ("0 0 1 1 7", "2026-12-26", ["2027-01-01 00:00", "2027-01-03 00:00"]),
    ],
)  # fmt: skip
def test_leap_days_month_ends_and_weekdays(cron: str, after: str, expected: list[str]) -> None:
    assert first(cron, "UTC", after, len(expected)) == expected


def test_six_fields_have_seconds_first() -> None:
    asked = ways("10,40 59 23 31 12 *", "UTC")
    at = asked.next_after(instant(datetime(2026, 12, 31, 23, 59, 10, tzinfo=UTC)))
    assert at is not None
    assert moment(at) == datetime(2026, 12, 31, 23, 59, 40, tzinfo=UTC)


def test_the_search_for_an_instant_always_ends() -> None:
    assert ways("0 0 1 1 *", "UTC").next_after(instant(datetime(2200, 6, 1, tzinfo=UTC))) is None


fields = st.tuples(
    st.sampled_from(["0", "30", "15,45", "*/20", "*", "59"]),
    st.sampled_from(["*", "*/2", "*/5", "0", "1", "2", "0,1,2,3", "23", "12", "3"]),
    st.sampled_from(["*", "*", "1", "15,28", "*/7"]),
    st.just("*"),
    st.sampled_from(["*", "*", "0", "1,5"]),
).map(" ".join)
rules = st.tuples(st.sampled_from(Gap), st.sampled_from(RepeatedTime))
zones = st.sampled_from(zone_names())
days = st.integers(0, 25 * 365).map(lambda n: datetime(2006, 1, 1, tzinfo=UTC) + timedelta(days=n))


def around_a_change(zone: str, day: datetime) -> datetime:
    """A day before the next change of the clock, where most can go wrong; else the day itself."""
    asked = ways("0 0 * * *", zone).zone
    second = instant(day) // 1000
    changes = asked.changes_between(second, second + 366 * 86_400)
    at = changes[0].at if changes else second
    return datetime.fromtimestamp(at - at % 60, UTC) - timedelta(hours=20)


@given(zone=zones, cron=fields, day=days, chosen=rules)
@settings(max_examples=examples(25, 300), deadline=None)
def test_a_scan_of_every_second_finds_the_same_instants(
    zone: str, cron: str, day: datetime, chosen: tuple[Gap, RepeatedTime]
) -> None:
    start = around_a_change(zone, day)
    end = start + timedelta(hours=44)
    gap, fold = chosen
    asked = ways(cron, zone, gap=gap, fold=fold)
    found = list(asked.between(instant(start), instant(end) - 1))
    slow = walk(cron, asked.zone._rules, (start, end), chosen)
    assert [short(at) for at in found] == [short(at) for at in slow]


@given(zone=zones, cron=fields, day=days, chosen=rules, offset=st.integers(0, 90_000))
@settings(max_examples=examples(25, 300), deadline=None)
def test_the_next_instant_does_not_depend_on_where_the_search_begins(
    zone: str, cron: str, day: datetime, chosen: tuple[Gap, RepeatedTime], offset: int
) -> None:
    gap, fold = chosen
    asked = ways(cron, zone, gap=gap, fold=fold)
    start = instant(around_a_change(zone, day))
    end = start + 2 * 86_400_000
    every = list(asked.between(start, end))
    assert every == sorted(set(every))
    somewhere = start + offset * 1000
    later = [at for at in every if at > somewhere]
    if later:
        assert asked.next_after(somewhere) == later[0]


@given(
    zone=zones,
    minute=st.sampled_from(["0", "30", "15,45"]),
    hour=st.sampled_from(["0", "1", "2", "1,3", "12", "*"]),
    day=days,
)
@settings(max_examples=examples(25, 300), deadline=None)
def test_with_the_defaults_another_library_agrees(
    zone: str, minute: str, hour: str, day: datetime
) -> None:
    start = around_a_change(zone, day)
    ours = ways(f"{minute} {hour} * * *", zone)
    theirs = CronSim(f"{minute} {hour} * * *", start.astimezone(ours.zone._rules))
    at: int | None = instant(start)
    for _ in range(6):
        assert at is not None
        at = ours.next_after(at)
        assert at is not None
        assert short(at) == short(instant(next(theirs).astimezone(UTC)))
