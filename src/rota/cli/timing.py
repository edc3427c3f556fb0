"""The options that say when a schedule runs, and the schedule that they describe; asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from rota.cli.options import duration, time

F = TypeVar("F", bound=Callable[..., Any])

GAPS = ("jump", "skip", "shift")
FOLDS = ("first", "second", "both")
_PLAIN = {
    "cron": "cron",
    "every": "interval",
    "at": "at",
    "tz": "timezone",
    "after": "from",
    "starts": "starts_at",
    "ends": "ends_at",
    "jitter": "jitter",
    "on_holiday": "on_holiday",
    "catch_up": "catch_up",
    "window": "catch_up_window",
    "overlap": "overlap",
    "max_concurrency": "max_concurrency",
}
"""What each option is called in the API."""


def dst_options(command: F) -> F:
    """What becomes of local times around a change of the clock."""
    for option in (
        click.option("--fold", type=click.Choice(FOLDS), help="A time that comes twice runs so."),
        click.option("--gap", type=click.Choice(GAPS), help="A time that is left out runs so."),
    ):
        command = option(command)
    return command


def timing_options(command: F) -> F:
    """When, and under which rules."""
    choice = click.Choice
    for option in reversed(
        (
            click.option("--cron", metavar="EXPRESSION", help="Five fields, or six with seconds."),
            click.option("--every", type=duration, metavar="DURATION", help="An interval: 15m."),
            click.option("--at", type=time, metavar="TIME", help="Once, at this time."),
            click.option("--tz", metavar="ZONE", help="Whose wall clock: Europe/Berlin; else UTC."),
            click.option(
                "--after", type=choice(("start", "finish")), help="What --every counts from."
            ),
            click.option("--starts", type=time, metavar="TIME", help="Nothing before."),
            click.option("--ends", type=time, metavar="TIME", help="Nothing after."),
            click.option("--jitter", type=duration, metavar="DURATION", help="Spread runs by it."),
            click.option("--calendar", multiple=True, help="Dates on which it does not run."),
            click.option(
                "--on-holiday", type=choice(("skip", "shift")), help="Leave out, or run later."
            ),
            click.option(
                "--catch-up", type=choice(("none", "latest", "all")), help="Of what was missed."
            ),
            click.option("--window", type=duration, metavar="DURATION", help="How far back."),
            click.option(
                "--overlap", type=choice(("allow", "skip", "queue", "replace")),
                help="When the last run is not done.",
            ),
            click.option("--max-concurrency", type=click.IntRange(1), help="Runs at once."),
        )
    ):  # fmt: skip
        command = option(command)
    return dst_options(command)


def timing_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was said about the time, as the API takes it."""
    body = {name: given[option] for option, name in _PLAIN.items() if given[option] is not None}
    if given["calendar"]:
        body["calendars"] = list(given["calendar"])
    dst = {"gap": given["gap"], "overlap": given["fold"]}
    if any(dst.values()):
        body["dst"] = {name: value for name, value in dst.items() if value}
    return body
