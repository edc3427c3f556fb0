"""Pushes bundles, lists them, fetches and removes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.cli import names
from rota.cli.connect import answer, connected
from rota.cli.options import duration, json_option
from rota.cli.problems import Failure
from rota.cli.render import Column, Row, print_object, show_table, tell
from rota.cli.text import local, plural, size
from rota.sdk import Client
from rota.sdk.methods import file_calls as calls
from rota.wire.bundles import BundlePage, BundleView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.units import Duration

COLUMNS = (
    Column("ID"),
    Column("NAME", cut=True),
    Column("TENANT", spare=3, cut=True),
    Column("SIZE", right=True),
    Column("FORMAT", spare=2),
    Column("CREATED", spare=1),
    Column("LAST USED", spare=1),
)


@click.group(invoke_without_command=True)
@click.option("--tenant", help="Of this tenant.")
@click.option("--unused-for", type=duration, metavar="DURATION", help="That no job used for long.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ITEMS_MAX), default=50, help="At most so many."
)
@json_option
@click.pass_context
def bundles(ctx: click.Context, /, *, limit: int, as_json: bool, **given: Any) -> None:
    """List bundles, newest first, or act on them: push, get, rm."""
    if ctx.invoked_subcommand is None:
        _list(limit=limit, as_json=as_json, **given)


@bundles.command("list")
@click.option("--tenant", help="Of this tenant.")
@click.option("--unused-for", type=duration, metavar="DURATION", help="That no job used for long.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ITEMS_MAX), default=50, help="At most so many."
)
@json_option
def list_(*, limit: int, as_json: bool, **given: Any) -> None:
    """List bundles, newest first."""
    _list(limit=limit, as_json=as_json, **given)


def _list(*, tenant: str | None, unused_for: Duration | None, limit: int, as_json: bool) -> None:
    with connected() as client:
        call = calls.list_bundles(tenant=tenant, unused_for=_exactly(unused_for), limit=limit)
        answer(client, call, _draw, as_json=as_json)


def _exactly(length: Duration | None) -> str | None:
    return None if length is None else f"{length.ms}ms"


def _draw(page: BundlePage) -> None:
    empty = "no bundles. Upload one: rota bundles push FILE"
    show_table(COLUMNS, [_row(one) for one in page.items], empty=empty)


def _row(one: BundleView) -> Row:
    return (
        one.bundle_id,
        one.name,
        one.tenant,
        size(one.size),
        one.format,
        local(one.created_at),
        local(one.used_at),
    )


@bundles.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", "-n", help="What it is called where a job finds it; else as here.")
@click.option("--tenant", help="Whose it is.")
@click.option("--format", type=click.Choice(["file", "zip", "tar"]), help="Else found out.")
@json_option
def push(file: Path, *, as_json: bool, **given: Any) -> None:
    """Upload a program, a script or an archive; the same content again is the same bundle.

    One that broke off goes on where it was when it is pushed again.
    """
    with connected() as client:
        bundle = client.push_bundle(file, **given)
        if as_json:
            print_object(bundle)
        else:
            click.echo(bundle.bundle_id)


@bundles.command()
@click.argument("bundle")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file; else its name.")
def get(bundle: str, *, output: Path | None) -> None:
    """Download a bundle."""
    with connected() as client:
        found = client.bundle(bundle_id(client, bundle))
        path = output or Path(found.name)
        client.fetch_bundle(found.bundle_id, path)
        click.echo(f"{path} ({size(found.size)})")


@bundles.command()
@click.argument("bundle", nargs=-1)
@click.option("--unused-for", type=duration, metavar="DURATION", help="All that no job used for.")
@click.option("--tenant", help="With --unused-for: only of this tenant.")
@json_option
def rm(
    bundle: tuple[str, ...], *, unused_for: Duration | None, tenant: str | None, as_json: bool
) -> None:
    """Remove bundles; jobs that name one and have not begun will fail."""
    if bool(bundle) == (unused_for is not None):
        raise click.UsageError("name the bundles, or say --unused-for how long")
    with connected() as client:
        ids = [bundle_id(client, one) for one in bundle]
        if unused_for is not None:
            ids = _unused(client, tenant, unused_for)
        for one in ids:
            client.delete_bundle(one)
        tell(f"removed {plural(len(ids), 'bundle')}", {"bundle_ids": ids}, as_json=as_json)


def _unused(client: Client, tenant: str | None, unused_for: Duration) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = client.bundles(
            tenant=tenant, unused_for=_exactly(unused_for), limit=PAGE_ITEMS_MAX, cursor=cursor
        )
        found += [one.bundle_id for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def bundle_id(client: Client, typed: str) -> str:
    """The bundle that is meant, among the newest ones if it was shortened."""
    lower = names.checked("bundle", typed)
    if names.is_whole(lower):
        return lower
    page = client.bundles(limit=PAGE_ITEMS_MAX)
    return names.pick("bundle", lower, (one.bundle_id for one in page.items))


def uploaded(client: Client, given: str, tenant: str | None) -> str:
    """The bundle of a file, which is pushed if the server does not have it; or of an id."""
    path = Path(given)
    if path.is_file():
        return client.push_bundle(path, tenant=tenant).bundle_id
    if names.is_whole(given.strip().lower()):
        return given.strip().lower()
    raise Failure(f"{given}: there is no such file, and it is no bundle's id. See: rota bundles")
