"""What agent, guard and shims say to each other, apart from how it travels.

What goes down, from the agent to the guard and from both to a shim, is marshalled: nobody below can
speak there. What comes up is not: a job may run as the same user as its shim, and take hold of what
that has open. So a shim's word is a record of one shape, of which nothing but numbers and a text
can come, and the guard's is JSON, which the agent reads by its types.
"""

from __future__ import annotations

import json
import marshal
import math
import os
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

READY, SETUP_FAILED, PROGRAM_ENDED, TREE_ENDED, NO_CWD, NO_PROGRAM = range(6)
"""It can serve; it cannot; the job's program has ended, and others are left; nothing is left; and
what was wrong where nothing could be started."""
NO_NUMBER = -1
SHIM_MESSAGE_BYTES_MAX = 16 * 1024
"""More is nothing that a shim says."""
SUPERVISOR_MESSAGE_BYTES_MAX = 1024 * 1024
"""Nor the guard."""
TEXT_CHARS_MAX = 2_000
_RECORD = struct.Struct("!Biqd")
_PROBLEMS = {SETUP_FAILED: "worker", NO_CWD: "cwd", NO_PROGRAM: "program"}


_encode_json = json.JSONEncoder(separators=(",", ":")).encode


def pack(word: dict[str, Any]) -> bytes:
    """What goes down, as `unpack` reads it."""
    return marshal.dumps(word)


def unpack(message: bytes) -> Any:
    """What `pack` was given, by one of us."""
    return marshal.loads(message)


def pack_for_agent(word: dict[str, Any]) -> bytes:
    """What the guard tells the agent."""
    return _encode_json(word).encode()


class Bounds(NamedTuple):
    """What a shim and all that it starts are held to. Shims with equal ones are alike."""

    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    memory: int | None = None
    may_gain: bool = False


class ShimMessage(NamedTuple):
    """What a shim says."""

    kind: int
    number: int = 0
    """How the program ended, as wait() says it; or the error's number."""
    peak: int = 0
    cpu_s: float = 0.0
    text: str = ""

    def packed(self) -> bytes:
        """What `read_word` reads."""
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
    """Raises ValueError for what no shim of ours says."""
    try:
        kind, number, peak, cpu_s = _RECORD.unpack_from(message)
    except struct.error as error:
        raise ValueError(f"a shim said {message[:100]!r}: {error}") from None
    has_ended = (
        kind not in (PROGRAM_ENDED, TREE_ENDED) or os.WIFEXITED(number) or os.WIFSIGNALED(number)
    )
    if not (has_ended and peak >= 0 and 0 <= cpu_s < math.inf):
        raise ValueError(f"a shim said {kind}, {number}, {peak}, {cpu_s}, which cannot be")
    text = message[_RECORD.size :]
    return ShimMessage(kind, number, peak, cpu_s, text.decode("utf-8", "replace") if text else "")


def pack_job(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, fds: Sequence[tuple[int, int]]
) -> bytes:
    """What a shim is to start, as `unpack_job` reads it. `fds`: the number that a descriptor gets,
    and which of those that come along it is.

    Raises ValueError for text that no program can be given.
    """
    named = list(chain.from_iterable(env.items()))
    return marshal.dumps((_joined(argv), _joined(named), _joined((cwd,)), tuple(fds)))


def unpack_job(
    message: bytes,
) -> tuple[list[bytes], dict[bytes, bytes], bytes, tuple[tuple[int, int], ...]]:
    """The parts that `pack_job` was given, as the kernel wants them."""
    argv, env, cwd, fds = unpack(message)
    named = iter(env.split(b"\0"))
    return argv.split(b"\0"), dict(zip(named, named, strict=False)), cwd, fds


def _joined(texts: Sequence[str]) -> bytes:
    """Separated by the one character that none of them may have."""
    joined = "\0".join(texts)
    if joined.count("\0") > max(0, len(texts) - 1):
        raise ValueError("embedded null byte")
    return joined.encode()
