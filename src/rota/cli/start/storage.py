"""Opens the store and the object storage, and refuses an object storage that belongs to another
cell.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from rota.api.deps import FileStores
from rota.api.ids import mint_session
from rota.cli.start.http_server import is_everywhere
from rota.cli.start.up import ServerOptions, UpOptions
from rota.core.commands import Timing
from rota.engine.leadership import CellMember
from rota.processes.background_client import BackgroundClient
from rota.store.files.artifacts import Outputs
from rota.store.files.blobs import SCHEMES, Blobs, FallbackBlobs, FolderBlobs, open_cloud
from rota.store.files.uploads import Spool
from rota.store.limits import STORE_LIMITS
from rota.store.object_index import ObjectIndex
from rota.store.sqlite.store import SqliteStore, open_sqlite
from rota.wire.limits import LOG_BYTES_PER_EXECUTION_MAX

if TYPE_CHECKING:
    from rota.store.postgres.store import PostgresStore

LANES_MAX = 4
"""Connections that project at most: as many as there are shards."""
CORES_PER_LANE = 4
"""Cores of the machine for each of them: scheduler, database and workers need the others."""


async def open_store(options: UpOptions | ServerOptions) -> SqliteStore | PostgresStore:
    """Opens the PostgreSQL that is named, else SQLite in the data folder."""
    if options.store is not None:
        # Only a server that uses PostgreSQL loads its driver.
        from rota.store.postgres.store import open_postgres

        background = BackgroundClient(options.store, lanes(), options.retention_ms)
        store = await open_postgres(
            options.store,
            log_bytes_max=LOG_BYTES_PER_EXECUTION_MAX,
            migrate=options.migrate,
            projection=background,
            limits=replace(STORE_LIMITS, leader_deadline_s=options.leader_ttl_ms / 2000),
        )
        await background.start()
        return store
    return open_sqlite(options.data, log_bytes_max=LOG_BYTES_PER_EXECUTION_MAX)


def lanes() -> int:
    """Returns how many connections project: more than one only where there are cores for them."""
    return max(1, min(LANES_MAX, (os.cpu_count() or 1) // CORES_PER_LANE))


def shown(store: str) -> str:
    """Returns the address of a PostgreSQL without its password."""
    from rota.store.postgres.connect import parse_address

    return parse_address(store).shown


def check_reachable(options: UpOptions | ServerOptions) -> None:
    """Refuses to share a store without an address at which other servers reach this one."""
    has_address = options.address is not None or bool(options.names)
    if options.store is not None and not has_address and is_everywhere(options.host):
        raise click.ClickException(
            f"{options.host} is no address that other servers could go to: say where they reach"
            " this one with --public-name HOST, or --address URL"
        )


def member_of(options: UpOptions | ServerOptions, url: str) -> CellMember:
    """Names this server: alone on SQLite; on PostgreSQL one of many, with a name of its own."""
    if options.store is None:
        return CellMember(node=options.node or socket.gethostname())
    return CellMember(
        node=options.node or f"{socket.gethostname()}-{os.getpid()}",
        address=options.address or url,
        ttl_ms=options.leader_ttl_ms,
    )


def timing_of(options: UpOptions | ServerOptions) -> Timing:
    """Makes a new leader wait for as long as the previous one may have gone on."""
    handover_ms = 0 if options.store is None else options.leader_ttl_ms
    return Timing(lease_ttl_ms=options.lease_ttl_ms, handover_ms=handover_ms)


NO_STORAGE = (
    "no object storage is named: bundles and large output files are kept in the database; name one"
    " that all servers reach (--objects s3://bucket/prefix, or a folder that they share)"
)


async def open_files(
    options: UpOptions | ServerOptions, store: SqliteStore | PostgresStore
) -> FileStores:
    """Opens the named storage for large files; without one the data folder, or the database."""
    named = None if options.objects is None else open_blobs(options.objects)
    if named is not None:
        await check_is_ours(named, store.objects, adopt=options.adopt_storage)
    shares = not isinstance(store, SqliteStore)
    own: Blobs = _own_folder(options) if isinstance(store, SqliteStore) else store.blobs
    blobs = own if named is None else FallbackBlobs(named, own)
    return FileStores(
        spool=Spool(options.data / "uploads"),
        outputs=Outputs(store.artifacts, store.objects, None if shares and not named else blobs),
        objects=store.objects,
        blobs=blobs,
        warnings=(NO_STORAGE,) if shares and not named else (),
    )


def open_blobs(address: str) -> Blobs:
    """Opens the storage at an address: s3://, gs://, az://, or a folder."""
    scheme = urlsplit(address).scheme
    if scheme in SCHEMES:
        return open_cloud(address)
    path = Path(urlsplit(address).path if scheme == "file" else address)
    return FolderBlobs(path.absolute())


async def check_is_ours(named: Blobs, book: ObjectIndex, *, adopt: bool = False) -> None:
    """Refuses a storage in which this cell's objects are not: above all a folder that this server
    has for itself, though others have one of the same name."""
    there = await named.mark(mint_session())
    known = await book.mark_storage(there, replace=adopt)
    if there != known:
        raise click.ClickException(
            f"{named.where} is not the object storage of this cell: it is marked {there}, and the"
            f" cell's is marked {known}. A folder must be one that all servers share (a network"
            " file system), not one of the same name on each; else use s3://, gs:// or az://."
            " If the objects were moved here on purpose, start once with --adopt-storage"
        )


def _own_folder(options: UpOptions | ServerOptions) -> FolderBlobs:
    return FolderBlobs(options.data.absolute() / "objects")
