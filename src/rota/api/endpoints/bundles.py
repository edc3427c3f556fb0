"""Endpoints of bundles: upload, list, download; and the check that submitted jobs may use
theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.api.auth.roles import Permission
from rota.api.endpoints.executions import execution_id_in
from rota.api.endpoints.files import (
    OCTETS,
    RANGE,
    Download,
    UploadRequest,
    range_in,
    range_not_satisfiable,
    received,
)
from rota.api.limits import BUNDLE_USE_MS
from rota.api.pagination import Cursor, Limit, cut, read_id_cursor
from rota.api.parsing.request import header
from rota.api.problems import invalid, not_found
from rota.api.router import Call, NoQuery, Operation, Reply
from rota.api.tenant_scope import check_tenant, find_execution, id_in, tenants_of
from rota.core.model import Instant
from rota.store.files.artifacts import WHOLE, Content, OutOfRangeError, Range, check_plain_name
from rota.store.files.uploads import SpooledFile, archive_format
from rota.store.limits import INTENT_MS
from rota.store.object_index import Bundle, BundleQuery, ObjectIndex
from rota.wire.bundles import (
    BundlePage,
    BundleUploadView,
    BundleView,
    FileName,
    Format,
    Sha256,
    UploadView,
)
from rota.wire.formats import Duration, from_instant
from rota.wire.jobs import BundleRun, JobSpec, QueueName, bundles_of
from rota.wire.limits import BUNDLE_BYTES_MAX, PAGE_ITEMS_DEFAULT
from rota.wire.problems import ProblemError

Size = Annotated[int, Meta(ge=1, le=BUNDLE_BYTES_MAX)]


class PushQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an upload. In pieces, each needs `size` and `offset`; `sha256` identifies
    it."""

    name: FileName = "bundle"
    tenant: QueueName | None = None
    sha256: Sha256 | None = None
    size: Size | None = None
    offset: Annotated[int, Meta(ge=0, le=BUNDLE_BYTES_MAX)] = 0
    format: Annotated[
        Format | None,
        Meta(description="Default: detected from the content. `file` keeps an archive packed."),
    ] = None


class BundlesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters of the list of bundles."""

    tenant: QueueName | None = None
    sha256: Sha256 | None = None
    unused_for: Annotated[
        Duration | None, Meta(description="Not used by any job for this long.")
    ] = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


class BundleUploadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Tenant of an upload."""

    tenant: QueueName | None = None


@Operation(
    "POST",
    "/bundles",
    "Upload a bundle",
    tag="Bundles",
    permission=Permission.SUBMIT,
    repeatable=True,
    query=PushQuery,
    body=bytes,
    takes=OCTETS,
    streams_in=True,
    answer=BundleView,
    status=201,
    also={200: BundleView, 202: UploadView},
    errors=(415,),
    description=(
        "A program, a script or an archive (zip, tar, tar.gz, tar.bz2, tar.xz), up to 4 GiB of "
        "raw bytes. The same content again is the same bundle (200). `sha256` is compared with "
        "the content. With `size` as well, the bundle may come in pieces, each with its `offset` "
        "(202 until the last); an interrupted upload can continue for a day."
    ),
    examples={"body": "get_execution_bundle", "answer": "bundle"},
)
async def push_bundle(call: Call[None, PushQuery]) -> Reply:
    """Stores a bundle, or a piece of it; the same content again is the same bundle."""
    asked, files, index = call.query, call.deps.files, object_index_of(call)
    _check_not_form(call)
    check_plain_name(asked.name)
    tenant = _tenant(call, asked.tenant)
    if asked.sha256 is None and (asked.size is not None or asked.offset):
        raise invalid("sha256", "is needed for an upload in pieces, which it identifies")
    upload_request = UploadRequest(
        name=_upload_name(tenant, asked.sha256),
        offset=asked.offset,
        size=asked.size,
        sha256=asked.sha256,
        bytes_max=min(BUNDLE_BYTES_MAX, files.blobs.bytes_max),
    )
    async with received(call, files.spool, upload_request) as spooled:
        if not isinstance(spooled, SpooledFile):
            return Reply(UploadView(spooled), {}, status=202)
        bundle_record = await _new_bundle(call, spooled, tenant)
        await index.intend(bundle_record.key, bundle_record.created_at + INTENT_MS)
        await files.blobs.put(bundle_record.key, spooled)
    bundle = await index.add_bundle(bundle_record)
    status = 201 if bundle.id == bundle_record.id else 200
    return Reply(bundle_view(bundle), {"Location": f"/bundles/{bundle.id}"}, status)


