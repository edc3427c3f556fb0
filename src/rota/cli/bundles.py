"""Uploads bundles of code for jobs, lists them, downloads and removes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.cli import id_lookup
from rota.cli.connect import connected, every_item
from rota.cli.nouns import Noun, Verb, listing
from rota.cli.options import duration, json_option
from rota.cli.problems import Failure
from rota.cli.render import Column, Columns, local, plural, show_table, size_text, tell
from rota.sdk import Client
from rota.sdk.calls import Call
from rota.sdk.methods import file_calls as calls
from rota.wire.bundles import BundlePage, BundleView
from rota.wire.formats import Duration
from rota.wire.limits import PAGE_ITEMS_MAX

BUNDLE_COLUMNS: Columns[BundleView] = (
    Column("ID", lambda one: one.bundle_id),
    Column("NAME", lambda one: one.name, cut=True),
    Column("TENANT", lambda one: one.tenant, spare=3, cut=True),
    Column("SIZE", lambda one: size_text(one.size), right=True),
    Column("FORMAT", lambda one: one.format, spare=2),
    Column("CREATED", lambda one: local(one.created_at), spare=1),
    Column("LAST USED", lambda one: local(one.used_at), spare=1),
)


def _list(*, unused_for: Duration | None, **given: Any) -> Call[BundlePage]:
    exactly = None if unused_for is None else f"{unused_for.ms}ms"
    return calls.list_bundles(unused_for=exactly, **given)


def _draw_list(page: BundlePage) -> None:
    empty = "no bundles. Upload one: rota bundles push FILE"
    show_table(BUNDLE_COLUMNS, page.items, empty=empty)


def _push(client: Client, file: Path, **given: Any) -> BundleView:
    return client.push_bundle(file, **given)


@click.command()
@click.argument("bundle")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="File to write; default: the bundle's name.",
)
def get(bundle: str, *, output: Path | None) -> None:
    """Download a bundle."""
    with connected() as client:
        found = client.bundle(bundle_id(client, bundle))
        path = output or Path(found.name)
        client.fetch_bundle(found.bundle_id, path)
        click.echo(f"{path} ({size_text(found.size)})")


@click.command()
@click.argument("bundle", nargs=-1)
@click.option(
    "--unused-for",
    type=duration,
    metavar="DURATION",
    help="Remove all bundles that no job has used for this long.",
)
@click.option("--tenant", help="With --unused-for: only of this tenant.")
@json_option
def rm(
    bundle: tuple[str, ...], *, unused_for: Duration | None, tenant: str | None, as_json: bool
) -> None:
    """Remove bundles; jobs that need one and have not started will fail."""
    if bool(bundle) == (unused_for is not None):
        raise click.UsageError("name the bundles, or give --unused-for DURATION")
    with connected() as client:
        ids = [bundle_id(client, one) for one in bundle]
        if unused_for is not None:
            ids = _unused(client, tenant=tenant, unused_for=unused_for)
        for one in ids:
            client.delete_bundle(one)
        tell(f"removed {plural(len(ids), 'bundle')}", {"bundle_ids": ids}, as_json=as_json)


def _unused(client: Client, **given: Any) -> list[str]:
    found = every_item(client, lambda **page: _list(**given, **page))
    return [one.bundle_id for one in found]


def bundle_id(client: Client, typed: str) -> str:
    """Finds the bundle that is meant, among the newest ones if its id was shortened."""
    lower = id_lookup.checked("bundle", typed)
    if id_lookup.is_whole(lower):
        return lower
    page = client.bundles(limit=PAGE_ITEMS_MAX)
    return id_lookup.pick("bundle", lower, (one.bundle_id for one in page.items))


def uploaded(client: Client, given: str, tenant: str | None) -> str:
    """Returns the bundle of a file, uploaded if the server does not have it; or of an id."""
    path = Path(given)
    if path.is_file():
        return client.push_bundle(path, tenant=tenant).bundle_id
    if id_lookup.is_whole(given.strip().lower()):
        return given.strip().lower()
    raise Failure(f"{given} is neither a file nor a bundle's id. See: rota bundles")


bundles = Noun(
    name="bundles",
    help="List bundles, newest first, or act on them: push, get, rm.",
    default=listing(
        help="List bundles, newest first.",
        params=(
            click.option("--tenant", help="Only of this tenant."),
            click.option(
                "--unused-for",
                type=duration,
                metavar="DURATION",
                help="Only those that no job has used for this long.",
            ),
            click.option(
                "--limit",
                type=click.IntRange(1, PAGE_ITEMS_MAX),
                default=50,
                help="Maximum number of items.",
            ),
        ),
        call=_list,
        draw=_draw_list,
    ),
    default_has_name=True,
    verbs=(
        Verb(
            "push",
            """Upload a program, a script or an archive; the same content gives the same
            bundle.

            Repeat the command to resume an upload that was interrupted.
            """,
            names_one=False,
            params=(
                click.argument(
                    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path)
                ),
                click.option(
                    "--name", "-n", help="File name in the job's folder; default: the name here."
                ),
                click.option("--tenant", help="Tenant it belongs to."),
                click.option(
                    "--format",
                    type=click.Choice(["file", "zip", "tar"]),
                    help="Format; default: detected.",
                ),
            ),
            fetch=_push,
            draw=lambda bundle: click.echo(bundle.bundle_id),
        ),
    ),
    commands=(get, rm),
).group()
