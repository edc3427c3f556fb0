"""Starts servers: reads the options and hands them to the composition root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from rota.cli.options import duration
from rota.wire.units import Duration

PORT_DEFAULT = 7070


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """What both kinds of server are asked for."""

    host: str
    port: int
    data: Path
    lease_ttl_ms: int
    auth: bool
    names: Sequence[str] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(ListenOptions):
    """What `rota up` was asked for."""

    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(ListenOptions):
    """What `rota server` was asked for."""


_HOST = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
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
_STORE = click.option("--store", metavar="DSN", help="A PostgreSQL to keep everything in.")


@click.command()
@_PORT
@_HOST
@_DATA
@_STORE
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True)
@_LEASE
@_AUTH
@_NAMES
@_CERT
@_KEY
@_INSECURE
@click.pass_context
def up(
    ctx: click.Context, /, *, store: str | None, lease_ttl: Duration, no_auth: bool, **given: object
) -> None:
    """Start everything on this machine: server, page and workers. Ctrl-C drains and stops."""
    _embedded_only(store)
    from rota.cli.serve import run_up

    options = UpOptions(lease_ttl_ms=_lease_ms(lease_ttl), auth=not no_auth, **given)  # type: ignore[arg-type]  # click's names and types
    ctx.exit(run_up(options))


@click.command()
@_STORE
@_PORT
@_HOST
@_DATA
@click.option("--node", metavar="NAME", help="What to call this server; else the host's name.")
@_LEASE
@_AUTH
@_NAMES
@_CERT
@_KEY
@_INSECURE
@click.pass_context
def server(
    ctx: click.Context, /, *, store: str | None, lease_ttl: Duration, no_auth: bool, **given: object
) -> None:
    """Start a server only; workers join it with: rota worker --server URL."""
    _embedded_only(store)
    from rota.cli.serve import run_server

    options = ServerOptions(lease_ttl_ms=_lease_ms(lease_ttl), auth=not no_auth, **given)  # type: ignore[arg-type]  # click's names and types
    ctx.exit(run_server(options))


def _embedded_only(store: str | None) -> None:
    if store is None:
        return
    if store.startswith(("postgres://", "postgresql://")):
        raise click.ClickException(
            "a PostgreSQL store comes with the cluster, which this version does not have yet:"
            " leave --store out to use SQLite in --data"
        )
    raise click.BadParameter("a store is a postgresql:// address", param_hint="'--store'")


def _lease_ms(ttl: Duration) -> int:
    if ttl.ms < 1000:
        raise click.BadParameter("at least 1s", param_hint="'--lease-ttl'")
    return ttl.ms
