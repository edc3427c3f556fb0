"""Whatever is written, a parser gives a value or its own refusal in words, and soon.

Each line below is one parser that reads what comes from outside: what it is given, and the only
thing it may raise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.alerts.notifier import check_address
from rota.api.endpoints import OPERATIONS
from rota.api.endpoints.jobs import JobsQuery
from rota.api.pagination import read_cursor, read_id_cursor
from rota.api.parsing.cloudevents import read_events
from rota.api.parsing.request import QueryReader, decode_json, read_json
from rota.api.parsing.webhook_signatures import check_signature
from rota.api.throttling import address_group
from rota.cli import options, simulate
from rota.cli.problems import Failure
from rota.cli.simulate import read_policy
from rota.cli.submit import jobs_in
from rota.core.errors import Invalid
from rota.core.expressions import StepLimitError, parse_filter, parse_path, passes, read_filter
from rota.core.schedules.cron import CronError, parse_cron
from rota.events.config import ConfigError, read_config
from rota.gateway import lists, stream
from rota.simulate.fleet import single_machine_fleet
from rota.simulate.trace_readers import TraceError, read_history, read_swf, read_workflow
from rota.store.documents import Hook
from rota.store.journal import decode_record
from rota.store.postgres.connect import parse_address
from rota.store.protocol import StoreError
from rota.wire.formats import (
    dec_hook,
    make_cursor,
    parse_cursor,
    parse_deadline,
    parse_duration,
    parse_size,
    tag_in,
)
from rota.wire.problems import ProblemError
from rota.wire.traces import TraceParent, parse_traceparent
from tests.doubt import examples
from tests.fuzz.shapes import altered, numbers, plain, raw, texts, values

PROCESSOR_S_MAX = 10.0
"""For one input: hundreds of times what any of them takes, and far from what a loop would."""


class Parser(NamedTuple):
    """One reader of what comes from outside."""

    name: str
    read: Callable[[Any], Any]
    given: st.SearchStrategy[Any]
    refusal: type[Exception] | tuple[type[Exception], ...]


EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "a.b", "data": {"n": [1, "x"]}}
HOOK = Hook(
    name="h", scheme="stripe", secrets=("s" * 32,), type="t", tolerance_ms=1, created_at=0,
    updated_at=0,
)  # fmt: skip
FILTERS = (
    'type == "a.b" and data.n[0] > 1',
    "not (has(data.x) or lower(data.y) in ['a', \"b\"])",
    'matches(data.path, "in/*.csv") and len(data.n) <= 3',
)
RECIPE = "jobs=100,rate=20/s,run=60s,cpu=1-4,memory=1GiB"
JOBS_QUERY = (
    b"status=queued,running&priority=5&label=a:b&limit=10&created_after=2026-01-01T00:00:00%2B01:00"
)


def both(*examples_: str) -> st.SearchStrategy[Any]:
    """What stands in a text, or is a number or anything else in JSON."""
    return texts(*examples_) | plain | values


def events_of(given: tuple[dict[str, str], bytes]) -> Any:
    headers, body = given
    pairs = [(name.encode(), text.encode("utf-8", "replace")) for name, text in headers.items()]
    return read_events({"headers": pairs}, body)


def filtered(given: tuple[Any, Any]) -> bool:
    wanted, event = given
    try:
        tree = read_filter(msgspec.json.encode(wanted))
        return passes(tree, {**EVENT, "data": event})
    except StepLimitError:
        return False


def fires(text: str) -> list[int]:
    """The next instants of an expression: it must find them, or that there are none, soon."""
    cron, at = parse_cron(text), 0
    found: list[int] = []
    while len(found) < 3 and (next_ := cron.next_local(at, cron.next_day)) is not None:
        assert next_ >= at
        found.append(next_)
        at = next_ + 1
    return found


json_bodies = values.map(lambda one: json.dumps(one).encode("utf-8", "replace"))
event_bodies = altered(EVENT).map(lambda one: json.dumps(one).encode("utf-8", "replace"))
ce_headers = st.dictionaries(
    st.sampled_from(
        ["content-type", "ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time", "ce-own"]
    ),
    texts("1.0", "application/json", "application/cloudevents+json", "2026-01-01T00:00:00Z"),
)
PARSERS = [
    Parser("duration", parse_duration, both("90s", "1h30m", "1.5h", "5 m"), ValueError),
    Parser("size", parse_size, both("512MiB", "2GB", "1.5k"), ValueError),
    Parser("deadline", parse_deadline, both("2h", "2026-01-01T00:00:00+01:00"), ValueError),
    Parser("cron", fires, texts("0 9 * * MON-FRI", "*/5 0 0 L 2 ?", "@daily", "0 0 29 2 1"),
           CronError),
    Parser("filter", parse_filter, texts(*FILTERS), Invalid),
    Parser("path", parse_path, texts("data.customer['id'][0].x", "event.data"), Invalid),
    Parser("filter of an event", filtered, st.tuples(
        st.sampled_from(FILTERS) | altered({"a": 1, "b.c": ["x", 2], "d": {"e": None}}), values,
    ).filter(lambda given: encodable(given)), Invalid),
    Parser("cursor", lambda text: parse_cursor(text, 200), texts(make_cursor("a" * 36)),
           ValueError),
    Parser("cursor of a list", read_cursor, texts(make_cursor("x")), ProblemError),
    Parser("cursor of ids", read_id_cursor, texts(make_cursor("0" * 36)), ProblemError),
    Parser("cursor of a gateway", lists.read_cursor,
           texts(str(lists.write_cursor({"north": "x"}))), ValueError),
    Parser("place in a gateway's stream", stream.read_event_id, texts("north=42.0,south=1"),
           ProblemError),
    Parser("traceparent", parse_traceparent, texts(f"00-{'a' * 32}-{'b' * 16}-01"), ()),
    Parser("cell of an id", tag_in, texts("01a1e084-e300-7000-98ef-464423f46e12"), ()),
    Parser(
        "address", address_group, texts("::1", "fe80::1%eth0", "127.0.0.1", "::ffff:1.2.3.4"), ()
    ),
    Parser("events", events_of, st.tuples(
        ce_headers, event_bodies | json_bodies | raw(json.dumps(EVENT).encode()),
    ), ProblemError),
    Parser("signature", lambda text: check_signature(HOOK, {"stripe-signature": text}, b"{}", 0),
           texts("t=1700000000,v1=" + "0" * 64), ProblemError),
    Parser("query", QueryReader(JobsQuery).read, raw(JOBS_QUERY), ProblemError),
    Parser("free JSON", lambda body: read_json("payload", body), json_bodies | raw(b'{"a":[1]}'),
           ProblemError),
    Parser("journal", decode_record, raw(b"\x01\x91\x92\xa3abc\xc0") | st.binary().map(
        lambda body: b"\x01" + body), StoreError),
    Parser("store", parse_address, texts("postgresql://u:p@[::1]:5432/db?sslmode=require"),
           StoreError),
    Parser("channel", check_address, texts("https://a.example/x", "mailto://u:p@h"), ValueError),
    Parser("time", options.time, texts("2026-03-01T09:00:00+01:00", "2h", "0001-01-01"),
           click.BadParameter),
    Parser("past time", options.past, texts("2026-03-01 09:00", "9999-12-31"), click.BadParameter),
    Parser("deadline of a command", options.deadline, texts("2h", "2026-03-01"),
           click.BadParameter),
    Parser("rate", options.request_rate, texts("1000/1s", "none", "5/m"), click.BadParameter),
    Parser("synthetic work", lambda text: simulate.recipe_of(text, single_machine_fleet(8, 0)),
           texts(RECIPE, "jobs=5,load=0.8,estimates=exact"), click.BadParameter),
]  # fmt: skip


def encodable(value: Any) -> bool:
    """What came as JSON has no lone surrogates and no numbers that JSON has not."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return False
    return True


