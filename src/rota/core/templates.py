"""Templates: fills placeholders such as `{{scheduled_at}}` and `{{event.data.path}}` into a job.

A placeholder that is the whole of a text in a trigger's payload becomes the value itself, with its
type; elsewhere it becomes text. Nothing is executed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rota.core.errors import Invalid
from rota.core.expressions import MISSING, Path, look_up, parse_path
from rota.core.limits import TEMPLATES_CACHED_MAX
from rota.core.model import Instant, Spec
from rota.core.time_zones import Zone, local_text, utc_text

_SCHEDULE_PLACEHOLDER = re.compile(rb"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
SCHEDULE_PLACEHOLDERS = (
    "scheduled_at",
    "scheduled_local",
    "scheduled_date",
    "scheduled_unix",
    "schedule_name",
    "schedule_id",
)


def schedule_values(schedule: tuple[str, str], zone: Zone, nominal: Instant) -> Mapping[str, bytes]:
    """Values of the placeholders; `schedule` is its id and name."""
    local = local_text(zone, nominal)
    schedule_id, name = schedule
    plain = {
        "scheduled_at": utc_text(nominal),
        "scheduled_local": local,
        "scheduled_date": local.partition("T")[0],
        "scheduled_unix": str(nominal // 1000),
        "schedule_name": name,
        "schedule_id": schedule_id,
    }
    # The texts are JSON, and placeholders stand within its strings: escaped, the whole stays JSON.
    return {key: msgspec.json.encode(value)[1:-1] for key, value in plain.items()}


def fill_schedule_template(text: bytes, values: Mapping[str, bytes]) -> bytes:
    if b"{{" not in text:
        return text
    return _SCHEDULE_PLACEHOLDER.sub(lambda match: values.get(match[1].decode(), match[0]), text)


def unknown_schedule_placeholders(job: Spec) -> list[str]:
    """Placeholders that are not known: spelling mistakes, or meant for another tool."""
    found = [
        match.decode()
        for text in (job.task, job.payload)
        for match in _SCHEDULE_PLACEHOLDER.findall(text)
    ]
    return [name for name in dict.fromkeys(found) if name not in SCHEDULE_PLACEHOLDERS]


EVENT_ROOTS = ("event", "events", "count", "trigger")
_EVENT_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][^{}]*?)\s*\}\}")
_EMPTY = (b"", b"{}")
_NULL = b"null"


def check_event_placeholders(job: Spec) -> None:
    """Refuses placeholders that are not known: spelling mistakes, or meant for another tool."""
    for name in _placeholders_in(msgspec.json.decode(job.task)) + _placeholders_in(_payload(job)):
        path = _placeholder_path(name)
        if path.steps[0] not in EVENT_ROOTS:
            values = "{{event.data.…}}, {{event.id}}, {{events}}, {{count}}, {{trigger.name}}"
            raise Invalid(f"there is no placeholder {{{{{name}}}}}; there are {values}", "job")


def _payload(job: Spec) -> Any:
    return msgspec.json.decode(job.payload) if job.payload else {}


@functools.lru_cache(maxsize=TEMPLATES_CACHED_MAX)
def _placeholder_path(text: str) -> Path:
    # A filter's path may leave `event` out; here it is one of several roots, and stays.
    try:
        return Path(parse_path(f"root.{text}").steps[1:])
    except Invalid as refusal:
        raise Invalid(f"{{{{{text}}}}}: {refusal.detail}", "job") from None


def _placeholders_in(value: Any) -> list[str]:
    found: list[str] = []

    def note(text: str) -> str:
        found.extend(_EVENT_PLACEHOLDER.findall(text))
        return text

    _walk(value, note)
    return found


def fill_event_template(job: Spec, values: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Task and payload for these events. A job without a payload gets the whole event."""
    task, payload = job.task, job.payload
    if b"{{" in task:
        task = msgspec.json.encode(_walk(msgspec.json.decode(task), lambda t: _as_text(t, values)))
    if payload in _EMPTY:
        whole = values["event"] if values["count"] is None else {"events": values["events"]}
        # Without a task the payload is a function's arguments, and the event is its only one.
        payload = msgspec.json.encode({"args": [whole]} if job.task == _NULL else whole)
    elif b"{{" in payload:
        walked = _walk(msgspec.json.decode(payload), lambda text: _as_value(text, values))
        payload = msgspec.json.encode(walked)
    return task, payload


def _walk(value: Any, fill: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, list):
        return [_walk(one, fill) for one in value]
    if isinstance(value, dict):
        return {name: _walk(one, fill) for name, one in value.items()}
    return value


def _as_value(text: str, values: Mapping[str, Any]) -> Any:
    whole = _EVENT_PLACEHOLDER.fullmatch(text)
    if whole is None:
        return _as_text(text, values)
    found = look_up(_placeholder_path(whole[1]), values)
    return None if found is MISSING else found


def _as_text(text: str, values: Mapping[str, Any]) -> str:
    return _EVENT_PLACEHOLDER.sub(
        lambda match: _text_of(look_up(_placeholder_path(match[1]), values)), text
    )


def _text_of(value: Any) -> str:
    if value is MISSING or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
