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
        click.option(
            "--fold", type=click.Choice(FOLDS), help="When to run at a time that comes twice."
        ),
        click.option(
            "--gap",
            type=click.Choice(GAPS),
            help="When to run at a time that the clock leaves out.",
        ),
    ):
        command = option(command)
    return command


def timing_options(command: F) -> F:
    """When, and under which rules."""
    choice = click.Choice
    command = dst_options(command)
    for option in reversed(
        (
            click.option("--cron", metavar="EXPRESSION", help="Five fields, or six with seconds."),
            click.option("--every", type=duration, metavar="DURATION", help="An interval: 15m."),
            click.option("--at", type=time, metavar="TIME", help="Once, at this time."),
            click.option("--tz", metavar="ZONE", help="Whose wall clock: Europe/Berlin; else UTC."),
            click.option(
                "--after", type=choice(("start", "finish")),
                help="Count --every from the start or from the end of a run.",
            ),
            click.option("--starts", type=time, metavar="TIME", help="No run before this time."),
            click.option("--ends", type=time, metavar="TIME", help="No run after this time."),
            click.option(
                "--jitter", type=duration, metavar="DURATION", help="Run up to this much later."
            ),
            click.option("--calendar", multiple=True, help="Dates on which it does not run."),
            click.option(
                "--on-holiday", type=choice(("skip", "shift")),
                help="Leave out a run on such a date, or make it later.",
            ),
            click.option(
                "--catch-up", type=choice(("none", "latest", "all")),
                help="Which of the runs that were missed to make up for.",
            ),
            click.option(
                "--window", type=duration, metavar="DURATION",
                help="How far back --catch-up goes; 7d unless said.",
            ),
            click.option(
                "--overlap", type=choice(("allow", "skip", "queue", "replace")),
                help="What to do while the last run is not done.",
            ),
            click.option("--max-concurrency", type=click.IntRange(1), help="So many runs at once."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def timing_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was said about the time, as the API takes it."""
    body = {name: given[option] for option, name in _PLAIN.items() if given[option] is not None}
    if given["calendar"]:
        body["calendars"] = list(given["calendar"])
    dst = {"gap": given["gap"], "overlap": given["fold"]}
    if any(dst.values()):
        body["dst"] = {name: value for name, value in dst.items() if value}
    return body
