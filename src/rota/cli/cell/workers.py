"""Lists workers, shows one, drains it and puts it back to work, lets it leave."""

from __future__ import annotations

import click

from rota.cli import offers
from rota.cli.connect import answer, connected
from rota.cli.names import worker_id
from rota.cli.options import json_option, now_ms
from rota.cli.render import print_object, show_facts, show_table
from rota.cli.views import WORKER_COLUMNS, worker_facts, worker_row
from rota.sdk import calls
from rota.wire.workers import WorkerPage, WorkerView


@click.group(invoke_without_command=True)
@click.option("--status", "-s", multiple=True, help="In any of these statuses.")
@click.option("--capability", "-c", multiple=True, help="That can do this; all of them.")
@json_option
@click.pass_context
def workers(
    ctx: click.Context, status: tuple[str, ...], capability: tuple[str, ...], *, as_json: bool
) -> None:
    """List workers, or act on one: show, drain, resume, remove."""
    if ctx.invoked_subcommand is not None:
        return
    with connected() as client:
        found = client.workers(
            status=[one for text in status for one in text.split(",")], capabilities=capability
        )
        if as_json:
            print_object(WorkerPage(found, None))
            return
        now = now_ms()
        rows = [worker_row(worker, now) for worker in found]
        show_table(WORKER_COLUMNS, rows, empty="no workers. Start one with: rota worker")


@workers.command()
@click.argument("worker", shell_complete=offers.workers)
@json_option
def show(worker: str, *, as_json: bool) -> None:
    """Show one worker, by its id or name."""
    with connected() as client:
        call = calls.get_worker(worker_id(client, worker))
        answer(client, call, _draw, as_json=as_json)


def _draw(view: WorkerView) -> None:
    show_facts(worker_facts(view, now_ms()))


@workers.command()
@click.argument("worker", shell_complete=offers.workers)
@json_option
def drain(worker: str, *, as_json: bool) -> None:
    """Give a worker no new work; what it runs goes on."""
    with connected() as client:
        call = calls.drain_worker(worker_id(client, worker))
        answer(client, call, _say_status, as_json=as_json)


@workers.command()
@click.argument("worker", shell_complete=offers.workers)
@json_option
def resume(worker: str, *, as_json: bool) -> None:
    """Give a drained worker work again."""
    with connected() as client:
        call = calls.resume_worker(worker_id(client, worker))
        answer(client, call, _say_status, as_json=as_json)


def _say_status(view: WorkerView) -> None:
    click.echo(f"{view.name} is {view.status}")


@workers.command()
@click.argument("worker", shell_complete=offers.workers)
@json_option
def remove(worker: str, *, as_json: bool) -> None:
    """Let a worker leave; what it was running is run again elsewhere."""
    with connected() as client:
        found = worker_id(client, worker)
        client.remove_worker(found)
        if as_json:
            print_object({"worker_id": found, "removed": True})
        else:
            click.echo(f"{found} is gone")
