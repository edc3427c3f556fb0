"""Opens traces, plain or packed, and says in which file and line something is wrong."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Literal, Protocol

import msgspec

from rota.simulate.limits import DOCUMENT_BYTES_MAX, LINE_BYTES_MAX

_GZIP = b"\x1f\x8b"


class Source(Protocol):
    """Where a trace comes from: a path, or an upload. Its text is what errors call it."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def open(self, mode: Literal["rb"], /) -> io.BufferedReader:
        """Its bytes, from the beginning."""
        ...


class Upload(msgspec.Struct, frozen=True):
    """A trace that somebody sent: it has a name, but is in no folder."""

    name: str
    content: bytes

    def open(self, mode: Literal["rb"], /) -> io.BufferedReader:
        """As a file would."""
        return io.BufferedReader(io.BytesIO(self.content))

    def __str__(self) -> str:
        return self.name


class TraceError(Exception):
    """A trace cannot be used; the text says where and why."""

    def __init__(self, source: Source, problem: str, line: int | None = None) -> None:
        place = f"{source}, line {line}" if line is not None else str(source)
        super().__init__(f"{place}: {problem}")


def read_lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines of a text file and their numbers, without their ends."""
    number = 0
    try:
        with _opened(source) as file:
            while raw := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(raw) > LINE_BYTES_MAX:
                    raise TraceError(source, f"longer than {LINE_BYTES_MAX:,} bytes", number)
                yield number, raw.decode("utf-8", errors="replace").rstrip("\r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(source, _described(error), number + 1 if number else None) from error


def read_document(source: Source) -> bytes:
    """A whole file."""
    data = read_beginning(source, DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise TraceError(source, f"more than {DOCUMENT_BYTES_MAX:,} bytes")
    return data


def read_beginning(source: Source, size: int) -> bytes:
    """So many bytes of it, or all if it has fewer."""
    try:
        with _opened(source) as file:
            return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(source, _described(error)) from error


@contextmanager
def _opened(source: Source) -> Iterator[IO[bytes]]:
    """By what is in it, not by its name: people rename files."""
    with source.open("rb") as file:
        if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]  # reads like any file


def _described(error: Exception) -> str:
    match error:
        case EOFError():
            return "the packed file ends too soon: it was cut off"
        case OSError(strerror=str(said)):
            return said
        case _:
            return f"not a sound gzip file ({error})"
