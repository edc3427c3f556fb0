"""The commands `rota up` and `rota server`: read the options and start the server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

from rota.api.limits import (
    ADDRESS_REQUESTS_PER_S,
    AUDIT_AGE_MS,
    CONNECTIONS_MAX,
    TOKEN_REQUESTS_PER_S,
)
from rota.cli.options import cell_name, combined, duration, name_only, request_rate
from rota.cli.problems import refuse_all_but_linux
from rota.cli.start.server_log import log_option
from rota.wire.formats import Duration

PORT_DEFAULT = 7070
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Options for listening and for being reached."""

    host: str
    port: int
    auth: bool = True
    names: Sequence[str] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    proxies: Sequence[str] = ()
    connections_max: int | None = None
    """None: as many as make sense and the system allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions(HttpOptions):
    """Options of both kinds of server."""

    data: Path
    lease_ttl_ms: int
    node: str | None = None
    cell: str = ""
    store: str | None = None
    leader_ttl_ms: int = 3_000
    address: str | None = None
    peer_ca: Path | None = None
    require_durability: str = "single"
    rate_limit: tuple[int, int] | None = None
    address_limit: tuple[int, int] | None = None
    audit_age_ms: int = 0
    retention_ms: int | None = None
    """How long finished work is kept; None: for ever."""
    migrate: bool = True
    objects: str | None = None
    """Where large files go; None: into the data folder, or the database."""
    adopt_storage: bool = False
    bundle_retention_ms: int | None = None
    """How long an unused bundle is kept; None: until somebody removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(ListenOptions):
    """Options of `rota up`."""

    workers: int
    app: str | None = None
    env: Sequence[str] = ()
    http_allow: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(ListenOptions):
    """Options of `rota server`."""


def _store_address(_ctx: click.Context, _given: click.Parameter, store: str | None) -> str | None:
    if store is not None and not store.startswith(("postgres://", "postgresql://")):
        raise click.BadParameter("a store is a postgresql:// address; leave it out for SQLite")
    return store


def _server_url(_ctx: click.Context, _given: click.Parameter, url: str | None) -> str | None:
    if url is not None and not (url.startswith(("http://", "https://")) and urlsplit(url).hostname):
        raise click.BadParameter("the address of a server is like https://a.example:7070")
    return url


def _ms(_ctx: click.Context, _given: click.Parameter, length: Duration) -> int:
    return length.ms


def _retention_ms(_ctx: click.Context, _given: click.Parameter, age: str) -> int | None:
    if age.strip().lower() in ("forever", "0"):
        return None
    length = duration(age)
    if length.ms < DAY_MS:
        # As long as an idempotency key is honoured: what it answers should still be there.
        raise click.BadParameter("at least 1d; forever keeps everything")
    return length.ms


def _objects_address(
    _ctx: click.Context, _given: click.Parameter, address: str | None
) -> str | None:
    scheme = urlsplit(address).scheme if address else ""
    if scheme not in ("", "file", "s3", "gs", "az"):
        raise click.BadParameter(
            "object storage is s3://, gs:// or az:// BUCKET/PREFIX, or a folder"
        )
    return address


def _leader_ms(_ctx: click.Context, _given: click.Parameter, ttl: Duration) -> int:
    if not 500 <= ttl.ms <= 60_000:
        raise click.BadParameter("between 500ms and 1m")
    return ttl.ms


HOST = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
_PORT = click.option(
    "--port", "-p", type=click.IntRange(0, 65535), default=PORT_DEFAULT, show_default=True,
    help="0 takes a free one.",
)  # fmt: skip
_DATA = click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), default=".rota",
    show_default=True, help="Where everything is kept.",
)  # fmt: skip
_LEASE = click.option(
    "--lease-ttl", type=duration, default="15s", show_default=True, metavar="DURATION",
    help="A worker silent for so long has lost its work.",
)  # fmt: skip
_AUTH = click.option("--no-auth", is_flag=True, help="Let everybody in; on loopback only.")
_NAMES = click.option(
    "--public-name", "names", multiple=True, metavar="HOST",
    help="Another name this server is reached by.",
)  # fmt: skip
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_CERT = click.option("--tls-cert", type=_FILE, help="Certificate chain in PEM, to serve HTTPS.")
_KEY = click.option("--tls-key", type=_FILE, help="The certificate's private key in PEM.")
_INSECURE = click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback without TLS: something in front does it.",
)
_PROXIES = click.option(
    "--trust-proxy", "proxies", multiple=True, metavar="ADDRESS",
    help="Take callers' addresses from this proxy; loopback is trusted without.",
)  # fmt: skip
_CONNECTIONS = click.option(
    "--connections-max", type=click.IntRange(16, 1_000_000), metavar="N",
    help=f"Connections at once; else {CONNECTIONS_MAX}, or what the limit of open files allows.",
)  # fmt: skip