def held(parser: Parser, given: Any) -> None:
    """Reads it; anything but a value or the parser's own refusal is a fault."""
    before, said = time.process_time(), "a value"
    try:
        parser.read(given)
    except parser.refusal as refusal:
        said = str(refusal)
    assert said.strip(), "a refusal without a word"
    assert time.process_time() - before < PROCESSOR_S_MAX


# A library that knows how services are told asks for a module that Python is about to drop.
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_a_parser_gives_a_value_or_its_own_refusal(parser: Parser) -> None:
    @settings(max_examples=examples(25, 500))
    @given(parser.given)
    def holds(given: Any) -> None:
        held(parser, given)

    holds()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("journal", b"\x01\x91\xa3\xff\xfe\xfd"),
        ("journal", b"\x01" + b"\x91" * 100_000),
        ("store", "postgresql://[::1"),
        ("store", "postgresql://u@h/db?a=\ud800"),
        ("channel", "https://a.example:x/"),
        ("channel", "https://a\x00.example/"),
    ],
    ids=lambda given: repr(given)[:24],
)
def test_what_broke_a_parser_once_is_refused(name: str, given: Any) -> None:
    [parser] = [one for one in PARSERS if one.name == name]
    with pytest.raises(parser.refusal):
        parser.read(given)


TOML = """
version = 1
url = "http://127.0.0.1:7070"
[[source]]
kind = "folder"
name = "inbox"
path = "in"
[[sink]]
kind = "webhook"
name = "audit"
url = "https://example.org/hook"
secret = "a-secret-of-32-characters-or-so!"
"""
POLICY = 'preset = "easy"\nbeta = 3\nhalf_life = "12h"\n'
JOB_LINE = '{"name": "n", "task": {"kind": "noop"}, "priority": 1}\n'
SWF = "; MaxProcs: 8\n1 0 -1 5 1 -1 -1 -1 60 -1 1 1 1 1 1 -1 -1 -1\n"
WORKFLOW = '{"workflow": {"tasks": [{"name": "a", "runtimeInSeconds": 1, "parents": []}]}}'
HISTORY = (
    '{"rota_history": 1}\n{"job_id": "a", "name": "n", "submitted_at": "2026-01-01T00:00:00Z",'
    ' "started_at": "2026-01-01T00:00:01Z", "finished_at": "2026-01-01T00:00:02Z"}\n'
)
FILES = [
    Parser("events.toml", read_config, raw(TOML.encode()), ConfigError),
    Parser("policy.toml", read_policy, raw(POLICY.encode()), Failure),
    Parser("jobs.jsonl", lambda path: list(jobs_in(str(path), {})), raw(JOB_LINE.encode()),
           Failure),
    Parser("trace.swf", read_swf, raw(SWF.encode()), TraceError),
    Parser("workflow.json", read_workflow, raw(WORKFLOW.encode()), TraceError),
    Parser("history.jsonl", read_history, raw(HISTORY.encode()), TraceError),
]  # fmt: skip


