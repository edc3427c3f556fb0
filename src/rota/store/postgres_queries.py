"""The statements that find a page of a filtered list without reading the whole table.

Live and finished work are in two tables, and queued jobs on the shelf in a third; a state tells
which of them to ask. Every indexed filter has an index that ends in the id and holds what else is
asked, so each branch reads the ids of the newest matches straight from one of them. Bodies are
fetched for the ids of the page alone.

Finished work is in partitions, one a day: a statement is about a span of ids, so that the database
plans and opens a few of them and not a month's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import msgspec

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import ExecutionState, Instant, JobState
from rota.store.postgres_partitions import DAY_MS
from rota.store.protocol import ExecutionQuery, JobQuery

ID_SLACK_MS = 60_000
"""How far the time in an id may be from when its job was created; others have an index of their own
(`jobs_done_astray`)."""
_SPAN_DAYS_MAX = 1_000
"""Older than that, all that is left is looked at together."""
_ASTRAY = "j.id NOT BETWEEN rota.id_at(j.created_at - 60000) AND rota.id_at(j.created_at + 60001)"
"""As the indexes have it, which the planner would not know otherwise."""
_TABLES = ("jobs_live", "jobs_done", "jobs_shelved")
_BETWEEN = "AND id BETWEEN $2 AND $3"
"""Says nothing new, but lets the database leave out the other days before it plans."""
_OTHER_LABEL = "o.key = {} AND o.value = {} AND o.job_id"
_ANY_JOB = JobQuery(limit=0)

Branch: TypeAlias = tuple[str, tuple[str, ...]]
"""(table, states); (): all there are in it."""


class Statement(msgspec.Struct):
    """SQL with its arguments."""

    sql: str
    args: list[Any]


class Span(msgspec.Struct, frozen=True):
    """Ids from `low` on, and before `high`; None: without a bound."""

    low: str | None = None
    high: str | None = None


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

    def add_span(self, column: str, span: Span) -> None:
        """Only ids of the span."""
        if span.low is not None:
            self.add(f"{column} >= {{}}", span.low)
        if span.high is not None:
            self.add(f"{column} < {{}}", span.high)


def id_at(at: Instant) -> str:
    """Where the ids of a millisecond begin, as rota.id_at has it."""
    digits = f"{max(0, at):012x}"
    return f"{digits[:8]}-{digits[8:]}"


def job_span(query: JobQuery, *, astray: bool) -> Span:
    """Where all matches are; with `astray`, but for those whose ids tell another time."""
    low, high = query.after, query.before
    if astray and query.created_after is not None:
        low = max(low or "", id_at(query.created_after - ID_SLACK_MS))
    if astray and query.created_before is not None:
        bound = id_at(query.created_before + ID_SLACK_MS + 1)
        high = bound if high is None else min(high, bound)
    return Span(low, high)


def spans(whole: Span, now: Instant) -> Iterator[Span]:
    """The whole in ever longer pieces, newest first: a day or two, then twice as much each time."""
    newest = now // DAY_MS
    if whole.high is not None:
        newest = min(newest, _day_in(whole.high, newest))
    high, days = whole.high, 1
    for back in count():
        low = id_at((newest - days) * DAY_MS)
        if whole.low is not None and low <= whole.low:
            yield Span(whole.low, high)
            return
        if days > _SPAN_DAYS_MAX or newest <= days:
            yield Span(None, high)
            return
        yield Span(low, high)
        high, days = low, days + (2 << back)


def _day_in(job_id: str, otherwise: int) -> int:
    try:
        return int(job_id[:8] + job_id[9:13], 16) // DAY_MS
    except ValueError:
        return otherwise


def live_jobs(query: JobQuery, whole: Span, limit: int, *, shelves: bool) -> Statement | None:
    """Ids of matches that are not finished, newest first; None: nobody asked for such."""
    return _job_ids(query, _live(query, shelves=shelves), whole, limit)


def done_jobs(query: JobQuery, span: Span, limit: int) -> Statement | None:
    """The same of finished ones within a span."""
    return _job_ids(query, _done(query), span, limit)


def labelled_jobs(query: JobQuery, span: Span, limit: int, *, shelves: bool) -> Statement | None:
    """The same of all within a span, for labels are of live and of finished jobs alike."""
    if msgspec.structs.replace(query, labels=(), limit=0, before=None, after=None) == _ANY_JOB:
        return _labels_alone(query, span, limit)
    return _job_ids(query, [*_live(query, shelves=shelves), *_done(query)], span, limit)


def _labels_alone(query: JobQuery, span: Span, limit: int) -> Statement:
    """A label goes with its job: where nothing else is asked, no job need be looked at."""
    wanted = _Filter()
    for number, (key, value) in enumerate(query.labels):
        clause = "l.key = {} AND l.value = {}"
        if number:
            clause = f"EXISTS (SELECT FROM rota.labels o WHERE {_OTHER_LABEL} = l.job_id)"
        wanted.add(clause, key, value)
    wanted.add_span("l.job_id", span)
    where = " AND ".join(wanted.clauses)
    sql = f"SELECT l.job_id AS id FROM rota.labels l WHERE {where} ORDER BY 1 DESC LIMIT {limit:d}"
    return Statement(sql, wanted.args)


def _live(query: JobQuery, *, shelves: bool) -> list[Branch]:
    branches = _branches(("jobs_live",), query.states, JobState, JOB_FINAL)
    if shelves and (not query.states or JobState.QUEUED in query.states):
        branches.append(("jobs_shelved", ()))
    return branches


def _done(query: JobQuery) -> list[Branch]:
    return _branches(("", "jobs_done"), query.states, JobState, JOB_FINAL)


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


def astray_jobs(query: JobQuery, limit: int) -> Statement | None:
    """Ids of matches whose ids tell another time."""
    branches = [*_live(query, shelves=True), *_done(query)]
    return _job_ids(query, branches, Span(query.after, query.before), limit, astray=True)


def job_bodies(job_ids: Sequence[str], columns: Sequence[str], *, shelves: bool) -> Statement:
    """Rows of id and `columns`. Each id looks into its own day's partition only."""
    each = " UNION ALL ".join(
        f"SELECT {_of(table, columns)} FROM rota.{table} WHERE id = v.id {_BETWEEN}"
        for table in (_TABLES if shelves else _TABLES[:2])
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


def live_executions(query: ExecutionQuery, limit: int) -> Statement | None:
    """Ids of matches that are not finished, newest first; None: nobody asked for such."""
    branches = _branches(("executions_live",), query.states, ExecutionState, EXECUTION_FINAL)
    return _execution_ids(query, branches, Span(None, query.before), limit)


def done_executions(query: ExecutionQuery, span: Span, limit: int) -> Statement | None:
    """The same of finished ones within a span."""
    branches = _branches(("", "executions_done"), query.states, ExecutionState, EXECUTION_FINAL)
    return _execution_ids(query, branches, span, limit)


def _of(table: str, columns: Sequence[str]) -> str:
    """A job on the shelf is queued, and its table does not say so."""
    shelved = table == "jobs_shelved"
    return ", ".join("'queued'" if shelved and one == "state" else one for one in columns)


def _job_ids(
    query: JobQuery,
    branches: Sequence[Branch],
    span: Span,
    limit: int,
    *,
    astray: bool = False,
) -> Statement | None:
    wanted = _job_filter(query)
    source, by = "rota.{table} j", "j.id"
    if query.labels:
        # Labels are sorted by job too: the page walks down those who have the first one.
        source, by = "rota.labels l JOIN rota.{table} j ON j.id = l.job_id", "l.job_id"
        wanted.add_span("l.job_id", span)
    wanted.add_span("j.id", span)
    if astray:
        wanted.add(_ASTRAY)
    return _ids(source, by, _split(branches), wanted, limit)


def _job_filter(query: JobQuery) -> _Filter:
    wanted = _Filter()
    for number, (key, value) in enumerate(query.labels):
        if number == 0:
            wanted.add("l.key = {} AND l.value = {}", key, value)
        else:
            clause = f"EXISTS (SELECT FROM rota.labels o WHERE {_OTHER_LABEL} = j.id)"
            wanted.add(clause, key, value)
    for column in ("name", "queue", "tenant"):
        value = getattr(query, column)
        if value is not None:
            wanted.add(f"j.{column} = {{}}", value)
    if query.priority is not None:
        # Written out, as the states are: an index has all but the usual one.
        wanted.add(f"j.priority = {query.priority:d}")
    if query.not_priority is not None:
        wanted.add(f"j.priority <> {query.not_priority:d}")
    if query.created_after is not None:
        wanted.add("j.created_at > {}", query.created_after)
    if query.created_before is not None:
        wanted.add("j.created_at < {}", query.created_before)
    return wanted


def _execution_ids(
    query: ExecutionQuery, branches: Sequence[Branch], span: Span, limit: int
) -> Statement | None:
    wanted = _Filter()
    for column, value in (("job_id", query.job_id), ("worker_id", query.worker_id)):
        if value is not None:
            wanted.add(f"j.{column} = {{}}", value)
    wanted.add_span("j.id", span)
    return _ids("rota.{table} j", "j.id", _split(branches), wanted, limit)


def _branches(
    tables: Sequence[str],
    states: Sequence[JobState | ExecutionState],
    kinds: type[JobState] | type[ExecutionState],
    final: Any,
) -> list[Branch]:
    """(table, states) for the last of the tables: the live or the finished ones; (): all."""
    is_final = len(tables) > 1
    own = [kind for kind in kinds if (kind in final) is is_final]
    asked = [state for state in dict.fromkeys(states) if state in own]
    if not states or len(asked) == len(own):
        return [(tables[-1], ())]
    return [(tables[-1], tuple(state.value for state in asked))] if asked else []


def _split(branches: Sequence[Branch]) -> Iterator[tuple[str, str | None]]:
    """One branch a state, so that each is sorted; an IN would have to sort its matches."""
    for table, states in branches:
        for state in states or (None,):
            yield table, state


def _ids(
    source: str,
    by: str,
    branches: Iterator[tuple[str, str | None]],
    wanted: _Filter,
    limit: int,
) -> Statement | None:
    selects = []
    for table, state in branches:
        # The states are ours, and written out so that the planner can use the partial indexes.
        own = [] if state is None else [f"j.state = '{state}'"]
        where = " AND ".join([*wanted.clauses, *own]) or "true"
        select = f"SELECT {by} AS id FROM {source.format(table=table)} WHERE {where}"
        selects.append(f"({select} ORDER BY {by} DESC LIMIT {limit:d})")
    if not selects:
        return None
    if len(selects) == 1:
        return Statement(selects[0][1:-1], wanted.args)
    sql = f"SELECT id FROM ({' UNION ALL '.join(selects)}) p ORDER BY id DESC LIMIT {limit:d}"
    return Statement(sql, wanted.args)
