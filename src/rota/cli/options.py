"""Declares the options that several commands share, and parses what people type."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from rota.cli.problems import Failure
from rota.cli.render import now_ms
from rota.sdk.calls import JobSearch
from rota.wire.formats import ByteSize, Deadline, Duration, is_cell_name, parse_duration, parse_size
from rota.wire.limits import CELL_NAME_CHARS_MAX

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

GAPS = ("jump", "skip", "shift")
FOLDS = ("first", "second", "both")

STATUSES = (
    *("pending", "queued", "running", "cancelling"),
    *("succeeded", "failed", "cancelled", "skipped", "expired"),
)


class Number(click.types.FloatParamType):
    """Finite number: JSON has no word for infinity and for what is no number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts as click does, and refuses numbers that are not finite."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class NumberRange(Number, click.FloatRange):
    """Finite number between bounds, which its help tells."""


def duration(value: Any) -> Duration:
    """Reads `90s`, `5m`, `1h30m`, or seconds."""
    return value if isinstance(value, Duration) else _read(parse_duration, value)


def request_rate(value: Any) -> tuple[int, int] | None:
    """Reads `1000/1s` as a count and milliseconds; `none` is no limit."""
    if value is None or isinstance(value, tuple) or str(value).lower() == "none":
        return value if isinstance(value, tuple) else None
    number, _, per = str(value).partition("/")
    length = _read(parse_duration, f"1{per}" if per.isalpha() else per)
    if not number.isdecimal() or not int(number) or not length.ms:
        raise click.BadParameter(f"{value!r} is not a rate: write 1000/1s, or none")
    return int(number), length.ms


def cell_name(value: Any) -> str:
    """Reads the name of a cell: `north`, `eu-1`."""
    if value and not is_cell_name(str(value)):
        raise click.BadParameter(
            f"{value!r} is not a name for a cell: use lower-case letters, digits and -, at most"
            f" {CELL_NAME_CHARS_MAX}"
        )
    return str(value)


def size(value: Any) -> ByteSize:
    """Reads `512MiB`, `2GB`, or bytes."""
    return value if isinstance(value, ByteSize) else _read(parse_size, value)


def time(value: Any) -> datetime:
    """Reads a time: RFC 3339, without an offset on the local clock, or a duration from now."""
    return _moment(value, 1)


def deadline(value: Any) -> Deadline:
    """Reads a time, or a duration after the submission."""
    if isinstance(value, Deadline):
        return value
    try:
        return Deadline(within=parse_duration(value))
    except ValueError:
        return Deadline(at=_moment(value, 1))


def past(value: Any) -> datetime:
    """Reads a time as `time` does, but a duration counts back from now."""
    return _moment(value, -1)


def pair(value: Any) -> tuple[str, str]:
    """Reads `key=value`."""
    key, found, rest = str(value).partition("=")
    if not found or not key:
        raise click.BadParameter(f"{value!r} is not of the form key=value")
    return key, rest


def name_only(value: Any) -> str:
    """Reads the name of an environment variable, without a value."""
    name = str(value)
    if not name or "=" in name:
        raise click.BadParameter(f"{name!r}: give the name of a variable, not its value")
    return name


def _read(parse: Callable[[object], T], value: object) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _moment(value: Any, direction: int) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        given = datetime.fromisoformat(value)
        return given if given.tzinfo is not None else given.astimezone()
    except ValueError:
        pass
    try:
        return now() + direction * timedelta(milliseconds=parse_duration(value).ms)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time: write 2026-03-01T09:00:00+01:00, or '2026-03-01 09:00' for"
            " the local clock, or a duration such as 2h"
        ) from None


def now() -> datetime:
    """Returns the local time."""
    return datetime.fromtimestamp(now_ms() / 1000).astimezone()


