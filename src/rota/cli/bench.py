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
from rota.cli.render import Column, Columns, print_object, show_table
from rota.sdk import Endpoint
from rota.sdk.clock import SystemClock
from rota.sdk.discovery import is_loopback

if TYPE_CHECKING:
    from rota.cli.bench_run import BenchClient, BenchPlan, Figure, Result

ROLES = ("admin", "operator")
JOBS_MAX = 1_000_000
"""More would be a load test, and the removal alone would last for minutes."""
COLUMNS: Columns[Figure] = (
    Column("MEASURED", lambda one: one.name),
    Column("SETTING", lambda one: one.setting, cut=True),
    Column("A SECOND", lambda one: _shown(one.per_second, 0), right=True),
    Column("P50 MS", lambda one: _shown(one.p50_ms, 1), right=True),
    Column("P99 MS", lambda one: _shown(one.p99_ms, 1), right=True),
    Column("OF", lambda one: f"{one.count:,}", spare=2, right=True),
    Column("WHAT LIMITS", lambda one: one.limit, spare=1),
)


def _shown(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


@click.command()
@click.option(
    "--seconds", type=NumberRange(0.1, 600), default=2.0, show_default=True,
    help="Maximum time of each measurement.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(100, JOBS_MAX), default=20_000, show_default=True,
    help="Maximum number of jobs in total.",
)  # fmt: skip
@click.option(
    "--connections", type=click.IntRange(1, 1_000), default=64, show_default=True,
    help="Parallel connections for single calls.",
)  # fmt: skip
@click.option("--clean", is_flag=True, help="Only remove jobs left by a benchmark that was killed.")
@json_option
def bench(*, clean: bool, as_json: bool, **given: Any) -> None:
    """Measure the performance of this installation while it does its normal work.

    Its jobs do nothing, and have their own queue and their own worker, in this process; only the
    pickup is measured on one of your workers, with the program `true`. All of them are removed at
    the end, also after Ctrl-C. Needs a token of an operator or admin.
    """
    from rota.cli.bench_run import BenchPlan

    endpoint = endpoint_of()
    with connected() as client:
        version = client.stats().version
    if clean:
        removed = asyncio.run(_clean(endpoint))
        click.echo(f"removed {removed:,} jobs")
        return
    plan = BenchPlan(given["seconds"], given["jobs"], given["connections"])
    try:
        result = asyncio.run(_measured(endpoint, version, plan))
    except asyncio.CancelledError:
        raise click.Abort from None
    if as_json:
        print_object(result)
    else:
        _draw(result)


async def _clean(endpoint: Endpoint) -> int:
    from rota.cli.bench_run import BenchClient, clean

    bench_client = BenchClient.open(endpoint, SystemClock())
    try:
        await _check_role(bench_client)
        return await clean(bench_client, {})
    finally:
        await bench_client.close()


async def _measured(endpoint: Endpoint, version: str, plan: BenchPlan) -> Result:
    from rota.cli.bench_run import LABEL, Bench, BenchClient, Result, cleaning_up

    _cancel_on_sigterm()
    bench_client = BenchClient.open(endpoint, SystemClock())
    trial = Bench(endpoint, bench_client, plan, secrets.token_hex(6))
    result = Result(url=endpoint.url, version=version, tag=trial.tag, notes=trial.notes)
    try:
        await _check_role(bench_client)
        await _check_queue_is_empty(bench_client)
        await _note_other_load(bench_client, result)
        async with cleaning_up(bench_client, {LABEL: trial.tag}) as removed:
            async for figure in trial.run():
                click.echo(f"{figure.name}: {figure.setting}", err=True)
                result.figures.append(figure)
        result.submitted, result.removed = trial.submitted, removed[0]
    finally:
        await bench_client.close()
    return result


def _cancel_on_sigterm() -> None:
    """As Ctrl-C does it: what was made is removed before the end."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)


async def _check_role(bench_client: BenchClient) -> None:
    who = await bench_client.ask("GET", "/session")
    if who["role"] not in ROLES or who["tenant"] is not None:
        of = f" of the tenant {who['tenant']}" if who["tenant"] is not None else ""
        raise Failure(
            f"the token {who['name']!r} has the role {who['role']}{of}: a bench registers a worker"
            f" and removes jobs in one go, and takes a token of the role {' or '.join(ROLES)}"
        )


async def _check_queue_is_empty(bench_client: BenchClient) -> None:
    from rota.cli.bench_run import QUEUE

    found = await bench_client.ask("GET", f"/jobs?queue={QUEUE}&limit=1")
    if found["items"]:
        raise Failure(
            f"the queue {QUEUE} is not empty: another bench runs, or one was killed."
            " Then remove what it left: rota bench --clean"
        )


async def _note_other_load(bench_client: BenchClient, result: Result) -> None:
    live = (await bench_client.ask("GET", "/stats"))["jobs"]
    busy = sum(live[word] for word in ("pending", "queued", "running", "cancelling"))
    if busy:
        result.notes.append(f"{busy:,} other jobs were live: they share what was measured")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if is_loopback(bench_client.url) and load > cores:
        result.notes.append(
            f"this machine was busy before (load {load:.1f} on {cores} cores): take it again"
        )


def _draw(result: Result) -> None:
    show_table(COLUMNS, result.figures, empty="nothing was measured")
    for note in result.notes:
        click.echo(f"note: {note}")
    click.echo(f"{result.submitted:,} jobs were submitted, {result.removed:,} removed")