@pytest.mark.parametrize("parser", FILES, ids=lambda parser: parser.name)
def test_a_file_is_read_or_refused_in_words(parser: Parser, tmp_path: Path) -> None:
    path = tmp_path / parser.name

    @settings(max_examples=examples(25, 500))
    @given(parser.given)
    def holds(body: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(body)
        held(parser, path)

    holds()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("events.toml", b"a = " + b"[" * 20_000),
        ("events.toml", b"a = " + b"9" * 5_000),
        ("events.toml", b'url = "file:\\u0000"'),
        ("policy.toml", b"a = " + b"[" * 20_000),
        ("policy.toml", b"a = " + b"9" * 5_000),
        ("jobs.jsonl", b'{"a":' * 5_000),
        ("jobs.jsonl", b'{"a": "\xff"}'),
    ],
    ids=lambda given: str(given)[:24],
)
def test_a_file_that_broke_its_reader_once_is_refused(
    name: str, body: bytes, tmp_path: Path
) -> None:
    [parser] = [one for one in FILES if one.name == name]
    path = tmp_path / name
    path.write_bytes(body)
    with pytest.raises(parser.refusal):
        parser.read(path)


BODIES = [
    one for one in OPERATIONS
    if isinstance(one.body, type) and issubclass(one.body, msgspec.Struct) and not one.reads_body
]  # fmt: skip


@settings(max_examples=examples(100, 3_000))
@given(st.data())
def test_every_body_is_decoded_or_its_fault_is_named(data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(BODIES))
    example = json.loads(msgspec.json.encode(operation.examples["body"]))
    body = json.dumps(data.draw(altered(example))).encode("utf-8", "replace")
    decoder = msgspec.json.Decoder(operation.body, dec_hook=dec_hook)
    status = 200
    try:
        decode_json(decoder.decode, operation.body, body)
    except ProblemError as refusal:
        status = refusal.status
    assert status in (200, 400, 422)


@given(st.text(max_size=100).filter(encodable))
def test_a_cursor_leads_back_to_what_it_was_made_of(last: str) -> None:
    assert parse_cursor(make_cursor(last), 1000) == last


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), min_size=1).filter(encodable))
def test_a_gateways_cursor_leads_back_to_every_cell(places: dict[str, str | None]) -> None:
    assert lists.read_cursor(str(lists.write_cursor(places))) == places


@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
)
def test_a_traceparent_reads_as_it_was_written(trace: int, span: int, sampled: bool) -> None:
    given = TraceParent(f"{trace:032x}", f"{span:016x}", sampled)
    assert parse_traceparent(str(given)) == given


@given(numbers)
def test_a_number_is_a_duration_just_where_it_is_a_length_of_time(number: float) -> None:
    try:
        length = parse_duration(number)
    except ValueError:
        assert not 0 <= number <= 10 * 366 * 86_400
    else:
        assert abs(length.ms - number * 1000) <= 0.5
