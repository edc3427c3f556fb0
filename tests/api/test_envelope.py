"""The head of an answer leaves with its body."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rota.api.envelope import Envelope

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class RecordingTransport(asyncio.Transport):
    """Transport that records what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.lines.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.lines.append(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return b"closed" in self.lines

    def abort(self) -> None:
        self.lines.append(b"aborted")

    def close(self) -> None:
        self.lines.append(b"closed")


async def test_head_and_body_are_one_write_and_what_follows_is_another() -> None:
    transport = RecordingTransport()
    envelope = Envelope(transport, asyncio.get_running_loop())
    envelope.write(HEAD)
    assert transport.lines == []
    envelope.write(b"ok")
    envelope.write(b"more")
    await asyncio.sleep(0)
    assert transport.lines == [HEAD + b"ok", b"more"]


async def test_a_head_that_nothing_follows_leaves_all_the_same() -> None:
    transport = RecordingTransport()
    envelope = Envelope(transport, asyncio.get_running_loop())
    envelope.write(HEAD)
    await asyncio.sleep(0)
    assert transport.lines == [HEAD]


async def test_a_head_held_back_is_sent_before_the_connection_closes() -> None:
    transport = RecordingTransport()
    envelope = Envelope(transport, asyncio.get_running_loop())
    envelope.write(HEAD)
    envelope.close()
    await asyncio.sleep(0)
    assert transport.lines == [HEAD, b"closed"]
    assert envelope.is_closing()


async def test_an_aborted_connection_is_not_written_to() -> None:
    transport = RecordingTransport()
    envelope = Envelope(transport, asyncio.get_running_loop())
    envelope.write(HEAD)
    envelope.abort()
    await asyncio.sleep(0)
    assert transport.lines == [b"aborted"]