async def _new_bundle(call: Call[None, PushQuery], spooled: SpooledFile, tenant: str) -> Bundle:
    if not spooled.size:
        raise invalid("", "a bundle has at least one byte")
    asked, now = call.query, call.deps.brain.clock.now()
    bundle_id = call.state.ids.mint(now)
    found: Format = await asyncio.to_thread(archive_format, spooled.path)
    return Bundle(
        id=bundle_id,
        tenant=tenant,
        name=asked.name,
        size=spooled.size,
        sha256=spooled.sha256,
        format=asked.format or found,
        key=f"bundles/{bundle_id}",
        created_at=now,
        used_at=now,
    )


@Operation(
    "GET",
    "/bundles/uploads/{sha256}",
    "Show how much of a bundle has arrived",
    tag="Bundles",
    permission=Permission.SUBMIT,
    query=BundleUploadQuery,
    answer=BundleUploadView,
    examples={"answer": "show_bundle_upload"},
)
async def show_bundle_upload(call: Call[None, BundleUploadQuery]) -> BundleUploadView:
    """Returns how much of an interrupted upload is here, or the bundle that it has become."""
    tenant, sha256 = _tenant(call, call.query.tenant), call.path["sha256"]
    query = BundleQuery(tenant=tenant, sha256=sha256, limit=1)
    for bundle in await object_index_of(call).find_bundles(query):
        return BundleUploadView(bundle.size, bundle_view(bundle))
    name = _upload_name(tenant, sha256) or ""
    return BundleUploadView(await call.deps.files.spool.offset(name))


@Operation(
    "GET",
    "/bundles",
    "List bundles, newest first",
    tag="Bundles",
    permission=Permission.READ,
    any_server=True,
    query=BundlesQuery,
    answer=BundlePage,
    examples={"answer": "list_bundles"},
)
async def list_bundles(call: Call[None, BundlesQuery]) -> BundlePage:
    asked, own = call.query, call.caller.tenant
    if own is not None and asked.tenant not in (None, own):
        return BundlePage([], None)
    unused_for = asked.unused_for
    query = BundleQuery(
        tenant=own or asked.tenant,
        sha256=asked.sha256,
        unused_since=None if unused_for is None else _now(call) - unused_for.ms,
        before=read_id_cursor(asked.cursor),
        limit=asked.limit + 1,
    )
    found = await object_index_of(call).find_bundles(query)
    items, next_cursor = cut(found, asked.limit, lambda bundle: bundle.id)
    return BundlePage([bundle_view(one) for one in items], next_cursor)


@Operation(
    "GET",
    "/bundles/{bundle_id}",
    "Show a bundle",
    tag="Bundles",
    permission=Permission.READ,
    any_server=True,
    answer=BundleView,
    errors=(404,),
    examples={"answer": "bundle"},
)
async def show_bundle(call: Call[None, NoQuery]) -> BundleView:
    return bundle_view(await _own(call))


@Operation(
    "DELETE",
    "/bundles/{bundle_id}",
    "Delete a bundle",
    tag="Bundles",
    permission=Permission.SUBMIT,
    status=204,
    errors=(404,),
    description="Jobs that use it and have not started will fail with that reason.",
)
async def drop_bundle(call: Call[None, NoQuery]) -> None:
    bundle = await _own(call)
    if not await object_index_of(call).drop_bundle(bundle.id):
        raise not_found("bundle", bundle.id)


@Operation(
    "GET",
    "/bundles/{bundle_id}/content",
    "Download a bundle",
    tag="Bundles",
    permission=Permission.READ,
    any_server=True,
    gives=OCTETS,
    streams_out=True,
    headers=RANGE,
    also={206: None},
    errors=(404, 410, 416),
    examples={"answer": "get_execution_bundle"},
)
async def get_bundle(call: Call[None, NoQuery]) -> Download:
    return await _sent(call, await _own(call))


@Operation(
    "GET",
    "/executions/{execution_id}/bundles/{bundle_id}",
    "Show a bundle of an execution's job",
    tag="Executions",
    permission=Permission.WORK,
    any_server=True,
    worker_traffic=True,
    answer=BundleView,
    errors=(404,),
    description="For the worker that runs the job: 404 unless the bundle belongs to its tenant.",
    examples={"answer": "bundle"},
)
async def show_execution_bundle(call: Call[None, NoQuery]) -> BundleView:
    return bundle_view(await _for_execution(call))


@Operation(
    "GET",
    "/executions/{execution_id}/bundles/{bundle_id}/content",
    "Download a bundle of an execution's job",
    tag="Executions",
    permission=Permission.WORK,
    any_server=True,
    worker_traffic=True,
    gives=OCTETS,
    streams_out=True,
    headers=RANGE,
    also={206: None},
    errors=(404, 410, 416),
    examples={"answer": "get_execution_bundle"},
)
async def get_execution_bundle(call: Call[None, NoQuery]) -> Download:
    return await _sent(call, await _for_execution(call))


