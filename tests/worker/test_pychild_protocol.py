"""Messages from the agent's pipe, as a child reads them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.worker.pychild.protocol import READ_BYTES, Begin, Cancel, PipeReader, ToChild, frame


def call(number: int, payload: bytes) -> Begin:
    names = {"name": "f", "queue": "q", "job_id": "j", "execution_id": "e"}
    return Begin(
        number=number, task=b"null", payload=payload, attempt=1, fence=1, timeout_s=None,
        scheduled_at="2026-01-31T09:00:00Z", traceparent=None, **names,
    )  # fmt: skip


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])


messages = st.one_of(
    st.builds(call, st.integers(0, 9), st.binary(max_size=50)),
    st.builds(call, st.integers(0, 9), st.just(bytes(3 * READ_BYTES))),
    st.builds(Cancel, st.integers(0, 9)),
)


@given(sent=st.lists(messages, max_size=5), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_a_child_reads_messages_one_by_one_however_their_bytes_arrive(
    sent: list[ToChild], cuts: list[int]
) -> None:
    read_end, write_end = os.pipe()
    data = b"".join(map(frame, sent))

    def write() -> None:
        places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        for begin, end in pairwise(places):
            left = memoryview(data)[begin:end]
            while left:
                left = left[os.write(write_end, left) :]
        os.close(write_end)

    writer = threading.Thread(target=write)
    writer.start()
    reader, received = PipeReader(read_end), []
    while (message := reader.read()) is not None:
        received.append(message)
    writer.join()
    os.close(read_end)
    assert received == sent


def test_an_incomplete_message_is_ignored(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    os.write(write_end, frame(call(1, b"{}"))[:-1])
    os.close(write_end)
    assert PipeReader(read_end).read() is None
