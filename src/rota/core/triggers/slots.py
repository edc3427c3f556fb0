"""Fills what an event said into a trigger's job: `{{event.data.path}}` and the like.

A slot that is the whole of a text in the payload becomes the value itself, with its kind; anywhere
else it becomes text. There is nothing to execute.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rota.core.errors import Invalid
from rota.core.limits import TEMPLATES_CACHED_MAX
from rota.core.model import Spec
from rota.core.triggers.filter_text import Path, parse_path
from rota.core.triggers.filters import MISSING, look_up

EVENT_ROOTS = ("event", "events", "count", "trigger")
_EVENT_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][^{}]*?)\s*\}\}")
_EMPTY = (b"", b"{}")
_NULL = b"null"


def check_event_placeholders(job: Spec) -> None:
    """Refuses slots that nothing would fill: spelling mistakes, or another tool's."""
    for name in _placeholders_in(msgspec.json.decode(job.task)) + _placeholders_in(_payload(job)):
        path = _placeholder_path(name)
        if path.steps[0] not in EVENT_ROOTS:
            known = "{{event.data.…}}, {{event.id}}, {{events}}, {{count}}, {{trigger.name}}"
            raise Invalid(f"nothing would fill {{{{{name}}}}}; there are {known}", "job")


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


def fill_event_template(job: Spec, known: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Task and payload for what happened. A job that asks for no payload gets the whole event."""
    task, payload = job.task, job.payload
    if b"{{" in task:
        task = msgspec.json.encode(_walk(msgspec.json.decode(task), lambda t: _as_text(t, known)))
    if payload in _EMPTY:
        whole = known["event"] if known["count"] is None else {"events": known["events"]}
        # Without a task the payload is a function's arguments: the event is the one it takes.
        payload = msgspec.json.encode({"args": [whole]} if job.task == _NULL else whole)
    elif b"{{" in payload:
        walked = _walk(msgspec.json.decode(payload), lambda text: _as_value(text, known))
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


def _as_value(text: str, known: Mapping[str, Any]) -> Any:
    whole = _EVENT_PLACEHOLDER.fullmatch(text)
    if whole is None:
        return _as_text(text, known)
    found = look_up(_placeholder_path(whole[1]), known)
    return None if found is MISSING else found


def _as_text(text: str, known: Mapping[str, Any]) -> str:
    return _EVENT_PLACEHOLDER.sub(
        lambda slot: _text_of(look_up(_placeholder_path(slot[1]), known)), text
    )


def _text_of(value: Any) -> str:
    if value is MISSING or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