async def check_bundles(call: Call[Any, Any], specs: Sequence[JobSpec], field: str = "") -> None:
    """Refuses jobs whose bundles do not exist or belong to another tenant; notes that they are
    used.

    `field` is the path of each job in the request, with `{}` for its number.
    """
    wanted: dict[str, list[tuple[JobSpec, str]]] = {}
    last = None
    for number, spec in enumerate(specs):
        if spec is last:
            continue  # the same job again (`read_batch`)
        last = spec
        for name, bundle_id in bundles_of(spec.task).items():
            wanted.setdefault(bundle_id, []).append((spec, field.format(number) + name))
    if not wanted:
        return
    index = object_index_of(call)
    there = {one.id: one for one in await index.bundles(list(wanted))}
    try:
        for bundle_id, uses in wanted.items():
            for spec, name in uses:
                _check_use(there.get(bundle_id), spec, name)
    except ProblemError:
        # A repeat of an accepted request gets the first answer, even if the bundle is gone by now.
        if call.key is None or await call.deps.queries.key(call.key.key) is None:
            raise
    await _note_use(index, there.values(), _now(call))


def _check_use(bundle: Bundle | None, spec: JobSpec, field: str) -> None:
    if bundle is None or bundle.tenant != spec.tenant:
        message = f"the tenant {spec.tenant} has no such bundle: upload it with POST /bundles"
        raise invalid(field, message)
    task = spec.task
    if not isinstance(task, BundleRun) or task.bundle_id.lower() != bundle.id:
        return
    if bundle.format != "file" and not task.argv:
        raise invalid(field, "the bundle is an archive: set task.argv to what to run in it")


async def _note_use(index: ObjectIndex, bundles: Iterable[Bundle], now: Instant) -> None:
    stale = [one.id for one in bundles if one.used_at < now - BUNDLE_USE_MS]
    if stale:
        await index.use_bundles(stale, now)


async def _own(call: Call[Any, Any]) -> Bundle:
    found = await object_index_of(call).bundles([bundle_id_in(call)])
    if not found or call.caller.tenant not in (None, found[0].tenant):
        raise not_found("bundle", call.path["bundle_id"][:100])
    return found[0]


async def _for_execution(call: Call[Any, Any]) -> Bundle:
    """Returns a bundle of the job's own tenant only: a job's author must not see those of
    others."""
    execution = await find_execution(call, execution_id_in(call))
    tenants = await tenants_of(call.deps.queries, [execution.job_id])
    found = await object_index_of(call).bundles([bundle_id_in(call)])
    if not found or tenants.get(execution.job_id) != found[0].tenant:
        raise not_found("bundle", call.path["bundle_id"][:100])
    await _note_use(object_index_of(call), found, _now(call))
    return found[0]


async def _sent(call: Call[Any, Any], bundle: Bundle) -> Download:
    part = range_in(call)
    start, end = _within(part, bundle.size)
    pieces = await call.deps.files.blobs.read(bundle.key, start, end)
    return Download(call, bundle.name, Content(bundle.size, bundle.sha256, start, end, pieces))


def _within(part: Range, size: int) -> tuple[int, int]:
    if part is WHOLE:
        return 0, size
    found = part.within(size)
    if found is None:
        raise range_not_satisfiable(OutOfRangeError(size))
    return found


def object_index_of(call: Call[Any, Any]) -> ObjectIndex:
    """Returns the index of bundles."""
    index = call.deps.files.objects
    assert index is not None, "only a simulation has none, and it has no bundles"
    return index


def bundle_id_in(call: Call[Any, Any]) -> str:
    return id_in(call, "bundle_id", "bundle")


def bundle_view(bundle: Bundle) -> BundleView:
    return BundleView(
        bundle_id=bundle.id,
        name=bundle.name,
        tenant=bundle.tenant,
        size=bundle.size,
        sha256=bundle.sha256,
        format=bundle.format,
        created_at=from_instant(bundle.created_at),
        used_at=from_instant(bundle.used_at),
    )


def _tenant(call: Call[Any, Any], named: str | None) -> str:
    check_tenant(call, named)
    return call.caller.tenant or named or "default"


def _check_not_form(call: Call[Any, Any]) -> None:
    """Refuses a form: stored as it is, it would be a bundle that no worker can run."""
    media = header(call.request.scope, b"content-type") or b""
    if media.lower().startswith(b"multipart/"):
        detail = "send the file itself as the body, not a form: curl --data-binary @FILE"
        raise ProblemError(415, "form", detail)


def _upload_name(tenant: str, sha256: str | None) -> str | None:
    return None if sha256 is None else f"bundle {tenant} {sha256}"


def _now(call: Call[Any, Any]) -> Instant:
    return call.deps.brain.clock.now()
