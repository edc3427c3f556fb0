"""Messages between the processes of a server: MessagePack frames over a Unix socket."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Generic, TypeVar

import msgspec

FRAME_BYTES_MAX = 1 << 27
"""A longer frame is not one of ours."""
BUFFER_BYTES_MAX = 1 << 24
"""Bytes that wait for the other process, from which on it counts as full."""
_LENGTH = struct.Struct("<I")

M = TypeVar("M")


class ChannelClosedError(Exception):
    """Raised when the other process is gone."""


class Channel(Generic[M]):
    """One end of a socket between two processes; it receives messages of type `M`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Any
    ) -> None:
        self._reader, self._writer = reader, writer
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kind)

    @staticmethod
    async def open(end: socket.socket, kind: Any) -> Channel[M]:
        """Opens one end of a socket pair; `kind` is the type of the messages that come."""
        reader, writer = await asyncio.open_unix_connection(sock=end)
        return Channel(reader, writer, kind)

    @property
    def is_full(self) -> bool:
        """Whether the other process has not taken what was sent before."""
        return self._writer.transport.get_write_buffer_size() > BUFFER_BYTES_MAX

    def send(self, message: msgspec.Struct) -> None:
        """Sends a message; large ones only if it is not full."""
        if not self._writer.is_closing():
            data = self._encode(message)
            self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> M:
        """Returns the next message; raises ChannelClosedError."""
        try:
            (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if size > FRAME_BYTES_MAX:
                raise ChannelClosedError(f"a frame of {size} bytes is not a message")
            return self._decoder.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelClosedError("the other process is gone") from error

    def close(self) -> None:
        """Closes this end."""
        self._writer.close()
