"""Bundles: files or archives of code and data that are uploaded for jobs; uploads and links to
files.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.formats import SHA256
from rota.wire.jobs import Time

Sha256: TypeAlias = Annotated[
    str,
    Meta(
        pattern=SHA256,
        description="SHA-256 of the whole content, in 64 hexadecimal digits",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ),
]
FileName: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        extra_json_schema={"pattern": r"^[^.\x00-\x1f\x7f/\\][^\x00-\x1f\x7f/\\]*$"},
    ),
]
"""A plain name that cannot lead elsewhere; who keeps the file sees to that, this only says so."""
Format: TypeAlias = Literal["file", "zip", "tar"]


class BundleView(msgspec.Struct):
    """A bundle; its content is at `/bundles/{bundle_id}/content`."""

    bundle_id: str
    name: str
    tenant: str
    size: int
    sha256: str
    format: Format
    """An archive is unpacked where a job runs; a file lies there under its name."""
    created_at: Time
    used_at: Time
    """When a job last named or fetched it, within the hour."""


class BundlePage(msgspec.Struct):
    """A page of bundles, newest first."""

    items: list[BundleView]
    next_cursor: str | None


class UploadView(msgspec.Struct):
    """How much of an upload has come."""

    offset: int


class BundleUploadView(UploadView):
    """How much of a bundle has come, and the bundle if all of it has."""

    bundle: BundleView | None = None


class LinkView(msgspec.Struct):
    """Where a file can be fetched."""

    url: str
    """At the storage itself, for anybody who has it; or on this server, with a token."""
    signed: bool
    expires_in: int | None
    """Seconds; null: it does not expire."""
