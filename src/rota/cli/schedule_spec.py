"""Builds schedules and triggers, with their jobs, from options; or loads the app that declares them
(`rota schedules deploy`, `rota triggers deploy`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from rota.cli import id_lookup
from rota.cli.job_spec import retry_of, run_of
from rota.cli.options import combined, dst_options, duration, pair, read_object, time, without_none
from rota.cli.problems import Failure
from rota.cli.render import plain
from rota.sdk import App
from rota.wire.schedules import DeployAnswer


def load_app(text: str) -> App:
    """Loads the app of `package.module:name`, also from the working folder, as python -m does."""
    module, colon, name = text.partition(":")
    if not colon:
        raise click.UsageError(f"{text!r} is not PACKAGE.MODULE:APP")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise Failure(f"cannot load {plain(text)}: {error}") from error
    if not isinstance(found, App):
        raise Failure(f"{plain(text)} is no rota.App")
    return found


def draw_deployed(done: DeployAnswer) -> None:
    """Prints a line for each name."""
    for word in ("created", "changed", "unchanged", "retired"):
        for name in getattr(done, word):
            click.echo(f"{word:9} {plain(name)}")


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
"""Names of the options in the API."""


timing_options = combined(
    click.option(
        "--cron", metavar="EXPRESSION", help="Cron expression: five fields, or six with seconds."
    ),
    click.option("--every", type=duration, metavar="DURATION", help="Interval, such as 15m."),
    click.option("--at", type=time, metavar="TIME", help="Run once, at this time."),
    click.option("--tz", metavar="ZONE", help="Time zone, such as Europe/Berlin; default: UTC."),
    click.option(
        "--after",
        type=click.Choice(("start", "finish")),
        help="Count --every from the start or from the finish of a job.",
    ),
    click.option("--starts", type=time, metavar="TIME", help="No job before this time."),
    click.option("--ends", type=time, metavar="TIME", help="No job after this time."),
    click.option(
        "--jitter", type=duration, metavar="DURATION", help="Delay each job by up to this much."
    ),
    click.option("--calendar", multiple=True, help="Calendar of dates on which it does not run."),
    click.option(
        "--on-holiday",
        type=click.Choice(("skip", "shift")),
        help="On such a date skip the job, or shift it to the next allowed day.",
    ),
    click.option(
        "--catch-up",
        type=click.Choice(("none", "latest", "all")),
        help="Which missed jobs to catch up on.",
    ),
    click.option(
        "--window",
        type=duration,
        metavar="DURATION",
        help="How far back --catch-up goes; default: 7d.",
    ),
    click.option(
        "--overlap",
        type=click.Choice(("allow", "skip", "queue", "replace")),
        help="What to do while the previous job is still active.",
    ),
    click.option(
        "--max-concurrency", type=click.IntRange(1), help="Jobs that may be active at once."
    ),
    dst_options,
)
"""Say when a schedule runs, and under which rules."""
job_options = combined(
    click.option("--paused", is_flag=True, help="Create it paused."),
    click.option("--function", metavar="NAME", help="Run this function of a worker's app."),
    click.option("--args", metavar="JSON|@FILE", help="Arguments of the function, as a JSON list."),
    click.option(
        "--kwargs", metavar="JSON|@FILE", help="Named arguments of the function, as a JSON object."
    ),
    click.option("--http", metavar="URL", help="Send an HTTP request to this URL."),
    click.option("--noop", is_flag=True, help="Run nothing."),
    click.option(
        "--env", "-e", multiple=True, type=pair, metavar="KEY=VALUE", help="Environment variable."
    ),
    click.option(
        "--queue",
        "-q",
        shell_complete=id_lookup.complete_queues,
        help="Queue of its jobs.",
    ),
    click.option("--priority", "-p", type=int, help="Priority of its jobs."),
    click.option(
        "--timeout",
        "-t",
        type=duration,
        metavar="DURATION",
        help="Stop a job when it has run this long.",
    ),
    click.option(
        "--retries", type=click.IntRange(0), metavar="N", help="Attempts after the first one."
    ),
    click.option(
        "--label", "-l", multiple=True, type=pair, metavar="KEY=VALUE", help="Label of its jobs."
    ),
    click.option("--job", metavar="JSON|@FILE", help="Other fields of its jobs, as in POST /jobs."),
)
"""Describe the jobs of a schedule or trigger."""


def job_of(given: dict[str, Any]) -> dict[str, Any]:
    """Builds the job of a schedule or trigger from `job_options`; `--job` has the rest."""
    rest = {} if given["job"] is None else read_object(given["job"], "--job")
    run = {}
    if any(given[kind] for kind in ("command", "function", "http", "noop")) or "task" not in rest:
        run = run_of(given)
    parts = {
        "queue": given["queue"],
        "priority": given["priority"],
        "timeout": given["timeout"],
        "retry": retry_of(given["retries"], None, None),
        "labels": dict(given["label"]) or None,
    }
    return {"name": "job", **run, **without_none(parts), **rest}


def timing_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the fields of a schedule from `timing_options`."""
    body = without_none({name: given[option] for option, name in _PLAIN.items()})
    if given["calendar"]:
        body["calendars"] = list(given["calendar"])
    dst = {"gap": given["gap"], "overlap": given["fold"]}
    if any(dst.values()):
        body["dst"] = {name: value for name, value in dst.items() if value}
    return body
