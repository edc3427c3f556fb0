"""The options that several commands share, and how what people type is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from rota.sdk.calls import JobSearch
from rota.sdk.clock import SystemClock
from rota.wire.cells import is_cell_name
from rota.wire.limits import CELL_NAME_CHARS_MAX
from rota.wire.units import ByteSize, Deadline, Duration, parse_duration, parse_size

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

STATUSES = (
    *("pending", "queued", "running", "cancelling"),
    *("succeeded", "failed", "cancelled", "skipped", "expired"),
)


class Number(click.types.FloatParamType):
    """A number that is one: JSON has no word for the others, so the server would hear nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click reads it."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number that can be counted", param, ctx)
        return number


class NumberRange(Number, click.FloatRange):
    """The same between bounds, which its help tells: click has no words for none."""


def duration(value: Any) -> Duration:
    """`90s`, `5m`, `1h30m`, or seconds."""
    return value if isinstance(value, Duration) else _read(parse_duration, value)


def request_rate(value: Any) -> tuple[int, int] | None:
    """`1000/1s`: so many in so many milliseconds; `none`: as many as come."""
    if value is None or isinstance(value, tuple) or str(value).lower() == "none":
        return value if isinstance(value, tuple) else None
    number, _, per = str(value).partition("/")
    length = _read(parse_duration, f"1{per}" if per.isalpha() else per)
    if not number.isdecimal() or not int(number) or not length.ms:
        raise click.BadParameter(f"{value!r} is no rate: write 1000/1s, or none")
    return int(number), length.ms


def cell_name(value: Any) -> str:
    """`north`, `eu-1`."""
    if value and not is_cell_name(str(value)):
        raise click.BadParameter(
            f"{value!r} is no name of a cell: small letters, digits and -, at most"
            f" {CELL_NAME_CHARS_MAX}"
        )
    return str(value)


def size(value: Any) -> ByteSize:
    """`512MiB`, `2GB`, or bytes."""
    return value if isinstance(value, ByteSize) else _read(parse_size, value)


def time(value: Any) -> datetime:
    """A time: RFC 3339, or without an offset on the clock of this machine, or a way from now."""
    return _moment(value, 1)


def deadline(value: Any) -> Deadline:
    """A time, or how long after it is submitted."""
    if isinstance(value, Deadline):
        return value
    try:
        return Deadline(within=parse_duration(value))
    except ValueError:
        return Deadline(at=_moment(value, 1))


def past(value: Any) -> datetime:
    """The same, but a length of time counts back from now."""
    return _moment(value, -1)


def pair(value: Any) -> tuple[str, str]:
    """`key=value`."""
    key, found, rest = str(value).partition("=")
    if not found or not key:
        raise click.BadParameter(f"{value!r} is not of the form key=value")
    return key, rest


def name_only(value: Any) -> str:
    """The name of a variable, whose value is its own affair."""
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
    """The time here."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000).astimezone()


def now_ms() -> int:
    """The same, in milliseconds since 1970."""
    return SystemClock().now_ms()


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def filter_options(command: F) -> F:
    """What narrows a list of jobs down."""
    for option in reversed(
        (
            click.option(
                "--status", "-s", multiple=True, help="Any of these; may be a comma list."
            ),
            click.option("--queue", "-q", help="Of this queue."),
            click.option("--tenant", help="Of this tenant."),
            click.option("--name", "-n", help="With this name."),
            click.option("--priority", type=int, help="With this priority."),
            click.option(
                "--label",
                "-l",
                multiple=True,
                type=pair,
                metavar="KEY=VALUE",
                help="With this label; all.",
            ),
            click.option("--after", type=past, help="Created after this time, or so long ago."),
            click.option("--before", type=past, help="Created before this time."),
        )
    ):
        command = option(command)
    return command


def statuses(given: tuple[str, ...]) -> tuple[str, ...]:
    """One flat list of known statuses."""
    flat = tuple(one.strip() for text in given for one in text.split(",") if one.strip())
    for one in flat:
        if one not in STATUSES:
            raise click.BadParameter(
                f"{one!r} is none of {', '.join(STATUSES)}", param_hint="'--status'"
            )
    if given and not flat:
        raise click.BadParameter("names no status", param_hint="'--status'")
    return flat


def search_of(
    given: dict[str, Any], *, limit: int | None = None, cursor: str | None = None
) -> JobSearch:
    """The list that `filter_options` ask for."""
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
    """The same as the filter of a bulk action."""
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
    return {name: value for name, value in parts.items() if value is not None}


def iso(at: datetime | None) -> str | None:
    """A time as the API writes it."""
    return None if at is None else at.isoformat()
