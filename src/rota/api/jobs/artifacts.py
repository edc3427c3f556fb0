"""Output files of executions: kept, listed, fetched, and links to them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from rota.api.customs.views import artifact_view
from rota.api.door.roles import Permission
from rota.api.jobs.downloads import (
    OCTETS,
    RANGE,
    Download,
    matches_if_range,
    range_in,
    range_not_satisfiable,
    with_digest,
)
from rota.api.jobs.executions import execution_id_in
from rota.api.jobs.uploads import UploadRequest, received, received_small
from rota.api.limits import LINK_S
from rota.api.lookup import find_execution
from rota.api.problems import not_found
from rota.api.reading.bodies import header
from rota.api.routes import Call, NoQuery, Operation
from rota.store.files.artifacts import WHOLE, Content, OutOfRangeError, check_artifact_name
from rota.store.files.uploads import SpooledFile
from rota.store.limits import OBJECT_BYTES_MAX, OBJECT_BYTES_MIN
from rota.wire.bundles import LinkView, Sha256, UploadView
from rota.wire.executions import ArtifactView

Offset = Annotated[
    int,
    Meta(ge=0, le=OBJECT_BYTES_MAX, description="Where it goes on, after a break."),
]


class ArtifactPage(msgspec.Struct):
    """All output files of an execution, by name."""

    items: list[ArtifactView]
    next_cursor: str | None = None


class PutArtifactQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What comes. With its checksum it is checked, and can be gone on with."""

    sha256: Sha256 | None = None
    offset: Offset = 0


class UploadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which upload."""

    sha256: Sha256


@Operation(
    "PUT",
    "/executions/{execution_id}/artifacts/{name}",
    "Keep an output file",
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
        "Raw bytes, up to 16 GiB (1 GiB where there is no object storage). One of the "
        "same name is replaced. With `sha256` it is checked; an upload that broke off goes on from "
        "the `offset` that the call below tells."
    ),
    examples={"body": "put_artifact_body", "answer": "artifact"},
    slashes=True,
)
async def put_artifact(call: Call[None, PutArtifactQuery]) -> ArtifactView:
    """Keeps one output file: a small one in the store, a large one in object storage."""
    execution = await find_execution(call, execution_id_in(call))
    name, asked, files = call.path["name"], call.query, call.deps.files
    check_artifact_name(name)
    if not asked.offset and _length(call) <= OBJECT_BYTES_MIN:
        content = await received_small(call, asked.sha256, OBJECT_BYTES_MIN)
        return artifact_view(await files.outputs.keep_small(execution.id, name, content))
    sending = UploadRequest(
        name=_upload_name(execution.id, name, asked.sha256),
        offset=asked.offset,
        size=None,
        sha256=asked.sha256,
        bytes_max=files.outputs.bytes_max,
    )
    async with received(call, files.spool, sending) as draft:
        assert isinstance(draft, SpooledFile), "an output file is sent with its end"
        now = call.deps.brain.clock.now()
        key = f"outputs/{execution.id}/{call.state.ids.mint(now)}"
        return artifact_view(await files.outputs.keep(execution.id, name, draft, key, now))


def _length(call: Call[Any, Any]) -> int:
    """As the sender says; one that does not say may send much."""
    text = header(call.request.scope, b"content-length") or b""
    return int(text) if text.isdigit() else OBJECT_BYTES_MAX


def _upload_name(execution_id: str, name: str, sha256: str | None) -> str | None:
    return None if sha256 is None else f"output {execution_id} {sha256} {name}"


@Operation(
    "GET",
    "/executions/{execution_id}/artifacts/{name}/upload",
    "How much of an output file has come",
    tag="Executions",
    permission=Permission.WORK,
    query=UploadQuery,
    answer=UploadView,
    errors=(404,),
    examples={"answer": "show_artifact_upload"},
)
async def show_artifact_upload(call: Call[None, UploadQuery]) -> UploadView:
    """How much of an upload that broke off is here."""
    execution = await find_execution(call, execution_id_in(call))
    check_artifact_name(call.path["name"])
    name = _upload_name(execution.id, call.path["name"], call.query.sha256) or ""
    return UploadView(await call.deps.files.spool.offset(name))


@Operation(
    "GET",
    "/executions/{execution_id}/artifacts/{name}",
    "Fetch an output file",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    gives=OCTETS,
    streams_out=True,
    headers=RANGE,
    also={206: None},
    errors=(404, 410, 416, 422),
    description=(
        "`Repr-Digest` has the SHA-256 of the whole. With `Range` a part of it (206). "
        "The slashes in a name such as `plots/a.png` are best encoded: `plots%2Fa.png`."
    ),
    examples={"answer": "get_artifact"},
    slashes=True,
)
async def get_artifact(call: Call[None, NoQuery]) -> Download:
    """Sends one output file, or a part of it."""
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
    "Where to fetch an output file",
    tag="Executions",
    permission=Permission.READ,
    any_server=True,
    answer=LinkView,
    errors=(404,),
    description=(
        "A signed link to the object storage where that gives one, good for a quarter "
        "of an hour; else the path on this server."
    ),
    examples={"answer": "link"},
)
async def link_artifact(call: Call[None, NoQuery]) -> LinkView:
    """Where to fetch it: at the storage, where that gives links, or here."""
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
    """The names and sizes of what was kept."""
    execution = await find_execution(call, execution_id_in(call))
    (found,) = await call.deps.files.outputs.list([execution.id])
    return ArtifactPage([artifact_view(one) for one in found])
