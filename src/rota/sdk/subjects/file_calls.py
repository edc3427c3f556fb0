"""The calls about files as values: output files and bundles; does no I/O, like `calls`."""

from __future__ import annotations

import msgspec

from rota.sdk.calls import Call
from rota.sdk.paths import params_of, path_of
from rota.wire.bundles import BundlePage, BundleUploadView, BundleView, LinkView
from rota.wire.executions import ArtifactView

OCTETS = "application/octet-stream"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bundle on its way up."""

    name: str
    tenant: str | None
    format: str | None
    sha256: str
    size: int
    """Of the whole."""
    offset: int
    data: bytes


class ArtifactPage(msgspec.Struct):
    """All output files of an execution."""

    items: list[ArtifactView]


def push_piece(piece: Piece) -> Call[bytes]:
    """Uploads a part of a bundle: answers how much is there (202), or the bundle."""
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
    """How much of a bundle is there."""
    path = path_of("bundles", "uploads", sha256)
    return Call("GET", path, BundleUploadView, params_of(tenant=tenant))


def list_bundles(
    *,
    tenant: str | None = None,
    unused_for: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[BundlePage]:
    """A page of bundles, newest first."""
    params = params_of(tenant=tenant, unused_for=unused_for, limit=limit, cursor=cursor)
    return Call("GET", "/bundles", BundlePage, params)


def get_bundle(bundle_id: str) -> Call[BundleView]:
    """One bundle."""
    return Call("GET", path_of("bundles", bundle_id), BundleView)


def delete_bundle(bundle_id: str) -> Call[None]:
    """Removes a bundle."""
    return Call("DELETE", path_of("bundles", bundle_id), type(None), keyed=True)


def bundle_content(bundle_id: str) -> Call[bytes]:
    """What is in it."""
    return Call("GET", path_of("bundles", bundle_id, "content"), bytes)


def list_artifacts(execution_id: str) -> Call[ArtifactPage]:
    """An execution's output files."""
    return Call("GET", path_of("executions", execution_id, "artifacts"), ArtifactPage)


def get_artifact(execution_id: str, name: str) -> Call[bytes]:
    """What is in one of them."""
    return Call("GET", path_of("executions", execution_id, "artifacts", name), bytes)


def artifact_link(execution_id: str, name: str) -> Call[LinkView]:
    """Where one of them can be fetched."""
    return Call("GET", path_of("executions", execution_id, "artifacts", name, "link"), LinkView)
