"""Prints the next instants of a cron expression, clock changes marked; asks no server."""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches
from typing import Any

import click

from rota.cli.options import dst_options, json_option, past
from rota.cli.problems import Failure
from rota.cli.render import print_object, show_table
from rota.cli.text import now_ms, plain
from rota.cli.views import PREVIEW_COLUMNS
from rota.core.errors import Invalid
from rota.core.schedule_model import Gap, RepeatedTime, Timetable
from rota.core.schedules.recurrence import Recurrence, check_timetable, preview
from rota.core.time_zones import Zone
from rota.engine.time_zones import load_zone, zone_data, zone_names
from rota.wire.schedules import ForeseenView, PreviewAnswer
from rota.wire.units import from_instant


@click.command()
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Whose wall clock.")
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--after", type=past, metavar="TIME", help="Later than this; else now.")
@dst_options
@json_option
def cron(expression: str, *, count: int, as_json: bool, **given: Any) -> None:
    """Print the next instants of a cron expression, clock changes marked.

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
    show_table(PREVIEW_COLUMNS, items, empty="never again")
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
