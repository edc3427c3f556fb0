"""Triggers that a program declares with its functions: `@app.on`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, overload

import msgspec

from rota.sdk.arguments import ArgumentError
from rota.sdk.declare.functions import AsyncFunction, JobFunction, SyncFunction
from rota.sdk.declare.options import Length
from rota.wire.events import TriggerSpec
from rota.wire.formats import dec_hook, enc_hook

P = ParamSpec("P")
R = TypeVar("R")
J = TypeVar("J", bound=JobFunction[..., Any])


class TriggerOptions(TypedDict, total=False):
    """Options of `@app.on(…)` beside the type of event."""

    name: str
    """The trigger's name; default: the function's."""
    where: str | Mapping[str, Any]
    """Filter: only events that match it."""
    debounce: Length | Mapping[str, Any]
    batch: int | Mapping[str, Any]
    rate_limit: Mapping[str, Any]
    kwargs: Mapping[str, Any]
    """Named arguments beside the event; text may have placeholders such as
    `{{event.data.size}}`.
    """
    paused: bool


TRIGGER_OPTIONS = tuple(TriggerOptions.__annotations__)


class TriggerRegistry(Protocol):
    """Registry of functions and declarations: the app."""

    reactions: dict[str, dict[str, Any]]

    def register(self, function: Callable[..., Any], options: dict[str, Any]) -> Any: ...


class TriggerDecorator:
    """Decorator that declares a trigger of a function or job function."""

    def __init__(self, app: TriggerRegistry, event: str, options: Mapping[str, Any]) -> None:
        self._app = app
        self._event = event
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
        body = trigger_body(job, self._event, self._options)
        known = self._app.reactions.get(body["name"])
        if known is not None and (known["job"]["name"], known["event"]) != (job.name, self._event):
            raise ValueError(f"two triggers are named {body['name']!r}: rename one")
        self._app.reactions[body["name"]] = body
        return job


def trigger_body(
    job: JobFunction[..., Any], event: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Builds the trigger as the API takes it; raises ValueError for what the server
    would refuse.
    """
    body: dict[str, Any] = {"name": options.get("name") or job.name, "event": event}
    if "where" in options:
        body["filter"] = options["where"]
    for name in ("debounce", "batch", "rate_limit", "paused"):
        if name in options:
            value = options[name]
            body[name] = value.total_seconds() if isinstance(value, timedelta) else value
    body["job"] = _call(job, body, dict(options.get("kwargs", {})))
    try:
        text = msgspec.json.encode(body, enc_hook=enc_hook)
        msgspec.json.decode(text, type=TriggerSpec, dec_hook=dec_hook)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise ValueError(f"the trigger of {job.name}: {error}") from error
    return body


def _call(
    job: JobFunction[..., Any], body: Mapping[str, Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Builds the job: the function gets the event or events as its first argument, if
    it takes one.
    """
    debounce = body.get("debounce")
    several = "batch" in body or (isinstance(debounce, Mapping) and debounce.get("keep") == "all")
    try:
        return job.template(("{{events}}" if several else "{{event}}",), kwargs)
    except ArgumentError:
        return job.template((), kwargs)
