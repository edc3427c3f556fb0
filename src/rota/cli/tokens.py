"""Makes, lists and revokes tokens; shows who changed what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.connect import answer, connected
from rota.cli.id_lookup import TYPED_CHARS_MIN, pick
from rota.cli.options import combined, duration, json_option, past_iso
from rota.cli.problems import Failure
from rota.cli.render import (
    Column,
    Columns,
    Styled,
    age,
    local,
    plain,
    print_object,
    short,
    show_table,
    tell,
)
from rota.sdk.methods import admin_calls
from rota.wire.formats import Duration
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.tokens import AuditPage, AuditView, TokenPage, TokenSpec, TokenView

if TYPE_CHECKING:
    from rota.cli.token_admin import ServerTokens, StoreTokens

ROLES = ("admin", "operator", "submitter", "worker", "viewer")
_STYLES = {"live": "green", "expired": "yellow", "revoked": "red"}
TOKEN_COLUMNS: Columns[TokenView] = (
    Column("ID", lambda one: short(one.token_id)),
    Column("NAME", lambda one: one.name, cut=True),
    Column("ROLE", lambda one: one.role),
    Column("TENANT", lambda one: one.tenant or "all", cut=True),
    Column("STATUS", lambda one: Styled(one.status, _STYLES[one.status])),
    Column("AGE", lambda one: age(one.created_at), spare=2, right=True),
    Column("EXPIRES", lambda one: local(one.expires_at) if one.expires_at else "never", spare=1),
    Column("MADE BY", lambda one: one.created_by, spare=3, cut=True),
)
AUDIT_COLUMNS: Columns[AuditView] = (
    Column("WHEN", lambda one: local(one.at)),
    Column("TOKEN", lambda one: one.token, cut=True),
    Column("CALL", lambda one: f"{one.method} {one.route}", cut=True),
    Column("ABOUT", lambda one: one.target, cut=True),
    Column(
        "STATUS",
        lambda one: Styled(str(one.status), "" if one.status < 400 else "red"),
        right=True,
    ),
    Column("FROM", lambda one: one.remote, spare=1, cut=True),
    Column("NODE", lambda one: one.node, spare=2, cut=True),
)


_store_options = combined(
    click.option(
        "--store",
        metavar="DSN",
        help="Work directly in this store: postgresql://user@host/database.",
    ),
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Work directly in this data folder; no server may be using it.",
    ),
)
"""Say where the tokens are, if not behind a server."""


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def tokens(ctx: click.Context, *, as_json: bool) -> None:
    """List tokens, or act on them: create, list, revoke."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, as_json=as_json)


@tokens.command("list")
@_store_options
@json_option
def list_(*, store: str | None, data: Path | None, as_json: bool) -> None:
    """List tokens, newest first; expired and revoked ones stay for 90 days."""
    found = _token_admin(store, data).all_tokens()
    if as_json:
        print_object(TokenPage(found, None))
        return
    show_table(TOKEN_COLUMNS, found, empty="no tokens. Make one with: rota tokens create")


@tokens.command()
@click.option(
    "--role", required=True, type=click.Choice(ROLES), help="Role: what the token allows."
)
@click.option("--tenant", help="Limit it to this tenant; for submitter and viewer.")
@click.option("--name", "-n", default="", help="Name: who uses it, and for what.")
@click.option(
    "--expires", type=duration, metavar="DURATION", help="Expires after this time, such as 30d."
)
@_store_options
@json_option
def create(
    *, store: str | None, data: Path | None, expires: Duration | None, as_json: bool, **given: Any
) -> None:
    """Create a token and print it, only this once: the server stores its hash.

    Create the first token of a cluster in its store, before or after the servers start:
    rota tokens create --store DSN --role admin
    """
    if expires is not None and not expires.ms:
        raise click.BadParameter("must be more than 0", param_hint="'--expires'")
    made = _token_admin(store, data).create(TokenSpec(expires_in=expires, **given))
    if as_json:
        print_object(made)
        return
    of = "" if made.tenant is None else f" of {made.tenant}"
    ends = "" if made.expires_at is None else f", ends {local(made.expires_at)}"
    click.echo(f"{made.name}: {made.role}{of}{ends}. Shown this once, keep it safe:", err=True)
    click.echo(made.token)


@tokens.command()
@click.argument("token")
@_store_options
@json_option
def revoke(token: str, *, store: str | None, data: Path | None, as_json: bool) -> None:
    """Revoke a token, by its id, part of it, or its name; it is effective within a second."""
    where = _token_admin(store, data)
    found = _find_token(token, where.all_tokens())
    where.revoke(found.token_id)
    gone = {"token_id": found.token_id, "revoked": True}
    tell(f"{plain(found.name)} is revoked", gone, as_json=as_json)


@click.command()
@click.option("--token", metavar="ID", help="Only changes by this token.")
@click.option("--about", metavar="ID|NAME", help="Only changes of this job, queue or worker.")
@click.option(
    "--after", type=past_iso, metavar="PAST", help="Only after this time, or this long ago."
)
@click.option("--before", type=past_iso, metavar="PAST", help="Only before this time.")
@click.option("--limit", type=click.IntRange(1, PAGE_ITEMS_MAX), default=50, show_default=True)
@json_option
def audit(*, token: str | None, about: str | None, as_json: bool, **given: Any) -> None:
    """Show the audit log (who changed what), newest first."""
    call = admin_calls.list_audit(token_id=token, target=about, **given)
    with connected() as client:
        answer(client, call, _draw_audit, as_json=as_json)


def _draw_audit(page: AuditPage) -> None:
    show_table(AUDIT_COLUMNS, page.items, empty="nothing was changed")


def _token_admin(store: str | None, data: Path | None) -> ServerTokens | StoreTokens:
    if store is not None and data is not None:
        raise click.UsageError("--store and --data name two stores: give one of them")
    # Imported here: it loads the server's side, which the other commands do without.
    from rota.cli.token_admin import token_admin

    return token_admin(store, data)


def _find_token(typed: str, known: list[TokenView]) -> TokenView:
    named = [one for one in known if one.name == typed and one.status == "live"]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(short(one.token_id) for one in named[:4])
        raise Failure(
            f"{len(named)} live tokens are called {plain(typed)!r}: name one by its id, {ids}"
        )
    by_id = {one.token_id: one for one in known}
    if typed not in by_id and len(typed) < TYPED_CHARS_MIN:
        raise Failure(f"there is no token {plain(typed)!r}. See: rota tokens")
    return by_id[pick("token", typed.lower(), by_id)]
