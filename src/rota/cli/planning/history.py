"""Writes down what ran in a cell, or replays it at once under other policies."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import msgspec

from rota.cli.connect import connected
from rota.cli.options import json_option, past
from rota.cli.planning.past import lines_of, opening_of
from rota.cli.planning.policy_trials import Names, policies_option
from rota.cli.planning.replaying import past_case, replay
from rota.cli.problems import Failure
from rota.cli.render import print_object
from rota.cli.text import plain, plural
from rota.sdk import Client

F = TypeVar("F", bound=Callable[..., Any])

STDOUT = Path("-")


class Sink(Protocol):
    """Where bytes go: a file, packed or not, or whoever reads our output."""

    def write(self, data: bytes, /) -> int:
        """Takes them."""
        ...


@click.group()
def history() -> None:
    """What ran: export writes it down, replay shows what other policies would have made of it."""


def _of_these(command: F) -> F:
    """Which jobs of the past are meant."""
    for option in reversed(
        (
            click.option("--after", type=past, help="Created after this, or so long ago: 7d."),
            click.option("--before", type=past, help="Created before this."),
            click.option("--queue", "-q", help="Of this queue."),
            click.option("--tenant", help="Of this tenant."),
        )
    ):
        command = option(command)
    return command


@history.command()
@_of_these
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=STDOUT, metavar="FILE", help="Where to; packed if its name ends in .gz.",
)  # fmt: skip
@json_option
def export(*, out: Path, as_json: bool, **given: Any) -> None:
    """Write the jobs that ran as JSON lines, the cell's workers and queues first."""
    if as_json and out == STDOUT:
        raise click.UsageError("the export itself is JSON: --json tells of one into a file, --out")
    with connected() as client:
        try:
            jobs = _write(client, out, given)
        except OSError as error:
            raise Failure(f"cannot write {out}: {error.strerror}") from error
    if as_json:
        print_object({"file": str(out), "jobs": jobs})
    else:
        where = "" if out == STDOUT else f" to {plain(str(out))}"
        click.echo(f"wrote {plural(jobs, 'job')}{where}", err=True)


def _write(client: Client, out: Path, given: dict[str, Any]) -> int:
    encoder = msgspec.json.Encoder()
    jobs = 0
    with ExitStack() as stack:
        file = _opened(out, stack)
        file.write(encoder.encode(opening_of(client)) + b"\n")
        for line in lines_of(client, given):
            file.write(encoder.encode(line) + b"\n")
            jobs += 1
    return jobs


def _opened(out: Path, stack: ExitStack) -> Sink:
    if out == STDOUT:
        return sys.stdout.buffer
    if out.suffix == ".gz":
        return stack.enter_context(gzip.open(out, "wb"))
    return stack.enter_context(out.open("wb"))


@history.command("replay")
@_of_these
@policies_option
@json_option
def replay_past(*, names: Names, as_json: bool, **given: Any) -> None:
    """Run what ran once more in virtual time, under other policies, on the workers of now."""
    with connected() as client:
        case = past_case(client, given)
    replay(case, names, as_json=as_json)
