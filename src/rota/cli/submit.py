"""Submits jobs: one, many copies of one, or a file of them in batches with a progress bar; and
waits for jobs (`rota wait`).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, Protocol

import click
import msgspec

from rota.cli import id_lookup
from rota.cli.bundles import uploaded
from rota.cli.connect import connected, limits
from rota.cli.job_spec import KINDS, Options, job_of, split_after, terms_of
from rota.cli.logs import LogWriter, log_of
from rota.cli.options import Number, deadline, duration, json_option, now, pair, size, time
from rota.cli.problems import Failure, explain
from rota.cli.render import plain, plural, print_object, short
from rota.cli.why import draw_dry_run
from rota.sdk import Client, InvalidError, WaitTimeoutError, batches
from rota.wire.formats import Duration
from rota.wire.jobs import JobView
from rota.wire.limits import ARRAY_COUNT_MAX, BATCH_JOBS_MAX, GANG_SIZE_MAX, PRIORITY_MAX

_PLACE = re.compile(r"jobs[\[.](\d+)\]?[.]?(.*)")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Job to submit, and the line it stands in."""

    job: dict[str, Any]
    place: str


class ProgressBar(Protocol):
    """Progress bar."""

    def advance(self, steps: int) -> None:
        """Adds steps that are done."""
        ...


def copies(job: dict[str, Any], how_many: int) -> Iterator[BatchEntry]:
    """Repeats a job."""
    return (BatchEntry(job, "") for _ in range(how_many))


def jobs_in(source: str, terms: Mapping[str, Any]) -> Iterator[BatchEntry]:
    """Reads jobs from a file of JSON lines, and completes each with `terms`."""
    try:
        with click.open_file(source, "rb") as file:
            yield from _entries(file, source, terms)
    except OSError as error:
        raise Failure(f"{source}: {error.strerror}") from error


def _entries(file: IO[bytes], source: str, terms: Mapping[str, Any]) -> Iterator[BatchEntry]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"{source}:{number}"
        try:
            job = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Failure(f"{place}: not a JSON object: {error}") from error
        yield BatchEntry({**terms, **job}, place)


def submit_many(
    client: Client, entries: Iterable[BatchEntry], *, total: int | None = None
) -> list[str]:
    """Submits them all; jobs may depend on earlier ones by `ref:`, also across batches."""
    reading = _UnsubmittedLines(entries)
    with progress_bar("submitting", total) as bar:

        def submitted(count: int) -> None:
            bar.advance(count - reading.submitted)
            reading.forget(count)

        flow = batches.submit_many(
            client.state, reading.jobs(), on_progress=submitted, jobs_max=limits().batch_jobs
        )
        try:
            return client.run(flow)
        except InvalidError as error:
            raise Failure(_explain(client, error, reading)) from error


class _UnsubmittedLines:
    """Lines of the jobs that were read and are not submitted yet."""

    def __init__(self, entries: Iterable[BatchEntry]) -> None:
        self._entries = entries
        self._places: list[str] = []
        self.submitted = 0

    def jobs(self) -> Iterator[dict[str, Any]]:
        """Yields the jobs, and keeps the line of each."""
        for entry in self._entries:
            self._places.append(entry.place)
            yield entry.job

    def forget(self, submitted: int) -> None:
        """Drops the lines of jobs that were submitted."""
        del self._places[: submitted - self.submitted]
        self.submitted = submitted

    def place(self, number: int) -> str:
        """Returns the line of a job of the next batch; empty if it is not from a file."""
        return self._places[number] if number < len(self._places) else ""


def _explain(client: Client, error: InvalidError, reading: _UnsubmittedLines) -> str:
    """Says what is wrong, and in which line."""
    said = explain(error, client.endpoint)
    for one in error.errors:
        found = _PLACE.match(one.field)
        if found is not None and (place := reading.place(int(found[1]))):
            where = f"{found[2]}: " if found[2] else ""
            said = f"{place}: {where}{one.message}"
            break
    before = reading.submitted
    return f"{said} ({before} jobs before this batch were submitted)" if before else said


class _NoProgressBar:
    """No progress bar, where stderr is no terminal."""

    def advance(self, steps: int) -> None:
        """Shows nothing."""


