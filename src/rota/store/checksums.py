"""Checksums of stored bodies: each ends in a CRC-32 of its row's key and its own bytes.

The key is part of it, so that a body in the row of another key is found too. The CRC is little
endian, because then the CRC-32 of key, body and CRC is the same number for all bodies. So a reader
checks a body with one call and need not cut it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from rota.store.errors import DamagedRowError

CRC_BYTES = 4
RESIDUE = crc32(bytes(CRC_BYTES))
"""The CRC-32 of any bytes that are followed by their own CRC-32."""


def row_key(*columns: object) -> str:
    """Returns the key of a row whose key has several columns."""
    return " ".join(map(str, columns))


def key_crc(key: str) -> int:
    """Returns the number from which the checksums of this row's bodies start."""
    return crc32(key.encode())


def sealed_from(start: int, body: bytes) -> bytes:
    """Returns the body with its checksum; `start` is the key's."""
    return body + crc32(body, start).to_bytes(CRC_BYTES, "little")


def sealed(key: str, body: bytes) -> bytes:
    """Returns the body with its checksum, as it is stored."""
    # Not by `sealed_from`: every write of a job runs this, and a call costs a tenth of it.
    return body + crc32(body, crc32(key.encode())).to_bytes(CRC_BYTES, "little")


def opened(what: str, key: str, data: bytes) -> bytes:
    """Returns the body of a row without its checksum; raises DamagedRowError.

    `what` names the kind of row, or the part of it, for the error.
    """
    # A damaged row may have a value of another type.
    if (
        not isinstance(data, bytes)
        or not isinstance(key, str)
        or crc32(data, crc32(key.encode())) != RESIDUE
    ):
        raise DamagedRowError(what, str(key))
    return data[:-CRC_BYTES]


def are_whole(keys: Sequence[Any], *columns: Sequence[Any]) -> bool:
    """Returns whether all bodies of many rows match their checksums; one call for each is most of
    what it costs."""
    whole = [RESIDUE] * len(keys)
    try:
        starts = list(map(crc32, map(str.encode, keys)))
        return all(list(map(crc32, bodies, starts)) == whole for bodies in columns)
    except TypeError:  # a value of another type
        return False
