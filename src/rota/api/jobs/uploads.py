"""Bodies that may be large: received piece by piece, gone on with after a break, checked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from rota.api.limits import BODY_READ_S
from rota.api.reading.bodies import too_slow
from rota.api.routes import Call
from rota.store.files.uploads import Spool, SpooledFile
from rota.wire.problems import ClientDisconnectedError, ProblemError


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequest:
    """What a request says of its upload."""

    name: str | None
    """What it goes on under; None: it cannot."""
    offset: int
    size: int | None
    """Of the whole; None: all that comes with this request is all."""
    sha256: str | None
    bytes_max: int


async def pieces_of(call: Call[Any, Any]) -> AsyncIterator[bytes]:
    """A body as it comes."""
    body = call.request.stream()
    while True:
        try:
            async with asyncio.timeout(BODY_READ_S):
                piece = await anext(body, None)
        except ClientDisconnect:
            raise ClientDisconnectedError from None
        except TimeoutError:
            raise too_slow() from None
        if piece is None:
            return
        yield piece


@asynccontextmanager
async def received(
    call: Call[Any, Any], spool: Spool, sending: UploadRequest
) -> AsyncIterator[SpooledFile | int]:
    """The whole, once it is here and is what it should be; until then how much is here."""
    if sending.size is not None and sending.size > sending.bytes_max:
        raise _too_large(sending.bytes_max)
    bytes_max = sending.bytes_max if sending.size is None else sending.size
    upload = await spool.begin(sending.name, sending.offset, bytes_max)
    kept = False
    try:
        async for piece in pieces_of(call):
            await upload.write(piece)
        if sending.size is not None and upload.size < sending.size:
            yield upload.size
            return
        draft = await upload.finish()
        if sending.sha256 is not None and draft.sha256 != sending.sha256:
            await upload.discard()
            raise wrong_checksum(draft.sha256)
        yield draft
        kept = True
    finally:
        # Where the storage did not take it, it need not be sent again.
        await upload.leave(kept=kept)


async def received_small(call: Call[Any, Any], sha256: str | None, bytes_max: int) -> bytes:
    """A body that fits into memory."""
    content = bytearray()
    async for piece in pieces_of(call):
        content += piece
        if len(content) > bytes_max:
            raise _too_large(bytes_max)
    if sha256 is not None and (found := hash_of(bytes(content))) != sha256:
        raise wrong_checksum(found)
    return bytes(content)


def hash_of(content: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(content).hexdigest()


def wrong_checksum(found: str) -> ProblemError:
    """What came is not what was meant."""
    detail = f"what came has the SHA-256 {found}, another than was said: send it again"
    return ProblemError(422, "checksum", detail)


def _too_large(bytes_max: int) -> ProblemError:
    detail = f"at most {bytes_max} bytes are taken"
    return ProblemError(413, "too_large", detail, headers={"Connection": "close"})
