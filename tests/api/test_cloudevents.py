"""Parsing of CloudEvents: whatever is sent is an event or a problem, never a fault."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rota.api.parsing.cloudevents import read_events
from rota.core.trigger_model import Event, event_value
from rota.wire.events import BATCHED, STRUCTURED
from rota.wire.problems import ProblemError

_names = st.text("abcxyz019", min_size=1, max_size=12)
_texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_reserved = ("id", "source", "type", "time", "subject", "data", "specversion", "rotadepth")
_events = st.fixed_dictionaries(
    {
        "specversion": st.just("1.0"),
        "id": _texts,
        "source": _texts.filter(lambda text: text != "rota"),
        "type": st.from_regex(r"\A[a-z]{1,5}(\.[a-z]{1,5}){0,2}\Z").filter(
            lambda text: not text.startswith("rota.")
        ),
    },
    optional={"data": _json, "subject": _texts, "time": st.just("2026-01-05T09:00:00+01:00")},
)
_extensions = st.dictionaries(
    _names.filter(lambda name: name not in _reserved),
    _texts | st.booleans() | st.integers(0, 99),
    max_size=4,
)


def scope(**headers: str) -> Any:
    pairs = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()]
    return {"type": "http", "headers": pairs}


@given(event=_events, extensions=_extensions)
def test_an_event_is_parsed_as_it_was_encoded(event: dict[str, Any], extensions: Any) -> None:
    whole = {**event, **extensions}
    (read,), batched = read_events(scope(content_type=STRUCTURED), msgspec.json.encode(whole))
    assert not batched
    wanted = {name: value for name, value in whole.items() if value is not None}
    assert event_value(read) == wanted


@given(st.lists(_events, min_size=1, max_size=5))
def test_a_batch_is_parsed_as_its_events(events: list[dict[str, Any]]) -> None:
    read, batched = read_events(scope(content_type=BATCHED), msgspec.json.encode(events))
    assert batched
    assert [one.id for one in read] == [one["id"] for one in events]


@given(
    raw=st.binary(max_size=60) | _json.map(msgspec.json.encode),
    media=st.sampled_from(["", STRUCTURED, BATCHED, "application/json", "text/plain", "x"]),
    headers=st.dictionaries(
        st.sampled_from(["ce_id", "ce_source", "ce_type", "ce_specversion", "ce_time", "ce_x"]),
        st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=20),
    ),
)
def test_anything_is_an_event_or_a_problem(raw: bytes, media: str, headers: Any) -> None:
    try:
        events, _ = read_events(scope(content_type=media, **headers), raw)
    except ProblemError as problem:
        if problem.status in (400, 413, 415, 422):
            return
        raise
    assert all(isinstance(one, Event) for one in events)
    assert all(event_value(one)["id"] for one in events)
