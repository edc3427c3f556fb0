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
"""What a whole object is checked for: it begins with the name of the field that is at fault."""
_COMPLETE = "rota.whole"
_UNKNOWN = "Object contains unknown field "
_MISSING = "Object missing required field "
_KINDS = "`command`, `python`, `http`, `bundle`, `container` and `noop`"


def mark_complete(scope: Scope) -> None:
    """All of this request has come: to read it takes no time."""
    scope[_COMPLETE] = True


def is_complete(scope: Scope) -> bool:
    """Whether nobody has to wait for the rest of it."""
    return _COMPLETE in scope


def until_stopping(receive: Receive, closing: asyncio.Event) -> Receive:
    """The same request, of which no more is awaited once the server stops.

    Nothing is done before all of a body is there. Who hears so sends it again, to another server or
    the next one; who were left to wait would be broken off, and not know.
    """
    is_there = False

    async def receiving() -> Message:
        nonlocal is_there
        if is_there:
            return await receive()
        message = await first_of(_next(receive), closing.wait())
        if message is None:
            raise _stopping()
        is_there = not message.get("more_body", False)
        return message

    return receiving


async def _next(receive: Receive) -> Message:
    return await receive()


def _stopping() -> ProblemError:
    detail = "the server is stopping and had not got all of the body: nothing was done; ask again"
    headers = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
    return ProblemError(503, "unavailable", detail, headers=headers)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body; refused as soon as it is larger than `limit`, whatever its length says."""
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
    """The body stopped coming; the connection cannot be used again."""
    detail = f"nothing more of the body came for {BODY_READ_S:.0f} s"
    return ProblemError(408, "too_slow", detail, headers={"Connection": "close"})


def _too_large(limit: int) -> ProblemError:
    # The rest of the body is not read, so the connection cannot be used again.
    return ProblemError(
        413, "too_large", f"the body is larger than {limit} bytes", headers={"Connection": "close"}
    )


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def require_json(scope: Scope) -> None:
    """A body said to be something else is not guessed at."""
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
    """The body as its type; every way it can be wrong is the sender's.

    Null for what has a default means the default.
    """
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        fewer = without_nulls(body, kind)
        if fewer is None:
            exactly = partial(entry_path, said=str(error), body=body, decode=decode)
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
    """A free JSON value, checked: UTF-8, no lone surrogates, numbers in range, not too deep."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(field, f"not valid JSON: {error}") from None
    except RecursionError:
        raise invalid(field, f"nested deeper than {JSON_DEPTH_MAX}") from None
    check_depth(field, raw, value)
    return value


def check_depth(field: str, raw: bytes, value: Any) -> None:
    """Refuses nesting that some reader down the line would choke on."""
    # Counting brackets is quick, and few of them cannot nest deeply.
    if raw.count(b"[") + raw.count(b"{") > JSON_DEPTH_MAX and _depth(value) > JSON_DEPTH_MAX:
        raise invalid(field, f"nested deeper than {JSON_DEPTH_MAX}")


def _depth(value: Any) -> int:
    """How many containers are inside each other; counted no further than matters."""
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
    """What the decoder said, as a field and a sentence; `exactly` says more of where it is."""
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
    """The names of the fields that the type has at a path such as `.jobs[0].retry`."""
    names = (field.encode_name for one in _types_at(kind, path) for field in _fields(one))
    return list(dict.fromkeys(names))


def _types_at(kind: Any, path: str) -> list[inspect.Type]:
    here: list[inspect.Type] = [_type_info(kind)]
    for step in _STEP.finditer(path):
        here = [after for one in here for after in _step_into(one, step.group(1))]
    return here


@cache
def _type_info(kind: Any) -> inspect.Type:
    """Looked into once: there are a few hundred types, and calls that are refused never end."""
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
    """Reads a query string as one struct: unknown and doubled parameters are refused."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        self._known: list[str] = []
        self._lists: list[str] = []
        self._flags: list[str] = []
        self._times: list[str] = []
        self._plain: list[str] = []
        """Those for which the word `null` is just a word."""
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
        """The struct; a parameter without a value counts as not given (a flag: as true)."""
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
        """What was meant; refuses what the converter would read as something else."""
        if not value and name in self._flags:
            return "true"
        if value and name in self._times:
            # In a query "+" means a space: an offset that was not escaped has lost its sign.
            value = _LOST_PLUS.sub(r"+\1", value)
            if not _DATED.match(value):  # a bare number would be seconds since 1970
                raise invalid(name, "not a time: write it like 2026-01-31T09:00:00Z")
        if value.lower() == "null" and name in self._known and name not in self._plain:
            raise invalid(name, "null is no value: leave it out")  # it would count as not given
        return value


@cache
def query_reader(kind: type[msgspec.Struct]) -> QueryReader:
    """The one for this type: most calls take the same parameters, none."""
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
    """A batch whose jobs are told apart, and no more."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=BATCH_JOBS_MAX)]


_decode_raw_batch = msgspec.json.Decoder(_RawBatch).decode
_decode_batch_job = msgspec.json.Decoder(BatchJobSpec, dec_hook=dec_hook).decode
_decode_batch = msgspec.json.Decoder(BatchSpec, dec_hook=dec_hook).decode


def read_batch(body: bytes) -> BatchSpec:
    """The batch. Jobs in a row that were written with the same bytes are one and the same object.

    So whatever is made of a job can be had again for its neighbour, which is known by itself.
    """
    try:
        return BatchSpec(jobs=_batch_jobs(_decode_raw_batch(body).jobs))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Where in the batch it is wrong, only a reader of all of it can tell.
        return _decode_batch(body)


def _batch_jobs(rows: Iterable[msgspec.Raw]) -> list[BatchJobSpec]:
    jobs: list[BatchJobSpec] = []
    job, last = None, None
    for row in rows:
        if job is None or row != last:
            job, last = _decode_batch_job(row), row
        jobs.append(job)
    return jobs
