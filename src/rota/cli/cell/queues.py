"""Lists queues, sets their limits, pauses, resumes and purges them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from rota.cli import offers
from rota.cli.connect import answer, connected
from rota.cli.options import Number, json_option, pair
from rota.cli.problems import Failure
from rota.cli.render import print_object, show_table
from rota.cli.text import plural
from rota.cli.views import QUEUE_COLUMNS, limits_text, queue_row
from rota.sdk import NotFoundError, calls
from rota.wire.queues import QueuePage, QueueView
from rota.wire.units import parse_duration


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def queues(ctx: click.Context, *, as_json: bool) -> None:
    """List queues, or act on one: show, set, pause, resume, purge."""
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found = client.queues()
        if as_json:
            print_object(QueuePage(found, None))
            return
        show_table(QUEUE_COLUMNS, [queue_row(queue) for queue in found], empty="no queues yet")


def _draw(queue: QueueView) -> None:
    show_table(QUEUE_COLUMNS, [queue_row(queue)], empty="")
    click.echo(f"each job is held to: {limits_text(queue.limits)}")


@queues.command()
@click.argument("name", shell_complete=offers.queues)
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show one queue."""
    with connected() as client:
        answer(client, calls.get_queue(name), _draw, as_json=as_json)


def or_none(text: str) -> str | None:
    """`none` takes a limit away."""
    return None if text.lower() in ("none", "-") else text


def rate(text: str) -> dict[str, Any] | None:
    """`100/1m`: so many starts in each length of time."""
    if or_none(text) is None:
        return None
    number, slash, per = text.partition("/")
    try:
        if not slash:
            raise ValueError("a rate is a count and a length of time, such as 100/1m")
        per = f"1{per}" if per.isalpha() else per
        return {"count": int(number), "per": parse_duration(per)}
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@queues.command("set")
@click.argument("name", shell_complete=offers.queues)
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--weight", type=Number(), help="Its share of what several queues want.")
@click.option("--max-workers", metavar="N|none", help="So many executions at once.")
@click.option("--rate", "rate_limit", metavar="COUNT/PER|none", help="So many starts: 100/1m.")
@click.option(
    "--limit", "limits", multiple=True, type=pair, metavar="NAME=VALUE|none",
    help="What its jobs are held to: processes, open_files, file_size, log_size, result_size.",
)  # fmt: skip
@click.option("--pause/--resume", "paused", default=None, help="Start nothing from it, or do.")
@click.option("--reset", is_flag=True, help="What is not given goes back to its default.")
@json_option
def set_(name: str, *, reset: bool, as_json: bool, **given: Any) -> None:
    """Change a queue; it is made if it is not there."""
    settings = {key: value for key, value in given.items() if value not in (None, ())}
    if "limits" in settings:
        settings["limits"] = limits_of(settings["limits"])
    if "max_workers" in settings:
        settings["max_workers"] = _whole(settings["max_workers"])
    if "rate_limit" in settings:
        settings["rate_limit"] = rate(settings["rate_limit"])
    if not settings and not reset:
        raise click.UsageError("say what to change: --priority, --max-workers, --rate …")
    with connected() as client:
        try:
            answer(client, calls.set_queue(name, settings, reset=reset), _draw, as_json=as_json)
        except NotFoundError:
            # Nothing is there whose settings could be kept: setting it anew makes it.
            answer(client, calls.set_queue(name, settings, reset=True), _draw, as_json=as_json)


def limits_of(pairs: Sequence[tuple[str, str]]) -> dict[str, int | str | None]:
    """`processes=256`, `file_size=2GiB`; `none` goes back to the default."""
    given = {name: or_none(value) for name, value in pairs}
    return {
        name: int(value) if value is not None and value.isdecimal() else value
        for name, value in given.items()
    }


def _whole(text: str) -> int | None:
    given = or_none(text)
    if given is not None and not given.isdecimal():
        raise click.BadParameter(f"{text!r} is no whole number", param_hint="'--max-workers'")
    return None if given is None else int(given)


@queues.command()
@click.argument("name", shell_complete=offers.queues)
@json_option
def pause(name: str, *, as_json: bool) -> None:
    """Start nothing more from a queue; what runs goes on."""
    with connected() as client:
        answer(client, calls.pause_queue(name), _draw, as_json=as_json)


@queues.command()
@click.argument("name", shell_complete=offers.queues)
@json_option
def resume(name: str, *, as_json: bool) -> None:
    """Let a queue go on."""
    with connected() as client:
        answer(client, calls.resume_queue(name), _draw, as_json=as_json)


@queues.command()
@click.argument("name", shell_complete=offers.queues)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def purge(name: str, *, yes: bool, as_json: bool) -> None:
    """Cancel all that waits in a queue."""
    with connected() as client:
        if not yes:
            depth = client.queue(name).depth
            confirm(f"Cancel {plural(depth.pending + depth.queued, 'waiting job')} of {name}?")
        answer(
            client,
            calls.purge_queue(name),
            lambda done: click.echo(f"cancelled {plural(done.count, 'job')}"),
            as_json=as_json,
        )


def confirm(question: str) -> None:
    """Asks a person; where there is none, --yes must have said it."""
    if not is_anybody_there():
        raise Failure(f"{question} Nobody to ask here: say --yes")
    if not click.confirm(question, err=True):
        raise Failure("nothing was done")


def is_anybody_there() -> bool:
    """Whether somebody can be asked; a service may have been started without any stdin."""
    return sys.stdin is not None and sys.stdin.isatty()
