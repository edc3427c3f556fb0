"""Commands about schedules: list, create, change, run, backfill, history, deploy; calendars; and
previews of a cron expression, which ask no server.
"""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import msgspec

from rota.cli import id_lookup
from rota.cli.connect import answer, connected
from rota.cli.id_lookup import by_name_or_id
from rota.cli.nouns import Noun, Verb, listing, removed
from rota.cli.options import (
    confirm,
    dst_options,
    json_option,
    past,
    past_iso,
    read_json,
    without_none,
)
from rota.cli.problems import Failure
from rota.cli.render import (
    Column,
    Columns,
    Facts,
    Styled,
    local,
    now_ms,
    plain,
    plural,
    print_object,
    short,
    show_facts,
    show_table,
    span,
)
from rota.cli.schedule_spec import (
    draw_deployed,
    job_of,
    job_options,
    load_app,
    timing_of,
    timing_options,
)
from rota.cli.views import PREVIEW_COLUMNS, task_line, with_weekday
from rota.core.errors import Invalid
from rota.core.schedule_model import Gap, RepeatedTime, Timetable
from rota.core.schedules.recurrence import Recurrence, check_timetable, preview
from rota.core.time_zones import Zone, local_text
from rota.engine.time_zones import load_zone, zone_data, zone_names
from rota.sdk import Client, LedgerSearch
from rota.sdk.methods import schedule_calls as calls
from rota.wire.formats import from_instant
from rota.wire.queues import CountAnswer
from rota.wire.schedules import (
    BackfillAnswer,
    CalendarPage,
    CalendarView,
    ForeseenView,
    OccurrenceView,
    PreviewAnswer,
    SchedulePage,
    ScheduleView,
)


@click.command()
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Time zone.")
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--after", type=past, metavar="TIME", help="Only times after this; default: now.")
@dst_options
@json_option
def cron(expression: str, *, count: int, as_json: bool, **given: Any) -> None:
    """Print the next times of a cron expression, with clock changes marked.

    \b
      rota cron '30 2 * * *' --tz America/New_York
      rota cron '*/15 9-17 * * MON-FRI' --tz Europe/Berlin -n 20
    """
    table = Timetable(
        cron=expression,
        timezone=given["tz"],
        gap=Gap(given["gap"] or "jump"),
        fold=RepeatedTime(given["fold"] or "first"),
    )
    try:
        check_timetable(table)
    except Invalid as refusal:
        raise Failure(refusal.detail) from None
    ways = Recurrence(table, _zone(given["tz"]), {}, 0)
    found = preview(ways, _instant(given["after"]), count)
    items = [ForeseenView(from_instant(one.at), one.local, one.note or None) for one in found]
    if as_json:
        print_object(PreviewAnswer(items))
        return
    show_table(PREVIEW_COLUMNS, items, empty="no further times")
    click.echo(f"({zone_data()})", err=True)


def _zone(name: str) -> Zone:
    zone = load_zone(name)
    if zone is None:
        near = get_close_matches(name, zone_names(), 1, 0.6)
        guess = f" Did you mean {near[0]}?" if near else ""
        raise Failure(f"there is no time zone {plain(name)!r}.{guess}")
    return zone


def _instant(after: datetime | None) -> int:
    return now_ms() if after is None else round(after.timestamp() * 1000)


LEDGER_SHOWN = 20
NEXT_SHOWN = 5
_STYLES = {
    "fired": "green",
    "late": "yellow",
    "caught_up": "yellow",
    "skipped": "red",
    "active": "green",
    "paused": "yellow",
    "ended": "dim",
}
SCHEDULE_COLUMNS: Columns[ScheduleView] = (
    Column("ID", lambda one: short(one.schedule_id)),
    Column("NAME", lambda one: one.name, cut=True),
    Column("STATUS", lambda one: _styled(one.status)),
    Column("WHEN", lambda one: _when(one), cut=True),
    Column("ZONE", lambda one: one.timezone, spare=3, cut=True),
    Column("NEXT", lambda one: local(one.next_at), spare=1),
    Column("LAST", lambda one: "-" if one.last is None else _styled(one.last.outcome), spare=2),
    Column("RUNNING", lambda one: str(len(one.running)), spare=4, right=True),
    Column("OWNER", lambda one: one.owner or "", spare=5, cut=True),
)