http_options = combined(_NAMES, _CERT, _KEY, _INSECURE, _PROXIES, _CONNECTIONS)
"""Say how a server is reached, with or without TLS, and limit its connections."""
_CELL = click.option(
    "--cell", type=cell_name, default="", metavar="NAME",
    help="The cell's name behind a gateway: given once, kept for good.",
)  # fmt: skip
_STORE = click.option(
    "--store", metavar="DSN", callback=_store_address,
    help="A PostgreSQL to keep everything in: postgresql://user@host/database.",
)  # fmt: skip
_LEADER = click.option(
    "--leader-ttl", "leader_ttl_ms", type=duration, default="3s", show_default=True,
    metavar="DURATION", callback=_leader_ms,
    help="A leader silent for so long is replaced; the same on all servers.",
)  # fmt: skip
_ADDRESS = click.option(
    "--address", metavar="URL", callback=_server_url,
    help="Where the other servers reach this one; else its name and port.",
)  # fmt: skip
_PEER_CA = click.option(
    "--peer-ca", type=_FILE, metavar="FILE",
    help="Certificates in PEM by which other servers are known; else the system's.",
)  # fmt: skip
_DURABILITY = click.option(
    "--require-durability", type=click.Choice(["single", "async-ha", "sync-ha"]),
    default="single", show_default=True,
    help="Accept no jobs while the database gives less than this.",
)  # fmt: skip
_RETENTION = click.option(
    "--retention", "retention_ms", default="30d", show_default=True, metavar="DURATION|forever",
    callback=_retention_ms,
    help="How long finished jobs are kept, with their logs and files.",
)  # fmt: skip
_MIGRATE = click.option(
    "--no-migrate", "migrate", is_flag=True, flag_value=False, default=True,
    help="Leave the schema as it is, and do without what is newer than it.",
)  # fmt: skip


_OBJECTS = click.option(
    "--objects", metavar="URL|DIR", callback=_objects_address, envvar="ROTA_OBJECTS",
    help="Where large files and bundles go: s3://, gs:// or az:// BUCKET/PREFIX, or a folder.",
)  # fmt: skip
_ADOPT = click.option(
    "--adopt-storage", is_flag=True,
    help="This storage is the cell's from now on: all objects were moved to it.",
)  # fmt: skip
_BUNDLES = click.option(
    "--bundle-retention", "bundle_retention_ms", default="forever", show_default=True,
    metavar="DURATION|forever", callback=_retention_ms,
    help="How long a bundle is kept that no job uses.",
)  # fmt: skip


_keeping_options = combined(_STORE, _RETENTION, _MIGRATE, _OBJECTS, _ADOPT, _BUNDLES)
"""Say what the store keeps, and where."""
_access_options = combined(
    click.option(
        "--audit-age",
        "audit_age_ms",
        type=duration,
        callback=_ms,
        default=f"{AUDIT_AGE_MS // 86_400_000}d",
        show_default=True,
        metavar="DURATION",
        help="How long the audit trail is kept; 0: none is.",
    ),
    click.option(
        "--address-limit",
        type=request_rate,
        default=f"{ADDRESS_REQUESTS_PER_S}/1s",
        show_default=True,
        metavar="COUNT/PER|none",
        help="Requests of one address, this machine's own excepted.",
    ),
    click.option(
        "--rate-limit",
        type=request_rate,
        default=f"{TOKEN_REQUESTS_PER_S}/1s",
        show_default=True,
        metavar="COUNT/PER|none",
        help="Requests of one token; more get 429.",
    ),
)
"""Limit requests, and the age of the audit log."""
_basic_options = combined(_PORT, HOST, log_option, _DATA)


@click.command()
@_basic_options
@_keeping_options
@click.option(
    "--workers", type=click.IntRange(0, 64), default=1, show_default=True,
    help="How many; they share this machine evenly.",
)  # fmt: skip
@click.option("--app", metavar="PACKAGE.MODULE:APP", help="Its workers run these functions.")
@click.option(
    "--env", "-e", multiple=True, type=name_only, metavar="NAME",
    help="Let jobs see this variable.",
)  # fmt: skip
@click.option(
    "--http-allow", multiple=True, metavar="HOST|CIDR",
    help="Let http tasks reach this though it is private.",
)  # fmt: skip
@_CELL
@_LEASE
@_AUTH
@http_options
@_access_options
@click.pass_context
def up(ctx: click.Context, /, *, lease_ttl: Duration, no_auth: bool, **given: object) -> None:
    """Start everything on this machine: server, page and workers. Ctrl-C drains and stops."""
    from rota.cli.start.serve import run_up

    options = UpOptions(lease_ttl_ms=_lease_ms(lease_ttl), auth=not no_auth, **given)  # type: ignore[arg-type]  # click's names and types
    if options.workers:
        refuse_all_but_linux(sys.platform)
    ctx.exit(run_up(options))


@click.command()
@_keeping_options
@_basic_options
@click.option("--node", metavar="NAME", help="Its name among the others; else the host's.")
@_CELL
@_LEASE
@_LEADER
@_ADDRESS
@_PEER_CA
@_DURABILITY
@_AUTH
@http_options
@_access_options
@click.pass_context
def server(ctx: click.Context, /, *, lease_ttl: Duration, no_auth: bool, **given: object) -> None:
    """Start a server only; workers join it with: rota worker --server URL.

    Start as many as wanted on one PostgreSQL: one leads, the others stand by.
    """
    from rota.cli.start.serve import run_server

    options = ServerOptions(lease_ttl_ms=_lease_ms(lease_ttl), auth=not no_auth, **given)  # type: ignore[arg-type]  # click's names and types
    ctx.exit(run_server(options))


def _lease_ms(ttl: Duration) -> int:
    if ttl.ms < 1000:
        raise click.BadParameter("at least 1s", param_hint="'--lease-ttl'")
    return ttl.ms
