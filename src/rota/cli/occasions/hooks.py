"""Lists webhook endpoints, sets them up and removes them."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.connect import answer, connected
from rota.cli.options import duration, json_option
from rota.cli.render import Column, Row, print_object, show_table, tell
from rota.cli.text import local, span
from rota.sdk.methods import event_calls as calls
from rota.wire.events import HookPage, HookView

COLUMNS = (
    Column("NAME", cut=True),
    Column("SCHEME"),
    Column("EVENTS", cut=True),
    Column("PATH", cut=True),
    Column("TOLERANCE", spare=2, right=True),
    Column("CHANGED", spare=1),
)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def hooks(ctx: click.Context, *, as_json: bool) -> None:
    """List webhook endpoints, or act on one: set, delete."""
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found = client.hooks()
        if as_json:
            print_object(HookPage(found, None))
            return
        show_table(COLUMNS, [_row(one) for one in found], empty="no webhook endpoints yet")


def _row(one: HookView) -> Row:
    return (
        one.name,
        one.scheme,
        f"{one.type}.*",
        one.path,
        span(one.tolerance),
        local(one.updated_at),
    )


@hooks.command("set")
@click.argument("name")
@click.option(
    "--scheme",
    type=click.Choice(("github", "stripe", "rota")),
    required=True,
    help="How its sender signs.",
)
@click.option(
    "--secret", envvar="ROTA_HOOK_SECRET", help="Shared with the sender; left out: a new one."
)
@click.option("--type", "kind", help="What the types of its events begin with.")
@click.option("--tolerance", type=duration, metavar="DURATION", help="How old a signature may be.")
@json_option
def set_(name: str, *, as_json: bool, **given: Any) -> None:
    """Set up an endpoint; the secret is printed if it was made, and never again."""
    body: dict[str, Any] = {"scheme": given["scheme"]}
    if given["secret"]:
        body["secrets"] = [given["secret"]]
    if given["kind"]:
        body["type"] = given["kind"]
    if given["tolerance"] is not None:
        body["tolerance"] = given["tolerance"]

    def draw(hook: HookView) -> None:
        click.echo(f"{hook.path} takes what {hook.scheme} signs; its events are {hook.type}.*")
        if hook.secret:
            click.echo(f"secret: {hook.secret}")

    with connected() as client:
        answer(client, calls.set_hook(name, body), draw, as_json=as_json)


@hooks.command()
@click.argument("name")
@json_option
def delete(name: str, *, as_json: bool) -> None:
    """Remove an endpoint."""
    with connected() as client:
        client.delete_hook(name)
        tell(f"removed {name}", {"name": name, "deleted": True}, as_json=as_json)
