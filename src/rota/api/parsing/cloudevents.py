"""Parses CloudEvents 1.0 over HTTP in structured, binary and batched mode."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.types import Scope

from rota.api.parsing.request import check_depth, header
from rota.api.problems import invalid
from rota.core.trigger_model import OWN_PREFIX, OWN_SOURCE, Event
from rota.wire.events import BATCHED, STRUCTURED
from rota.wire.limits import (
    ATTRIBUTE_CHARS_MAX,
    ATTRIBUTES_MAX,
    EVENT_BYTES_MAX,
    EVENT_TYPE_CHARS_MAX,
    EVENTS_BATCH_MAX,
)
from rota.wire.problems import ProblemError

DEPTH = "rotadepth"
"""Attribute with the number of triggers that led to an event, through jobs that send events."""
_DEPTH_MAX = 1_000
_NAME = re.compile(r"[a-z0-9]{1,64}\Z", re.ASCII)
_TYPE = re.compile(r"[^\s*\x00-\x1f\x7f-\x9f]+\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REQUIRED = ("id", "source", "type")
_JSON_MEDIA = re.compile(r"(application|text)/(json|[\w.+-]+\+json)\Z")
_KNOWN = ("specversion", "id", "source", "type", "time", "subject", "data", "data_base64")


def read_events(scope: Scope, raw: bytes) -> tuple[list[Event], bool]:
    """Parses the events of a request; returns them, and whether they came as a batch."""
    media = _media(scope)
    if header(scope, b"ce-specversion") is not None:
        return [_binary(scope, media, raw)], False
    if media not in ("", "application/json", STRUCTURED, BATCHED):
        raise ProblemError(
            415,
            "not_json",
            f"send an event as {STRUCTURED}, a batch as {BATCHED}, or any data with the event's "
            f"attributes as headers (`ce-id`, `ce-type` …); this one says {media[:100]!r}",
        )
    value = _decoded(raw)
    check_depth("", raw, value)
    if isinstance(value, list) and media != STRUCTURED:
        return _batch(value), True
    if media == BATCHED:
        raise invalid("", "a batch is a JSON array of events")
    return [read_structured(value)], False


def _media(scope: Scope) -> str:
    content_type = header(scope, b"content-type") or b""
    return content_type.split(b";", 1)[0].strip().lower().decode("latin-1")


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = "the body is empty" if not raw else str(error)
        raise ProblemError(400, "malformed", f"the body is not valid JSON: {text}") from None


def _batch(values: list[Any]) -> list[Event]:
    if not 1 <= len(values) <= EVENTS_BATCH_MAX:
        raise invalid("", f"a batch has 1 to {EVENTS_BATCH_MAX} events; this one has {len(values)}")
    return [read_structured(value, f"[{number}].") for number, value in enumerate(values)]


def read_structured(value: Any, where: str = "") -> Event:
    """Parses an event that is a JSON object; `where` is its path in a batch."""
    if not isinstance(value, dict):
        raise invalid(where.rstrip("."), "an event is a JSON object")
    attributes = {name: one for name, one in value.items() if name not in ("data", "data_base64")}
    data, encoded = value.get("data"), value.get("data_base64")
    if data is not None and encoded is not None:
        raise invalid(f"{where}data_base64", "an event has `data` or `data_base64`, not both")
    if encoded is not None:
        _check_base64(encoded, where)
        attributes["data_base64"] = encoded
    return make_event(attributes, b"" if data is None else msgspec.json.encode(data), where)


def _check_base64(text: Any, where: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise invalid(f"{where}data_base64", "not base64") from None


def _binary(scope: Scope, media: str, raw: bytes) -> Event:
    """Parses an event in binary mode: attributes are headers, the body is the data."""
    attributes: dict[str, Any] = {}
    for key, value in scope["headers"]:
        if key.startswith(b"ce-"):
            name = key[3:].decode("latin-1")
            attributes[name] = unquote(value.decode("latin-1"), errors="replace")
    if media:
        attributes["datacontenttype"] = media
    if len(raw) > EVENT_BYTES_MAX:
        raise too_large("")
    if not raw:
        return make_event(attributes, b"")
    if not media or _JSON_MEDIA.match(media):
        value = _decoded(raw)
        check_depth("data", raw, value)
        return make_event(attributes, b"" if value is None else msgspec.json.encode(value))
    if media.startswith("text/"):
        return make_event(attributes, msgspec.json.encode(raw.decode("utf-8", "replace")))
    attributes["data_base64"] = base64.b64encode(raw).decode()
    return make_event(attributes, b"")


def make_event(attributes: Mapping[str, Any], data: bytes, where: str = "") -> Event:
    """Checks all attributes and makes the event."""
    for name in _REQUIRED:
        if name not in attributes:
            raise invalid(where + name, f"`{name}` is required")
    if attributes.get("specversion", "1.0") != "1.0":
        raise invalid(f"{where}specversion", "this server takes CloudEvents 1.0")
    texts = {name: _text(attributes, name, where) for name in (*_REQUIRED, "time", "subject")}
    _check_type(texts["type"], f"{where}type")
    _check_time(texts["time"], f"{where}time")
    if texts["source"] == OWN_SOURCE:
        raise invalid(f"{where}source", f"the source `{OWN_SOURCE}` is the server's own")
    event = Event(
        texts["source"],
        texts["id"],
        texts["type"],
        data,
        texts["time"],
        texts["subject"],
        _extensions(attributes, where),
        _depth(attributes.get(DEPTH, 0), where),
    )
    size = len(data) + sum(len(str(one)) for pair in event.extensions for one in pair)
    if size + sum(len(text) for text in texts.values()) > EVENT_BYTES_MAX:
        raise too_large(where)
    return event


def too_large(where: str) -> ProblemError:
    """Refuses an event larger than a job's payload may be."""
    limit = f"{where}an event is at most {EVENT_BYTES_MAX} bytes"
    return ProblemError(413, "too_large", f"{limit}: store the data elsewhere and send a link")


