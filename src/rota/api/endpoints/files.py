"""Endpoints of output files (artifacts), and the transfer of large files.

Uploads arrive in pieces, continue after an interruption and are checked; downloads serve ranges.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect

from rota.api.auth.roles import Permission
from rota.api.convert.jobs import artifact_view
from rota.api.endpoints.executions import execution_id_in
from rota.api.limits import BODY_READ_S, LINK_S
from rota.api.parsing.request import header, too_slow
from rota.api.problems import not_found
from rota.api.router import Call, HeaderSpec, NoQuery, Operation
from rota.api.streaming import Stream
from rota.api.tenant_scope import find_execution
from rota.store.files.artifacts import WHOLE, Content, OutOfRangeError, Range, check_artifact_name
from rota.store.files.uploads import Spool, SpooledFile
from rota.store.limits import OBJECT_BYTES_MAX, OBJECT_BYTES_MIN
from rota.wire.bundles import LinkView, Sha256, UploadView
from rota.wire.problems import ClientDisconnectedError, ProblemError
from rota.wire.workers import ArtifactView


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequest:
    """Parameters of an upload."""

    name: str | None
    """Name under which it can be continued; None: it cannot."""
    offset: int
    size: int | None
    """Size of the whole; None: this request brings all the rest."""
    sha256: str | None
    bytes_max: int


async def pieces_of(call: Call[Any, Any]) -> AsyncIterator[bytes]:
    """Yields a request's body as it arrives."""
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
    call: Call[Any, Any], spool: Spool, upload_request: UploadRequest
) -> AsyncIterator[SpooledFile | int]:
    """Yields the whole file, once it is here and checked; before that the number of bytes that are
    here."""
    if upload_request.size is not None and upload_request.size > upload_request.bytes_max:
        raise _too_large(upload_request.bytes_max)
    bytes_max = upload_request.bytes_max if upload_request.size is None else upload_request.size
    upload = await spool.begin(upload_request.name, upload_request.offset, bytes_max)
    kept = False
    try:
        async for piece in pieces_of(call):
            await upload.write(piece)
        if upload_request.size is not None and upload.size < upload_request.size:
            yield upload.size
            return
        spooled = await upload.finish()
        if upload_request.sha256 is not None and spooled.sha256 != upload_request.sha256:
            await upload.discard()
            raise wrong_checksum(spooled.sha256)
        yield spooled
        kept = True
    finally:
        # If the storage failed, the upload is kept and need not be sent again.
        await upload.leave(kept=kept)


async def received_small(call: Call[Any, Any], sha256: str | None, bytes_max: int) -> bytes:
    """Reads a body that fits into memory."""
    content = bytearray()
    async for piece in pieces_of(call):
        content += piece
        if len(content) > bytes_max:
            raise _too_large(bytes_max)
    if sha256 is not None and (found := hash_of(bytes(content))) != sha256:
        raise wrong_checksum(found)
    return bytes(content)


def hash_of(content: bytes) -> str:
    """Returns the SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def wrong_checksum(found: str) -> ProblemError:
    detail = f"the content has the SHA-256 {found}, not the one in the request: send it again"
    return ProblemError(422, "checksum", detail)


def _too_large(bytes_max: int) -> ProblemError:
    detail = f"the file is larger than {bytes_max} bytes"
    return ProblemError(413, "too_large", detail, headers={"Connection": "close"})


OCTETS = "application/octet-stream"
RANGE = {"Range": HeaderSpec("bytes=0-99")}
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Download(Stream):
    """Response that sends a file as an attachment; its length tells a reader that it was cut
    off."""

    def __init__(self, call: Call[Any, Any], name: str, content: Content) -> None:
        super().__init__(_pieces(content.pieces), OCTETS, closing=call.deps.closing)
        self.headers["content-length"] = str(content.end - content.start)
        self.headers["accept-ranges"] = "bytes"
        # Without the folders of its name.
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
    """Parses the Range header.

    A range that is invalid or has several parts asks for the whole file.
    """
    text = header(call.request.scope, b"range")
    found = _RANGE.fullmatch(text.decode("latin-1")) if text is not None else None
    if found is None or found[1] == found[2] == "":
        return WHOLE
    if not found[1]:
        return Range(None, int(found[2]))
    start, end = int(found[1]), int(found[2]) + 1 if found[2] else None
    return WHOLE if end is not None and end <= start else Range(start, end)


def matches_if_range(call: Call[Any, Any], sha256: str | None) -> bool:
    """Whether If-Range matches the file, so that a part can be added to what the reader has."""
    known = header(call.request.scope, b"if-range")
    return known is None or known.decode("latin-1") == f'"{sha256}"'


async def with_digest(content: Content) -> Content:
    """Hashes a small file on download; a large one has its digest stored."""
    whole = content.end - content.start == content.size
    if content.sha256 is not None or not whole or content.size > OBJECT_BYTES_MIN:
        return content
    data = b"".join([piece async for piece in content.pieces])
    return Content(content.size, hash_of(data), 0, content.size, _single_piece(data))


def range_not_satisfiable(error: OutOfRangeError) -> ProblemError:
    """Refuses a range beyond the end of the file."""
    headers = {"Content-Range": f"bytes */{error.size}"}
    return ProblemError(416, "range", f"{error}: the range is beyond its end", headers=headers)


async def _single_piece(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _pieces(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        yield piece


Offset = Annotated[
    int,
    Meta(ge=0, le=OBJECT_BYTES_MAX, description="Where an interrupted upload continues."),
]


class ArtifactPage(msgspec.Struct):
    """All output files of an execution, by name."""

    items: list[ArtifactView]
    next_cursor: str | None = None


class PutArtifactQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an upload. With its checksum it is checked, and can be continued."""

    sha256: Sha256 | None = None
    offset: Offset = 0


class UploadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Identifies an upload."""

    sha256: Sha256


@Operation(
    "PUT",
    "/executions/{execution_id}/artifacts/{name}",
    "Upload an output file",
    tag="Executions",
    permission=Permission.WORK,
    repeatable=True,
    worker_traffic=True,
    query=PutArtifactQuery,
    body=bytes,
    takes=OCTETS,
    streams_in=True,
    answer=ArtifactView,
    errors=(404,),
    description=(
        "Raw bytes, up to 16 GiB (1 GiB without object storage). Replaces a file of the same "
        "name. `sha256` is compared with the content; an interrupted upload continues at the "
        "`offset` that the next call returns."
    ),
    examples={"body": "put_artifact_body", "answer": "artifact"},
    slashes=True,
)
async def put_artifact(call: Call[None, PutArtifactQuery]) -> ArtifactView:
    execution = await find_execution(call, execution_id_in(call))
    name, asked, files = call.path["name"], call.query, call.deps.files
    check_artifact_name(name)
    if not asked.offset and _length(call) <= OBJECT_BYTES_MIN:
        content = await received_small(call, asked.sha256, OBJECT_BYTES_MIN)
        return artifact_view(await files.outputs.keep_small(execution.id, name, content))
    upload_request = UploadRequest(
        name=_upload_name(execution.id, name, asked.sha256),
        offset=asked.offset,
        size=None,
        sha256=asked.sha256,
        bytes_max=files.outputs.bytes_max,
    )
    async with received(call, files.spool, upload_request) as spooled:
        assert isinstance(spooled, SpooledFile), "an output file is sent with its end"
        now = call.deps.brain.clock.now()
        key = f"outputs/{execution.id}/{call.state.ids.mint(now)}"
        return artifact_view(await files.outputs.keep(execution.id, name, spooled, key, now))


def _length(call: Call[Any, Any]) -> int:
    """Returns the declared length; without one the body may be large."""
    text = header(call.request.scope, b"content-length") or b""
    return int(text) if text.isdigit() else OBJECT_BYTES_MAX


def _upload_name(execution_id: str, name: str, sha256: str | None) -> str | None:
    return None if sha256 is None else f"output {execution_id} {sha256} {name}"


@Operation(
    "GET",
    "/executions/{execution_id}/artifacts/{name}/upload",
    "Show how much of an output file has arrived",
    tag="Executions",
    permission=Permission.WORK,
    query=UploadQuery,
    answer=UploadView,
    errors=(404,),
    examples={"answer": "show_artifact_upload"},
)
async def show_artifact_upload(call: Call[None, UploadQuery]) -> UploadView:
    execution = await find_execution(call, execution_id_in(call))
    check_artifact_name(call.path["name"])
    name = _upload_name(execution.id, call.path["name"], call.query.sha256) or ""
    return UploadView(await call.deps.files.spool.offset(name))


@Operation(
    "GET",
    "/executions/{execution_id}/artifacts/{name}",
    "Download an output file",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    gives=OCTETS,
    streams_out=True,
    headers=RANGE,
    also={206: None},
    errors=(404, 410, 416, 422),
    description=(
        "`Repr-Digest` has the SHA-256 of the whole file. `Range` gets a part (206). Encode the "
        "slashes in a name such as `plots/a.png`: `plots%2Fa.png`."
    ),
    examples={"answer": "get_artifact"},
    slashes=True,
)
async def get_artifact(call: Call[None, NoQuery]) -> Download:
    execution_id = (await find_execution(call, execution_id_in(call))).id
    name, outputs = call.path["name"], call.deps.files.outputs
    try:
        content = await outputs.read(execution_id, name, range_in(call))
    except OutOfRangeError as error:
        raise range_not_satisfiable(error) from None
    if content is not None and not matches_if_range(call, content.sha256):
        content = await outputs.read(execution_id, name, WHOLE)
    return Download(call, name, await with_digest(_existing(content, execution_id, name)))


def _existing(content: Content | None, execution_id: str, name: str) -> Content:
    if content is None:
        raise not_found(f"artifact of execution {execution_id} named", name)
    return content


@Operation(
    "GET",
    "/executions/{execution_id}/artifacts/{name}/link",
    "Get a download link for an output file",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    answer=LinkView,
    errors=(404,),
    description=(
        "A signed link to the object storage if that supports it, valid for 15 minutes; else the "
        "path on this server."
    ),
    examples={"answer": "link"},
)
async def link_artifact(call: Call[None, NoQuery]) -> LinkView:
    execution_id = (await find_execution(call, execution_id_in(call))).id
    name, outputs = call.path["name"], call.deps.files.outputs
    (found,) = await outputs.list([execution_id])
    if name not in [one.name for one in found]:
        raise not_found(f"artifact of execution {execution_id} named", name)
    link = await outputs.link(execution_id, name, LINK_S)
    if link is not None:
        return LinkView(link.url, signed=True, expires_in=link.expires_s)
    here = f"/executions/{execution_id}/artifacts/{quote(name, safe='')}"
    return LinkView(here, signed=False, expires_in=None)


@Operation(
    "GET",
    "/executions/{execution_id}/artifacts",
    "List an execution's output files",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    answer=ArtifactPage,
    errors=(404,),
    examples={"answer": "list_artifacts"},
)
async def list_artifacts(call: Call[None, NoQuery]) -> ArtifactPage:
    execution = await find_execution(call, execution_id_in(call))
    (found,) = await call.deps.files.outputs.list([execution.id])
    return ArtifactPage([artifact_view(one) for one in found])
