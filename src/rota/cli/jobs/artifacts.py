"""Lists the output files of a job, and fetches them."""

from __future__ import annotations

from pathlib import Path

import click

from rota.cli import names
from rota.cli.connect import connected
from rota.cli.options import json_option
from rota.cli.problems import Failure
from rota.cli.render import Column, print_object, show_table
from rota.cli.text import size
from rota.sdk import Client, NotFoundError
from rota.wire.executions import ArtifactView

COLUMNS = (Column("NAME", cut=True), Column("SIZE", right=True), Column("SHA-256", spare=1))


@click.group()
def artifacts() -> None:
    """List the files that a job left behind, or fetch them: list, get, link."""


@artifacts.command("list")
@click.argument("job")
@json_option
def list_(job: str, *, as_json: bool) -> None:
    """List the output files of a job's newest execution, or of one execution."""
    with connected() as client:
        found = client.artifacts(execution_of(client, job))
        if as_json:
            print_object({"items": found})
            return
        rows = [(one.name, size(one.size), (one.sha256 or "")[:16]) for one in found]
        show_table(COLUMNS, rows, empty="no output files")


@artifacts.command()
@click.argument("job")
@click.argument("name", nargs=-1)
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), default=".",
    help="The folder they go to.",
)  # fmt: skip
def get(job: str, name: tuple[str, ...], *, output: Path) -> None:
    """Download output files of a job (all unless named); each is checked as it arrives."""
    with connected() as client:
        execution = execution_of(client, job)
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
    click.echo(f"{path} ({size(artifact.size)})")


@artifacts.command()
@click.argument("job")
@click.argument("name")
@json_option
def link(job: str, name: str, *, as_json: bool) -> None:
    """Print where an output file can be fetched: a signed link, if the storage gives one."""
    with connected() as client:
        found = client.artifact_link(execution_of(client, job), name)
        if as_json:
            print_object(found)
        else:
            here = "" if found.signed else client.endpoint.url
            click.echo(here + found.url)


def execution_of(client: Client, typed: str) -> str:
    """A job's newest execution; or the execution, if that is what was typed."""
    try:
        job = client.job(names.job_id(client, typed))
    except (NotFoundError, Failure):
        return names.execution_id(client, typed)
    if job.execution_id is None:
        raise Failure(f"the job {job.job_id} has not run yet")
    return job.execution_id
