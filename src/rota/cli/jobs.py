"""Lists, shows and changes jobs: cancel, retry, delete, update, execute, bulk actions; their
executions and artifacts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from rota.cli import id_lookup
from rota.cli.connect import answer, answer_list, connected
from rota.cli.id_lookup import execution_id, job_id, worker_id
from rota.cli.job_spec import retry_of
from rota.cli.options import (
    Number,
    confirm,
    deadline,
    duration,
    filter_of,
    filter_options,
    json_option,
    pair,
    search_of,
    size,
    time,
    without_none,
)
from rota.cli.problems import Failure, explain
from rota.cli.render import (
    Column,
    Columns,
    plural,
    print_object,
    short,
    show_facts,
    show_table,
    size_text,
)
from rota.cli.views import EXECUTION_COLUMNS, JOB_COLUMNS, execution_facts, job_facts
from rota.sdk import ApiError, Client, JobSearch, NotFoundError, calls
from rota.wire.jobs import BulkAnswer, JobPage, JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.workers import ArtifactView, ExecutionPage

PageSize = click.IntRange(1, PAGE_ITEMS_MAX)


@click.command()
@filter_options
@click.option("--array", metavar="ID", help="Only members of this array or gang.")
@click.option(
    "--limit", type=PageSize, default=50, show_default=True, help="Maximum number of items."
)
@click.option("--cursor", help="Continue after an earlier page.")
@click.option("--all", "every", is_flag=True, help="List all pages.")
@json_option
def jobs(
    limit: int, cursor: str | None, array: str | None, *, every: bool, as_json: bool, **given: Any
) -> None:
    """List jobs, newest first.

    Times can be durations before now: --after 2h.
    """
    with connected() as client:
        of = None if array is None else job_id(client, array)
        if every:
            search = replace(search_of(given, limit=PAGE_ITEMS_MAX), array=of)
            _list_all(client, search, as_json=as_json)
            return
        search = replace(search_of(given, limit=limit, cursor=cursor), array=of)
        answer_list(client, calls.list_jobs(search), limit, _draw_page, as_json=as_json)


def _list_all(client: Client, search: JobSearch, *, as_json: bool) -> None:
    page = JobPage(list(client.jobs(search)), None)
    if as_json:
        print_object(page)
    else:
        _draw_page(page)


def _draw_page(page: JobPage) -> None:
    show_table(JOB_COLUMNS, page.items, empty="no jobs")
    if page.next_cursor is not None and sys.stdout.isatty():
        click.echo(f"more: --all, or --cursor {page.next_cursor}", err=True)


@click.command("dead-letters")
@click.option(
    "--limit", type=PageSize, default=50, show_default=True, help="Maximum number of items."
)
@click.option("--cursor", help="Continue after an earlier page.")
@json_option
def dead_letters(limit: int, cursor: str | None, *, as_json: bool) -> None:
    """List jobs that used up their attempts."""
    with connected() as client:
        call = calls.dead_letters(limit=limit, cursor=cursor)
        answer_list(client, call, limit, _draw_page, as_json=as_json)


@click.command()
@click.argument("job", shell_complete=id_lookup.complete_jobs)
@json_option
def show(job: str, *, as_json: bool) -> None:
    """Show all details of a job."""
    with connected() as client:
        found = job_id(client, job)

        def draw(view: JobView) -> None:
            show_facts(job_facts(view))
            executions = client.executions(job_id=found, limit=20).items
            if executions:
                print()
                show_table(EXECUTION_COLUMNS, executions, empty="")

        answer(client, calls.get_job(found), draw, as_json=as_json)


# Executions


@click.group(invoke_without_command=True)
@click.option("--job", help="Only of this job.")
@click.option("--worker", help="Only on this worker.")
@click.option(
    "--status", "-s", multiple=True, help="In any of these statuses; may repeat, or use commas."
)
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ITEMS_MAX), default=50, help="Maximum number of items."
)
@json_option
@click.pass_context
def executions(ctx: click.Context, /, *, limit: int, as_json: bool, **given: Any) -> None:
    """List executions (attempts) of jobs, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    job, worker = given["job"], given["worker"]
    with connected() as client:
        call = calls.list_executions(
            job_id=job_id(client, job) if job else None,
            worker_id=worker_id(client, worker) if worker else None,
            status=[one for text in given["status"] for one in text.split(",")],
            limit=limit,
        )
        answer_list(client, call, limit, _draw_executions, as_json=as_json)


def _draw_executions(page: ExecutionPage) -> None:
    show_table(EXECUTION_COLUMNS, page.items, empty="no executions")


@executions.command("show")
@click.argument("execution")
@json_option
def _show_execution(execution: str, *, as_json: bool) -> None:
    """Show one execution."""
    with connected() as client:
        call = calls.get_execution(execution_id(client, execution))
        answer(client, call, lambda one: show_facts(execution_facts(one)), as_json=as_json)


# Output files

ARTIFACT_COLUMNS: Columns[ArtifactView] = (
    Column("NAME", lambda one: one.name, cut=True),
    Column("SIZE", lambda one: size_text(one.size), right=True),
    Column("SHA-256", lambda one: (one.sha256 or "")[:16], spare=1),
)


@click.group()
def artifacts() -> None:
    """List or download the output files of a job: list, get, link."""


@artifacts.command("list")
@click.argument("job")
@json_option
def _list_artifacts(job: str, *, as_json: bool) -> None:
    """List the output files of a job's newest execution, or of one execution."""
    with connected() as client:
        found = client.artifacts(_execution_of(client, job))
        if as_json:
            print_object({"items": found})
            return
        show_table(ARTIFACT_COLUMNS, found, empty="no output files")


