"""What agent, guard and shims say to each other, apart from how it travels.

Agent and guard are one interpreter's processes and trust each other: their words are marshalled. So
is what they say to a shim. What a shim says is a record of one shape: its job runs as the same user
and may try to speak in its place, and nothing but numbers and a text can come of a record.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

FIT, UNFIT, ENDED, GONE, NO_CWD, NO_PROGRAM = range(6)
"""It can serve; it cannot; the job's program has ended, and others are left; nothing is left; and
what was wrong where nothing could be started."""
NO_NUMBER = -1
_RECORD = struct.Struct("!Biqd")
_PROBLEMS = {UNFIT: "worker", NO_CWD: "cwd", NO_PROGRAM: "program"}


def pack(word: dict[str, Any]) -> bytes:
    """What `unpack` reads."""
    return marshal.dumps(word)


def unpack(message: bytes) -> Any:
    """What `pack` was given, by one of us."""
    return marshal.loads(message)


class Bounds(NamedTuple):
    """What a shim and all that it starts are held to. Shims with equal ones are alike."""

    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    memory: int | None = None
    may_gain: bool = False


class Word(NamedTuple):
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
        return record + self.text.encode("utf-8", "replace") if self.text else record

    @property
    def problem(self) -> tuple[str, int | None, str] | None:
        """Why nothing was started, for the agent; None if it was."""
        what = _PROBLEMS.get(self.kind)
        if what is None:
            return None
        return what, None if self.number == NO_NUMBER else self.number, self.text


def read_word(message: bytes) -> Word:
    """Raises ValueError for what no shim of ours says."""
    try:
        kind, number, peak, cpu_s = _RECORD.unpack_from(message)
    except struct.error as error:
        raise ValueError(f"a shim said {message[:100]!r}: {error}") from None
    text = message[_RECORD.size :]
    return Word(kind, number, peak, cpu_s, text.decode("utf-8", "replace") if text else "")


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
