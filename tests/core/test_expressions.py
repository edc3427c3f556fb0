"""Filters: results, refusals, and the bound on their run time."""

from __future__ import annotations

import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Invalid
from rota.core.expressions import (
    StepLimitError,
    matches,
    parse_filter,
    parse_path,
    passes,
    read_filter,
)
from rota.core.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX, FILTER_NODES_MAX

EVENT = {
    "id": "e1",
    "type": "object.uploaded",
    "source": "/bucket",
    "region": "eu",
    "data": {
        "name": "sales.csv",
        "size": 4096,
        "ratio": 0.5,
        "final": True,
        "note": None,
        "tags": ["raw", "csv"],
        "owner": {"id": 7, "first name": "Ada"},
        "lines": [{"sku": "a"}, {"sku": "b"}],
    },
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("data.size > 1000", True),
        ("data.size > 4096", False),
        ("data.size >= 4096 and data.size <= 4096", True),
        ("data.size == 4096.0", True),
        ("data.ratio < 1", True),
        ("data.name == 'sales.csv'", True),
        ('data.name != "sales.csv"', False),
        ('data.name == "sales\\u002ecsv"', True),
        ("data.name < 'tales'", True),
        ("data.final", True),
        ("data.final == true", True),
        ("data.final == 1", False),
        ("data.size", False),
        ("not data.size", True),
        ("data.note == null", True),
        ("data.nothing == null", True),
        ("has(data.note)", True),
        ("has(data.nothing)", False),
        ("has(data.nothing.deeper)", False),
        ("data.owner.id == 7", True),
        ('data.owner["first name"] == "Ada"', True),
        ("data.lines[1].sku == 'b'", True),
        ("data.lines[2].sku == null", True),
        ("data.tags == data.tags", False),
        ("'csv' in data.tags", True),
        ("'xml' not in data.tags", True),
        ("data.size in [1, 4096]", True),
        ("'sales' in data.name", True),
        ("'id' in data.owner", True),
        ("7 in data.owner", False),
        ("startswith(data.name, 'sales')", True),
        ("endswith(data.name, '.csv')", True),
        ("contains(data.tags, 'raw')", True),
        ("contains(data.name, 'les')", True),
        ("matches(data.name, 's*.csv')", True),
        ("matches(data.name, '*.xml')", False),
        ("lower('ABC') == 'abc'", True),
        ("len(data.tags) == 2", True),
        ("len(data.size) == null", True),
        ("startswith(data.size, '4')", False),
        ("data.size < 'text'", False),
        ("data.size > null", False),
        ("true < 2", False),
        ("type == 'object.uploaded' and source == '/bucket' and region == 'eu'", True),
        ("event.data.size > 1", True),
        ("data.size > 9999 or data.size < 1 or id == 'e1'", True),
        ("not (data.size > 9999 or not data.final)", True),
        ("not not data.final", True),
        ("data.size == -1 or data.size > -1e2", True),
        ("[1, 2]", False),
    ],
)
def test_a_filter_passes_the_events_it_should(text: str, wanted: bool) -> None:
    assert passes(parse_filter(text), EVENT) is wanted


@pytest.mark.parametrize(
    ("given_filter", "wanted"),
    [
        (None, True),
        ({}, True),
        ({"size": 4096}, True),
        ({"size": 4096, "name": "other"}, False),
        ({"name": ["a", "sales.csv"]}, True),
        ({"owner": {"id": 7}}, True),
        ({"owner.id": 8}, False),
        ({"nothing": None}, True),
    ],
)
def test_an_object_filter_compares_values(given_filter: Any, wanted: bool) -> None:
    text = b"" if given_filter is None else msgspec.json.encode(given_filter)
    assert passes(read_filter(text), EVENT) is wanted


@pytest.mark.parametrize(
    ("given_filter", "wanted"),
    [
        ({"data.size": 4096}, True),
        ({"data.size": 4095}, False),
        ({"data": {"owner": {"id": 7}}}, True),
        ({"data": {"owner": {"id": 8}}}, False),
        ({"source": "/bucket", "region": ["us", "eu"]}, True),
        ({"source": "/other"}, False),
        ({"data.nothing": 1}, False),
    ],
)
def test_a_name_that_the_data_lacks_is_looked_up_in_the_event(
    given_filter: Any, wanted: bool
) -> None:
    assert passes(read_filter(msgspec.json.encode(given_filter)), EVENT) is wanted


