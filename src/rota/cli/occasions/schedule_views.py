"""Says which columns and facts of a schedule and its ledger people look at."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.cli.render import Cell, Column, Row, Styled
from rota.cli.text import local, short, span
from rota.cli.views import task_line
from rota.core.records.zones import local_text
from rota.engine.zones import load_zone
from rota.wire.schedules import ForeseenView, OccurrenceView, ScheduleView

SCHEDULE_COLUMNS = (
    Column("ID"),
    Column("NAME", cut=True),
    Column("STATUS"),
    Column("WHEN", cut=True),
    Column("ZONE", spare=3, cut=True),
    Column("NEXT", spare=1),
    Column("LAST", spare=2),
    Column("RUNNING", spare=4, right=True),
    Column("OWNER", spare=5, cut=True),
)
FORESEEN_COLUMNS = (Column("LOCAL"), Column("UTC", spare=1), Column("NOTE", spare=2, cut=True))
LEDGER_COLUMNS = (
    Column("INSTANT"),
    Column("OUTCOME"),
    Column("LATE", spare=2, right=True),
    Column("JOB"),
    Column("CAUSE", spare=3),
    Column("WHY", spare=1, cut=True),
)
_STYLES = {
    "fired": "green",
    "late": "yellow",
    "caught_up": "yellow",
    "skipped": "red",
    "active": "green",
    "paused": "yellow",
    "ended": "dim",
}


def _styled(word: str) -> Styled:
    return Styled(word, _STYLES.get(word, ""))


def when_text(schedule: ScheduleView) -> str:
    """Its times in a few words."""
    if schedule.cron is not None:
        return schedule.cron
    if schedule.interval is not None:
        finish = " after each finish" if schedule.origin == "finish" else ""
        return f"every {span(schedule.interval)}{finish}"
    return f"once, {local(schedule.at)}"


def schedule_row(schedule: ScheduleView) -> Row:
    """A schedule in a list."""
    last = schedule.last
    return (
        short(schedule.schedule_id),
        schedule.name,
        _styled(schedule.status),
        when_text(schedule),
        schedule.timezone,
        local(schedule.next_at),
        "-" if last is None else _styled(last.outcome),
        str(len(schedule.running)),
        schedule.owner or "",
    )


def schedule_facts(schedule: ScheduleView) -> list[tuple[str, Cell]]:
    """Everything worth knowing about a schedule; what says nothing is left out."""
    window = f", back to {span(schedule.catch_up_window)}"
    facts: list[tuple[str, Cell | None]] = [
        ("id", schedule.schedule_id),
        ("name", schedule.name),
        ("status", _styled(schedule.status)),
        ("trouble", Styled(schedule.trouble, "red") if schedule.trouble else None),
        ("when", when_text(schedule)),
        ("zone", schedule.timezone),
        ("clock changes", _dst(schedule)),
        ("starts", local(schedule.starts_at) if schedule.starts_at else None),
        ("ends", local(schedule.ends_at) if schedule.ends_at else None),
        ("jitter", span(schedule.jitter) if schedule.jitter else None),
        ("holidays", _holidays(schedule)),
        ("catch up", schedule.catch_up + (window if schedule.catch_up != "none" else "")),
        ("overlap", _overlap(schedule)),
        ("runs", task_line(str(schedule.job["name"]), msgspec.json.encode(schedule.job["task"]))),
        ("queue", str(schedule.job["queue"])),
        ("running", ", ".join(schedule.running[:5]) or None),
        ("owner", schedule.owner),
        ("revision", f"{schedule.revision}, since {local(schedule.updated_at)}"),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _dst(schedule: ScheduleView) -> str | None:
    if schedule.cron is None or schedule.timezone == "UTC":
        return None
    return f"left out: {schedule.dst.gap}; twice: {schedule.dst.overlap}"


def _holidays(schedule: ScheduleView) -> str | None:
    if not schedule.calendars:
        return None
    return f"{schedule.on_holiday} those of {', '.join(schedule.calendars)}"


def _overlap(schedule: ScheduleView) -> str:
    if schedule.overlap == "allow":
        return "allow"
    return f"{schedule.overlap}, {schedule.max_concurrency} at once"


def foreseen_row(one: ForeseenView) -> Row:
    """An instant to come."""
    return (
        _with_weekday(one.local),
        one.at.replace(".000Z", "Z"),
        Styled(one.note, "yellow") if one.note else "",
    )


def ledger_row(one: OccurrenceView, zone: str) -> Row:
    """An instant that was decided, on the wall clock of its schedule."""
    until = f" … {_shown(one.until, zone)}" if one.until else ""
    return (
        _shown(one.at, zone) + until,
        _styled(one.outcome),
        span(one.late) if one.late >= 1 else "-",
        short(one.job_id),
        one.cause,
        one.message or "",
    )


def _shown(at: str, zone_name: str) -> str:
    """`Sun 2026-03-08 03:00:00 -04:00`; in UTC where the zone is not known here."""
    zone = load_zone(zone_name) or load_zone("UTC")
    assert zone is not None
    ms = round(datetime.fromisoformat(at).timestamp() * 1000)
    return _with_weekday(local_text(zone, ms))


def _with_weekday(local: str) -> str:
    """A local time as people write it; parts of a second only where there are any."""
    moment = datetime.fromisoformat(local)
    fraction = f".{moment.microsecond // 1000:03}" if moment.microsecond else ""
    return f"{moment:%a %Y-%m-%d %H:%M:%S}{fraction} {local[-6:]}"
