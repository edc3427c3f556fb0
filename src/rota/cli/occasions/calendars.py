"""Lists calendars of holidays, sets their dates and removes them."""

from __future__ import annotations

from pathlib import Path

import click

from rota.cli.connect import answer, connected
from rota.cli.options import json_option
from rota.cli.problems import Failure
from rota.cli.render import Column, Row, print_object, show_table, tell
from rota.cli.text import local
from rota.sdk.methods import schedule_calls as calls
from rota.wire.schedules import CalendarPage, CalendarView

COLUMNS = (
    Column("CALENDAR", cut=True),
    Column("DATES", right=True),
    Column("SCHEDULES", right=True),
    Column("CHANGED", spare=1),
)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def calendars(ctx: click.Context, *, as_json: bool) -> None:
    """List calendars of holidays, or act on one: show, set, delete."""
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found = client.calendars()
        if as_json:
            print_object(CalendarPage(found, None))
            return
        show_table(COLUMNS, [_row(one) for one in found], empty="no calendars yet")


def _row(one: CalendarView) -> Row:
    return (one.name, str(len(one.dates)), str(one.schedules), local(one.updated_at))


def _draw(one: CalendarView) -> None:
    for day in one.dates:
        click.echo(f"{day:%Y-%m-%d %a}")


@calendars.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Print a calendar's dates."""
    with connected() as client:
        answer(client, calls.get_calendar(name), _draw, as_json=as_json)


@calendars.command("set")
@click.argument("name")
@click.argument("dates", nargs=-1, metavar="[YYYY-MM-DD]...")
@click.option("--from", "source", metavar="FILE", help="One date a line; # begins a comment.")
@json_option
def set_(name: str, dates: tuple[str, ...], *, source: str | None, as_json: bool) -> None:
    """Set a calendar's dates; it is made if it is not there."""
    listed = [*dates, *(_dates_in(source) if source is not None else ())]
    if not listed:
        raise click.UsageError("say which dates: 2026-12-25 2026-12-26, or --from FILE")
    with connected() as client:
        answer(client, calls.set_calendar(name, listed), _draw, as_json=as_json)


def _dates_in(source: str) -> list[str]:
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Failure(f"cannot read {source}: {error.strerror}") from error
    words = (line.partition("#")[0].strip() for line in lines)
    return [word for word in words if word]


@calendars.command()
@click.argument("name")
@json_option
def delete(name: str, *, as_json: bool) -> None:
    """Remove a calendar that no schedule names."""
    with connected() as client:
        client.delete_calendar(name)
        tell(f"removed {name}", {"name": name, "deleted": True}, as_json=as_json)
