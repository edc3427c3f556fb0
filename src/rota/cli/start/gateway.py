"""Starts a gateway in front of several cells."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rota import __version__
from rota.cli.options import pair
from rota.cli.start.server_log import log_option
from rota.cli.start.up import HOST, HttpOptions, http_options
from rota.gateway.config import ConfigError, GatewayConfig, make_config

if TYPE_CHECKING:
    from rota.gateway.cells import CellDirectory

PORT_DEFAULT = 7080


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions(HttpOptions):
    """Options of `rota gateway`."""

    plan: GatewayConfig


@click.command()
@click.option(
    "--cell", "cells", multiple=True, required=True, type=pair, metavar="NAME=URL",
    help="Cell and one of its servers; may repeat, also for the same cell.",
)  # fmt: skip
@click.option(
    "--weight", "weights", multiple=True, type=pair, metavar="NAME=NUMBER",
    help="A cell's share of tenants; default: 1; 0: no new tenants.",
)  # fmt: skip
@click.option(
    "--pin", "pins", multiple=True, type=pair, metavar="TENANT=NAME",
    help="Assign a tenant to a cell permanently.",
)  # fmt: skip
@click.option(
    "--port", "-p", type=click.IntRange(0, 65535), default=PORT_DEFAULT, show_default=True,
    help="Port; 0 takes a free one.",
)  # fmt: skip
@HOST
@log_option
@http_options
@click.option("--where", metavar="TENANT", help="Only print the cell of this tenant.")
@click.pass_context
def gateway(ctx: click.Context, /, *, where: str | None, **given: Any) -> None:
    """Start a gateway that spreads tenants over several cells and shows them as one.

    Give all gateways the same cells, weights and pins.
    """
    cells, weights, pins = (given.pop(name) for name in ("cells", "weights", "pins"))
    try:
        plan = make_config(cells, weights, pins)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if where is not None:
        click.echo(plan.router.cell_of(where))
        return
    from rota.cli.start.http_server import run_loop

    ctx.exit(run_loop(_serve(GatewayOptions(plan=plan, **given))))


async def _serve(options: GatewayOptions) -> int:
    from rota.api.auth.authenticator import LOOPBACK_HOSTS
    from rota.cli.start.http_server import (
        EmbeddedServer,
        listen,
        on_signal,
        open_connection_limit,
        refuse_unprotected,
        until_signal,
        url_of,
    )
    from rota.gateway.app import create_app
    from rota.gateway.cells import CellDirectory, Connections
    from rota.gateway.context import GatewayContext

    refuse_unprotected(options)
    listening = listen(options.host, options.port)
    fleet = CellDirectory(options.plan, Connections())
    try:
        await fleet.start()
        refuse_misplaced(fleet)
        context = GatewayContext(fleet, secure=options.tls_cert is not None)
        app = create_app(context, [*LOOPBACK_HOSTS, options.host, *options.names])
        server = EmbeddedServer(app, options, open_connection_limit(options))
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="rota-http")
        stop = on_signal()
        _greet(url_of(options, listening), fleet)
        await until_signal(stop, serving)
        context.closing.set()
        server.should_exit = True
        await serving
    finally:
        await fleet.stop()
        await fleet.connections.close()
    return 0


def refuse_misplaced(fleet: CellDirectory) -> None:
    """Refuses a server of another cell: it would be asked for ids that it does not have."""
    for cell in fleet.cells.values():
        for server in cell.servers:
            if server.is_of_other_cell:
                raise click.ClickException(f"cell {cell.name} at {server.url}: {server.why}")


def _greet(url: str, fleet: CellDirectory) -> None:
    """Prints what a person needs next; programs read the first line."""
    click.echo(f"Rota {__version__} is up at {url}")
    for cell in fleet.cells.values():
        state = "ready" if cell.ready else f"not ready {cell.why}".rstrip()
        click.echo(f"  cell     {cell.name}  {cell.tag}  {state}")
    click.echo("Ctrl-C stops.")
    sys.stdout.flush()
