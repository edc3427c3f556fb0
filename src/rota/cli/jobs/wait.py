"""Waits for jobs, and says how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from rota.cli import completion, id_lookup
from rota.cli.connect import connected
from rota.cli.jobs.batch_submit import progress_bar
from rota.cli.options import duration, json_option
from rota.cli.problems import Failure
from rota.cli.render import print_object
from rota.cli.text import plain, plural, short
from rota.sdk import Client, WaitTimeoutError
from rota.wire.jobs import JobView
from rota.wire.units import Duration

EXIT_CODE = "exit_code"
"""The reason of a job whose own program failed, which its exit status tells well enough."""


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=completion.complete_jobs)
@click.option("--timeout", type=duration, metavar="DURATION", help="Give up after so long.")
@json_option
@click.pass_context
def wait(
    ctx: click.Context, jobs: tuple[str, ...], timeout: Duration | None, *, as_json: bool
) -> None:
    """Wait until jobs have ended: exit 0 if all succeeded, 1 if not."""
    with connected() as client:
        ids = [id_lookup.job_id(client, one) for one in jobs]
        ended = wait_for(client, ids, timeout)
        if as_json:
            views = [client.job(job_id) for job_id in ids]
            print_object(views[0] if len(views) == 1 else {"items": views})
        elif len(ended) <= 20:
            for job_id, status in ended.items():
                click.echo(f"{short(job_id)} {status}")
                if status != "succeeded":
                    say_why(client.job(job_id))
        else:
            counts = Counter(ended.values())
            click.echo(", ".join(f"{plural(n, 'job')} {status}" for status, n in counts.items()))
        ctx.exit(0 if all(status == "succeeded" for status in ended.values()) else 1)


def wait_for(
    client: Client, job_ids: Sequence[str], timeout: Duration | None = None
) -> dict[str, str]:
    """Returns how each ended, with a progress bar meanwhile."""
    with progress_bar("waiting", len(dict.fromkeys(job_ids))) as bar:
        try:
            return client.wait_all(
                job_ids,
                timeout_s=None if timeout is None else timeout.seconds,
                on_end=lambda _id, _status: bar.advance(1),
            )
        except WaitTimeoutError as error:
            left = ", ".join(short(one) for one in error.job_ids[:5])
            more = ", …" if len(error.job_ids) > 5 else ""
            raise Failure(
                f"{plural(len(error.job_ids), 'job')} had not ended in time: {left}{more}"
            ) from error


def exit_status(client: Client, job: JobView) -> int:
    """Returns the status a shell would give for the job's last execution."""
    if job.status == "succeeded":
        return 0
    tries = client.executions(job_id=job.job_id, limit=1).items
    code = tries[0].exit_code if tries else None
    if not code or job.reason not in (None, EXIT_CODE):
        say_why(job)
    if not code:
        return 1
    # A negative code is the signal that ended the process; shells say that as 128 and more.
    return code if code > 0 else 128 - code


def say_why(job: JobView) -> None:
    """Says why it failed, on stderr: its log need not tell."""
    message = job.error.get("message") if isinstance(job.error, dict) else None
    why = message or job.reason or "no reason"
    click.echo(f"rota: job {short(job.job_id)} ended as {job.status}: {plain(str(why))}", err=True)