def _text(attributes: Mapping[str, Any], name: str, where: str) -> str:
    value = attributes.get(name)
    if value is None and name not in _REQUIRED:
        return ""
    limit = EVENT_TYPE_CHARS_MAX if name == "type" else ATTRIBUTE_CHARS_MAX
    if not isinstance(value, str) or not 1 <= len(value) <= limit or _CONTROL.search(value):
        raise invalid(where + name, f"a text of 1 to {limit} characters, none of them control")
    return value


def _check_type(kind: str, field: str) -> None:
    if not _TYPE.match(kind):
        raise invalid(field, "dotted words without spaces or `*`, such as object.uploaded")
    if kind.startswith(OWN_PREFIX):
        raise invalid(field, f"types that begin with `{OWN_PREFIX}` are the server's own")


def _check_time(text: str, field: str) -> None:
    if not text:
        return
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise invalid(field, "an RFC 3339 time such as 2026-01-31T09:00:00Z")


def _depth(value: Any, where: str) -> int:
    number = (
        int(value) if isinstance(value, str) and value.isdecimal() and value.isascii() else value
    )
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _DEPTH_MAX:
        raise invalid(where + DEPTH, f"a number from 0 to {_DEPTH_MAX}")
    return number


def _extensions(
    attributes: Mapping[str, Any], where: str
) -> tuple[tuple[str, str | int | bool], ...]:
    found: list[tuple[str, str | int | bool]] = []
    for name, value in attributes.items():
        if value is None or (name in (*_KNOWN, DEPTH) and name != "data_base64"):
            continue
        if name != "data_base64":
            _check_extension(name, value, where)
        found.append((name, value))
    if len(found) > ATTRIBUTES_MAX:
        raise invalid(where.rstrip("."), f"more than {ATTRIBUTES_MAX} attributes of its own")
    return tuple(sorted(found))


def _check_extension(name: str, value: Any, where: str) -> None:
    if not _NAME.match(name):
        raise invalid(
            where + name[:100], "attributes are named in lower-case letters and digits; is it data?"
        )
    if isinstance(value, str):
        if len(value) > ATTRIBUTE_CHARS_MAX or _CONTROL.search(value):
            raise invalid(where + name, f"at most {ATTRIBUTE_CHARS_MAX} characters, none control")
    elif not isinstance(value, int) or abs(value) >= 1 << 63:
        raise invalid(where + name, "an attribute is a text, a whole number, true or false")
