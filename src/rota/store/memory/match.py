"""Which jobs and executions of the forgetful store answer a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from rota.core.model import Execution, JobRecord
from rota.store.protocols.queries import ExecutionQuery, JobQuery, Page

T = TypeVar("T", JobRecord, Execution)


def find(
    records: Iterable[T], query: JobQuery | ExecutionQuery, fits: Callable[[T], bool]
) -> Page[T]:
    """A page, newest first; every record costs one look."""
    older = [one for one in records if query.before is None or one.id < query.before]
    page: Page[T] = Page()
    for looks, one in enumerate(sorted(older, key=lambda one: one.id, reverse=True), start=1):
        if fits(one):
            page.append(one)
        if len(page) == query.limit:
            break
        if looks == query.look and looks < len(older):
            page.rest = one.id
            break
    return page


def matches(job: JobRecord, query: JobQuery) -> bool:
    """Whether it is one of those asked for."""
    terms, created_at = job.spec.terms, job.spec.created_at
    return (
        (query.after is None or job.id > query.after)
        and (not query.states or job.life.state in query.states)
        and query.priority in (None, terms.priority)
        and query.not_priority != terms.priority
        and query.queue in (None, terms.queue)
        and query.tenant in (None, terms.tenant)
        and query.name in (None, terms.name)
        and all(label in job.spec.labels for label in query.labels)
        and (query.created_after is None or created_at > query.created_after)
        and (query.created_before is None or created_at < query.created_before)
    )


def ran(execution: Execution, query: ExecutionQuery) -> bool:
    """The same for executions."""
    return (
        query.job_id in (None, execution.job_id)
        and query.worker_id in (None, execution.worker_id)
        and (not query.states or execution.state in query.states)
    )