@contextmanager
def progress_bar(doing: str, total: int | None) -> Iterator[ProgressBar]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield _NoProgressBar()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from rota.cli.render import console

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(err=True), transient=True) as drawn:
        task = drawn.add_task(doing, total=total)

        class Drawn:
            """Bar on the terminal."""

            def advance(self, steps: int) -> None:
                """Moves it."""
                drawn.advance(task, steps)

        yield Drawn()


EXIT_CODE = "exit_code"
"""The reason of a job whose own program failed, which its exit status tells well enough."""


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=id_lookup.complete_jobs)
@click.option("--timeout", type=duration, metavar="DURATION", help="Give up after this time.")
@json_option
@click.pass_context
def wait(
    ctx: click.Context, jobs: tuple[str, ...], timeout: Duration | None, *, as_json: bool
) -> None:
    """Wait until jobs have ended; exit 0 if all succeeded, otherwise 1."""
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
                f"{plural(len(error.job_ids), 'job')} did not end in time: {left}{more}"
            ) from error


def exit_status(client: Client, job: JobView) -> int:
    """Returns the status a shell would give for the job's last execution."""
    if job.status == "succeeded":
        return 0
    executions = client.executions(job_id=job.job_id, limit=1).items
    code = executions[0].exit_code if executions else None
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


