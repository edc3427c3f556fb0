"""The statements that find a page of a filtered list without reading the whole table.

Live and finished work are in two tables, and queued jobs on the shelf in a third; a state tells
which of them to ask. Every indexed filter
has an index that ends in the id, so each branch reads the newest matches straight from one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import ExecutionState, JobState
from rota.store.protocol import ExecutionQuery, JobQuery


class Statement(msgspec.Struct):
    """SQL with its arguments."""

    sql: str
    args: list[Any]


class _Filter:
    """Clauses and arguments, collected."""

    def __init__(self) -> None:
        self.clauses: list[str] = []
        self.args: list[Any] = []

    def add(self, clause: str, *values: Any) -> None:
        """`{}` in the clause stand for the values."""
        places = []
        for value in values:
            self.args.append(value)
            places.append(f"${len(self.args)}")
        self.clauses.append(clause.format(*places))


def job_page(query: JobQuery, *, shelves: bool = True) -> Statement:
    """Rows of id, life, spec, newest first."""
    wanted = _Filter()
    source = "rota.{table} j"
    for number, (key, value) in enumerate(query.labels):
        if number == 0:
            # Labels are sorted by job too: the page walks down those who have the first one.
            source = "rota.labels l JOIN rota.{table} j ON j.id = l.job_id"
            wanted.add("l.key = {} AND l.value = {}", key, value)
        else:
            wanted.add(
                "EXISTS (SELECT FROM rota.labels o"
                " WHERE o.key = {} AND o.value = {} AND o.job_id = j.id)",
                key,
                value,
            )
    for column in ("name", "queue", "tenant", "priority"):
        value = getattr(query, column)
        if value is not None:
            wanted.add(f"j.{column} = {{}}", value)
    if query.created_after is not None:
        wanted.add("j.created_at > {}", query.created_after)
    if query.created_before is not None:
        wanted.add("j.created_at < {}", query.created_before)
    by = "l.job_id" if query.labels else "j.id"
    if query.before is not None:
        wanted.add(f"{by} < {{}}", query.before)
    if query.after is not None:
        wanted.add(f"{by} > {{}}", query.after)
    tables = ("jobs_live", "jobs_done")
    branches = _branches(tables, query.states, JobState, JOB_FINAL)
    if shelves and (not query.states or JobState.QUEUED in query.states):
        branches.append(("jobs_shelved", None))
    return _page(f"j.id, j.life, j.spec FROM {source}", by, branches, wanted, query.limit)


def execution_page(query: ExecutionQuery) -> Statement:
    """Rows of id, body, newest first."""
    wanted = _Filter()
    for column, value in (("job_id", query.job_id), ("worker_id", query.worker_id)):
        if value is not None:
            wanted.add(f"j.{column} = {{}}", value)
    if query.before is not None:
        wanted.add("j.id < {}", query.before)
    tables = ("executions_live", "executions_done")
    branches = _branches(tables, query.states, ExecutionState, EXECUTION_FINAL)
    return _page("j.id, j.body FROM rota.{table} j", "j.id", branches, wanted, query.limit)


def _branches(
    tables: tuple[str, str],
    states: Sequence[JobState | ExecutionState],
    kinds: type[JobState] | type[ExecutionState],
    final: Any,
) -> list[tuple[str, str | None]]:
    """(table, state): one a state, so that each is sorted; an IN would have to sort its matches."""
    if not states or len(dict.fromkeys(states)) == len(kinds):
        return [(table, None) for table in tables]
    return [(tables[state in final], state.value) for state in dict.fromkeys(states)]


def _page(
    source: str,
    by: str,
    branches: Sequence[tuple[str, str | None]],
    wanted: _Filter,
    limit: int,
) -> Statement:
    selects = []
    for table, state in branches:
        # The states are ours, and written out so that the planner can use the partial indexes.
        own = [] if state is None else [f"j.state = '{state}'"]
        where = " AND ".join([*wanted.clauses, *own]) or "true"
        select = f"SELECT {source.format(table=table)} WHERE {where}"
        selects.append(f"({select} ORDER BY {by} DESC LIMIT {limit:d})")
    sql = f"SELECT * FROM ({' UNION ALL '.join(selects)}) p ORDER BY id DESC LIMIT {limit:d}"
    return Statement(sql, wanted.args)