@pytest.mark.parametrize(
    ("given_filter", "wanted"),
    [
        ({"data.object": "invoice"}, True),
        ({"data": {"object": "invoice"}}, True),
        ({"source": "till"}, True),
        ({"source": "/bucket"}, False),
        ({"note": None}, True),
    ],
)
def test_a_name_in_the_data_comes_before_the_event_s_own_field(
    given_filter: Any, wanted: bool
) -> None:
    event = EVENT | {"data": {"data": {"object": "invoice"}, "source": "till", "note": None}}
    assert passes(read_filter(msgspec.json.encode(given_filter)), event) is wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a value and found the end"),
        ("data.size >", "expected a value and found the end"),
        ("data.size = 1", "cannot read '= 1', at character 11"),
        ("data.size > 1 data", "'data' is not expected here"),
        ("(data.size", "expected ')'"),
        ("data.", "a name after the point"),
        ("data[x]", "a number or a name in quotes"),
        ("data[-1]", "a number or a name in quotes"),
        ("'open", "cannot read"),
        ('"\\q"', "cannot read the text"),
        ("open('/etc/passwd')", "there is no function 'open'"),
        ("__import__('os').system('x')", "there is no function '__import__'"),
        ("().__class__", "expected a value"),
        ("data.size.__class__()", "is not expected here"),
        ("lambda: 1", "cannot read ': 1'"),
        ("[x for x in data]", "expected ','"),
        ("1; 2", "cannot read"),
        ("`id`", "cannot read"),
        ("has('x')", "takes a path"),
        ("startswith('a')", "takes 2 arguments and got 1"),
        ("and", "expected a value and found 'and'"),
        ("a not b", "expected 'in'"),
        ("1 < 2 < 3", "is not expected here"),
        ("x" * (FILTER_CHARS_MAX + 1), "longer than"),
        ("(" * (FILTER_DEPTH_MAX + 1) + "1" + ")" * (FILTER_DEPTH_MAX + 1), "nested deeper"),
        ("[" * (FILTER_DEPTH_MAX + 1), "nested deeper"),
        (" or ".join(["a"] * (FILTER_NODES_MAX + 1)), "more than"),
        ("not " * (FILTER_NODES_MAX + 1) + "a", "more than"),
    ],
)
def test_an_invalid_filter_is_refused_with_the_position(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_filter(text)
    assert said in refused.value.detail
    assert refused.value.field == "filter"


@pytest.mark.parametrize("text", ["1", "'a'", "[a]", "a b", "len(a)", ""])
def test_a_key_must_be_a_path_alone(text: str) -> None:
    with pytest.raises(Invalid):
        parse_path(text)


@pytest.mark.parametrize("bad", [7, [1], {"a": [{"b": 1}]}])
def test_other_kinds_of_filter_are_refused(bad: Any) -> None:
    with pytest.raises(Invalid):
        read_filter(msgspec.json.encode(bad))


def test_names_of_python_objects_lead_nowhere() -> None:
    for path in ("data.__class__", "data.name.upper", "data.tags.append", "data.keys", "__doc__"):
        assert passes(parse_filter(f"has({path})"), EVENT) is False


def test_a_filter_that_would_take_long_is_stopped() -> None:
    large = {"data": {"text": "a" * 1_000_000, "many": list(range(20_000))}}
    clauses = " or ".join(["contains(data.text, 'b')"] * 60)
    with pytest.raises(StepLimitError):
        passes(parse_filter(clauses), large)
    with pytest.raises(StepLimitError):
        passes(parse_filter("'x' in data.many"), large)


def test_a_pattern_made_to_be_slow_takes_linear_time() -> None:
    assert not matches("*a" * 1_000 + "b", "a" * 100_000)
    assert matches("*a" * 1_000, "a" * 100_000)


@given(pattern=st.text("ab*", max_size=8), text=st.text("ab", max_size=8))
def test_a_star_stands_for_anything(pattern: str, text: str) -> None:
    def naive(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return any(naive(p[1:], t[i:]) for i in range(len(t) + 1))
        return bool(t) and p[0] == t[0] and naive(p[1:], t[1:])

    assert matches(pattern, text) is naive(pattern, text)


_WORDS = st.sampled_from(
    [
        *("and", "or", "not", "in", "==", "!=", "<", ">=", "(", ")", "[", "]", ",", "."),
        *("data", "size", "has", "len", "matches", "true", "null", "1", "-2.5", "'a'", '"b"'),
    ]
)


@given(st.lists(_WORDS, max_size=30).map(" ".join) | st.text(string.printable, max_size=60))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    try:
        tree = parse_filter(text)
    except Invalid:
        return
    assert passes(tree, EVENT) in (True, False)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner),
    max_leaves=8,
)
_PATHS = ["data", "data.a", "data.a.b", "data[0]", "data.b[1]"]


@given(
    left=st.sampled_from(_PATHS),
    sign=st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]),
    right=st.sampled_from([*_PATHS, "1", "'a'", "null", "true", "[1, 'a']"]),
    data=_json,
)
def test_any_comparison_of_any_data_has_an_answer(
    left: str, sign: str, right: str, data: Any
) -> None:
    event = {"data": data}
    said = passes(parse_filter(f"{left} {sign} {right}"), event)
    opposite = passes(parse_filter(f"not ({left} {sign} {right})"), event)
    assert said is not opposite
