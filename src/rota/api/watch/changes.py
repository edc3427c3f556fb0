"""The live stream: every state change, numbered, read from the journal as fast as it is taken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from rota.api.customs.change_views import change_view
from rota.api.door.roles import Permission
from rota.api.limits import (
    DIGEST_S,
    STREAM_EVENTS_PER_SEND,
    STREAM_KEEPALIVE_S,
    STREAM_RECORDS,
)
from rota.api.problems import invalid
from rota.api.routes import Call, HeaderSpec, Operation
from rota.api.streams import Stream
from rota.api.watch.overview import digest_of
from rota.api.watch.sieve import visible_changes
from rota.store.protocol import Change, Seq
from rota.wire.units import encode

EVENTS = "text/event-stream"
_EVENT_ID = re.compile(r"(\d{1,18})\.(\d{1,19})\Z", re.ASCII)
_RECORD_END = 10**18
"""A number past any in a record: all of it was seen."""


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How much to be told."""

    digest: Annotated[
        bool,
        Meta(
            description="Instead of every change one event a second at most, `event: digest`, "
            "which says that something changed and carries the figures of an overview."
        ),
    ] = False


class StreamPosition(NamedTuple):
    """The last change seen."""

    seq: int
    number: int


@Operation(
    "GET",
    "/stream",
    "Every state change, as server-sent events",
    tag="Service",
    permission=Permission.READ,
    any_server=True,
    query=StreamQuery,
    gives=EVENTS,
    streams_out=True,
    headers={"Last-Event-ID": HeaderSpec("42.0", r"^\d{1,18}\.\d{1,18}$")},
    description=(
        "Each event's data is one change (kind, id, status, at, …) and its id a place "
        "in the journal. Send the last id as `Last-Event-ID` to go on from there; without it the "
        "stream starts now, and says at once where that is. If what was missed is no longer kept, "
        "the first event is `reset`: read the lists again, then go on. A comment comes every 15 s "
        "when nothing happens; a reader that takes nothing for 30 s is dropped; at most 256 "
        "streams are open (else 429)."
    ),
    examples={"answer": "stream_changes"},
)
async def stream_changes(call: Call[None, StreamQuery]) -> Stream:
    """From the place named by Last-Event-ID on, or from now."""
    call.state.streams.check()
    text = call.request.headers.get("last-event-id")
    oldest, newest = await call.deps.catalog.head()
    place = _read_position(text) if text else StreamPosition(newest, _RECORD_END)
    lost = not oldest - 1 <= place.seq <= newest
    if lost:
        # What was missed is no longer kept (or is of another journal): the reader starts afresh.
        place = StreamPosition(newest, _RECORD_END)
    pieces = _digests(call, place) if call.query.digest else _pieces(call, place, lost=lost)
    return Stream(pieces, EVENTS, closing=call.deps.closing, seats=call.state.streams)


def _read_position(text: str) -> StreamPosition:
    found = _EVENT_ID.match(text)
    if found is None:
        raise invalid("Last-Event-ID", "the `id` of an event of this stream, such as `42.0`")
    return StreamPosition(int(found[1]), int(found[2]))


async def _pieces(
    call: Call[None, StreamQuery], place: StreamPosition, *, lost: bool
) -> AsyncGenerator[bytes, None]:
    parts = call.deps
    # Where it starts is told at once: who loses the line before the first change misses nothing.
    yield b"retry: 1000\n\n" + (_reset(place) if lost else b"id: %d.%d\n\n" % place)
    # The record of the last change seen is read again: it may hold more than was taken.
    after, newest = place.seq - (place.number < _RECORD_END), place.seq
    while True:
        if after < newest:
            async with call.state.stream_reads:
                texts, last = await _next_texts(call, place, after)
            for text in texts:
                yield text
            # Records without changes give nothing back, yet they are behind us too.
            after = max(min(after + STREAM_RECORDS, newest), last)
            continue
        try:
            async with asyncio.timeout(STREAM_KEEPALIVE_S):
                newest = await parts.commits.wait_beyond(after)
        except TimeoutError:
            yield b": still here\n\n"


async def _next_texts(
    call: Call[None, StreamQuery], place: StreamPosition, after: int
) -> tuple[list[bytes], int]:
    """What the next records have to tell, and the last of them that had anything.

    The records themselves, with all that was submitted, do not wait for a slow reader.
    """
    changes = await call.deps.catalog.changes_after(Seq(after), STREAM_RECORDS)
    new = [one for one in changes if (one.seq, one.index) > place]
    texts = []
    for text in _encoded(await visible_changes(call, new)):
        texts.append(text)
        await asyncio.sleep(0)
    return texts, max((one.seq for one in changes), default=0)


async def _digests(
    call: Call[None, StreamQuery], place: StreamPosition
) -> AsyncGenerator[bytes, None]:
    """However much happens, what it costs is the same: nothing of the journal is read."""
    seq: int = place.seq
    yield b"retry: 1000\n\n"
    while True:
        data = await digest_of(call, seq)
        yield b"event: digest\nid: %d.%d\ndata: %b\n\n" % (seq, _RECORD_END, data)
        await asyncio.sleep(DIGEST_S)
        try:
            async with asyncio.timeout(STREAM_KEEPALIVE_S):
                seq = await call.deps.commits.wait_beyond(seq)
        except TimeoutError:
            # Told again although nothing changed: a reader that slept knows by it that all is well.
            continue


def _encoded(changes: Sequence[Change]) -> Iterator[bytes]:
    for start in range(0, len(changes), STREAM_EVENTS_PER_SEND):
        part = changes[start : start + STREAM_EVENTS_PER_SEND]
        if text := b"".join(_event(change) for change in part):
            yield text


def _event(change: Change) -> bytes:
    view = change_view(change)
    if view is None:
        return b""
    return b"id: %d.%d\ndata: %b\n\n" % (change.seq, change.index, encode(view))


def _reset(place: StreamPosition) -> bytes:
    return b'event: reset\nid: %d.%d\ndata: {"kind":"reset"}\n\n' % place
