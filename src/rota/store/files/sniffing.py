"""What kind of file an upload is, by how it begins."""

from __future__ import annotations

import bz2
import lzma
import zlib
from pathlib import Path

from rota.store.protocols.objects import Format

_HEAD_BYTES = 1024 * 1024
"""More than the longest block of bzip2, which says nothing before it is whole."""
_TAR_BYTES = 512
_LZMA_MEMORY = 128 * 1024 * 1024


def archive_format(path: Path) -> Format:
    """An archive is one that a worker unpacks; a file that is merely compressed is a file."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    return "tar" if _is_tar(head) or _is_tar(_unpacked(head)) else "file"


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _unpacked(head: bytes) -> bytes:
    """The first bytes of what is compressed; none of what is not."""
    try:
        if head.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(wbits=31).decompress(head, _TAR_BYTES)
        if head.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(head, _TAR_BYTES)
        if head.startswith(b"\xfd7zXZ\x00"):
            return lzma.LZMADecompressor(memlimit=_LZMA_MEMORY).decompress(head, _TAR_BYTES)
    except (zlib.error, OSError, EOFError, lzma.LZMAError):
        pass
    return b""
