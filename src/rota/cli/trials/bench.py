"""Measures an installation: its own jobs through the public API, bounded, and removed again."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from typing import TYPE_CHECKING, Any

import click

from rota.cli.connect import connected, endpoint_of
from rota.cli.options import NumberRange, json_option
from rota.cli.problems import Failure
from rota.cli.render import Column, Row, print_object, show_table
from rota.sdk import Endpoint
from rota.sdk.clock import SystemClock
from rota.sdk.discovery import is_loopback

if TYPE_CHECKING:
    from rota.cli.trials.bench_figures import Figure, Result
    from rota.cli.trials.bench_line import Line
    from rota.cli.trials.bench_trial import Plan

ROLES = ("admin", "operator")
JOBS_MAX = 1_000_000
"""More would be a load test, and the removal alone would last for minutes."""
COLUMNS = (
    Column("MEASURED"),
    Column("SETTING", cut=True),
    Column("A SECOND", right=True),
    Column("P50 MS", right=True),
    Column("P99 MS", right=True),
    Column("OF", spare=2, right=True),
    Column("WHAT LIMITS", spare=1),
)


@click.command()
@click.option(
    "--seconds", type=NumberRange(0.1, 600), default=2.0, show_default=True,
    help="For each measurement, at most.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(100, JOBS_MAX), default=20_000, show_default=True,
    help="In all, at most.",
)  # fmt: skip
@click.option(
    "--connections", type=click.IntRange(1, 1_000), default=64, show_default=True,
    help="At once, for single calls.",
)  # fmt: skip
@click.option("--clean", is_flag=True, help="Only remove what a bench that was killed has left.")
@json_option
def bench(*, clean: bool, as_json: bool, **given: Any) -> None:
    """Measure this installation, beside whatever it does.

    Its jobs do nothing, are in a queue of their own and run on a worker of its own, in this
    process; only the pickup is measured on one of yours, with the program `true`. All of them are
    removed at the end, also after Ctrl-C. Takes a token of an operator or admin.
    """
    from rota.cli.trials.bench_trial import Plan

    endpoint = endpoint_of()
    with connected() as client:
        version = client.stats().version
    if clean:
        removed = asyncio.run(_clean(endpoint))
        click.echo(f"removed {removed:,} jobs")
        return
    plan = Plan(given["seconds"], given["jobs"], given["connections"])
    try:
        result = asyncio.run(_measured(endpoint, version, plan))
    except asyncio.CancelledError:
        raise click.Abort from None
    if as_json:
        print_object(result)
    else:
        _draw(result)


async def _clean(endpoint: Endpoint) -> int:
    from rota.cli.trials.bench_line import Line
    from rota.cli.trials.bench_trial import clean

    line = Line.open(endpoint, SystemClock())
    try:
        await _admitted(line)
        return await clean(line, {})
    finally:
        await line.close()


async def _measured(endpoint: Endpoint, version: str, plan: Plan) -> Result:
    from rota.cli.trials.bench_figures import Result
    from rota.cli.trials.bench_line import Line
    from rota.cli.trials.bench_trial import LABEL, Trial, cleaned

    _cancelled_by_sigterm()
    line = Line.open(endpoint, SystemClock())
    trial = Trial(endpoint, line, plan, secrets.token_hex(6))
    result = Result(url=endpoint.url, version=version, tag=trial.tag, notes=trial.notes)
    try:
        await _admitted(line)
        await _unoccupied(line)
        await _note_others(line, result)
        async with cleaned(line, {LABEL: trial.tag}) as removed:
            async for figure in trial.run():
                click.echo(f"{figure.name}: {figure.setting}", err=True)
                result.figures.append(figure)
        result.submitted, result.removed = trial.submitted, removed[0]
    finally:
        await line.close()
    return result


def _cancelled_by_sigterm() -> None:
    """As Ctrl-C does it: what was made is removed before the end."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)


async def _admitted(line: Line) -> None:
    who = await line.ask("GET", "/session")
    if who["role"] not in ROLES or who["tenant"] is not None:
        of = f" of the tenant {who['tenant']}" if who["tenant"] is not None else ""
        raise Failure(
            f"the token {who['name']!r} has the role {who['role']}{of}: a bench registers a worker"
            f" and removes jobs in one go, and takes a token of the role {' or '.join(ROLES)}"
        )


async def _unoccupied(line: Line) -> None:
    from rota.cli.trials.bench_trial import QUEUE

    found = await line.ask("GET", f"/jobs?queue={QUEUE}&limit=1")
    if found["items"]:
        raise Failure(
            f"the queue {QUEUE} is not empty: another bench runs, or one was killed."
            " Then remove what it left: rota bench --clean"
        )


async def _note_others(line: Line, result: Result) -> None:
    live = (await line.ask("GET", "/stats"))["jobs"]
    busy = sum(live[word] for word in ("pending", "queued", "running", "cancelling"))
    if busy:
        result.notes.append(f"{busy:,} other jobs were live: they share what was measured")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if is_loopback(line.url) and load > cores:
        result.notes.append(
            f"this machine was busy before (load {load:.1f} on {cores} cores): take it again"
        )


def _draw(result: Result) -> None:
    show_table(COLUMNS, [_row(figure) for figure in result.figures], empty="nothing was measured")
    for note in result.notes:
        click.echo(f"note: {note}")
    click.echo(f"{result.submitted:,} jobs were submitted, {result.removed:,} removed")


def _row(figure: Figure) -> Row:
    def shown(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:,.{digits}f}"

    return (
        figure.name,
        figure.setting,
        shown(figure.per_second, 0),
        shown(figure.p50_ms, 1),
        shown(figure.p99_ms, 1),
        f"{figure.count:,}",
        figure.limit,
    )
