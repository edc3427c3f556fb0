"""Server-sent events as they are cut out of a stream."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rota.sdk.watching import Event, EventReader

STREAM = (
    b": hello\n\nid: 1\ndata: first\n\n"
    b"id: 2\r\nevent: reset\r\ndata: sec\xc3\xb6nd\r\ndata: line\r\n\r\n"
    b"retry: 1000\n\nid: 3\rdata:third\r\rid: 4\ndata: not yet whole\n"
)
EVENTS = [
    Event("1", "message", b"first"),
    Event("2", "reset", "secönd\nline".encode()),
    Event("3", "message", b"third"),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_wherever_the_network_cuts(cuts: list[int]) -> None:
    reader = EventReader()
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in pairwise(places)]
    assert [event for chunk in chunks for event in reader.feed(chunk)] == EVENTS
