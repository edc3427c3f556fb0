"""Acts on single jobs: cancel, retry, delete, update, execute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from rota.cli import names, offers
from rota.cli.connect import answer, connected
from rota.cli.jobs.spec import retry_of
from rota.cli.options import Number, deadline, duration, json_option, pair, size, time
from rota.cli.problems import Failure, explain
from rota.cli.render import print_object
from rota.cli.text import short
from rota.sdk import ApiError, Client, calls
from rota.wire.jobs import JobView


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=offers.jobs)
@json_option
def cancel(jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Stop jobs, or keep them from starting."""
    _each(jobs, lambda client, job_id: client.cancel(job_id), as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=offers.jobs)
@json_option
def retry(jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Start over what failed, was cancelled or skipped, or expired."""
    _each(jobs, lambda client, job_id: client.retry(job_id), as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=offers.jobs)
@click.option("--force", is_flag=True, help="Also live ones: they are cancelled first.")
@json_option
def delete(jobs: tuple[str, ...], *, force: bool, as_json: bool) -> None:
    """Remove finished jobs."""
    _each(jobs, lambda client, job_id: client.delete(job_id, force=force), as_json=as_json)


Act = Callable[[Client, str], JobView | None]


def _each(typed: Sequence[str], act: Act, *, as_json: bool) -> None:
    """Acts on every one of them; what is refused is said, and the others still get their turn."""
    done: list[JobView | dict[str, str]] = []
    refused = 0
    with connected() as client:
        for one in typed:
            try:
                job_id = names.job_id(client, one)
                view = act(client, job_id)
            except (Failure, ApiError) as error:
                if len(typed) == 1:
                    raise
                refused += 1
                said = error.message if isinstance(error, Failure) else _line(client, error)
                click.echo(f"rota: {one}: {said}", err=True)
                continue
            done.append(view or {"job_id": job_id, "status": "deleted"})
            if not as_json:
                click.echo(f"{short(job_id)} {view.status if view else 'deleted'}")
    if as_json:
        print_object(done[0] if len(typed) == 1 else {"items": done})
    if refused:
        raise Failure(f"{refused} of {len(typed)} refused")


def _line(client: Client, error: ApiError) -> str:
    return explain(error, client.endpoint)


@click.command()
@click.argument("job", shell_complete=offers.jobs)
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
        call = calls.update_job(names.job_id(client, job), changes)
        answer(client, call, _say_status, as_json=as_json)


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    names_kept = (
        *("priority", "run_at", "expires_at", "finish_by", "timeout", "expected_runtime"),
    )
    plain = {name: given[name] for name in names_kept}
    parts = {
        **plain,
        "requirements": _given({name: given[name] for name in ("cpu", "memory", "gpu")}),
        "retry": retry_of(given["retries"], given["backoff"], given["delay"]),
        "labels": dict(given["label"]),
    }
    return _given(parts)


def _given(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not None and value != {}}


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
@click.argument("job", shell_complete=offers.jobs)
@click.option(
    "--worker", "-w", required=True, shell_complete=offers.workers, help="Its id or name."
)
@json_option
def execute(job: str, worker: str, *, as_json: bool) -> None:
    """Run a job on a worker now, past time, order and pause."""
    with connected() as client:
        call = calls.execute(names.job_id(client, job), names.worker_id(client, worker))
        answer(
            client,
            call,
            lambda one: click.echo(f"{short(one.execution_id)} {one.status} on {one.worker_id}"),
            as_json=as_json,
        )
