"""Pieces of logs as they are stored: each ends in its checksum, and a page is cut out of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rota.core.model import ExecutionId
from rota.store.checksums import opened, row_key, sealed
from rota.store.errors import DamagedRowError
from rota.store.limits import LOG_PIECE_BYTES
from rota.store.protocol import LogExtent, LogPage


def log_pieces(
    execution_id: ExecutionId, extent: LogExtent, kept: bytes
) -> list[tuple[int, bytes]]:
    """Returns rows of start, data for bytes that are added at the end of a log."""
    return [
        (start, sealed(row_key(execution_id, start), kept[at : at + LOG_PIECE_BYTES]))
        for at in range(0, len(kept), LOG_PIECE_BYTES)
        for start in (extent.stored + at,)
    ]


def log_page(
    execution_id: ExecutionId, pieces: Iterable[Any], offset: int, end: int, extent: LogExtent
) -> LogPage:
    """Returns the bytes from `offset` to `end`; `pieces` are rows of start, data."""
    found: list[bytes] = []
    reached = offset
    for start, stored in pieces:
        data = opened("log of execution", row_key(execution_id, start), stored)
        part = data[max(0, offset - start) : max(0, end - start)]
        if start > reached:
            break  # one is missing
        found.append(part)
        reached += len(part)
    if reached < end:
        raise DamagedRowError("log of execution", row_key(execution_id, reached))
    return LogPage(b"".join(found), reached, extent.stored, extent.dropped)
