"""Where files come in and where they are kept, as the api is given it."""

from __future__ import annotations

from dataclasses import dataclass

from rota.store.files.artifacts import Outputs
from rota.store.files.blobs import Blobs
from rota.store.files.uploads import Spool
from rota.store.object_index import ObjectIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStores:
    """Where files come in, and where they are kept."""

    spool: Spool
    outputs: Outputs
    objects: ObjectIndex | None
    """What is kept of bundles; None: in a simulation, which has no files."""
    blobs: Blobs
    """Where bundles are."""
    warnings: tuple[str, ...] = ()
    """What an operator should know of where they are."""
