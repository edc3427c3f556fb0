"""Messages between agent, supervisor and shims: their encoding, and the channel they travel on.

Messages down, from the agent to the supervisor and from both to a shim, are marshalled: no process
below can write there. Messages up are not: a job may run as the same user as its shim, and take
hold of what that has open. So a shim's message is a record of one shape, which holds numbers and a
text only, and the supervisor's is JSON, which the agent reads by its types. Standard library only:
the supervisor runs without any installed package, so that it stays small.
"""

from __future__ import annotations

import array
import json
import marshal
import math
import os
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

HEAD = struct.Struct("!I")
READ_BYTES = 64 * 1024
"""Read at once. More would be mapped and unmapped by the allocator for every message."""
FDS_MAX = 16
"""Descriptors beside one message."""
_FD_BYTES = array.array("i").itemsize
_BESIDE_BYTES = socket.CMSG_SPACE(FDS_MAX * _FD_BYTES)


class Channel:
    """One end of a stream socket. It sends what the socket takes and queues the rest, without
    waiting."""

    def __init__(
        self, sock: socket.socket, *, takes_fds: bool = False, bytes_max: int | None = None
    ) -> None:
        """Opens it. `takes_fds`: whether descriptors may come; else the kernel keeps them away.
        `bytes_max`: of a message, where the other side is not trusted."""
        self.sock = sock
        self._bytes_max = bytes_max
        self._takes_fds = takes_fds
        self.fds: deque[int] = deque()
        """Received and not taken yet, in the order of the messages that they came with."""
        self._received = bytearray()
        self._outbox: deque[tuple[memoryview, Sequence[int]]] = deque()

    def receive(self) -> list[bytes] | None:
        """Returns the messages that one read completes; None once the other side is gone.

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
            if len(data) == HEAD.size + size:  # nearly always: exactly one message
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
                raise ValueError(f"a message has {size} bytes, at most {self._bytes_max} allowed")
            end = start + HEAD.size + size
            if len(came) < end:
                break
            messages.append(bytes(came[start + HEAD.size : end]))
            start = end
        del came[:start]
        return messages

    def take_fds(self, count: int) -> list[int]:
        """Takes the descriptors that came with the present message."""
        return [self.fds.popleft() for _ in range(count)]

    def send(self, body: bytes, fds: Sequence[int] = ()) -> bool:
        """Returns True if all is sent; else `flush` must be called again. `fds` stay the caller's
        to close."""
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
        """Returns True if nothing is left to send; what cannot be delivered any more counts as
        sent."""
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


READY, SETUP_FAILED, PROGRAM_ENDED, TREE_ENDED, NO_CWD, NO_PROGRAM = range(6)
"""Kinds of a shim's message: it can serve; it cannot; the job's program has ended, and other
processes are left; nothing is left; and what was wrong where nothing could be started."""
NO_NUMBER = -1
SHIM_MESSAGE_BYTES_MAX = 16 * 1024
"""No shim sends more."""
SUPERVISOR_MESSAGE_BYTES_MAX = 1024 * 1024
"""No supervisor sends more."""
TEXT_CHARS_MAX = 2_000
_RECORD = struct.Struct("!Biqd")
_PROBLEMS = {SETUP_FAILED: "worker", NO_CWD: "cwd", NO_PROGRAM: "program"}


_encode_json = json.JSONEncoder(separators=(",", ":")).encode


def pack(message: dict[str, Any]) -> bytes:
    """Encodes a message down, for `unpack`."""
    return marshal.dumps(message)


def unpack(message: bytes) -> Any:
    """Decodes what `pack` encoded, from a process that is trusted."""
    return marshal.loads(message)


def pack_for_agent(message: dict[str, Any]) -> bytes:
    """Encodes a message of the supervisor to the agent."""
    return _encode_json(message).encode()


class Bounds(NamedTuple):
    """Limits of a shim and of all that it starts. Shims with equal ones are interchangeable."""

    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    memory: int | None = None
    may_gain: bool = False


class ShimMessage(NamedTuple):
    """Message of a shim to the supervisor."""

    kind: int
    number: int = 0
    """How the program ended, as wait() returns it; or the error's number."""
    peak: int = 0
    cpu_s: float = 0.0
    text: str = ""

    def packed(self) -> bytes:
        """Encodes it for `read_shim_message`."""
        record = _RECORD.pack(self.kind, self.number, self.peak, self.cpu_s)
        text = self.text[:TEXT_CHARS_MAX]  # a path in it may be of any length
        return record + text.encode("utf-8", "replace") if text else record

    @property
    def problem(self) -> tuple[str, int | None, str] | None:
        """Why nothing was started, for the agent; None if it was."""
        what = _PROBLEMS.get(self.kind)
        if what is None:
            return None
        return what, None if self.number == NO_NUMBER else self.number, self.text


def read_shim_message(message: bytes) -> ShimMessage:
    """Raises ValueError for what no shim sends."""
    try:
        kind, number, peak, cpu_s = _RECORD.unpack_from(message)
    except struct.error as error:
        raise ValueError(f"a shim sent {message[:100]!r}: {error}") from None
    has_ended = (
        kind not in (PROGRAM_ENDED, TREE_ENDED) or os.WIFEXITED(number) or os.WIFSIGNALED(number)
    )
    if not (has_ended and peak >= 0 and 0 <= cpu_s < math.inf):
        raise ValueError(f"a shim sent impossible values: {kind}, {number}, {peak}, {cpu_s}")
    text = message[_RECORD.size :]
    return ShimMessage(kind, number, peak, cpu_s, text.decode("utf-8", "replace") if text else "")


def pack_job(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, fds: Sequence[tuple[int, int]]
) -> bytes:
    """Encodes what a shim is to start, for `unpack_job`. `fds`: the number that a descriptor gets,
    and which of the descriptors sent along it is.

    Raises ValueError for text that no program can be given.
    """
    named = list(chain.from_iterable(env.items()))
    return marshal.dumps((_joined(argv), _joined(named), _joined((cwd,)), tuple(fds)))


def unpack_job(
    message: bytes,
) -> tuple[list[bytes], dict[bytes, bytes], bytes, tuple[tuple[int, int], ...]]:
    """Returns the parts that `pack_job` was given, as the kernel wants them."""
    argv, env, cwd, fds = unpack(message)
    named = iter(env.split(b"\0"))
    return argv.split(b"\0"), dict(zip(named, named, strict=False)), cwd, fds


def _joined(texts: Sequence[str]) -> bytes:
    """Joins texts by the one character that none of them may have."""
    joined = "\0".join(texts)
    if joined.count("\0") > max(0, len(texts) - 1):
        raise ValueError("embedded null byte")
    return joined.encode()
