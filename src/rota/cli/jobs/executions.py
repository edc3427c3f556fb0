"""Lists the tries of jobs, and shows one."""

from __future__ import annotations

from typing import Any

import click

from rota.cli import names
from rota.cli.connect import answer, answer_list, connected
from rota.cli.options import json_option, now_ms
from rota.cli.render import show_facts, show_table
from rota.cli.views import EXECUTION_COLUMNS, execution_facts, execution_row
from rota.sdk import calls
from rota.wire.executions import ExecutionPage, ExecutionView
from rota.wire.limits import PAGE_ITEMS_MAX


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
            job_id=names.job_id(client, job) if job else None,
            worker_id=names.worker_id(client, worker) if worker else None,
            status=[one for text in given["status"] for one in text.split(",")],
            limit=limit,
        )
        answer_list(client, call, limit, _draw_page, as_json=as_json)


def _draw_page(page: ExecutionPage) -> None:
    now = now_ms()
    rows = [execution_row(one, now) for one in page.items]
    show_table(EXECUTION_COLUMNS, rows, empty="no executions")


@executions.command()
@click.argument("execution")
@json_option
def show(execution: str, *, as_json: bool) -> None:
    """Show one execution."""
    with connected() as client:
        found = names.execution_id(client, execution)
        answer(client, calls.get_execution(found), _draw, as_json=as_json)


def _draw(view: ExecutionView) -> None:
    show_facts(execution_facts(view, now_ms()))
