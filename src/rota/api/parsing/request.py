"""Parses requests within limits: JSON bodies, batches of jobs, and query strings.

A batch whose neighbouring jobs have the same bytes is decoded once for all of them.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, inspect
from starlette.types import Message, Receive, Scope

from rota.api.cancel_on_disconnect import first_of
from rota.api.limits import BODY_READ_S, JSON_DEPTH_MAX, QUERY_FIELDS_MAX
from rota.api.parsing.error_text import alternatives, entry_path, reword
from rota.api.parsing.null_defaults import without_nulls
from rota.api.problems import RETRY_AFTER_S, invalid
from rota.wire.formats import dec_hook
from rota.wire.jobs import BatchJobSpec, BatchSpec
from rota.wire.limits import BATCH_JOBS_MAX
from rota.wire.problems import ClientDisconnectedError, FieldError, ProblemError

T = TypeVar("T")

_PATH = re.compile(r"^(?P<text>.*) - at (?:`key` in )?`\$?(?P<path>.*)`$", re.DOTALL)
_QUOTED = re.compile(r"`([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")
_LOST_PLUS = re.compile(r" (\d\d:\d\d)$")
_DATED = re.compile(r"\d{4}-")
_RULE = re.compile(r"(?P<field>(?P<name>[a-z]\w*)(?:\[\d+\])?) (?P<text>.*)", re.DOTALL)
"""Message of a check of a whole object: it begins with the name of the wrong field."""
_COMPLETE = "rota.whole"
_UNKNOWN = "Object contains unknown field "
_MISSING = "Object missing required field "
_KINDS = "`command`, `python`, `http`, `bundle`, `container` and `noop`"


def mark_complete(scope: Scope) -> None:
    """Notes that the whole request has arrived, so that reading it does not wait."""
    scope[_COMPLETE] = True


def is_complete(scope: Scope) -> bool:
    """Whether the whole request has arrived."""
    return _COMPLETE in scope


def until_stopping(receive: Receive, closing: asyncio.Event) -> Receive:
    """Returns a `receive` that refuses an incomplete body once the server stops.

    Nothing takes effect before the whole body is there. A client that is refused sends it again, to
    another server or the next one; without an answer it would not know.
    """
    is_complete_here = False

    async def receiving() -> Message:
        nonlocal is_complete_here
        if is_complete_here:
            return await receive()
        message = await first_of(_next(receive), closing.wait())
        if message is None:
            raise _stopping()
        is_complete_here = not message.get("more_body", False)
        return message

    return receiving


async def _next(receive: Receive) -> Message:
    return await receive()


def _stopping() -> ProblemError:
    detail = "the server stopped before it had the whole body: nothing was done; try again"
    headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
    return ProblemError(503, "unavailable", detail, headers=headers)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Reads the whole body; refuses it once it is larger than `limit`, whatever length was
    declared."""
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    if is_complete(scope):
        return await _receive_all(receive, limit)
    try:
        async with asyncio.timeout(BODY_READ_S):
            return await _receive_all(receive, limit)
    except TimeoutError:
        raise too_slow() from None


async def _receive_all(receive: Receive, limit: int) -> bytes:
    message = await receive()
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False) and message["type"] == "http.request":
        if len(first) > limit:
            raise _too_large(limit)
        return first
    pieces, size = [first], len(first)
    while message.get("more_body", False) and size <= limit:
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
    if message["type"] != "http.request":
        raise ClientDisconnectedError
    if size > limit:
        raise _too_large(limit)
    return b"".join(pieces)


def too_slow() -> ProblemError:
    """Refuses a body that stopped arriving; the connection cannot be used again."""
    detail = f"the body stopped arriving: nothing came for {BODY_READ_S:.0f} s"
    return ProblemError(408, "too_slow", detail, headers={"Connection": "close"})


def _too_large(limit: int) -> ProblemError:
    # The rest of the body is not read, so the connection cannot be used again.
    return ProblemError(
        413, "too_large", f"the body is larger than {limit} bytes", headers={"Connection": "close"}
    )


