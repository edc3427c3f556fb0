"""Lists and shows jobs, their executions and their output files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rota.cli import completion
from rota.cli.connect import answer, answer_list, connected
from rota.cli.id_lookup import execution_id, job_id, worker_id
from rota.cli.options import filter_options, json_option, search_of
from rota.cli.problems import Failure
from rota.cli.render import Column, Columns, print_object, show_facts, show_table
from rota.cli.text import size_text
from rota.cli.views import EXECUTION_COLUMNS, JOB_COLUMNS, execution_facts, job_facts
from rota.sdk import Client, JobSearch, NotFoundError, calls
from rota.wire.executions import ArtifactView, ExecutionPage
from rota.wire.jobs import JobPage, JobView
from rota.wire.limits import PAGE_ITEMS_MAX

PageSize = click.IntRange(1, PAGE_ITEMS_MAX)


@click.command()
@filter_options
@click.option("--array", metavar="ID", help="Members of this array or gang.")
@click.option("--limit", type=PageSize, default=50, show_default=True, help="At most so many.")
@click.option("--cursor", help="Goes on where a page ended.")
@click.option("--all", "every", is_flag=True, help="All pages.")
@json_option
def jobs(
    limit: int, cursor: str | None, array: str | None, *, every: bool, as_json: bool, **given: Any
) -> None:
    """List jobs, newest first.

    Times may be a length of time before now: --after 2h.
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
@click.option("--limit", type=PageSize, default=50, show_default=True, help="At most so many.")
@click.option("--cursor", help="Goes on where a page ended.")
@json_option
def dead_letters(limit: int, cursor: str | None, *, as_json: bool) -> None:
    """List jobs that used up their attempts."""
    with connected() as client:
        call = calls.dead_letters(limit=limit, cursor=cursor)
        answer_list(client, call, limit, _draw_page, as_json=as_json)


@click.command()
@click.argument("job", shell_complete=completion.complete_jobs)
@json_option
def show(job: str, *, as_json: bool) -> None:
    """Show all there is to know about a job."""
    with connected() as client:
        found = job_id(client, job)

        def draw(view: JobView) -> None:
            show_facts(job_facts(view))
            tries = client.executions(job_id=found, limit=20).items
            if tries:
                print()
                show_table(EXECUTION_COLUMNS, tries, empty="")

        answer(client, calls.get_job(found), draw, as_json=as_json)


# Executions


@click.group(invoke_without_command=True)
@click.option("--job", help="Of this job.")
@click.option("--worker", help="On this worker.")
@click.option("--status", "-s", multiple=True, help="In any of these statuses.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ITEMS_MAX), default=50, help="At most so many."
)
@json_option
@click.pass_context
def executions(ctx: click.Context, /, *, limit: int, as_json: bool, **given: Any) -> None:
    """List tries of jobs, newest first."""
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
    """List the files that a job left behind, or fetch them: list, get, link."""


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
    help="The folder they go to.",
)  # fmt: skip
def _get_artifacts(job: str, name: tuple[str, ...], *, output: Path) -> None:
    """Download output files of a job (all unless named); each is checked as it arrives."""
    with connected() as client:
        execution = _execution_of(client, job)
        found = {one.name: one for one in client.artifacts(execution)}
        for missing in [one for one in name if one not in found]:
            there = ", ".join(found) or "none"
            raise Failure(f"there is no output file {missing!r}; there are: {there}")
        if not found:
            click.echo("it has left no output files", err=True)
            return
        output.mkdir(parents=True, exist_ok=True)
        for one in name or found:
            _fetch(client, execution, found[one], output)


def _fetch(client: Client, execution: str, artifact: ArtifactView, folder: Path) -> None:
    # This is where the server's names become paths of ours.
    words = artifact.name.split("/")
    if not all(Path(word).name == word and not word.startswith(".") for word in words):
        raise Failure(f"{artifact.name!r} is no name for a file here")
    path = folder.joinpath(*words)
    client.fetch_artifact(execution, artifact, path)
    click.echo(f"{path} ({size_text(artifact.size)})")


@artifacts.command("link")
@click.argument("job")
@click.argument("name")
@json_option
def _link(job: str, name: str, *, as_json: bool) -> None:
    """Print where an output file can be fetched: a signed link, if the storage gives one."""
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
