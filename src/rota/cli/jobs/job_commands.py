"""Changes jobs: cancel, retry, delete, update, execute; one by one, or all that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from rota.cli import completion, id_lookup
from rota.cli.connect import answer, connected
from rota.cli.jobs.job_spec import retry_of
from rota.cli.options import (
    Number,
    confirm,
    deadline,
    duration,
    filter_of,
    filter_options,
    json_option,
    pair,
    size,
    time,
    without_none,
)
from rota.cli.problems import Failure, explain
from rota.cli.render import print_object
from rota.cli.text import plural, short
from rota.sdk import ApiError, Client, calls
from rota.wire.jobs import BulkAnswer, JobView


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=completion.complete_jobs)
@json_option
def cancel(jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Stop jobs, or keep them from starting."""
    _each(jobs, lambda client, job_id: client.cancel(job_id), as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=completion.complete_jobs)
@json_option
def retry(jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Start over what failed, was cancelled or skipped, or expired."""
    _each(jobs, lambda client, job_id: client.retry(job_id), as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=completion.complete_jobs)
@click.option("--force", is_flag=True, help="Also live ones: they are cancelled first.")
@json_option
def delete(jobs: tuple[str, ...], *, force: bool, as_json: bool) -> None:
    """Remove finished jobs."""
    _each(jobs, lambda client, job_id: client.delete(job_id, force=force), as_json=as_json)


Change = Callable[[Client, str], JobView | None]


def _each(typed: Sequence[str], change: Change, *, as_json: bool) -> None:
    """Changes each job; reports one that is refused, and goes on with the others."""
    done: list[JobView | dict[str, str]] = []
    refused = 0
    with connected() as client:
        for one in typed:
            try:
                job_id = id_lookup.job_id(client, one)
                view = change(client, job_id)
            except (Failure, ApiError) as error:
                if len(typed) == 1:
                    raise
                refused += 1
                said = (
                    error.message if isinstance(error, Failure) else explain(error, client.endpoint)
                )
                click.echo(f"rota: {one}: {said}", err=True)
                continue
            done.append(view or {"job_id": job_id, "status": "deleted"})
            if not as_json:
                click.echo(f"{short(job_id)} {view.status if view else 'deleted'}")
    if as_json:
        print_object(done[0] if len(typed) == 1 else {"items": done})
    if refused:
        raise Failure(f"{refused} of {len(typed)} refused")


@click.command()
@click.argument("job", shell_complete=completion.complete_jobs)
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--at", "run_at", type=time, metavar="TIME", help="Not before this.")
@click.option("--expires", "expires_at", type=time, metavar="TIME", help="Not after this.")
@click.option("--finish-by", type=deadline, metavar="TIME|DURATION", help="Should have ended.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Stop it after so long.")
@click.option(
    "--expects", "expected_runtime", type=duration, metavar="DURATION",
    help="How long it will probably run.",
)  # fmt: skip
@click.option("--cpu", type=Number(), help="Cpus.")
@click.option("--memory", type=size, metavar="SIZE", help="Memory.")
@click.option("--gpu", type=Number(), help="Gpus.")
@click.option("--retries", type=click.IntRange(0), help="Tries after the first.")
@click.option("--backoff", type=click.Choice(["exponential", "linear", "fixed"]))
@click.option("--delay", type=duration, metavar="DURATION", help="Before the first retry.")
@click.option("--label", "-l", multiple=True, type=pair, metavar="KEY=VALUE", help="Add a label.")
@click.option("--patch", metavar="JSON", help="Any other change, as a JSON Merge Patch.")
@json_option
def update(job: str, *, patch: str | None, as_json: bool, **given: Any) -> None:
    """Change a job that has not started."""
    changes = {**_changes(given), **_read_patch(patch)}
    if not changes:
        raise click.UsageError("say what to change: --priority, --at, --timeout, --patch …")
    with connected() as client:
        call = calls.update_job(id_lookup.job_id(client, job), changes)
        answer(client, call, _say_status, as_json=as_json)


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    fields = ("priority", "run_at", "expires_at", "finish_by", "timeout", "expected_runtime")
    needs = without_none({name: given[name] for name in ("cpu", "memory", "gpu")})
    parts = {
        **{name: given[name] for name in fields},
        "requirements": needs or None,
        "retry": retry_of(given["retries"], given["backoff"], given["delay"]),
        "labels": dict(given["label"]) or None,
    }
    return without_none(parts)


def _read_patch(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"not a JSON object: {error}", param_hint="'--patch'") from error


def _say_status(view: JobView) -> None:
    click.echo(f"{short(view.job_id)} {view.status}, priority {view.priority}")


@click.command()
@click.argument("job", shell_complete=completion.complete_jobs)
@click.option(
    "--worker",
    "-w",
    required=True,
    shell_complete=completion.complete_workers,
    help="Its id or name.",
)
@json_option
def execute(job: str, worker: str, *, as_json: bool) -> None:
    """Run a job on a worker now, past time, order and pause."""
    with connected() as client:
        call = calls.execute(id_lookup.job_id(client, job), id_lookup.worker_id(client, worker))
        answer(
            client,
            call,
            lambda one: click.echo(f"{short(one.execution_id)} {one.status} on {one.worker_id}"),
            as_json=as_json,
        )


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
        answer(client, calls.bulk(spec), lambda done: _draw_bulk(action, done), as_json=as_json)


def _draw_bulk(action: str, done: BulkAnswer) -> None:
    prefix = "would " if done.dry_run else ""
    click.echo(f"{prefix}{action}: {plural(done.count, 'job')}")
    if done.refused:
        click.echo(f"{plural(done.refused, 'job')} matched but could not be", err=True)
    for reason, count in done.reasons.items():
        click.echo(f"  {count:,}: {reason}", err=True)
