"""Lists workers, shows one, drains it and resumes it, removes it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rota.cli import id_lookup
from rota.cli.id_lookup import worker_id
from rota.cli.nouns import Noun, Verb, listing
from rota.cli.render import show_facts, show_table
from rota.cli.views import WORKER_COLUMNS, worker_facts
from rota.sdk import Client, calls
from rota.wire.workers import WorkerPage, WorkerView


def _list(client: Client, *, status: Sequence[str], capability: Sequence[str]) -> WorkerPage:
    flat = [one for text in status for one in text.split(",")]
    return WorkerPage(client.workers(status=flat, capabilities=capability), None)


def _draw_list(page: WorkerPage) -> None:
    show_table(WORKER_COLUMNS, page.items, empty="no workers. Start one with: rota worker")


def _say_status(view: WorkerView) -> None:
    click.echo(f"{view.name} is {view.status}")


workers = Noun(
    name="workers",
    help="List workers, or act on one: show, drain, resume, remove.",
    default=listing(
        fetch=_list,
        draw=_draw_list,
        params=(
            click.option(
                "--status",
                "-s",
                multiple=True,
                help="In any of these statuses; may repeat, or use commas.",
            ),
            click.option(
                "--capability",
                "-c",
                multiple=True,
                help="Only with this capability; may repeat, all must match.",
            ),
        ),
    ),
    argument="worker",
    complete=id_lookup.complete_workers,
    find=worker_id,
    verbs=(
        Verb(
            "show",
            "Show one worker, by its id or name.",
            calls.get_worker,
            lambda view: show_facts(worker_facts(view)),
        ),
        Verb(
            "drain",
            "Give a worker no new jobs; running jobs continue.",
            calls.drain_worker,
            _say_status,
        ),
        Verb("resume", "Give a drained worker jobs again.", calls.resume_worker, _say_status),
        Verb(
            "remove",
            "Remove a worker; its running jobs run again elsewhere.",
            calls.remove_worker,
            done=lambda found: (f"{found} is gone", {"worker_id": found, "removed": True}),
        ),
    ),
).group()
