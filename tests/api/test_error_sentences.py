"""Provokes each error text of msgspec that the parser reads, so that a new wording is noticed."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from rota.api.parsing.request import decode_problem
from rota.wire.formats import PATTERN_TEXTS

PATTERN, MEANT = next(iter(PATTERN_TEXTS.items()))


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=1)] = 1


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=2, max_length=3)] = "abc"
    word: Annotated[str, Meta(pattern=PATTERN)] | None = None
    kind: Literal["a", "b"] = "a"
    at: Annotated[datetime, Meta(tz=True)] | None = None
    day: date | None = None
    share: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    count: Annotated[int, Meta(le=9)] = 9
    items: Annotated[list[Inner], Meta(max_length=1)] = []
    numbers: Annotated[dict[str, int], Meta(max_length=2)] = {}
    words: dict[Annotated[str, Meta(min_length=2)], str] = {}
    needed: int


def refused(**fields: Any) -> msgspec.ValidationError:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(msgspec.json.encode({"needed": 1, **fields}), type=Body)
    return error.value


@pytest.mark.parametrize(
    ("fields", "sentence", "field", "message"),
    [
        (
            {"other": 1},
            "Object contains unknown field `other`",
            "other",
            "unknown field `other`; known here: `name`, `word`, `kind`, `at`, `day`, `share`,"
            " `count`, `items`, `numbers`, `words`, `needed`",
        ),
        (
            {"items": [{"siz": 1}]},
            "Object contains unknown field `siz` - at `$.items[0]`",
            "items[0].siz",
            "unknown field `siz`; did you mean `size`?",
        ),
        (
            {"items": [{"size": 0}]},
            "Expected `int` >= 1 - at `$.items[0].size`",
            "items[0].size",
            "takes a number of at least 1",
        ),
        (
            {"count": 10},
            "Expected `int` <= 9 - at `$.count`",
            "count",
            "takes a number of at most 9",
        ),
        (
            {"share": 0.0},
            "Expected `float` > 0.0 - at `$.share`",
            "share",
            "takes a number of more than 0.0",
        ),
        (
            {"share": 1.0},
            "Expected `float` < 1.0 - at `$.share`",
            "share",
            "takes a number of less than 1.0",
        ),
        (
            {"items": [{}, {}]},
            "Expected `array` of length <= 1 - at `$.items`",
            "items",
            "takes at most 1 entry",
        ),
        (
            {"numbers": {"a": 1, "b": 2, "c": 3}},
            "Expected `object` of length <= 2 - at `$.numbers`",
            "numbers",
            "takes at most 2 entries",
        ),
        (
            {"name": "a"},
            "Expected `str` of length >= 2 - at `$.name`",
            "name",
            "takes at least 2 characters",
        ),
        (
            {"name": "abcd"},
            "Expected `str` of length <= 3 - at `$.name`",
            "name",
            "takes at most 3 characters",
        ),
        (
            {"word": "\n"},
            f"Expected `str` matching regex {PATTERN!r} - at `$.word`",
            "word",
            MEANT,
        ),
        (
            {"kind": "c"},
            "Invalid enum value 'c' - at `$.kind`",
            "kind",
            "'c' is none of a, b",
        ),
        (
            {"at": "soon"},
            "Invalid RFC3339 encoded datetime - at `$.at`",
            "at",
            "not a time: write it like 2026-01-31T09:00:00Z",
        ),
        (
            {"at": "2026-01-31T09:00:00"},
            "Expected `datetime` with a timezone component - at `$.at`",
            "at",
            "a time needs its offset from UTC: write it like 2026-01-31T09:00:00Z"
            " or …T09:00:00+01:00",
        ),
        (
            {"day": "soon"},
            "Invalid RFC3339 encoded date - at `$.day`",
            "day",
            "not a date: write it like 2026-01-31",
        ),
        (
            {"numbers": {"one": "x"}},
            "Expected `int`, got `str` - at `$.numbers[...]`",
            "numbers[...]",
            "Expected `int`, got `str`",
        ),
        (
            {"words": {"a": "x"}},
            "Expected `str` of length >= 2 - at `key` in `$.words`",
            "words",
            "takes at least 2 characters",
        ),
    ],
)
def test_msgspec_words_its_errors_as_the_parser_expects(
    fields: dict[str, Any], sentence: str, field: str, message: str
) -> None:
    error = refused(**fields)
    assert str(error) == sentence
    (found,) = decode_problem(error, Body).errors
    assert (found.field, found.message) == (field, message)


def test_msgspec_names_a_missing_field_as_the_parser_expects() -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(b"{}", type=Body)
    assert str(error.value) == "Object missing required field `needed`"
    (found,) = decode_problem(error.value, Body).errors
    assert (found.field, found.message) == ("needed", "`needed` is required")
