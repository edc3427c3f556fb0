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
        raise click.BadParameter("a store is a postgresql:// URL; leave it out for SQLite")
    return store


def _server_url(_ctx: click.Context, _given: click.Parameter, url: str | None) -> str | None:
    if url is not None and not (url.startswith(("http://", "https://")) and urlsplit(url).hostname):
        raise click.BadParameter("write the URL of a server like https://a.example:7070")
    return url


def _ms(_ctx: click.Context, _given: click.Parameter, length: Duration) -> int:
    return length.ms


def _retention_ms(_ctx: click.Context, _given: click.Parameter, age: str) -> int | None:
    if age.strip().lower() in ("forever", "0"):
        return None
    length = duration(age)
    if length.ms < DAY_MS:
        # As long as an idempotency key is valid: the job it answers with must still exist.
        raise click.BadParameter("must be at least 1d; forever keeps everything")
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
        raise click.BadParameter("must be between 500ms and 1m")
    return ttl.ms


HOST = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
_PORT = click.option(
    "--port", "-p", type=click.IntRange(0, 65535), default=PORT_DEFAULT, show_default=True,
    help="Port; 0 takes a free one.",
)  # fmt: skip
_DATA = click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), default=".rota",
    show_default=True, help="Data folder.",
)  # fmt: skip
_LEASE = click.option(
    "--lease-ttl", type=duration, default="15s", show_default=True, metavar="DURATION",
    help="Time after which a silent worker loses its executions.",
)  # fmt: skip
_AUTH = click.option(
    "--no-auth", is_flag=True, help="Allow all calls without a token; on loopback only."
)
_NAMES = click.option(
    "--public-name", "names", multiple=True, metavar="HOST",
    help="Another host name of this server; may repeat.",
)  # fmt: skip
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_CERT = click.option("--tls-cert", type=_FILE, help="Certificate chain in PEM, to serve HTTPS.")
_KEY = click.option("--tls-key", type=_FILE, help="The certificate's private key in PEM.")
_INSECURE = click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback without TLS, behind a proxy that does TLS.",
)
_PROXIES = click.option(
    "--trust-proxy", "proxies", multiple=True, metavar="ADDRESS",
    help="Trust the client addresses from this proxy; loopback always is.",
)  # fmt: skip
_CONNECTIONS = click.option(
    "--connections-max", type=click.IntRange(16, 1_000_000), metavar="N",
    help=f"Maximum connections; default: {CONNECTIONS_MAX}, or fewer if open files are limited.",
)  # fmt: skip


http_options = combined(_NAMES, _CERT, _KEY, _INSECURE, _PROXIES, _CONNECTIONS)
"""Say how a server is reached, with or without TLS, and limit its connections."""
_CELL = click.option(
    "--cell", type=cell_name, default="", metavar="NAME",
    help="Name of the cell behind a gateway; it cannot be changed later.",
)  # fmt: skip
_STORE = click.option(
    "--store", metavar="DSN", callback=_store_address,
    help="PostgreSQL store: postgresql://user@host/database; default: SQLite.",
)  # fmt: skip
_LEADER = click.option(
    "--leader-ttl", "leader_ttl_ms", type=duration, default="3s", show_default=True,
    metavar="DURATION", callback=_leader_ms,
    help="Time after which a silent leader is replaced; equal on all servers.",
)  # fmt: skip
_ADDRESS = click.option(
    "--address", metavar="URL", callback=_server_url,
    help="URL of this server for the other servers; default: its name and port.",
)  # fmt: skip
_PEER_CA = click.option(
    "--peer-ca", type=_FILE, metavar="FILE",
    help="CA certificates (PEM) of the other servers; default: the system's.",
)  # fmt: skip
_DURABILITY = click.option(
    "--require-durability", type=click.Choice(["single", "async-ha", "sync-ha"]),
    default="single", show_default=True,
    help="Accept no jobs while the store's durability is lower.",
)  # fmt: skip
_RETENTION = click.option(
    "--retention", "retention_ms", default="30d", show_default=True, metavar="DURATION|forever",
    callback=_retention_ms,
    help="How long finished jobs are kept, with their logs and files.",
)  # fmt: skip
_MIGRATE = click.option(
    "--no-migrate", "migrate", is_flag=True, flag_value=False, default=True,
    help="Do not update the schema; newer features stay off.",
)  # fmt: skip


