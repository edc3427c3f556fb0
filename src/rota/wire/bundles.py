"""Bundles: files or archives of code and data that are uploaded for jobs; also uploads and links to
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
"""A plain file name. The pattern only documents it; the code that stores the file checks it."""
Format: TypeAlias = Literal["file", "zip", "tar"]


class BundleView(msgspec.Struct):
    """A bundle; its content is at `/bundles/{bundle_id}/content`."""

    bundle_id: str
    name: str
    tenant: str
    size: int
    sha256: str
    format: Format
    """An archive is unpacked in the job's folder; a file is put there under its name."""
    created_at: Time
    used_at: Time
    """When a job last named or fetched it, to the hour."""


class BundlePage(msgspec.Struct):
    """A page of bundles, newest first."""

    items: list[BundleView]
    next_cursor: str | None


class UploadView(msgspec.Struct):
    """Progress of an upload: the bytes that have arrived."""

    offset: int


class BundleUploadView(UploadView):
    """Progress of a bundle's upload, and the bundle once it is complete."""

    bundle: BundleView | None = None


class LinkView(msgspec.Struct):
    """URL of a file."""

    url: str
    """At the storage itself, usable by anybody who has it; or on this server, with a token."""
    signed: bool
    expires_in: int | None
    """Seconds; null: the URL does not expire."""
