"""Schedules that a program declares with its functions: `@app.cron` and `@app.every`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

import msgspec

from rota.sdk.declare.functions import AsyncFunction, JobFunction, SyncFunction
from rota.sdk.declare.options import Length, Moment
from rota.wire.formats import dec_hook, enc_hook
from rota.wire.schedules import ScheduleSpec

P = ParamSpec("P")
R = TypeVar("R")
J = TypeVar("J", bound=JobFunction[..., Any])


class ScheduleOptions(TypedDict, total=False):
    """Options of `@app.cron(…)` and `@app.every(…)` beside the time."""

    name: str
    """The schedule's name; default: the function's."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    """Arguments of the function; text may have placeholders such as `{{scheduled_at}}`."""
    catch_up: Literal["none", "latest", "all"]
    catch_up_window: Length
    overlap: Literal["allow", "skip", "queue", "replace"]
    max_concurrency: int
    gap: Literal["jump", "skip", "shift"]
    """Rule for a local time that a clock change leaves out."""
    fold: Literal["first", "second", "both"]
    """Rule for a local time that a clock change repeats."""
    jitter: Length
    starts_at: Moment
    ends_at: Moment
    calendars: Sequence[str]
    on_holiday: Literal["skip", "shift"]
    paused: bool


SCHEDULE_OPTIONS = tuple(ScheduleOptions.__annotations__)
_PLAIN = (
    *("catch_up", "catch_up_window", "overlap", "max_concurrency", "jitter"),
    *("starts_at", "ends_at", "calendars", "on_holiday", "paused"),
)


class ScheduleRegistry(Protocol):
    """Registry of functions and declarations: the app."""

    declared: dict[str, dict[str, Any]]

    def register(self, function: Callable[..., Any], options: dict[str, Any]) -> Any: ...


class ScheduleDecorator:
    """Decorator that declares a schedule of a function or job function."""

    def __init__(
        self, app: ScheduleRegistry, when: dict[str, Any], options: Mapping[str, Any]
    ) -> None:
        self._app = app
        self._when = when
        self._options = options

    @overload
    def __call__(self, function: J, /) -> J: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncFunction[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        job = function if isinstance(function, JobFunction) else self._app.register(function, {})
        body = schedule_body(job, self._when, self._options)
        known = self._app.declared.get(body["name"])
        if known is not None and known["job"]["name"] != job.name:
            raise ValueError(f"two schedules are named {body['name']!r}: rename one")
        if known is not None and _when(known) != _when(body):
            raise ValueError(f"{job.name} already has a schedule of that name: name the second one")
        self._app.declared[body["name"]] = body
        return job


def _when(body: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(body.get(name) for name in ("cron", "interval", "timezone"))


def schedule_body(
    job: JobFunction[..., Any], when: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Builds the schedule as the API takes it; raises ValueError for what the server
    would refuse.
    """
    body: dict[str, Any] = {"name": options.get("name") or job.name, **when}
    body |= {name: _wire(options[name]) for name in _PLAIN if name in options}
    dst = {"gap": options.get("gap"), "overlap": options.get("fold")}
    if any(dst.values()):
        body["dst"] = {name: value for name, value in dst.items() if value}
    body["job"] = job.template(tuple(options.get("args", ())), dict(options.get("kwargs", {})))
    try:
        text = msgspec.json.encode(body, enc_hook=enc_hook)
        msgspec.json.decode(text, type=ScheduleSpec, dec_hook=dec_hook)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise ValueError(f"the schedule of {job.name}: {error}") from error
    return body


def _wire(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    plain = isinstance(value, str | Mapping) or not isinstance(value, Iterable)
    return value if plain else list(value)