KEY_VALUE = "KEY=VALUE"


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", "-n", help="Name of the job; default: the command's name.")
@click.option("--queue", "-q", shell_complete=id_lookup.complete_queues, help="Queue of the job.")
@click.option("--tenant", help="Tenant it belongs to.")
@click.option(
    "--priority", "-p", type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX), help="Higher goes first."
)
@click.option("--cpu", type=Number(), help="Cores it needs; default: 1.")
@click.option("--memory", "-m", type=size, metavar="SIZE", help="Memory it needs, such as 512MiB.")
@click.option("--storage", type=size, metavar="SIZE", help="Disk space it needs.")
@click.option("--gpu", type=Number(), help="GPUs it needs.")
@click.option(
    "--custom",
    multiple=True,
    type=pair,
    metavar=KEY_VALUE,
    help="Custom resource it needs, such as licence=1.",
)
@click.option("--capability", "-c", multiple=True, help="Capability that its worker must have.")
@click.option(
    "--require",
    multiple=True,
    type=pair,
    metavar=KEY_VALUE,
    help="Label that its worker must have.",
)
@click.option(
    "--prefer",
    multiple=True,
    type=pair,
    metavar=KEY_VALUE,
    help="Label that its worker should have.",
)
@click.option(
    "--spread",
    metavar="LABEL",
    help="Spread jobs of this name over values of a label: host, zone …",
)
@click.option(
    "--near-previous",
    is_flag=True,
    help="Prefer the worker where it, or its upstream job, ran before.",
)
@click.option(
    "--place-wait",
    type=duration,
    metavar="DURATION",
    help="How long to wait for a preferred worker; default: 3s.",
)
@click.option(
    "--tolerate", multiple=True, metavar="WORD", help="Tolerate workers with this taint (--only)."
)
@click.option(
    "--after", multiple=True, metavar="ID[:WHEN]", help="Wait until a job has succeeded"
    " (default), finished or failed."
)  # fmt: skip
@click.option("--at", "run_at", type=time, metavar="TIME", help="Do not start before this time.")
@click.option(
    "--in",
    "run_in",
    type=duration,
    metavar="DURATION",
    help="Do not start before this much time has passed.",
)
@click.option(
    "--expires",
    "expires_at",
    type=time,
    metavar="TIME",
    help="Expire if it has not started by this time.",
)
@click.option(
    "--finish-by", type=deadline, metavar="TIME|DURATION",
    help="Deadline: raises its urgency, and warns before it is late.",
)  # fmt: skip
@click.option(
    "--timeout", "-t", type=duration, metavar="DURATION", help="Stop it when it has run this long."
)
@click.option(
    "--expects", "expected_runtime", type=duration, metavar="DURATION",
    help="Expected runtime.",
)  # fmt: skip
@click.option("--preemptible", is_flag=True, help="May be preempted by a much more urgent job.")
@click.option(
    "--retries", type=click.IntRange(0), metavar="N", help="Attempts after the first one."
)
@click.option(
    "--backoff", type=click.Choice(["exponential", "linear", "fixed"]),
    help="Growth of the delay between retries.",
)  # fmt: skip
@click.option("--delay", type=duration, metavar="DURATION", help="Delay before the first retry.")
@click.option(
    "--memory-factor",
    type=Number(),
    metavar="N",
    help="After running out of memory, request this many times as much.",
)
@click.option("--memory-max", type=size, metavar="SIZE", help="Upper bound for --memory-factor.")
@click.option("--at-most-once", is_flag=True, help="Do not run it again if its worker is lost.")
@click.option(
    "--concurrency-key", metavar="KEY", help="Limit how many jobs with this key run at once."
)
@click.option(
    "--concurrency-limit",
    type=click.IntRange(1),
    help="Jobs with the key that may run at once; default: 1.",
)
@click.option(
    "--label",
    "-l",
    multiple=True,
    type=pair,
    metavar=KEY_VALUE,
    help="Label of the job, to search by.",
)
@click.option(
    "--payload",
    metavar="JSON|@FILE",
    help="Payload, which the job reads from the file $ROTA_PAYLOAD.",
)
@click.option(
    "--env", "-e", multiple=True, type=pair, metavar=KEY_VALUE, help="Environment variable."
)
@click.option("--cwd", type=click.Path(), help="Working directory.")
@click.option("--function", metavar="NAME", help="Run this function of a worker's app.")
@click.option("--python", metavar="MODULE:FUNCTION", help="Run a function the worker can import.")
@click.option("--args", metavar="JSON|@FILE", help="Arguments of the function, as a JSON list.")
@click.option(
    "--kwargs", metavar="JSON|@FILE", help="Named arguments of the function, as a JSON object."
)
@click.option("--http", metavar="URL", help="Send an HTTP request to this URL.")
@click.option("--method", metavar="METHOD", help="HTTP method; default: GET, or POST with a body.")
@click.option("--header", "-H", multiple=True, type=pair, metavar=KEY_VALUE, help="HTTP header.")
@click.option("--body", metavar="TEXT|@FILE", help="HTTP body; JSON is sent as JSON.")
@click.option(
    "--bundle", metavar="FILE|ID", help="Upload this bundle and run it, or the command in it."
)
@click.option(
    "--container", metavar="IMAGE", help="Run this container image, or the command in it."
)
@click.option(
    "--input", multiple=True, type=pair, metavar="NAME=FILE|ID",
    help="Upload this bundle as input; the job finds it in $ROTA_INPUTS/NAME.",
)  # fmt: skip
@click.option("--noop", is_flag=True, help="Run nothing: the worker only acknowledges it.")
@click.option(
    "--key", metavar="KEY", help="Idempotency key: within a day the same key gives the same job."
)
@click.option(
    "--wait", "-w", is_flag=True, help="Wait until it has ended; exit 1 if it did not succeed."
)
@click.option("--follow", "-f", is_flag=True, help="Follow its log; exit with its exit status.")
@click.option(
    "--count", type=click.IntRange(1, ARRAY_COUNT_MAX), metavar="N",
    help="Array: number of members, each with its ROTA_ARRAY_INDEX.",
)  # fmt: skip
@click.option(
    "--max-parallel",
    type=click.IntRange(1),
    metavar="N",
    help="Members of the array that may be active at once.",
)
@click.option(
    "--gang", type=click.IntRange(2, GANG_SIZE_MAX), metavar="N",
    help="Gang: number of copies, which start all at once or not at all.",
)  # fmt: skip
@click.option(
    "--copies", type=click.IntRange(1), metavar="N", help="Submit this many equal jobs, in batches."
)
@click.option(
    "--from", "source", metavar="FILE", help="Submit the jobs of this file of JSON lines (- for"
    " stdin); the other options are defaults for them."
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show when it would start; submit nothing.")
@json_option
@click.pass_context
def submit(ctx: click.Context, /, *, as_json: bool, **given: Any) -> None:
    """Submit one job or many.

    \b
      rota submit -- python3 bill.py 42
      rota submit --cpu 4 --memory 2GiB --retries 3 --follow -- ./train.sh
      rota submit --after 5e2d8a41 --in 10m -- ./report.sh
      rota submit --function invoice --args '[42]' --wait
      rota submit --http https://shop.example/hooks --body '{"paid": 42}'
      rota submit --count 1000 --max-parallel 20 --wait -- ./render.sh
      rota submit --bundle app.tar.gz -- ./run.sh 42
      rota submit --container alpine:3.20 -- echo hello
      rota submit --from jobs.jsonl --wait
    """
    many, source = given.pop("copies"), given.pop("source")
    wait, follow, key = given.pop("wait"), given.pop("follow"), given.pop("key")
    dry_run = given.pop("dry_run")
    if key is not None and (many is not None or source is not None):
        raise click.UsageError("--key is for one job: it does not go with --copies or --from")
    _check(given, many, source, follow=follow, as_json=as_json)
    with connected() as client:
        options = _with_bundles(client, given)
        terms = terms_of(options, _dependencies(client, options), now())
        if dry_run:
            if source is not None:
                entries = jobs_in(source, terms)
            else:
                entries = copies(job_of(options, terms), many or 1)
            tried = [entry.job for entry in islice(entries, BATCH_JOBS_MAX)]
            ctx.exit(draw_dry_run(client, tried, as_json=as_json))
        if source is not None:
            ids = submit_many(client, jobs_in(source, terms))
        elif many is not None:
            ids = submit_many(client, copies(job_of(options, terms), many), total=many)
        else:
            job = client.submit(job_of(options, terms), idempotency_key=key)
            ctx.exit(_follow_to_end(client, job, wait=wait, follow=follow, as_json=as_json))
        ctx.exit(_wait_for_all(client, ids, wait=wait, as_json=as_json))


def _check(
    options: Options, many: int | None, source: str | None, *, follow: bool, as_json: bool
) -> None:
    runs = any(options[kind] for kind in KINDS)
    if source is not None and (many is not None or runs or options["name"]):
        raise click.UsageError("--from takes the jobs from the file: no command, name or copies")
    if follow and (source is not None or many is not None or as_json):
        raise click.UsageError("--follow is for one job, without --json")


def _with_bundles(client: Client, options: Options) -> Options:
    """Files become bundles; what the server has already is not sent again."""
    bundle = options["bundle"] and uploaded(client, options["bundle"], options["tenant"])
    given = tuple(
        (name, uploaded(client, one, options["tenant"])) for name, one in options["input"]
    )
    return {**options, "bundle": bundle, "input": given}


def _dependencies(client: Client, options: Options) -> list[dict[str, str]]:
    pairs = (split_after(text) for text in options["after"])
    return [{"job_id": id_lookup.job_id(client, job), "when": when} for job, when in pairs]


def _follow_to_end(client: Client, job: JobView, *, wait: bool, follow: bool, as_json: bool) -> int:
    if follow:
        return _follow(client, job)
    if wait:
        if not as_json:
            click.echo(f"submitted {job.job_id}", err=True)
        job = client.wait(job.job_id)
    if as_json:
        print_object(job)
    elif wait:
        click.echo(f"{job.job_id} {job.status}")
        if job.status != "succeeded":
            say_why(job)
    elif sys.stdout.isatty():
        click.echo(f"{job.job_id} {job.status}. Follow it: rota logs -f {short(job.job_id)}")
    else:
        click.echo(job.job_id)
    return 1 if wait and job.status != "succeeded" else 0


def _follow(client: Client, job: JobView) -> int:
    click.echo(f"submitted {job.job_id}", err=True)
    writer = LogWriter()
    try:
        for chunk in log_of(client, job, follow=True, tail=None):
            writer.write(chunk)
    except KeyboardInterrupt:
        writer.finish()
        stop = f"rota cancel {short(job.job_id)}"
        click.echo(f"the job goes on; stop it with: {stop}", err=True)
        raise
    writer.finish()
    return exit_status(client, client.job(job.job_id))


def _wait_for_all(client: Client, ids: list[str], *, wait: bool, as_json: bool) -> int:
    status = 0
    if wait:
        ended = wait_for(client, ids)
        status = 0 if all(one == "succeeded" for one in ended.values()) else 1
    if as_json:
        print_object({"job_ids": ids})
    elif sys.stdout.isatty():
        click.echo(f"submitted {plural(len(ids), 'job')}")
    else:
        sys.stdout.writelines(f"{one}\n" for one in ids)
    return status
