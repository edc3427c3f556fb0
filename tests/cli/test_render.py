"""Values and tables as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.graph import branches
from rota.cli.id_lookup import matching
from rota.cli.render import (
    Column,
    age,
    between,
    cell_width,
    count,
    fitting,
    plain,
    plain_log,
    size_text,
    span,
)
from rota.wire.jobs import GraphEdge, GraphNode, GraphView


@given(st.text())
def test_control_characters_are_escaped_for_a_terminal(text: str) -> None:
    assert plain(text).isprintable()
    assert all(c in "\n\t" or c.isprintable() for c in plain_log(text))


@given(st.text(st.characters(categories=["L", "N", "P"])))
def test_printable_text_is_not_changed(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (59, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (5430, "1h30m"),
        (86_400, "1d"),
        (200_000, "2d7h"),
    ],
)
def test_spans_read_as_people_say_them(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_ages_count_both_ways() -> None:
    now = 1_760_000_000_000
    assert age("2025-10-09T08:53:20.000Z", now) == "0ms"
    assert age("2025-10-09T08:43:20.000Z", now) == "10m"
    assert age("2025-10-09T09:53:20.000Z", now) == "in 1h"
    assert age(None, now) == "-"
    assert between("2025-10-09T08:00:00Z", "2025-10-09T08:00:05Z", now) == "5s"
    assert between("2025-10-09T08:43:20Z", None, now) == "10m"


def test_sizes_and_counts() -> None:
    assert [size_text(n) for n in (0, 512, 1536, 1 << 30, 3 << 40)] == [
        *("0 B", "512 B", "1.5 KiB", "1 GiB", "3 TiB")
    ]
    assert count(1234567) == "1,234,567"


COLUMNS = (
    Column("ID"),
    Column("NAME", cut=True),
    Column("QUEUE", spare=2),
    Column("REASON", spare=1),
)


def test_the_least_important_column_is_left_out_first() -> None:
    rows = [("12345678", "n" * 50, "q" * 10, "r" * 10)]
    assert fitting(COLUMNS, rows, 100) == [0, 1, 2, 3]
    assert fitting(COLUMNS, rows, 35) == [0, 1, 3]
    assert fitting(COLUMNS, rows, 20) == [0, 1]
    assert fitting(COLUMNS, rows, 5) == [0, 1]


def test_wide_letters_count_twice() -> None:
    assert cell_width("日本") == 4


def test_an_id_is_found_by_either_end_with_or_without_dashes() -> None:
    ids = ["019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3", "019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b4"]
    assert matching("8a41c7b3", ids) == ids[:1]
    assert matching("9f00-5e2d8a41c7b4", ids) == ids[1:]
    assert matching("9f005e2d8a41c7b4", ids) == ids[1:]
    assert matching("019a85", ids) == ids
    assert matching("5e2d8a", ids) == []


def test_a_chain_longer_than_the_stack_is_drawn() -> None:
    nodes = [GraphNode(str(i), "n", "queued") for i in range(5000)]
    edges = [GraphEdge(str(i), str(i + 1), "succeeded") for i in range(4999)]
    assert len(list(branches(GraphView(nodes, edges)))) == 5000


def test_a_diamond_is_drawn_once_and_then_named() -> None:
    names = "abcde"
    nodes = [GraphNode(name, name, "queued") for name in names]
    pairs = ("ab", "ac", "bd", "cd", "de")
    edges = [GraphEdge(one, other, "succeeded") for one, other in pairs]
    drawn = [(b.lead, b.node.name, b.remark) for b in branches(GraphView(nodes, edges))]
    assert drawn == [
        ("", "a", ""),
        ("├─ ", "b", ""),
        ("│  └─ ", "d", ""),
        ("│     └─ ", "e", ""),
        ("└─ ", "c", ""),
        ("   └─ ", "d", "(drawn above)"),
    ]
