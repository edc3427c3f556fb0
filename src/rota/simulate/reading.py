"""Opens trace files, plain or packed, and says in which file and line something is wrong."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rota.simulate.limits import DOCUMENT_BYTES_MAX, LINE_BYTES_MAX

_GZIP = b"\x1f\x8b"


class TraceError(Exception):
    """A trace cannot be used; the text says where and why."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        place = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"{place}: {problem}")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file and their numbers, without their ends."""
    number = 0
    try:
        with _opened(path) as file:
            while raw := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(raw) > LINE_BYTES_MAX:
                    raise TraceError(path, f"longer than {LINE_BYTES_MAX:,} bytes", number)
                yield number, raw.decode("utf-8", errors="replace").rstrip("\r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(path, _said(error), number + 1 if number else None) from error


def document(path: Path) -> bytes:
    """A whole file."""
    try:
        with _opened(path) as file:
            data = file.read(DOCUMENT_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(path, _said(error)) from error
    if len(data) > DOCUMENT_BYTES_MAX:
        raise TraceError(path, f"more than {DOCUMENT_BYTES_MAX:,} bytes")
    return data


def _opened(path: Path) -> IO[bytes]:
    """By what is in it, not by its name: people rename files."""
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def _said(error: Exception) -> str:
    match error:
        case EOFError():
            return "the packed file ends too soon: it was cut off"
        case OSError(strerror=str(said)):
            return said
        case _:
            return f"not a sound gzip file ({error})"
