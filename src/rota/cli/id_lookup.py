"""Looks up the full id for what a person typed (a whole id, its end or beginning), and completes
ids and names in the shell.

Pressing a key must never hang or complain: a server that is away or slow completes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from rota.cli.problems import Failure
from rota.cli.render import plain, short
from rota.sdk import Client, JobSearch, Patience, RotaError
from rota.wire.limits import PAGE_ITEMS_MAX

T = TypeVar("T")

TYPED_CHARS_MIN = 6
"""Fewer would too often mean another job than the one that was meant."""

_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART = re.compile(r"[0-9a-f-]+")


def matching(typed: str, ids: Iterable[str]) -> list[str]:
    """Returns the ids that begin or end with what was typed; dashes may be left out."""
    bare = typed.replace("-", "")
    return [
        one for one in ids if (flat := one.replace("-", "")).startswith(bare) or flat.endswith(bare)
    ]


def pick(kind: str, typed: str, ids: Iterable[str]) -> str:
    """Returns the one id that is meant, or fails."""
    found = matching(typed, ids)
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"no recent {kind} has an id that begins or ends with {typed!r}")
    shown = ", ".join(found[:4]) + (", …" if len(found) > 4 else "")
    raise Failure(f"{typed!r} fits {len(found)} {kind}s: {shown}")


def is_whole(typed: str) -> bool:
    """Whether it is an id already."""
    return _WHOLE.fullmatch(typed) is not None


def checked(kind: str, typed: str) -> str:
    """Returns what was typed, if it is long enough for an id."""
    lower = typed.strip().lower()
    if not _PART.fullmatch(lower) or len(lower.replace("-", "")) < TYPED_CHARS_MIN:
        shown = plain(typed)
        raise Failure(
            f"{shown!r} is not a {kind} id: give it whole, or {TYPED_CHARS_MIN} or more characters"
            " of its end"
        )
    return lower


def job_id(client: Client, typed: str) -> str:
    """Finds the job that is meant, among the newest ones if its id was shortened."""
    lower = checked("job", typed)
    if is_whole(lower):
        return lower
    page = client.jobs_page(JobSearch(limit=PAGE_ITEMS_MAX))
    return pick("job", lower, (job.job_id for job in page.items))


def execution_id(client: Client, typed: str) -> str:
    """Finds the execution that is meant."""
    lower = checked("execution", typed)
    if is_whole(lower):
        return lower
    page = client.executions(limit=PAGE_ITEMS_MAX)
    return pick("execution", lower, (one.execution_id for one in page.items))


def worker_id(client: Client, typed: str) -> str:
    """Finds the worker that is meant: by its id, its name, or a part of the id."""
    workers = client.workers()
    if any(typed == worker.worker_id for worker in workers):
        return typed
    named = [worker for worker in workers if worker.name == typed]
    here = [worker for worker in named if worker.status != "offline"] or named
    if len(here) == 1:
        return here[0].worker_id
    if len(here) > 1:
        ids = ", ".join(worker.worker_id for worker in here[:4])
        raise Failure(f"{len(here)} workers are called {plain(typed)!r}: {ids}")
    if len(typed) < TYPED_CHARS_MIN:
        raise Failure(f"there is no worker {plain(typed)!r}. See: rota workers")
    return pick("worker", typed.lower(), (worker.worker_id for worker in workers))


def by_name_or_id(
    kind: str, typed: str, find: Callable[..., Sequence[T]], id_of: Callable[[T], str]
) -> T:
    """Finds the schedule or trigger that is meant: by its name, its id, or a part of the id."""
    named = find(name=typed) if typed else []
    bare = typed.replace("-", "").lower()
    if not named and len(bare) >= TYPED_CHARS_MIN:
        every = {id_of(one): one for one in find()}
        named = [every[one] for one in matching(bare, every)]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Failure(f"there is no {kind} {plain(typed)!r}; see: rota {kind}s")
    ids = ", ".join(id_of(one) for one in named[:4])
    raise Failure(f"{plain(typed)!r} fits {len(named)} {kind}s: {ids}")


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
        CompletionItem(name, help=plain(text)) for name, text in found if name.startswith(typed)
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
