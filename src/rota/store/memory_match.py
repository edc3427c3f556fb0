"""Which jobs of the forgetful store answer a query."""

from __future__ import annotations

from rota.core.model import JobRecord
from rota.store.queries import JobQuery


def matches(job: JobRecord, query: JobQuery) -> bool:
    """Whether it is one of those asked for."""
    terms, created_at = job.spec.terms, job.spec.created_at
    return (
        (query.before is None or job.id < query.before)
        and (query.after is None or job.id > query.after)
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