def json_option(command: F) -> F:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def combined(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Makes one decorator of several, in the order in which `--help` shows them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


dst_options = combined(
    click.option(
        "--gap",
        type=click.Choice(GAPS),
        help="Rule for local times that a clock change leaves out.",
    ),
    click.option(
        "--fold", type=click.Choice(FOLDS), help="Rule for local times that a clock change repeats."
    ),
)
"""Say what becomes of local times around a change of the clock."""
filter_options = combined(
    click.option(
        "--status", "-s", multiple=True, help="In any of these statuses; may repeat, or use commas."
    ),
    click.option("--queue", "-q", help="Only of this queue."),
    click.option("--tenant", help="Only of this tenant."),
    click.option("--name", "-n", help="Only with this name."),
    click.option("--priority", type=int, help="Only with this priority."),
    click.option(
        "--label",
        "-l",
        multiple=True,
        type=pair,
        metavar="KEY=VALUE",
        help="Only with this label; may repeat, all must match.",
    ),
    click.option("--after", type=past, help="Created after this time, or this long ago (2h)."),
    click.option("--before", type=past, help="Created before this time."),
)
"""Filter a list of jobs."""


def statuses(given: tuple[str, ...]) -> tuple[str, ...]:
    """Reads known statuses from options that may be comma lists."""
    flat = tuple(one.strip() for text in given for one in text.split(",") if one.strip())
    for one in flat:
        if one not in STATUSES:
            raise click.BadParameter(
                f"{one!r} is not one of {', '.join(STATUSES)}", param_hint="'--status'"
            )
    if given and not flat:
        raise click.BadParameter("names no status", param_hint="'--status'")
    return flat


def search_of(
    given: dict[str, Any], *, limit: int | None = None, cursor: str | None = None
) -> JobSearch:
    """Builds the search that `filter_options` ask for."""
    return JobSearch(
        status=statuses(given["status"]),
        priority=given["priority"],
        queue=given["queue"],
        tenant=given["tenant"],
        name=given["name"],
        labels=dict(given["label"]),
        created_after=iso(given["after"]),
        created_before=iso(given["before"]),
        limit=limit,
        cursor=cursor,
    )


def filter_of(given: dict[str, Any]) -> dict[str, Any]:
    """Builds the filter of a bulk action from the same options."""
    parts = {
        "status": list(statuses(given["status"])) or None,
        "priority": given["priority"],
        "queue": given["queue"],
        "tenant": given["tenant"],
        "name": given["name"],
        "labels": dict(given["label"]) or None,
        "created_after": iso(given["after"]),
        "created_before": iso(given["before"]),
    }
    return without_none(parts)


def iso(at: datetime | None) -> str | None:
    """Writes a time as the API does."""
    return None if at is None else at.isoformat()


def past_iso(value: Any) -> str:
    """Reads a time in the past, as the API writes it."""
    return past(value).isoformat()


def or_none(text: str) -> str | None:
    """Reads `none`, which removes a limit."""
    return None if text.lower() in ("none", "-") else text


def whole_or_none(text: str, option: str) -> int | None:
    """Reads a whole number, or `none`."""
    given = or_none(text)
    if given is not None and not given.isdecimal():
        raise click.BadParameter(f"{text!r} is not a whole number", param_hint=f"'{option}'")
    return None if given is None else int(given)


def without_none(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps what was given."""
    return {name: value for name, value in parts.items() if value is not None}


def read_json(text: str, option: str) -> Any:
    """Reads JSON, or `@file` with JSON in it; `@-` reads stdin."""
    try:
        return msgspec.json.decode(read_content(text, option))
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint=f"'{option}'") from error


def read_object(text: str, option: str) -> dict[str, Any]:
    """Reads a JSON object the same way."""
    found = read_json(text, option)
    if not isinstance(found, dict):
        raise click.BadParameter("it must be an object", param_hint=f"'{option}'")
    return found


def read_content(text: str, option: str) -> bytes:
    """Returns the text, or what is in the file that `@` names."""
    if not text.startswith("@"):
        return text.encode()
    try:
        return sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()
    except OSError as error:
        message = f"{text[1:]}: {error.strerror}"
        raise click.BadParameter(message, param_hint=f"'{option}'") from error


def confirm(question: str) -> None:
    """Asks a person to agree; where nobody can be asked, `--yes` is needed."""
    if not is_interactive():
        raise Failure(f"{question} There is no terminal to ask on: add --yes")
    if not click.confirm(question, err=True):
        raise Failure("nothing was done")


def is_interactive() -> bool:
    """Whether somebody can be asked; a service may have been started without any stdin."""
    return sys.stdin is not None and sys.stdin.isatty()
