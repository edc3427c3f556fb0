"""Offers the shell what could be meant: ids of jobs, names of workers, queues and schedules.

Pressing a key must never hang or complain: a server that is away or slow offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from rota.cli.text import plain, short
from rota.sdk import Client, JobSearch, Patience, RotaError

COMPLETION_PATIENCE = Patience(retry_for_s=0.0, connect_s=0.5, read_s=1.0)
JOBS_COMPLETED_MAX = 200


def _completions(
    ask: Callable[[Client], Iterable[tuple[str, str]]], typed: str
) -> list[CompletionItem]:
    try:
        with Client(patience=COMPLETION_PATIENCE) as client:
            found = list(ask(client))
    except RotaError:
        return []
    return [
        CompletionItem(name, help=plain(told)) for name, told in found if name.startswith(typed)
    ]


def complete_jobs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offers recent jobs, by the short ids that lists show."""
    search = JobSearch(limit=JOBS_COMPLETED_MAX)
    return _completions(
        lambda client: (
            (short(job.job_id), f"{job.name} {job.status}")
            for job in client.jobs_page(search).items
        ),
        incomplete,
    )


def complete_workers(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completions(
        lambda client: ((worker.name, worker.status) for worker in client.workers()), incomplete
    )


def complete_queues(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completions(lambda client: ((queue.name, "") for queue in client.queues()), incomplete)


def complete_schedules(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completions(
        lambda client: ((one.name, one.status) for one in client.schedules()), incomplete
    )


def complete_triggers(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _completions(
        lambda client: ((one.name, one.event) for one in client.triggers()), incomplete
    )
