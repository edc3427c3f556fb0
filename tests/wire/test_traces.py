from __future__ import annotations

import pytest

from rota.wire.traces import (
    TraceParent,
    job_span_id,
    parse_traceparent,
    part_span_id,
    trace_id_of,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("flags", ["00", "01", "03", "ff"])
def test_a_traceparent_is_read_and_written_back(flags: str) -> None:
    found = parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}")
    assert found == TraceParent(TRACE, SPAN, int(flags, 16) % 2 == 1)
    assert parse_traceparent(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "00", "x" * 10_000, f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01-more"),
        *(f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01\n00-{TRACE}-{SPAN}-01"),
    ],
)
def test_an_invalid_traceparent_is_ignored(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-what-comes") == (TRACE, SPAN, 1)


def test_ids_of_spans_are_the_same_everywhere_and_different_for_each_part() -> None:
    ids = [
        *(job_span_id("a"), job_span_id("b"), part_span_id("a", "run", 1)),
        *(part_span_id("a", "run", 2), part_span_id("a", "wait", 1), part_span_id("a", "submit")),
    ]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 16 and int(one, 16) for one in ids)
    # Other programs may make them too: they must not change from one release to the next.
    assert part_span_id("a", "run", 1) == PINNED
    assert len(trace_id_of("a")) == 32


PINNED = "82bb0b9da646c5e5"