def _ledger_columns(zone: str) -> Columns[OccurrenceView]:
    """Shows instants on the wall clock of their schedule."""
    return (
        Column("TIME", lambda one: _instants(one, zone)),
        Column("OUTCOME", lambda one: _styled(one.outcome)),
        Column("LATE", lambda one: span(one.late) if one.late >= 1 else "-", spare=2, right=True),
        Column("JOB", lambda one: short(one.job_id)),
        Column("CAUSE", lambda one: one.cause, spare=3),
        Column("WHY", lambda one: one.message or "", spare=1, cut=True),
    )


def _styled(word: str) -> Styled:
    return Styled(word, _STYLES.get(word, ""))


def _when(schedule: ScheduleView) -> str:
    if schedule.cron is not None:
        return schedule.cron
    if schedule.interval is not None:
        finish = " after each finish" if schedule.origin == "finish" else ""
        return f"every {span(schedule.interval)}{finish}"
    return f"once, {local(schedule.at)}"


def _facts(schedule: ScheduleView) -> Facts:
    window = f", back to {span(schedule.catch_up_window)}"
    return [
        ("id", schedule.schedule_id),
        ("name", schedule.name),
        ("status", _styled(schedule.status)),
        ("trouble", Styled(schedule.trouble, "red") if schedule.trouble else None),
        ("when", _when(schedule)),
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


def _dst(schedule: ScheduleView) -> str | None:
    if schedule.cron is None or schedule.timezone == "UTC":
        return None
    return f"gap: {schedule.dst.gap}; overlap: {schedule.dst.overlap}"


def _holidays(schedule: ScheduleView) -> str | None:
    if not schedule.calendars:
        return None
    return f"{schedule.on_holiday} those of {', '.join(schedule.calendars)}"


def _overlap(schedule: ScheduleView) -> str:
    if schedule.overlap == "allow":
        return "allow"
    return f"{schedule.overlap}, {schedule.max_concurrency} at once"


def _instants(one: OccurrenceView, zone: str) -> str:
    until = f" … {_shown(one.until, zone)}" if one.until else ""
    return _shown(one.at, zone) + until


def _shown(at: str, zone_name: str) -> str:
    """Writes `Sun 2026-03-08 03:00:00 -04:00`; in UTC where the zone is not known here."""
    zone = load_zone(zone_name) or load_zone("UTC")
    assert zone is not None
    ms = round(datetime.fromisoformat(at).timestamp() * 1000)
    return with_weekday(local_text(zone, ms))


def _find(client: Client, typed: str) -> ScheduleView:
    return by_name_or_id("schedule", typed, client.schedules, lambda one: one.schedule_id)


def _draw_list(page: SchedulePage) -> None:
    show_table(SCHEDULE_COLUMNS, page.items, empty="no schedules yet")


def _draw(schedule: ScheduleView) -> None:
    show_facts(_facts(schedule))


def _history(client: Client, schedule: ScheduleView, *, limit: int, **given: Any) -> dict[str, Any]:
    search = LedgerSearch(limit=limit, **given)
    ledger = client.occurrences(schedule.schedule_id, search)
    coming = client.preview_schedule(schedule.schedule_id, count=NEXT_SHOWN)
    return {"schedule": schedule, "next": coming, "occurrences": ledger.items}


def _draw_history(found: dict[str, Any]) -> None:
    schedule: ScheduleView = found["schedule"]
    _draw(schedule)
    click.echo("\nnext" + (" (paused: they will be skipped)" if schedule.paused else ""))
    show_table(PREVIEW_COLUMNS, found["next"], empty="no further times")
    click.echo("\nlast")
    columns = _ledger_columns(schedule.timezone)
    show_table(columns, found["occurrences"], empty="no time has been due yet")


def _new_schedule(*, name: str, **given: Any) -> dict[str, Any]:
    paused = {"paused": True} if given["paused"] else {}
    return {"name": name, **timing_of(given), "job": job_of(given), **paused}


def _changes(**given: Any) -> dict[str, Any]:
    patch = timing_of(given)
    if given["patch"] is not None:
        patch |= read_json(given["patch"], "--patch")
    if not patch:
        raise click.UsageError("name what to change: --cron, --tz, --overlap …, or --patch")
    return patch


def _draw_preview(found: PreviewAnswer) -> None:
    show_table(PREVIEW_COLUMNS, found.items, empty="no further times")


@click.command()
@click.argument("name", shell_complete=id_lookup.complete_schedules)
@click.option(
    "--from", "start", type=past, metavar="TIME", help="Start of the range, or how long ago."
)
@click.option("--to", "end", type=past, metavar="TIME", help="End of the range; default: now.")
@click.option("--max-parallel", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--priority", type=int, help="Priority of its jobs; default: 100 below the schedule's own."
)
@click.option("--dry-run", is_flag=True, help="Show which jobs would run; run none.")
@click.option("--cancel", metavar="BACKFILL_ID", help="Cancel the remaining jobs of this backfill.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def backfill(name: str, *, as_json: bool, **given: Any) -> None:
    """Run a schedule for a past range: only times without a job, at low priority."""
    with connected() as client:
        schedule = _find(client, name)
        if given["cancel"] is not None:
            cancelling = calls.cancel_backfill(schedule.schedule_id, given["cancel"])
            answer(client, cancelling, _draw_cancelled, as_json=as_json)
            return
        body = _backfill_of(given)
        if not given["yes"] and not given["dry_run"]:
            would = client.backfill(schedule.schedule_id, {**body, "dry_run": True})
            _draw_backfill(would)
            confirm(f"Run {plural(would.count, 'job')} of {schedule.name}?")
        body["dry_run"] = given["dry_run"]
        call = calls.backfill(schedule.schedule_id, body)
        answer(client, call, _draw_backfill, as_json=as_json)


def _draw_cancelled(done: CountAnswer) -> None:
    click.echo(f"cancelled {plural(done.count, 'job')}")
    if not done.count:
        click.echo("no backfill of this schedule with that id has jobs left", err=True)


def _backfill_of(given: dict[str, Any]) -> dict[str, Any]:
    if given["start"] is None:
        raise click.UsageError("name the start: --from 7d, or --from 2026-03-01")
    parts = {
        "from": given["start"],
        "to": given["end"] or past("0s"),
        "max_parallel": given["max_parallel"],
        "priority": given["priority"],
    }
    return without_none(parts)


def _draw_backfill(done: BackfillAnswer) -> None:
    show_table(PREVIEW_COLUMNS, done.items, empty="all times of that range have a job already")
    more = done.count - len(done.items)
    if more > 0:
        click.echo(f"… and {more} more")
    if done.already:
        click.echo(f"{plural(done.already, 'time')} left out: they have a job already")
    if done.backfill_id is not None:
        click.echo(f"backfill {done.backfill_id}: {plural(done.count, 'job')}")


def _declared(app: str, owner: str | None) -> tuple[str, list[Any]]:
    return owner or app, list(load_app(app).declared.values())


CREATE_HELP = """Create a schedule; placeholders such as {{scheduled_at}} in its job are filled in.

\b
  rota schedules create report --cron '0 9 * * MON-FRI' --tz Europe/Berlin -- ./report.sh
  rota schedules create sync --every 15m --overlap skip -- ./sync.sh '{{scheduled_at}}'
  rota schedules create clean --cron @daily --function clean --kwargs '{"days": 30}'
"""

schedules = Noun(
    name="schedules",
    help="""List schedules, create one, or act on one: show, update, pause, backfill, delete.

    Name a schedule by its name or id.
    """,
    default=listing(
        params=(
            click.option("--owner", help="Only those that this app deployed."),
            click.option("--tenant", help="Only of this tenant."),
        ),
        fetch=lambda client, **given: SchedulePage(client.schedules(**given), None),
        draw=_draw_list,
    ),
    complete=id_lookup.complete_schedules,
    find=_find,
    id_of=lambda one: one.schedule_id,
    verbs=(
        Verb(
            "show",
            "Show a schedule with its next times and its last outcomes: why did it not run?",
            params=(
                click.option(
                    "--outcome",
                    "-o",
                    multiple=True,
                    help="Only these outcomes: fired, late, caught_up, skipped.",
                ),
                click.option(
                    "--after",
                    type=past_iso,
                    metavar="TIME",
                    help="Only after this time, or this long ago.",
                ),
                click.option(
                    "--before", type=past_iso, metavar="TIME", help="Only before this time."
                ),
                click.option(
                    "--limit", type=click.IntRange(1, 1000), default=LEDGER_SHOWN, show_default=True
                ),
            ),
            fetch=_history,
            draw=_draw_history,
        ),
        Verb(
            "create",
            CREATE_HELP,
            calls.create_schedule,
            _draw,
            names_one=False,
            params=(
                click.argument("name"),
                click.argument("command", nargs=-1, type=click.UNPROCESSED),
                timing_options,
                job_options,
            ),
            body=_new_schedule,
        ),
        Verb(
            "update",
            "Change a schedule; past decisions stay.",
            calls.update_schedule,
            _draw,
            params=(
                timing_options,
                click.option(
                    "--patch",
                    metavar="JSON|@FILE",
                    help="Any other change, as JSON Merge Patch.",
                ),
            ),
            body=_changes,
        ),
        Verb(
            "pause",
            "Pause a schedule: it makes no jobs, and its times are recorded as skipped.",
            calls.pause_schedule,
            _draw,
        ),
        Verb("resume", "Resume a schedule from its next time on.", calls.resume_schedule, _draw),
        Verb(
            "trigger",
            "Run a schedule's job now, in addition to its times.",
            calls.trigger_schedule,
            lambda made: click.echo(made.job_id),
        ),
        Verb(
            "preview",
            "Print the next times of a schedule, with clock changes marked.",
            calls.preview_schedule,
            _draw_preview,
            params=(
                click.option(
                    "--count", type=click.IntRange(1, 1000), default=10, show_default=True
                ),
                click.option(
                    "--after",
                    type=past_iso,
                    metavar="TIME",
                    help="Only times after this; default: now.",
                ),
            ),
        ),
        Verb(
            "delete",
            "Delete a schedule; its jobs continue.",
            calls.delete_schedule,
            ask=lambda _client, one: f"Remove the schedule {one.name}?",
            done=lambda one: (
                f"removed {one.name}",
                {"schedule_id": one.schedule_id, "name": one.name, "deleted": True},
            ),
        ),
        Verb(
            "deploy",
            "Replace the schedules of a rota.App by those it declares: @app.cron and @app.every.",
            lambda declared: calls.deploy(*declared),
            draw_deployed,
            names_one=False,
            params=(
                click.argument("app", metavar="PACKAGE.MODULE:APP"),
                click.option("--owner", help="Name of the app; default: PACKAGE.MODULE:APP."),
            ),
            body=_declared,
        ),
    ),
    commands=(backfill,),
).group()


# Calendars

CALENDAR_COLUMNS: Columns[CalendarView] = (
    Column("CALENDAR", lambda one: one.name, cut=True),
    Column("DATES", lambda one: str(len(one.dates)), right=True),
    Column("SCHEDULES", lambda one: str(one.schedules), right=True),
    Column("CHANGED", lambda one: local(one.updated_at), spare=1),
)


def _draw_calendars(page: CalendarPage) -> None:
    show_table(CALENDAR_COLUMNS, page.items, empty="no calendars yet")


def _draw_dates(one: CalendarView) -> None:
    for day in one.dates:
        click.echo(f"{day:%Y-%m-%d %a}")


def _dates(*, dates: tuple[str, ...], source: str | None) -> list[str]:
    listed = [*dates, *(_dates_in(source) if source is not None else ())]
    if not listed:
        raise click.UsageError("give the dates: 2026-12-25 2026-12-26, or --from FILE")
    return listed


def _dates_in(source: str) -> list[str]:
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Failure(f"cannot read {source}: {error.strerror}") from error
    words = (line.partition("#")[0].strip() for line in lines)
    return [word for word in words if word]


calendars = Noun(
    name="calendars",
    help="List calendars of holidays, or act on one: show, set, delete.",
    default=listing(
        fetch=lambda client: CalendarPage(client.calendars(), None), draw=_draw_calendars
    ),
    verbs=(
        Verb("show", "Print a calendar's dates.", calls.get_calendar, _draw_dates),
        Verb(
            "set",
            "Set a calendar's dates; creates the calendar if necessary.",
            calls.set_calendar,
            _draw_dates,
            params=(
                click.argument("dates", nargs=-1, metavar="[YYYY-MM-DD]..."),
                click.option(
                    "--from",
                    "source",
                    metavar="FILE",
                    help="Read dates from this file: one per line; # starts a comment.",
                ),
            ),
            body=_dates,
        ),
        Verb(
            "delete",
            "Delete a calendar that no schedule uses.",
            calls.delete_calendar,
            done=removed,
        ),
    ),
).group()
