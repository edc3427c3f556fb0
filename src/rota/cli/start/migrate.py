"""The command `rota migrate`: migrates a store's schema, or says which steps are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from rota.cli.options import json_option
from rota.cli.problems import Failure
from rota.cli.render import plain, plural, print_object
from rota.store.migrate import missing_in_file
from rota.store.postgres.connect import parse_address
from rota.store.postgres.durability import check_up
from rota.store.postgres.migrate import migrate_postgres
from rota.store.protocol import StoreError
from rota.store.sqlite.store import DATABASES, migrate_directory


@click.command()
@click.option("--store", metavar="DSN", help="PostgreSQL store: postgresql://user@host/database.")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Data folder; no server may be using it.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if steps are missing.")
@json_option
@click.pass_context
def migrate(
    ctx: click.Context, *, store: str | None, data: Path | None, check: bool, as_json: bool
) -> None:
    """Update the schema of a store. Servers do this when they start, if they are allowed to.

    Only this command updates a store of Rota 0.1: stop its servers first.
    """
    if (store is None) == (data is None):
        raise click.UsageError("name one of --store DSN and --data DIR")
    try:
        shown, missing = _look(store, data)
        if missing and not check:
            _apply(store, data)
    except StoreError as error:
        raise Failure(str(error)) from error
    if as_json:
        print_object({"store": shown, "missing" if check else "done": missing})
    else:
        click.echo(f"{plain(shown)}: {_summary(missing, check=check)}")
    ctx.exit(1 if check and missing else 0)


def _look(store: str | None, data: Path | None) -> tuple[str, Sequence[str]]:
    """Names the store, and the steps that it is missing."""
    if store is not None:
        found = asyncio.run(check_up(store))
        return found.shown, found.missing
    assert data is not None
    return str(data), [
        step.name
        for file, dialect in DATABASES.items()
        for step in missing_in_file(data / file, dialect)
    ]


def _apply(store: str | None, data: Path | None) -> None:
    if store is not None:
        asyncio.run(migrate_postgres(parse_address(store), from_0_1=True))
    else:
        assert data is not None
        migrate_directory(data)


def _summary(missing: Sequence[str], *, check: bool) -> str:
    if not missing:
        return "the schema is up to date"
    steps = f"{plural(len(missing), 'step')} ({', '.join(missing)})"
    return f"{steps} missing; run it without --check" if check else f"took {steps}"