@artifacts.command("get")
@click.argument("job")
@click.argument("name", nargs=-1)
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=".",
    help="Folder for the downloaded files.",
)  # fmt: skip
def _get_artifacts(job: str, name: tuple[str, ...], *, output: Path) -> None:
    """Download output files of a job, all by default; checksums are verified."""
    with connected() as client:
        execution = _execution_of(client, job)
        found = {one.name: one for one in client.artifacts(execution)}
        for missing in [one for one in name if one not in found]:
            there = ", ".join(found) or "none"
            raise Failure(f"there is no output file {missing!r}; there are: {there}")
        if not found:
            click.echo("the job has no output files", err=True)
            return
        output.mkdir(parents=True, exist_ok=True)
        for one in name or found:
            _fetch(client, execution, found[one], output)


def _fetch(client: Client, execution: str, artifact: ArtifactView, folder: Path) -> None:
    # This is where the server's names become paths of ours.
    words = artifact.name.split("/")
    if not all(Path(word).name == word and not word.startswith(".") for word in words):
        raise Failure(f"{artifact.name!r} is not a safe file name on this machine")
    path = folder.joinpath(*words)
    client.fetch_artifact(execution, artifact, path)
    click.echo(f"{path} ({size_text(artifact.size)})")


@artifacts.command("link")
@click.argument("job")
@click.argument("name")
@json_option
def _link(job: str, name: str, *, as_json: bool) -> None:
    """Print a URL of an output file: a signed one, if the storage supports it."""
    with connected() as client:
        found = client.artifact_link(_execution_of(client, job), name)
        if as_json:
            print_object(found)
        else:
            here = "" if found.signed else client.endpoint.url
            click.echo(here + found.url)


def _execution_of(client: Client, typed: str) -> str:
    """Finds the newest execution of a job, or the execution that was typed."""
    try:
        job = client.job(job_id(client, typed))
    except (NotFoundError, Failure):
        return execution_id(client, typed)
    if job.execution_id is None:
        raise Failure(f"the job {job.job_id} has not run yet")
    return job.execution_id


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=id_lookup.complete_jobs)
@json_option
def cancel(jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Cancel waiting or running jobs."""
    _each(jobs, lambda client, job_id: client.cancel(job_id), as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=id_lookup.complete_jobs)
@json_option
def retry(jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Run jobs again that failed, expired, or were cancelled or skipped."""
    _each(jobs, lambda client, job_id: client.retry(job_id), as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=id_lookup.complete_jobs)
@click.option("--force", is_flag=True, help="Also delete live jobs, after cancelling them.")
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
@click.argument("job", shell_complete=id_lookup.complete_jobs)
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--at", "run_at", type=time, metavar="TIME", help="Do not start before this time.")
@click.option(
    "--expires",
    "expires_at",
    type=time,
    metavar="TIME",
    help="Expire if it has not started by this time.",
)
@click.option(
    "--finish-by",
    type=deadline,
    metavar="TIME|DURATION",
    help="Deadline: a time, or a duration after the submission.",
)
@click.option(
    "--timeout", type=duration, metavar="DURATION", help="Stop it when it has run this long."
)
@click.option(
    "--expects", "expected_runtime", type=duration, metavar="DURATION",
    help="Expected runtime.",
)  # fmt: skip
@click.option("--cpu", type=Number(), help="Cores it requests.")
@click.option("--memory", type=size, metavar="SIZE", help="Memory it requests.")
@click.option("--gpu", type=Number(), help="GPUs it requests.")
@click.option("--retries", type=click.IntRange(0), help="Attempts after the first one.")
@click.option("--backoff", type=click.Choice(["exponential", "linear", "fixed"]))
@click.option("--delay", type=duration, metavar="DURATION", help="Delay before the first retry.")
@click.option("--label", "-l", multiple=True, type=pair, metavar="KEY=VALUE", help="Add a label.")
@click.option("--patch", metavar="JSON", help="Any other change, as JSON Merge Patch.")
@json_option
def update(job: str, *, patch: str | None, as_json: bool, **given: Any) -> None:
    """Change a job that has not started."""
    changes = {**_changes(given), **_read_patch(patch)}
    if not changes:
        raise click.UsageError("name what to change: --priority, --at, --timeout, --patch …")
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
@click.argument("job", shell_complete=id_lookup.complete_jobs)
@click.option(
    "--worker",
    "-w",
    required=True,
    shell_complete=id_lookup.complete_workers,
    help="Id or name of the worker.",
)
@json_option
def execute(job: str, worker: str, *, as_json: bool) -> None:
    """Run a job on a given worker now, regardless of its time, the order or a paused queue."""
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
@click.option("--to", "new_priority", type=int, help="New priority, for reprioritise.")
@click.option(
    "--fingerprint", help="Only of this group of dead letters, as the dashboard shows it."
)
@click.option("--all", "every", is_flag=True, help="All jobs: required if no filter is given.")
@click.option("--dry-run", is_flag=True, help="Only count the matching jobs.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
def bulk(
    action: str, *, every: bool, dry_run: bool, yes: bool, as_json: bool, **given: Any
) -> None:
    """Cancel, retry, delete or reprioritise all matching jobs."""
    new_priority, fingerprint = given.pop("new_priority"), given.pop("fingerprint")
    chosen = filter_of(given)
    if fingerprint is not None:
        chosen["fingerprint"] = fingerprint
    if not chosen and not every:
        raise click.UsageError("give a filter, such as --status failed, or --all for every job")
    if (action == "reprioritise") != (new_priority is not None):
        raise click.UsageError(
            "reprioritise needs --to PRIORITY, and the other actions do not take it"
        )
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
        click.echo(f"{plural(done.refused, 'job')} matched but were refused", err=True)
    for reason, count in done.reasons.items():
        click.echo(f"  {count:,}: {reason}", err=True)
