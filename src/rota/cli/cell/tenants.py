"""Lists tenants, and sets their weights and quotas."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.cell.queues import or_none
from rota.cli.connect import answer, connected
from rota.cli.options import Number, json_option
from rota.cli.render import Column, Row, print_object, show_table
from rota.cli.text import size
from rota.sdk import NotFoundError
from rota.sdk.methods import admin_calls
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.tenants import QuotaView, TenantPage, TenantView

COLUMNS = (
    Column("TENANT", cut=True),
    Column("WEIGHT", right=True),
    Column("QUEUED", right=True),
    Column("RUNNING", right=True),
    Column("SHARE", right=True),
    Column("ENTITLED", right=True),
    Column("USED h", spare=2, right=True),
    Column("QUOTA", spare=1),
)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def tenants(ctx: click.Context, *, as_json: bool) -> None:
    """List tenants, or act on one: show, set."""
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found: list[TenantView] = []
        cursor = None
        while True:
            page = client.call(admin_calls.list_tenants(limit=PAGE_ITEMS_MAX, cursor=cursor))
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        if as_json:
            print_object(TenantPage(found, None))
            return
        show_table(COLUMNS, [tenant_row(one) for one in found], empty="no tenants yet")


def tenant_row(tenant: TenantView) -> Row:
    """A tenant in a list."""
    depth = tenant.depth
    return (
        tenant.name,
        f"{tenant.weight:g}",
        str(depth.pending + depth.queued),
        str(depth.running + depth.cancelling),
        f"{tenant.share:.1%}",
        f"{tenant.entitlement:.1%}",
        f"{tenant.usage:.2f}",
        quota_text(tenant.quota),
    )


def quota_text(quota: QuotaView) -> str:
    """All that is limited, in a few words."""
    parts = [
        None if quota.running is None else f"{quota.running} running",
        None if quota.queued is None else f"{quota.queued} queued",
        None if quota.cpu is None else f"{quota.cpu:g} cpu",
        None if quota.memory is None else size(quota.memory),
    ]
    return ", ".join(part for part in parts if part is not None) or "-"


def _draw(tenant: TenantView) -> None:
    show_table(COLUMNS, [tenant_row(tenant)], empty="")


@tenants.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show one tenant."""
    with connected() as client:
        answer(client, admin_calls.get_tenant(name), _draw, as_json=as_json)


@tenants.command("set")
@click.argument("name")
@click.option("--weight", type=Number(), help="Its part of the fleet, against others.")
@click.option("--running", metavar="N|none", help="So many executions at once.")
@click.option("--queued", metavar="N|none", help="So many waiting jobs; more are refused.")
@click.option("--cpu", metavar="N|none", help="So many cpus at once.")
@click.option("--memory", metavar="SIZE|none", help="So much memory at once.")
@json_option
def set_(name: str, *, weight: float | None, as_json: bool, **quota: str | None) -> None:
    """Change a tenant's weight or quota; what is not given stays."""
    if weight is None and not any(value is not None for value in quota.values()):
        raise click.UsageError("say what to change: --weight, --running, --queued, --cpu, --memory")
    with connected() as client:
        settings: dict[str, Any] = {"weight": 1.0, "quota": {}}
        try:
            before = client.call(admin_calls.get_tenant(name))
        except NotFoundError:
            pass
        else:
            limits = {kind: getattr(before.quota, kind) for kind in quota}
            settings = {"weight": before.weight, "quota": limits}
        if weight is not None:
            settings["weight"] = weight
        for kind, text in quota.items():
            if text is not None:
                settings["quota"][kind] = _amount(kind, text)
        answer(client, admin_calls.set_tenant(name, settings), _draw, as_json=as_json)


def _amount(kind: str, text: str) -> int | float | str | None:
    given = or_none(text)
    if given is None or kind == "memory":
        return given
    try:
        return float(given) if kind == "cpu" else int(given)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number", param_hint=f"'--{kind}'") from None
