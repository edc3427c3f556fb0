"""Messages between agent, guard and shims: bytes with their length before them, descriptors beside.

Standard library only: the guard runs without any installed package, so that it stays small.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence

HEAD = struct.Struct("!I")
READ_BYTES = 64 * 1024
"""Read at once. More would be mapped and unmapped by the allocator for every message."""
FDS_MAX = 16
"""Descriptors beside one message."""
_FD_BYTES = array.array("i").itemsize
_BESIDE_BYTES = socket.CMSG_SPACE(FDS_MAX * _FD_BYTES)


class Channel:
    """One end of a stream socket. Sends what it can and keeps the rest: nobody is waited for."""

    def __init__(
        self, sock: socket.socket, *, takes_fds: bool = False, bytes_max: int | None = None
    ) -> None:
        """`takes_fds`: whether descriptors may come; else the kernel keeps them away. `bytes_max`:
        of a message, where the other side is not trusted."""
        self.sock = sock
        self._bytes_max = bytes_max
        self._takes_fds = takes_fds
        self.fds: deque[int] = deque()
        """Received and not taken yet, in the order of the messages that they came with."""
        self._received = bytearray()
        self._outbox: deque[tuple[memoryview, Sequence[int]]] = deque()

    def receive(self) -> list[bytes] | None:
        """The messages that one read completes; None once the other side is gone.

        Raises ValueError for one that is too long.
        """
        try:
            data = self._read()
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not data:
            return None
        if not self._received and len(data) >= HEAD.size:
            (size,) = HEAD.unpack_from(data)
            if len(data) == HEAD.size + size:  # as nearly always: one message, and all of it
                return [data[HEAD.size :]]
        self._received += data
        return self._complete_messages()

    def _read(self) -> bytes:
        if not self._takes_fds:
            return self.sock.recv(READ_BYTES)
        data, beside, _, _ = self.sock.recvmsg(READ_BYTES, _BESIDE_BYTES, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in beside:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % _FD_BYTES])
                self.fds.extend(numbers)
        return data

    def _complete_messages(self) -> list[bytes]:
        messages = []
        start, came = 0, self._received
        while len(came) - start >= HEAD.size:
            (size,) = HEAD.unpack_from(came, start)
            if self._bytes_max is not None and size > self._bytes_max:
                raise ValueError(f"a message of {size} bytes, of {self._bytes_max} at most")
            end = start + HEAD.size + size
            if len(came) < end:
                break
            messages.append(bytes(came[start + HEAD.size : end]))
            start = end
        del came[:start]
        return messages

    def take_fds(self, count: int) -> list[int]:
        """Those that came with the message at hand."""
        return [self.fds.popleft() for _ in range(count)]

    def send(self, body: bytes, fds: Sequence[int] = ()) -> bool:
        """True if it is out; else `flush` must be asked again. `fds` stay the caller's to close."""
        data = memoryview(HEAD.pack(len(body)) + body)
        sent = 0
        if not self._outbox:
            try:
                sent = self._write(data, fds)
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            if sent == len(data):
                return True
        self._outbox.append((data[sent:], () if sent else [os.dup(fd) for fd in fds]))
        return self.flush()

    def flush(self) -> bool:
        """True if nothing is left to send; what cannot be delivered any more counts as sent."""
        while self._outbox:
            data, fds = self._outbox[0]
            try:
                sent = self._write(data, fds)
            except BlockingIOError:
                return False
            except ConnectionError:
                self._discard()
                return True
            for fd in fds:
                os.close(fd)
            if sent == len(data):
                self._outbox.popleft()
            else:
                self._outbox[0] = (data[sent:], ())
        return True

    def close(self) -> None:
        """Nothing more is said or heard."""
        self._discard()
        while self.fds:
            os.close(self.fds.popleft())
        self.sock.close()

    def _write(self, data: memoryview, fds: Sequence[int]) -> int:
        if not fds:
            return self.sock.send(data)
        beside = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        return self.sock.sendmsg([data], [beside])

    def _discard(self) -> None:
        while self._outbox:
            for fd in self._outbox.popleft()[1]:
                os.close(fd)
