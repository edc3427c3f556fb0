"""What a list of jobs or executions asks of PostgreSQL's tables, and the bodies of what was found.

Live and finished work are in two tables, and queued jobs on the shelf in a third; a state tells
which of them to ask. Every indexed filter has an index that ends in the id and holds what else is
often asked with it; how they are walked is in search.py. Bodies are fetched for the ids of
the page alone.

Finished work is in partitions, one a day: a statement is about a span of ids, so that the database
plans and opens a few of them and not a month's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import ExecutionState, Instant, JobState
from rota.store.postgres.tables.partitions import DAY_MS
from rota.store.postgres.tables.search import (
    STATE,
    Branch,
    FilterSearch,
    IdRange,
    Statement,
    Term,
    label_term,
    plain,
    time_in,
)
from rota.store.protocol import ExecutionQuery, JobQuery

ID_SLACK_MS = 60_000
"""How far the time in an id may be from when its job was created; others have an index of their own
(`jobs_done_astray`)."""
_SPAN_DAYS_MAX = 1_000
"""Older than that, all that is left is looked at together."""
_ASTRAY = "j.id NOT BETWEEN rota.id_at(j.created_at - 60000) AND rota.id_at(j.created_at + 60001)"
"""As the indexes have it, which the planner would not know otherwise."""
_TABLES = ("jobs_live", "jobs_done", "jobs_shelved")
_BESIDE = {
    "name": (STATE, "queue", "tenant"),
    STATE: ("queue", "tenant", "name"),
    "tenant": (STATE, "queue"),
    "queue": (STATE,),
}
"""What the indexes of finished jobs hold; where several have as few entries, the first is used."""
_UNINDEXED = (JobState.QUEUED, JobState.SUCCEEDED)
"""Most live jobs are the one, most finished ones the other: their indexes leave them out."""
_BETWEEN = "AND id BETWEEN $2 AND $3"
"""Says nothing new, but lets the database leave out the other days before it plans."""


def id_at(at: Instant) -> str:
    """Where the ids of a millisecond begin, as rota.id_at has it."""
    digits = f"{max(0, at):012x}"
    return f"{digits[:8]}-{digits[8:]}"


def job_id_range(query: JobQuery) -> IdRange:
    """Where all matches are, but for those whose ids tell another time."""
    low, high = query.after, query.before
    if query.created_after is not None:
        low = max(low or "", id_at(query.created_after - ID_SLACK_MS))
    if query.created_before is not None:
        bound = id_at(query.created_before + ID_SLACK_MS + 1)
        high = bound if high is None else min(high, bound)
    return IdRange(low, high)


def id_ranges(whole: IdRange, now: Instant) -> Iterator[IdRange]:
    """The whole in ever longer pieces, newest first: a day or two, then twice as much each time."""
    newest = now // DAY_MS
    if whole.high is not None:
        told = time_in(whole.high)
        newest = newest if told is None else min(newest, told // DAY_MS)
    high, days = whole.high, 1
    for back in count():
        low = id_at((newest - days) * DAY_MS)
        if whole.low is not None and low <= whole.low:
            yield IdRange(whole.low, high)
            return
        if days > _SPAN_DAYS_MAX or newest <= days:
            yield IdRange(None, high)
            return
        yield IdRange(low, high)
        high, days = low, days + (2 << back)


def job_search(query: JobQuery) -> FilterSearch:
    """What a list of jobs asks."""
    branches = _branches("jobs_live", query.states, JobState, is_final=False)
    if not query.states or JobState.QUEUED in query.states:
        branches.append(("jobs_shelved", ()))
    branches += _branches("jobs_done", query.states, JobState, is_final=True)
    terms = [label_term(key, value) for key, value in query.labels]
    for column, beside in _BESIDE.items():
        if column == STATE:
            terms += _state_terms(branches, beside)
        elif (value := getattr(query, column)) is not None:
            terms.append(Term(f"{{row}}.{column} = {{}}", (value,), column, beside))
    terms += _other_terms(query)
    return FilterSearch(tuple(branches), tuple(terms), everywhere=not query.states)


def execution_search(query: ExecutionQuery) -> FilterSearch:
    """What a list of executions asks."""
    branches = _branches("executions_live", query.states, ExecutionState, is_final=False)
    branches += _branches("executions_done", query.states, ExecutionState, is_final=True)
    terms = [
        Term(f"{{row}}.{column} = {{}}", (value,), column, ())
        for column, value in (("job_id", query.job_id), ("worker_id", query.worker_id))
        if value is not None
    ]
    terms += _state_terms(branches, ())
    return FilterSearch(tuple(branches), tuple(terms), everywhere=not query.states)


def _other_terms(query: JobQuery) -> Iterator[Term]:
    if query.priority is not None:
        # Written out, as the states are: an index has all but the usual one.
        beside = () if query.priority != 0 else None
        yield Term(f"{{row}}.priority = {query.priority:d}", (), "priority", beside)
    if query.not_priority is not None:
        yield Term(f"{{row}}.priority <> {query.not_priority:d}", (), "priority")
    if query.created_after is not None:
        yield Term("{row}.created_at > {}", (query.created_after,), "created_at")
    if query.created_before is not None:
        yield Term("{row}.created_at < {}", (query.created_before,), "created_at")


def _state_terms(branches: Sequence[Branch], beside: tuple[str, ...]) -> list[Term]:
    """None where a table has no other states than those that are asked for."""
    if not any(states for _, states in branches):
        return []
    indexed = all(states and not set(states) & set(_UNINDEXED) for _, states in branches)
    return [Term("", (), STATE, beside if indexed else None)]


def _branches(
    table: str,
    states: Sequence[JobState | ExecutionState],
    kinds: type[JobState] | type[ExecutionState],
    *,
    is_final: bool,
) -> list[Branch]:
    """The table with those of the states that it can have; none: nobody asked for such."""
    final: Any = JOB_FINAL if kinds is JobState else EXECUTION_FINAL
    own = [kind for kind in kinds if (kind in final) is is_final]
    asked = [state for state in dict.fromkeys(states) if state in own]
    if not states or len(asked) == len(own):
        return [(table, ())]
    return [(table, tuple(state.value for state in asked))] if asked else []


def is_any_astray(query: JobQuery) -> Statement:
    """Whether ids of another time are among the jobs of the time that was asked for.

    Mostly there are none. The text is always the same, so that the database plans it once.
    """
    each = " OR ".join(
        f"EXISTS (SELECT FROM rota.{table} j"
        f" WHERE {_ASTRAY} AND j.created_at > $1 AND j.created_at < $2)"
        for table in _TABLES
    )
    after = -1 if query.created_after is None else query.created_after
    before = 1 << 62 if query.created_before is None else query.created_before
    return Statement(f"SELECT {each}", [after, before])


def astray_jobs(query: JobQuery, search: FilterSearch, limit: int) -> Statement:
    """Ids of matches whose ids tell another time."""
    return plain(search, IdRange(query.after, query.before), limit, _ASTRAY)


def job_bodies(job_ids: Sequence[str], columns: Sequence[str]) -> Statement:
    """Rows of id and `columns`. Each id looks into its own day's partition only."""
    each = " UNION ALL ".join(
        f"SELECT {_of(table, columns)} FROM rota.{table} WHERE id = v.id {_BETWEEN}"
        for table in _TABLES
    )
    return _each_of(job_ids, each)


def execution_bodies(execution_ids: Sequence[str]) -> Statement:
    """Rows of id, body."""
    each = " UNION ALL ".join(
        f"SELECT body FROM rota.{table} WHERE id = v.id {_BETWEEN}"
        for table in ("executions_live", "executions_done")
    )
    return _each_of(execution_ids, each)


def _each_of(ids: Sequence[str], each: str) -> Statement:
    # The limit keeps it a look-up by id: for a thousand of them the planner would read whole days.
    looked_up = f"CROSS JOIN LATERAL ({each} LIMIT 1) b"
    sql = f"SELECT v.id, b.* FROM unnest($1::text[]) AS v (id) {looked_up}"
    return Statement(sql, [list(dict.fromkeys(ids)), min(ids, default=""), max(ids, default="")])


def _of(table: str, columns: Sequence[str]) -> str:
    """A job on the shelf is queued, and its table does not say so."""
    shelved = table == "jobs_shelved"
    return ", ".join("'queued'" if shelved and one == "state" else one for one in columns)
