"""Uploads and downloads of bundles and artifacts, in pieces that are resumed after a lost
connection.

The checksum of the content is compared after every transfer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from rota.sdk.backoff import pause_s
from rota.sdk.calls import Call, params_of, path_of
from rota.sdk.errors import (
    AnswerError,
    ApiError,
    ConflictError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from rota.sdk.request_plan import (
    ClientState,
    EmitItem,
    OpenStream,
    ReadMore,
    RequestPlan,
    RetryBackoff,
    Sleep,
    ask,
    fetch,
)
from rota.wire.bundles import BundlePage, BundleUploadView, BundleView, LinkView, UploadView
from rota.wire.workers import ArtifactView

OCTETS = "application/octet-stream"


class UploadPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a bundle that is being uploaded."""

    name: str
    tenant: str | None
    format: str | None
    sha256: str
    size: int
    """Size of the whole bundle."""
    offset: int
    data: bytes


class ArtifactPage(msgspec.Struct):
    """Output files of an execution."""

    items: list[ArtifactView]


def upload_piece(piece: UploadPiece) -> Call[bytes]:
    """Uploads a part of a bundle; the answer is the progress (202), or the bundle."""
    params = params_of(
        name=piece.name,
        tenant=piece.tenant,
        format=piece.format,
        sha256=piece.sha256,
        size=piece.size,
        offset=piece.offset,
    )
    return Call("POST", "/bundles", bytes, params, piece.data, media=OCTETS, held=True)


def bundle_upload(sha256: str, tenant: str | None) -> Call[BundleUploadView]:
    """Asks how much of a bundle has been uploaded."""
    path = path_of("bundles", "uploads", sha256)
    return Call("GET", path, BundleUploadView, params_of(tenant=tenant))


def list_bundles(
    *,
    tenant: str | None = None,
    unused_for: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[BundlePage]:
    params = params_of(tenant=tenant, unused_for=unused_for, limit=limit, cursor=cursor)
    return Call("GET", "/bundles", BundlePage, params)


def get_bundle(bundle_id: str) -> Call[BundleView]:
    return Call("GET", path_of("bundles", bundle_id), BundleView)


def delete_bundle(bundle_id: str) -> Call[None]:
    return Call("DELETE", path_of("bundles", bundle_id), type(None), keyed=True)


def bundle_content(bundle_id: str) -> Call[bytes]:
    return Call("GET", path_of("bundles", bundle_id, "content"), bytes)


def list_artifacts(execution_id: str) -> Call[ArtifactPage]:
    return Call("GET", path_of("executions", execution_id, "artifacts"), ArtifactPage)


def get_artifact(execution_id: str, name: str) -> Call[bytes]:
    return Call("GET", path_of("executions", execution_id, "artifacts", name), bytes)


def artifact_link(execution_id: str, name: str) -> Call[LinkView]:
    """Asks for a URL of an output file."""
    return Call("GET", path_of("executions", execution_id, "artifacts", name, "link"), LinkView)


PIECE_BYTES = 4 * 1024 * 1024
"""Size of one piece: it is in memory, and sent again after a lost connection."""
CONFLICTS_MAX = 10
"""How often to ask again for the progress of an upload, because others may be sending the same
content.
"""
QUIET_S = 30.0


class UploadSource:
    """File to upload."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self.size = file.tell()

    def read(self, offset: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)


def push(
    state: ClientState, source: UploadSource, name: str, tenant: str | None, format: str | None
) -> RequestPlan[BundleView]:
    """Uploads the missing part of a bundle, and returns the bundle."""
    there = yield from fetch(state, bundle_upload(source.sha256, tenant))
    if there.bundle is not None:
        return there.bundle
    offset, conflicts = min(there.offset, source.size), 0
    while True:
        piece = UploadPiece(
            name=name,
            tenant=tenant,
            format=format,
            sha256=source.sha256,
            size=source.size,
            offset=offset,
            data=source.read(offset),
        )
        try:
            answer = yield from ask(state, upload_piece(piece))
        except (ConflictError, InvalidError) as error:
            # Another client is sending the same content, or an earlier part was damaged.
            conflicts += 1
            if conflicts > CONFLICTS_MAX or not _is_resumable(error):
                raise
            yield Sleep(pause_s(conflicts, state.mint_key()))
            offset = (yield from fetch(state, bundle_upload(source.sha256, tenant))).offset
            continue
        if answer.status != 202:
            return msgspec.json.decode(answer.body, type=BundleView)
        offset, conflicts = msgspec.json.decode(answer.body, type=UploadView).offset, 0


def _is_resumable(error: ApiError) -> bool:
    kind = error.problem.type.rpartition(":")[2].rpartition("/")[2]
    return kind in ("wrong_offset", "taken_over", "checksum")


def download_artifact(
    state: ClientState, execution_id: str, file: str | ArtifactView
) -> RequestPlan[None]:
    """Emits the content of an output file; one given by its name is looked up first."""
    if isinstance(file, str):
        name = file
        page = yield from fetch(state, list_artifacts(execution_id))
        found = next((one for one in page.items if one.name == name), None)
    else:
        name, found = file.name, file
    call = get_artifact(execution_id, name)
    if found is None or found.sha256 is None:
        # A small file, or a missing one, which the server then reports.
        answer = yield from ask(state, call)
        known = answer.headers.get("etag", "").strip('"')
        if known and hashlib.sha256(answer.body).hexdigest() != known:
            raise AnswerError(f"{name} was damaged during the download: fetch it again")
        yield EmitItem(answer.body)
        return
    yield from _download(state, call, found.size, found.sha256)


def download_bundle(state: ClientState, bundle_id: str) -> RequestPlan[None]:
    bundle = yield from fetch(state, get_bundle(bundle_id))
    yield from _download(state, bundle_content(bundle_id), bundle.size, bundle.sha256)


def _download(state: ClientState, call: Call[bytes], size: int, sha256: str) -> RequestPlan[None]:
    offset, hasher, retrying = 0, hashlib.sha256(), RetryBackoff(state, sha256)
    while offset < size:
        before = offset
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            yield OpenStream(call, headers, QUIET_S)
            while (chunk := (yield ReadMore())) is not None:
                retrying.reset()
                offset += len(chunk)
                hasher.update(chunk)
                yield EmitItem(chunk)
        except NotFoundError:
            raise
        except (UnreachableError, ApiError) as error:
            yield from retrying.after(error)
            continue
        if offset == before:
            break  # it ends there, whatever the server believes
    if offset != size or hasher.hexdigest() != sha256:
        raise AnswerError("the file was damaged during the download or in storage: fetch it again")


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that gets its name once it is complete; creates missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