def header(scope: Scope, name: bytes) -> bytes | None:
    """Returns the first header of that lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def require_json(scope: Scope) -> None:
    """Refuses a body that is declared to be something other than JSON."""
    encoding = (header(scope, b"content-encoding") or b"identity").strip().lower()
    if encoding != b"identity":
        detail = f"send the body without Content-Encoding; this one says {_shown(encoding)}"
        raise ProblemError(415, "encoded", detail, headers={"Accept-Encoding": "identity"})
    content_type = header(scope, b"content-type")
    if content_type is None:
        return
    media = content_type.split(b";", 1)[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        detail = f"send the body as application/json; this one says {_shown(media)}"
        raise ProblemError(415, "not_json", detail)


def _shown(value: bytes) -> str:
    return repr(value.decode("latin-1")[:100])


def decode_json(decode: Callable[[bytes], T], kind: Any, body: bytes) -> T:
    """Decodes the body as its type; every failure is the sender's.

    Null for a field with a default means the default.
    """
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        fewer = without_nulls(body, kind)
        if fewer is None:
            exactly = partial(entry_path, message=str(error), body=body, decode=decode)
            raise decode_problem(error, kind, exactly) from None
        return decode_json(decode, kind, fewer)
    except msgspec.DecodeError as error:
        text = "the body is empty" if not body else str(error)
        raise ProblemError(400, "malformed", f"the body is not valid JSON: {text}") from None
    except UnicodeDecodeError:
        raise ProblemError(400, "malformed", "the body is not valid UTF-8") from None
    except RecursionError:
        raise ProblemError(400, "malformed", "the body is nested too deeply") from None


def read_json(field: str, raw: bytes) -> Any:
    """Decodes a free JSON value and checks it: UTF-8, no lone surrogates, numbers in range, not too
    deep."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise invalid(field, f"nested deeper than {JSON_DEPTH_MAX}") from None
    check_depth(field, raw, value)
    return value


def check_depth(field: str, raw: bytes, value: Any) -> None:
    """Refuses nesting that another JSON parser would fail on."""
    # Counting brackets is fast, and a few of them cannot nest deeply.
    if raw.count(b"[") + raw.count(b"{") > JSON_DEPTH_MAX and _depth(value) > JSON_DEPTH_MAX:
        raise invalid(field, f"nested deeper than {JSON_DEPTH_MAX}")


def _depth(value: Any) -> int:
    """Counts nested containers, up to the limit."""
    depth, level = 0, [value]
    while depth <= JSON_DEPTH_MAX and any(isinstance(one, dict | list) for one in level):
        level = [inner for outer in level for inner in _inside(outer)]
        depth += 1
    return depth


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def decode_problem(
    error: msgspec.ValidationError, kind: Any, exactly: Callable[[str], str] = str
) -> ProblemError:
    """Converts a decoder's message to a field and a sentence; `exactly` completes the field's
    path."""
    text, path = str(error), ""
    if found := _PATH.match(text):
        text, path = found["text"], found["path"]
    field, message = exactly(path).lstrip("."), text
    if text.startswith((_UNKNOWN, _MISSING)) and (quoted := _QUOTED.search(text)):
        name = quoted.group(1)
        field = f"{field}.{name}" if field else name
        unknown = text.startswith(_UNKNOWN)
        message = _unknown_field(name, path, kind) if unknown else f"`{name}` is required"
    elif (rule := _RULE.match(text)) and rule["name"] in _names_at(kind, path):
        field, message = f"{field}.{rule['field']}".lstrip("."), rule["text"]
    elif path.endswith("task.kind"):
        message = _task_kind(text)
    else:
        message = reword(text, _types_at(kind, path))
    detail = f"{field}: {message}" if field else message
    return ProblemError(422, "invalid", detail, errors=[FieldError(field, message)])


def _task_kind(text: str) -> str:
    return f"{text}: this server runs {_KINDS}"


def _unknown_field(name: str, path: str, kind: Any) -> str:
    known = _names_at(kind, path)
    if name in known:
        return f"`{name}` does not go with this kind"
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    if near:
        return f"unknown field `{name}`; did you mean `{near[0]}`?"
    shown = ", ".join(f"`{one}`" for one in known)
    return f"unknown field `{name}`; known here: {shown}" if shown else f"unknown field `{name}`"


def _names_at(kind: Any, path: str) -> list[str]:
    """Returns the field names that the type has at a path such as `.jobs[0].retry`."""
    names = (field.encode_name for one in _types_at(kind, path) for field in _fields(one))
    return list(dict.fromkeys(names))


def _types_at(kind: Any, path: str) -> list[inspect.Type]:
    here: list[inspect.Type] = [_type_info(kind)]
    for step in _STEP.finditer(path):
        here = [after for one in here for after in _step_into(one, step.group(1))]
    return here


