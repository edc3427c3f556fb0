"""Unpacks an archive from standard input into a folder, and trusts nothing that it says.

The supervisor runs it as a program of its own: an archive that makes its reader use all memory or
run for ever ends this process and not the worker. It needs the standard library only. It prints an
error in one line; the exit code is 1 then.

Why: docs/decisions/0024-archives-and-containers-on-workers.md.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

CHUNK_BYTES = 256 * 1024
READ_BYTES_MAX = 16 * 1024 * 1024
"""Most that may be read at once, or for one header: one that claims to be larger is malicious."""
TOO_LARGE = "it has a header that is too large"
PATH_CHARS_MAX = 1024
DEPTH_MAX = 64


class HostileError(Exception):
    """Raised when the archive contains what no archive of a user should contain."""


class Site:
    """Folder that is filled. Nothing is written outside it, and nothing twice."""

    def __init__(self, root: str, bytes_max: int, files_max: int) -> None:
        self._root = root
        self._bytes_left = bytes_max
        self._files_left = files_max

    def folder(self, name: str) -> None:
        """Makes a folder, with those above it."""
        parts = _parts(name)
        self._count(name)
        self._way_to(parts)

    def file(self, name: str, source: IO[bytes], executable: bool) -> None:
        """Writes a plain file; of its permissions only the executable bit is kept."""
        path = self._place(name)
        mode = 0o700 if executable else 0o600
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(_once(name, lambda: os.open(path, flags, mode)), "wb") as target:
            while chunk := source.read(CHUNK_BYTES):
                self._bytes_left -= len(chunk)
                if self._bytes_left < 0:
                    raise HostileError("it is larger than allowed when unpacked")
                target.write(chunk)

    def link(self, name: str, target: str) -> None:
        """Makes a symbolic link that stays inside the folder.

        `..` is allowed only at the beginning of its target, where it goes up from real folders:
        `a/..` is not where it seems to be if `a` is itself a link.
        """
        path = self._place(name)
        steps = target.split("/")
        up = 0
        while up < len(steps) and steps[up] == "..":
            up += 1
        depth = len(_parts(name)) - 1
        if target.startswith("/") or ".." in steps[up:] or up > depth or not target:
            raise HostileError(f"the link {_shown(name)} leads outside of it")
        _once(name, lambda: os.symlink(target, path))

    def same(self, name: str, other: str) -> None:
        """Makes another name of a plain file that came before."""
        path, source = self._place(name), self._existing(other)
        _once(name, lambda: os.link(source, path, follow_symlinks=False))

    def _place(self, name: str) -> str:
        parts = _parts(name)
        self._count(name)
        return os.path.join(self._way_to(parts[:-1]), parts[-1])

    def _existing(self, name: str) -> str:
        parts = _parts(name)
        path = self._root
        for number, part in enumerate(parts):
            path = os.path.join(path, part)
            wanted = stat.S_ISREG if number == len(parts) - 1 else stat.S_ISDIR
            if not os.path.lexists(path) or not wanted(os.lstat(path).st_mode):
                raise HostileError(f"a link leads to {_shown(name)}, which is not a file in it")
        return path

    def _way_to(self, parts: list[str]) -> str:
        """Makes folders, none of which may be a link: through one a file could get anywhere."""
        path = self._root
        for part in parts:
            path = os.path.join(path, part)
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise HostileError(f"{_shown(part)} is used as a folder, but is none") from None
        return path

    def _count(self, name: str) -> None:
        self._files_left -= 1
        if self._files_left < 0:
            raise HostileError("it has more files than allowed")


def _parts(name: str) -> list[str]:
    if len(name) > PATH_CHARS_MAX or "\0" in name or name.startswith("/") or "\\" in name:
        raise HostileError(f"the name {_shown(name)} is not allowed")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > DEPTH_MAX:
        raise HostileError(f"the name {_shown(name)} leads outside of it, or too deep")
    return parts or ["."]


def _once(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except FileExistsError:
        raise HostileError(f"{_shown(name)} is in it twice") from None


def _shown(name: str) -> str:
    return ascii(name[:100])


class Bounded:
    """Decompressed stream that is read forwards only, and never much at once."""

    def __init__(self, source: IO[bytes], bytes_max: int) -> None:
        self._source = source
        self._at = 0
        self._bytes_max = bytes_max
        self._header_bytes: int | None = None

    @contextmanager
    def header(self) -> Iterator[None]:
        """Counts what is read meanwhile as one header, all of which will be kept in memory."""
        self._header_bytes = 0
        yield
        self._header_bytes = None

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= READ_BYTES_MAX:
            raise HostileError(TOO_LARGE)
        if self._header_bytes is not None:
            self._header_bytes += size
            if self._header_bytes > READ_BYTES_MAX:
                raise HostileError(TOO_LARGE)
        return self._next(size)

    def tell(self) -> int:
        return self._at

    def seek(self, place: int) -> int:
        """Seeks forwards only."""
        if place < self._at:
            raise HostileError("it cannot be read from its beginning to its end")
        while self._at < place and self._next(min(CHUNK_BYTES, place - self._at)):
            pass
        return self._at

    def _next(self, size: int) -> bytes:
        data = self._source.read(size)
        self._at += len(data)
        if self._at > self._bytes_max:
            raise HostileError("it is larger than allowed when unpacked")
        return data


def unpack_tar(archive: IO[bytes], site: Site, bytes_max: int) -> None:
    """Unpacks a tar, compressed or not. Headers count too: three times the bytes is more than they
    need."""
    with _plain(archive) as source:
        stream: Any = Bounded(source, 3 * bytes_max)
        with stream.header():  # its first one
            tar: Any = tarfile.TarFile(fileobj=stream)
        while (member := _next_member(tar, stream)) is not None:
            _take_member(tar, member, site)
            tar.members.clear()  # it would keep all of them


def _next_member(tar: tarfile.TarFile, stream: Bounded) -> tarfile.TarInfo | None:
    with stream.header():
        return tar.next()


def _plain(archive: IO[bytes]) -> Any:
    """Decompresses the stream if it is compressed."""
    head = archive.read(6)
    archive.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return gzip.open(archive)
    if head.startswith(b"BZh"):
        return bz2.open(archive)
    return lzma.open(archive) if head == b"\xfd7zXZ\x00" else archive


def _take_member(tar: tarfile.TarFile, member: tarfile.TarInfo, site: Site) -> None:
    if member.isdir():
        site.folder(member.name)
    elif member.issym():
        site.link(member.name, member.linkname)
    elif member.islnk():
        site.same(member.name, member.linkname)
    elif member.isreg():
        source = tar.extractfile(member)
        assert source is not None, "a plain file has content"
        site.file(member.name, source, bool(member.mode & 0o111))
    else:
        raise HostileError(f"{_shown(member.name)} is a device or a pipe")


def unpack_zip(archive: IO[bytes], site: Site) -> None:
    """Unpacks a zip; files from systems without permissions all become executable."""
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            mode = entry.external_attr >> 16
            if entry.is_dir():
                site.folder(entry.filename)
                continue
            if entry.flag_bits & 1:
                raise HostileError(f"{_shown(entry.filename)} is encrypted")
            with packed.open(entry) as source:
                if stat.S_ISLNK(mode):
                    site.link(entry.filename, source.read(PATH_CHARS_MAX).decode())
                elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
                    site.file(entry.filename, source, not mode or bool(mode & 0o111))
                else:
                    raise HostileError(f"{_shown(entry.filename)} is a device or a pipe")


BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    UnicodeError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)


def main(kind: str, root: str, bytes_max: int, files_max: int) -> int:
    """Returns the exit code."""
    site = Site(root, bytes_max, files_max)
    try:
        with os.fdopen(os.dup(0), "rb") as archive:
            if kind == "zip":
                unpack_zip(archive, site)
            else:
                unpack_tar(archive, site, bytes_max)
    except HostileError as error:
        return _say(str(error))
    except MemoryError:
        return _say("it needs too much memory to be unpacked")
    except BROKEN as error:
        return _say(f"it cannot be read: {str(error) or type(error).__name__}")
    return 0


def _say(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
