"""Invalid input of every kind: the answer is clear, blames the sender, and nothing has changed."""

from __future__ import annotations

import gzip
import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import wire
from rota.api.limits import NAMED_BODY_BYTES, NAMED_ENTRIES
from rota.api.pagination import read_cursor
from rota.api.parsing.error_text import entry_path
from rota.api.parsing.request import read_json
from rota.wire import formats
from rota.wire.formats import make_cursor
from rota.wire.limits import BODY_BYTES_MAX
from rota.wire.problems import ProblemError
from tests.api.in_process_server import NOOP, InProcessServer

START = b'{"name":"a","task":{"kind":"noop"}'

MALFORMED = {
    "empty": b"",
    "cut off": START,
    "two values": START + b"}{}",
    "NaN": START + b',"payload":NaN}',
    "byte order mark": b"\xef\xbb\xbf" + START + b"}",
    "not UTF-8": b'{"name":"\xff","task":{"kind":"noop"}}',
    "overlong UTF-8": b'{"name":"\xc0\xaf","task":{"kind":"noop"}}',
    "lone surrogate": b'{"name":"\\ud800","task":{"kind":"noop"}}',
    "surrogate inside": START + b',"payload":["\\udc00x"]}',
    "deep objects": START + b',"payload":' + b'{"a":' * 50_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_body_that_is_not_json_is_400(server: InProcessServer, body: bytes) -> None:
    answer = await server.http.post("/jobs", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for path in ("/jobs/batch", "/jobs/bulk", "/workers/register"):
        assert (await server.http.post(path, content=body)).status_code in (400, 422)
    assert (await server.ask("GET", "/jobs"))["items"] == []


async def test_a_body_nested_too_deeply_is_refused(server: InProcessServer) -> None:
    body = START + b',"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    answer = await server.http.post("/jobs", content=body)
    # Before Python 3.14 its reader gives up first, and says that it is no JSON it can read.
    assert answer.status_code in (400, 422)
    assert "nested" in answer.json()["detail"]
    assert (await server.ask("GET", "/jobs"))["items"] == []


SENSELESS: dict[str, tuple[bytes, str]] = {
    "unknown field": (b',"priorty":1', "priorty"),
    "wrong type": (b',"priority":"high"', "priority"),
    "fraction": (b',"priority":1.5', "priority"),
    "far too large": (b',"priority":' + b"9" * 5000, "priority"),
    "out of range": (b',"priority":1001', "priority"),
    "endless number": (b',"timeout":1e308', "timeout"),
    "infinite": (b',"timeout":1e999', "timeout"),
    "negative time": (b',"timeout":-1', "timeout"),
    "not a duration": (b',"timeout":"soon"', "timeout"),
    "no time at all": (b',"timeout":0', "timeout"),
    "many tries": (b',"retry":{"max_attempts":1000000000}', "retry.max_attempts"),
    "no offset": (b',"run_at":"2026-01-01T00:00:00"', "run_at"),
    "the end of time": (b',"run_at":"9999-12-31T23:59:59Z"', "run_at"),
    "before time": (b',"run_at":"0001-01-01T00:00:00Z"', "run_at"),
    "not UTF-8 inside": (b',"payload":"\xff"', "payload"),
    "deep inside": (b',"payload":' + b"[" * 200 + b"]" * 200, "payload"),
    "huge number inside": (b',"payload":' + b"9" * 5000, "payload"),
    "huge payload": (b',"payload":"' + b"x" * 1024 * 1024 + b'"', "payload"),
    "empty queue": (b',"queue":""', "queue"),
    "newline in queue": (b',"queue":"a\\n"', "queue"),
    "NUL in label": (b',"labels":{"a":"\\u0000"}', "labels.a"),
    "escape in label": (b',"labels":{"a":"\\u009b31m"}', "labels.a"),
    "one label of several": (b',"labels":{"a":"1","b":2,"c":"3"}', "labels.b"),
    "negative licence": (
        b',"requirements":{"custom":{"a":1,"licence":-1}}',
        "requirements.custom.licence",
    ),
    "many labels": (
        b',"labels":{' + b",".join(b'"k%d":"v"' % n for n in range(65)) + b"}",
        "labels",
    ),
    "NUL in key": (b',"concurrency":{"key":"\\u0000"}', "concurrency.key"),
    "no such state": (b',"status":"succeeded"', "status"),
    "own id": (b',"job_id":"019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"', "job_id"),
    "negative cpu": (b',"requirements":{"cpu":-1}', "requirements.cpu"),
    "not a size": (b',"requirements":{"memory":"lots"}', "requirements.memory"),
    "nested typo": (b',"requirements":{"memroy":1}', "requirements.memroy"),
}


@pytest.mark.parametrize(("extra", "field"), SENSELESS.values(), ids=SENSELESS.keys())
async def test_an_invalid_value_is_422_and_names_the_field(
    server: InProcessServer, extra: bytes, field: str
) -> None:
    one = START + extra + b"}"
    problem = (await server.http.post("/jobs", content=one)).json()
    assert problem["status"] == 422, problem
    assert problem["errors"][0]["field"] == field
    many = b'{"jobs":[' + START + b"}," + one + b"]}"
    problem = (await server.http.post("/jobs/batch", content=many)).json()
    assert problem["status"] == 422, problem
    assert problem["errors"][0]["field"] == f"jobs[1].{field}".rstrip(".")
    assert (await server.ask("GET", "/jobs"))["items"] == []


async def test_the_wrong_entry_of_an_object_is_named_if_the_body_is_small(
    server: InProcessServer,
) -> None:
    task = {"kind": "command", "argv": ["x"], "env": {"A": "1", "B": 2}}
    problem = await server.ask("POST", "/jobs", {"name": "a", "task": task}, expect=422)
    assert problem["errors"][0]["field"] == "task.env.B"
    many = {f"k{n}": n for n in range(NAMED_ENTRIES + 1)}
    problem = await server.ask(
        "POST", "/jobs", {"name": "a", "task": {**task, "env": many}}, expect=422
    )
    assert problem["errors"][0]["field"] == "task.env[...]"
    padded = {"name": "a", "task": task, "payload": "x" * NAMED_BODY_BYTES}
    problem = await server.ask("POST", "/jobs", padded, expect=422)
    assert problem["errors"][0]["field"] == "task.env[...]"


@pytest.mark.parametrize("second", [b"[]", b"5", b"[5]", b"[{}]", b'[{"labels":[]}]'])
async def test_a_body_with_a_repeated_name_is_refused_without_a_fault(
    server: InProcessServer, second: bytes
) -> None:
    """The path that the decoder reports leads to another value the second time."""
    first = b'[{"name":"a","task":{"kind":"noop"},"labels":{"x":1}}]'
    body = b'{"jobs":' + first + b',"jobs":' + second + b"}"
    answer = await server.http.post("/jobs/batch", content=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "jobs[0].labels[...]"


async def test_finding_the_wrong_entry_takes_a_few_reads() -> None:
    reads = 0

    def decode(body: bytes) -> Any:
        nonlocal reads
        reads += 1
        return msgspec.json.decode(body, type=dict[str, dict[str, str]])

    for fault in range(NAMED_ENTRIES):
        labels = {f"k{n}": n if n >= fault else "v" for n in range(NAMED_ENTRIES)}
        body = msgspec.json.encode({"labels": labels})
        with pytest.raises(msgspec.ValidationError) as refused:
            decode(body)
        said, reads = str(refused.value), 0
        # A path as that of a struct: its own decoder names the field.
        assert entry_path(".labels[...]", said, body, decode) == f".labels.k{fault}"
        assert reads <= 7


async def test_a_misspelt_field_gets_a_suggestion(server: InProcessServer) -> None:
    for extra, hint in (
        ({"priorty": 1}, "`priority`"),
        ({"requirements": {"memroy": 1}}, "`memory`"),
        ({"retry": {"max_attempt": 1}}, "`max_attempts`"),
        ({"task": {"kind": "command", "argv": ["x"], "enw": {}}}, "`env`"),
    ):
        body = {"name": "a", "task": NOOP, **extra}
        problem = await server.ask("POST", "/jobs", body, expect=422)
        assert f"did you mean {hint}" in problem["detail"]
    deep = {"jobs": [{"name": "a", "task": NOOP, "dependencies": [{"job_id": "x", "wen": 1}]}]}
    problem = await server.ask("POST", "/jobs/batch", deep, expect=422)
    assert problem["errors"][0]["field"] == "jobs[0].dependencies[0].wen"
    assert "`when`" in problem["detail"]


async def test_an_unknown_kind_of_task_is_refused_with_the_known_ones(
    server: InProcessServer,
) -> None:
    problem = await server.ask(
        "POST", "/jobs", {"name": "a", "task": {"kind": "magic"}}, expect=422
    )
    assert "`command`, `python`, `http`, `bundle`, `container` and `noop`" in problem["detail"]
    assert problem["errors"][0]["field"] == "task.kind"


async def test_a_body_that_is_too_large_is_refused_whatever_its_declared_length(
    server: InProcessServer,
) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1024 * 1024
            yield b" " * 1024 * 1024

    answer = await server.http.post("/jobs", content=endless())
    assert answer.status_code == 413
    assert taken <= BODY_BYTES_MAX + 2 * 1024 * 1024
    claimed = {"Content-Length": str(BODY_BYTES_MAX + 1)}
    assert (await server.http.post("/jobs", content=b"{}", headers=claimed)).status_code == 413


async def test_a_body_declared_as_something_else_is_refused(server: InProcessServer) -> None:
    body = START + b"}"
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await server.http.post("/jobs", content=body, headers={"Content-Type": media})
        assert answer.status_code == 415
    for media in ("application/json", "application/json; charset=utf-8", "application/x+json"):
        answer = await server.http.post("/jobs", content=body, headers={"Content-Type": media})
        assert answer.status_code == 201


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
async def test_a_compressed_body_is_refused_as_compressed(
    server: InProcessServer, encoding: str
) -> None:
    packed = {"Content-Encoding": encoding}
    answer = await server.http.post("/jobs", content=gzip.compress(START + b"}"), headers=packed)
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "identity"
    assert "Content-Encoding" in answer.json()["detail"]
    plain = {"Content-Encoding": "identity"}
    answer = await server.http.post("/jobs", content=START + b"}", headers=plain)
    assert answer.status_code == 201


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "control character": ({"name": "a\x00"}, "must have no control characters"),
    "a key": ({"labels": {"a\n": "b"}}, "must have no control characters"),
    "a name in paths": ({"queue": "a/b"}, "takes letters, digits and _ . : @ - only"),
    "no function": ({"task": {"kind": "python", "entry": "shop"}}, "package.module:function"),
    "no web address": ({"task": {"kind": "http", "url": "ftp://a"}}, "http:// or https://"),
    "no such choice": ({"semantics": "twice"}, "'twice' is none of at_least_once, at_most_once"),
    "no such choice inside": (
        {"dependencies": [{"job_id": "ref:a", "when": "never"}]},
        "'never' is none of failed, finished, succeeded",
    ),
    "no time": ({"run_at": "tomorrow"}, "write it like 2026-01-31T09:00:00Z"),
    "no offset": ({"run_at": "2026-01-31T09:00:00"}, "needs its offset from UTC"),
}


@pytest.mark.parametrize(("extra", "said"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_refusal_lists_the_valid_values(
    server: InProcessServer, extra: dict[str, Any], said: str
) -> None:
    problem = await server.ask("POST", "/jobs", {"name": "a", "task": NOOP, **extra}, expect=422)
    assert said in problem["errors"][0]["message"]
    assert "regex" not in problem["detail"]


NAMED = {
    "/queues": {},
    "/tenants": {"weight": 2},
    "/calendars": {"dates": []},
    "/hooks": {"scheme": "github", "secrets": ["0123456789abcdef"]},
    "/alerts": {"condition": "wait"},
    "/alert-channels": {"url": "https://a.example"},
}


@pytest.mark.parametrize("path", NAMED)
async def test_an_invalid_name_is_refused_with_the_rule(server: InProcessServer, path: str) -> None:
    problem = await server.ask("PUT", f"{path}/-a%20b", NAMED[path], expect=422)
    said = "takes letters, digits and _ . : @ - only, and begins with a letter, digit or _"
    assert problem["errors"] == [{"field": "name", "message": said}]


@pytest.mark.parametrize("path", NAMED)
async def test_a_name_that_is_too_long_is_refused_with_the_limit(
    server: InProcessServer, path: str
) -> None:
    problem = await server.ask("PUT", f"{path}/{'a' * 1000}", NAMED[path], expect=422)
    assert problem["errors"] == [{"field": "name", "message": "takes at most 255 characters"}]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("queue", "", "takes at least 1 character"),
        ("queue", "q" * 256, "takes at most 255 characters"),
        ("priority", 1001, "takes a number of at most 1000"),
        ("priority", -1001, "takes a number of at least -1000"),
        ("labels", {str(number): "" for number in range(65)}, "takes at most 64 entries"),
    ],
)
async def test_a_number_out_of_range_is_refused_with_the_limit(
    server: InProcessServer, field: str, value: object, said: str
) -> None:
    body = {"name": "j", "task": NOOP, field: value}
    problem = await server.ask("POST", "/jobs", body, expect=422)
    assert problem["errors"] == [{"field": field, "message": said}]


async def test_every_pattern_of_the_wire_has_an_error_text() -> None:
    said = set(formats.PATTERN_TEXTS)
    for module in pkgutil.iter_modules(wire.__path__):
        found = importlib.import_module(f"rota.wire.{module.name}")
        kinds = [one for one in vars(found).values() if isinstance(one, type)]
        for kind in kinds:
            if issubclass(kind, msgspec.Struct):
                assert set(_patterns_in(msgspec.inspect.type_info(kind))) <= said, kind


def _patterns_in(kind: Any) -> Iterator[str]:
    """Yields the patterns of texts of this type, or of one inside it."""
    if isinstance(kind, msgspec.inspect.StrType) and kind.pattern is not None:
        yield kind.pattern
    inside = [getattr(kind, name, None) for name in ("type", "item_type", "key_type", "value_type")]
    for one in [*inside, *getattr(kind, "types", ())]:
        if one is not None:
            yield from _patterns_in(one)
    for field in getattr(kind, "fields", ()):
        if not isinstance(field.type, msgspec.inspect.StructType):
            yield from _patterns_in(field.type)


async def test_a_head_request_of_a_stream_has_the_status_of_get(
    server: InProcessServer,
) -> None:
    nobody = "019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"
    for path in (f"/jobs/{nobody}/logs", f"/executions/{nobody}/artifacts/a.txt"):
        assert (await server.http.head(path)).status_code == 404, path
    job = await server.submit()
    head = await server.http.head(f"/jobs/{job['job_id']}/logs", params={"follow": "true"})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/plain")


async def test_other_methods_and_paths_are_problems_too(server: InProcessServer) -> None:
    answer = await server.http.delete("/jobs")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert answer.json()["status"] == 405
    missing = await server.http.get("/nothing/here")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert (await server.http.get("/jobs/")).status_code == 404
    options = await server.http.options("/jobs")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    job = await server.submit()
    head = await server.http.head(f"/jobs/{job['job_id']}")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 100


@pytest.mark.parametrize("query", ["queue=%00", "queue=%ff", "name=%ed%a0%80", "&".join("a" * 99)])
async def test_invalid_queries_are_refused(server: InProcessServer, query: str) -> None:
    assert (await server.http.get(f"/jobs?{query}")).status_code in (400, 422)


@pytest.mark.parametrize("name", ["%00", "%ff", "..%2f..", "a" * 3000, "%F0%9F%92%A9", "'; drop"])
async def test_invalid_ids_are_not_found(server: InProcessServer, name: str) -> None:
    for path in ("jobs", "workers", "executions", "queues"):
        answer = await server.http.get(f"/{path}/{name}")
        assert answer.status_code in (404, 422), path


async def test_results_are_checked_like_payloads(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/complete"
    for result in (b'"\xff"', b"[" * 200 + b"]" * 200, b'"' + b"x" * 1024 * 1024 + b'"'):
        body = b'{"status":"succeeded","fence":1,"result":' + result + b"}"
        answer = await server.http.post(path, content=body)
        assert answer.status_code == 422
    assert (await server.ask("GET", f"/jobs/{order['job_id']}"))["status"] == "running"


@given(st.binary(max_size=80))
def test_free_json_is_accepted_or_refused_and_never_a_fault(raw: bytes) -> None:
    with suppress(ProblemError):
        read_json("payload", raw)


@given(st.text(max_size=200))
def test_a_cursor_decodes_to_its_text(last: str) -> None:
    try:
        last.encode()
    except UnicodeEncodeError:
        return
    assert read_cursor(make_cursor(last)) == last


@given(st.text(max_size=60))
def test_any_other_text_is_refused_as_a_cursor(text: str) -> None:
    with suppress(ProblemError):
        assert isinstance(read_cursor(text), str)