@cache
def _type_info(kind: Any) -> inspect.Type:
    """Caches type info: there are a few hundred types, and refused calls never end."""
    return inspect.type_info(kind)


def _fields(kind: inspect.Type) -> Iterator[inspect.Field]:
    for one in alternatives(kind):
        if isinstance(one, inspect.StructType):
            yield from one.fields


def _step_into(kind: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    if name is not None:
        yield from (field.type for field in _fields(kind) if field.encode_name == name)
        return
    for one in alternatives(kind):
        if isinstance(one, inspect.ListType):
            yield one.item_type
        elif isinstance(one, inspect.DictType):
            yield one.value_type


class QueryReader:
    """Decodes a query string as one struct; refuses unknown and repeated parameters."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        self._known: list[str] = []
        self._lists: list[str] = []
        self._flags: list[str] = []
        self._times: list[str] = []
        self._plain: list[str] = []
        """Parameters for which the word `null` is an ordinary value."""
        shape = _type_info(kind)
        assert isinstance(shape, inspect.StructType)
        for field in shape.fields:
            options = list(alternatives(field.type))
            self._known.append(field.encode_name)
            for names, wanted in (
                (self._lists, inspect.ListType),
                (self._flags, inspect.BoolType),
                (self._times, inspect.DateTimeType),
                (self._plain, inspect.StrType | inspect.ListType),
            ):
                if any(isinstance(one, wanted) for one in options):
                    names.append(field.encode_name)

    def read(self, query: bytes) -> Any:
        """Returns the struct; a parameter without a value counts as left out (a flag: as true)."""
        given: dict[str, Any] = {}
        for name, text in _pairs(query) if query else ():
            value = self._normalise(name, text)
            if name in self._lists:
                given.setdefault(name, []).append(value)
            elif name in given:
                raise invalid(name, "given twice")
            elif value or name not in self._known:
                given[name] = value
        try:
            return msgspec.convert(given, self._kind, strict=False, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            raise decode_problem(error, self._kind) from None

    def _normalise(self, name: str, value: str) -> str:
        """Corrects a value, and refuses what the converter would misread."""
        if not value and name in self._flags:
            return "true"
        if value and name in self._times:
            # In a query "+" means a space: an offset that was not escaped has lost its plus.
            value = _LOST_PLUS.sub(r"+\1", value)
            if not _DATED.match(value):  # a bare number would be seconds since 1970
                raise invalid(name, "not a time: write it like 2026-01-31T09:00:00Z")
        if value.lower() == "null" and name in self._known and name not in self._plain:
            raise invalid(name, "null is no value: leave it out")  # it would count as not given
        return value


@cache
def query_reader(kind: type[msgspec.Struct]) -> QueryReader:
    """Returns the reader of this type; most operations share the one without parameters."""
    return QueryReader(kind)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except UnicodeDecodeError:
        raise ProblemError(400, "malformed", "the query is not valid UTF-8") from None
    except ValueError:
        detail = f"more than {QUERY_FIELDS_MAX} query parameters"
        raise ProblemError(422, "invalid", detail) from None
    if any("\x00" in name or "\x00" in value for name, value in pairs):
        raise ProblemError(422, "invalid", "a query parameter holds a NUL character")
    return pairs


class _RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Batch whose jobs are split and not decoded."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=BATCH_JOBS_MAX)]


_decode_raw_batch = msgspec.json.Decoder(_RawBatch).decode
_decode_batch_job = msgspec.json.Decoder(BatchJobSpec, dec_hook=dec_hook).decode
_decode_batch = msgspec.json.Decoder(BatchSpec, dec_hook=dec_hook).decode


def read_batch(body: bytes) -> BatchSpec:
    """Decodes a batch; neighbouring jobs with the same bytes become one object.

    So what is computed for a job can be reused for its neighbour, recognised by identity.
    """
    try:
        return BatchSpec(jobs=_batch_jobs(_decode_raw_batch(body).jobs))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Only decoding the whole batch gives the path of what is wrong.
        return _decode_batch(body)


def _batch_jobs(rows: Iterable[msgspec.Raw]) -> list[BatchJobSpec]:
    jobs: list[BatchJobSpec] = []
    job, last = None, None
    for row in rows:
        if job is None or row != last:
            job, last = _decode_batch_job(row), row
        jobs.append(job)
    return jobs
