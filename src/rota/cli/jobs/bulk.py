"""Acts on all jobs that match a filter, after saying how many those are."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.cell.queues import confirm
from rota.cli.connect import answer, connected
from rota.cli.options import filter_of, filter_options, json_option
from rota.cli.text import plural
from rota.sdk import calls
from rota.wire.jobs import BulkAnswer

ACTIONS = ("cancel", "retry", "delete", "reprioritise")


@click.command()
@click.argument("action", type=click.Choice(ACTIONS))
@filter_options
@click.option("--to", "new_priority", type=int, help="The priority to give: for reprioritise.")
@click.option(
    "--fingerprint", help="That failed alike: of a group of dead letters, as the page shows it."
)
@click.option("--all", "every", is_flag=True, help="Really all jobs: needed without a filter.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
def bulk(
    action: str, *, every: bool, dry_run: bool, yes: bool, as_json: bool, **given: Any
) -> None:
    """Act on all jobs that match: cancel, retry, delete or reprioritise."""
    new_priority, fingerprint = given.pop("new_priority"), given.pop("fingerprint")
    chosen = filter_of(given)
    if fingerprint is not None:
        chosen["fingerprint"] = fingerprint
    if not chosen and not every:
        raise click.UsageError("give a filter, such as --status failed, or --all for every job")
    if (action == "reprioritise") != (new_priority is not None):
        raise click.UsageError("reprioritise needs --to PRIORITY, and nothing else takes it")
    spec: dict[str, Any] = {"action": action, "filter": chosen}
    if new_priority is not None:
        spec["priority"] = new_priority
    with connected() as client:
        if not yes and not dry_run:
            touched = client.bulk({**spec, "dry_run": True}).count
            confirm(f"{action.capitalize()} {plural(touched, 'job')}?")
        spec["dry_run"] = dry_run
        answer(client, calls.bulk(spec), lambda done: _draw(action, done), as_json=as_json)


def _draw(action: str, done: BulkAnswer) -> None:
    told = "would " if done.dry_run else ""
    click.echo(f"{told}{action}: {plural(done.count, 'job')}")
    if done.refused:
        click.echo(f"{plural(done.refused, 'job')} matched but could not be", err=True)
    for reason, count in done.reasons.items():
        click.echo(f"  {count:,}: {reason}", err=True)
