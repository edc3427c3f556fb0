"""Files on their way out: whole or a part of them, with what is needed to check them."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import quote

from rota.api.jobs.uploads import hash_of
from rota.api.reading.bodies import header
from rota.api.routes import Call, HeaderSpec
from rota.api.streams import Stream
from rota.store.files.artifacts import WHOLE, Content, OutOfRangeError, Range
from rota.store.limits import OBJECT_BYTES_MIN
from rota.wire.problems import ProblemError

OCTETS = "application/octet-stream"
RANGE = {"Range": HeaderSpec("bytes=0-99")}
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Download(Stream):
    """A file, never shown in place, whatever is in it. Its length is said, so a reader knows when
    it was cut off."""

    def __init__(self, call: Call[Any, Any], name: str, content: Content) -> None:
        super().__init__(_pieces(content.pieces), OCTETS, closing=call.deps.closing)
        self.headers["content-length"] = str(content.end - content.start)
        self.headers["accept-ranges"] = "bytes"
        # The folders it lay in are not the reader's.
        last = quote(name.rpartition("/")[2], safe="")
        self.headers["content-disposition"] = f"attachment; filename*=UTF-8''{last}"
        if content.sha256 is not None:
            digest = base64.b64encode(bytes.fromhex(content.sha256)).decode()
            self.headers["etag"] = f'"{content.sha256}"'
            self.headers["repr-digest"] = f"sha-256=:{digest}:"
        if content.end - content.start < content.size:
            self.status_code = 206
            place = f"bytes {content.start}-{content.end - 1}/{content.size}"
            self.headers["content-range"] = place


def range_in(call: Call[Any, Any]) -> Range:
    """The part that is asked for. What is not understood, or is several, asks for all of it, and
    so does a part of something that has changed."""
    text = header(call.request.scope, b"range")
    found = _RANGE.fullmatch(text.decode("latin-1")) if text is not None else None
    if found is None or found[1] == found[2] == "":
        return WHOLE
    if not found[1]:
        return Range(None, int(found[2]))
    start, end = int(found[1]), int(found[2]) + 1 if found[2] else None
    return WHOLE if end is not None and end <= start else Range(start, end)


def matches_if_range(call: Call[Any, Any], sha256: str | None) -> bool:
    """Whether a part may be added to what the reader has: If-Range names what that is of."""
    known = header(call.request.scope, b"if-range")
    return known is None or known.decode("latin-1") == f'"{sha256}"'


async def with_digest(content: Content) -> Content:
    """A small file is hashed as it is sent for; what is large has its digest with it."""
    whole = content.end - content.start == content.size
    if content.sha256 is not None or not whole or content.size > OBJECT_BYTES_MIN:
        return content
    data = b"".join([piece async for piece in content.pieces])
    return Content(content.size, hash_of(data), 0, content.size, _single_piece(data))


def range_not_satisfiable(error: OutOfRangeError) -> ProblemError:
    """The file ends before."""
    headers = {"Content-Range": f"bytes */{error.size}"}
    return ProblemError(416, "range", f"{error}, and nothing of that part", headers=headers)


async def _single_piece(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _pieces(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        yield piece