_OBJECTS = click.option(
    "--objects", metavar="URL|DIR", callback=_objects_address, envvar="ROTA_OBJECTS",
    help="Object storage for large files: s3://, gs:// or az:// BUCKET/PREFIX, or a folder.",
)  # fmt: skip
_ADOPT = click.option(
    "--adopt-storage", is_flag=True,
    help="Accept a new object storage, after all objects were moved to it.",
)  # fmt: skip
_BUNDLES = click.option(
    "--bundle-retention", "bundle_retention_ms", default="forever", show_default=True,
    metavar="DURATION|forever", callback=_retention_ms,
    help="How long unused bundles are kept.",
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
        help="How long the audit log is kept; 0: no audit log.",
    ),
    click.option(
        "--address-limit",
        type=request_rate,
        default=f"{ADDRESS_REQUESTS_PER_S}/1s",
        show_default=True,
        metavar="COUNT/PER|none",
        help="Rate limit of requests from one address; this machine is exempt.",
    ),
    click.option(
        "--rate-limit",
        type=request_rate,
        default=f"{TOKEN_REQUESTS_PER_S}/1s",
        show_default=True,
        metavar="COUNT/PER|none",
        help="Rate limit of requests with one token; more get 429.",
    ),
)
"""Limit requests, and the age of the audit log."""
_basic_options = combined(_PORT, HOST, log_option, _DATA)


@click.command()
@_basic_options
@_keeping_options
@click.option(
    "--workers", type=click.IntRange(0, 64), default=1, show_default=True,
    help="Number of workers; they share this machine evenly.",
)  # fmt: skip
@click.option("--app", metavar="PACKAGE.MODULE:APP", help="App whose functions the workers run.")
@click.option(
    "--env", "-e", multiple=True, type=name_only, metavar="NAME",
    help="Pass this environment variable to jobs; may repeat.",
)  # fmt: skip
@click.option(
    "--http-allow", multiple=True, metavar="HOST|CIDR",
    help="Let http tasks reach this private address; may repeat.",
)  # fmt: skip
@_CELL
@_LEASE
@_AUTH
@http_options
@_access_options
@click.pass_context
def up(ctx: click.Context, /, *, lease_ttl: Duration, no_auth: bool, **given: object) -> None:
    """Start server, dashboard and workers on this machine. Ctrl-C drains and stops."""
    from rota.cli.start.serve import run_up

    options = UpOptions(lease_ttl_ms=_lease_ms(lease_ttl), auth=not no_auth, **given)  # type: ignore[arg-type]  # click's names and types
    if options.workers:
        refuse_all_but_linux(sys.platform)
    ctx.exit(run_up(options))


@click.command()
@_keeping_options
@_basic_options
@click.option("--node", metavar="NAME", help="Name of this server in the cell; default: host name.")
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
    """Start a server without workers; start them with: rota worker --server URL.

    Start several on one PostgreSQL for high availability: one leads, the others stand by.
    """
    from rota.cli.start.serve import run_server

    options = ServerOptions(lease_ttl_ms=_lease_ms(lease_ttl), auth=not no_auth, **given)  # type: ignore[arg-type]  # click's names and types
    ctx.exit(run_server(options))


def _lease_ms(ttl: Duration) -> int:
    if ttl.ms < 1000:
        raise click.BadParameter("must be at least 1s", param_hint="'--lease-ttl'")
    return ttl.ms
