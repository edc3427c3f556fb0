"""Finds the ids of a page of a filtered list without reading the whole table.

Every indexed filter is a *facet*: it can yield its matching ids, newest first, straight from its
index. A page walks down the rarest facet and checks the other filters on the rows found there, no
further than its query says.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from rota.core.model import JobState
from rota.store.limits import LOOKUP_COST, PROBE_IDS, SCAN_IDS_MAX
from rota.store.protocol import ExecutionQuery, JobQuery, OccurrenceQuery
from rota.store.protocols.queries import Page
from rota.store.rows import Row

PAST_ALL_IDS = "\U0010ffff"
"""Sorts after every id."""

SPILLED = "shelved"
"""What the column says of the state of a job on the shelf, which is queued."""

_HAS_LABEL = """
EXISTS (SELECT 1 FROM labels WHERE key = ? AND value = ? AND labels.job_id = jobs.id)
"""
_search_json = msgspec.json.Encoder()


class Facet(msgspec.Struct, frozen=True):
    """One indexed filter: the selects, one a value, whose ids merged are its matches."""

    select: str
    """Ends in a WHERE clause; the column it yields is `id`."""
    values: tuple[Row, ...]

    def ids(self, connection: apsw.Connection, before: str, limit: int) -> list[str]:
        """The next `limit` matches before `before`, newest first."""
        # SQLite merges the sorted halves of a UNION ALL lazily; an IN would sort all matches.
        each = f"{self.select} AND id < ?"
        sql = " UNION ALL ".join([each] * len(self.values))
        args = [argument for value in self.values for argument in (*value, before)]
        found = connection.execute(f"{sql} ORDER BY id DESC LIMIT ?", (*args, limit))
        return [row[0] for row in found]

    def rarity(self, connection: apsw.Connection) -> int:
        """How many matches there are, counted no further than PROBE_IDS."""
        each = f"SELECT count(*) FROM ({self.select} LIMIT {PROBE_IDS})"
        return sum(connection.execute(each, value).get for value in self.values)


class FacetSearch(msgspec.Struct, frozen=True):
    """A page to be found."""

    table: str
    columns: str
    facets: tuple[Facet, ...]
    where: tuple[str, ...]
    args: tuple[Any, ...]
    before: str
    limit: int
    look: int | None

    def run(self, connection: apsw.Connection) -> Page[Row]:
        """The page's rows, newest first, all as of one moment."""
        connection.execute("BEGIN")
        try:
            return self._page(connection)
        finally:
            connection.execute("COMMIT")

    def _page(self, connection: apsw.Connection) -> Page[Row]:
        facet = self._rarest(connection)
        found: Page[Row] = Page()
        before, size = self.before, self.limit
        left = None if self.look is None else self.look // LOOKUP_COST
        while True:
            ids = facet.ids(connection, before, size)
            found += self._matching(connection, ids, self.limit - len(found))
            if len(ids) < size or len(found) == self.limit:
                return found
            before, size = ids[-1], min(SCAN_IDS_MAX, 2 * size)
            if left is not None:
                left -= len(ids)
                if left <= 0:
                    found.rest = before
                    return found
                size = min(size, left)

    def _rarest(self, connection: apsw.Connection) -> Facet:
        if not self.facets:
            return Facet(f"SELECT id FROM {self.table} WHERE true", ((),))
        if len(self.facets) == 1:
            return self.facets[0]
        return min(self.facets, key=lambda facet: facet.rarity(connection))

    def _matching(self, connection: apsw.Connection, ids: list[str], limit: int) -> list[Row]:
        where = " AND ".join(("id IN (SELECT value FROM json_each(?))", *self.where))
        return connection.execute(
            f"SELECT {self.columns} FROM {self.table} WHERE {where} ORDER BY id DESC LIMIT ?",
            (_search_json.encode(ids).decode(), *self.args, limit),
        ).fetchall()


def search_jobs(query: JobQuery) -> FacetSearch:
    """Rows of id, life, spec."""
    facets = [_label_facet(label) for label in query.labels]
    where = [_HAS_LABEL] * len(query.labels)
    args: list[Any] = [part for label in query.labels for part in label]
    for column in ("name", "queue", "tenant"):
        value = getattr(query, column)
        if value is not None:
            facets.append(_column_facet("jobs", column, (value,)))
            where.append(f"{column} = ?")
            args.append(value)
    if query.states:
        states = tuple(state.value for state in query.states)
        if JobState.QUEUED in query.states:
            states = (*states, SPILLED)
        facets.append(_column_facet("jobs", "state", states))
        where.append(f"state IN ({', '.join('?' * len(states))})")
        args += states
    for clause, bound in _unindexed(query):
        where.append(clause)
        args.append(bound)
    before = PAST_ALL_IDS if query.before is None else query.before
    if query.after is not None:
        facets.append(_range_facet(query.after, before))
        where.append("id > ?")
        args.append(query.after)
    return FacetSearch(
        table="jobs",
        columns="id, life, spec",
        facets=tuple(facets),
        where=tuple(where),
        args=tuple(args),
        before=before,
        limit=query.limit,
        look=query.look,
    )


def _unindexed(query: JobQuery) -> list[tuple[str, int]]:
    """What can only be asked of a row."""
    asked = (
        ("priority = ?", query.priority),
        ("priority <> ?", query.not_priority),
        ("created_at > ?", query.created_after),
        ("created_at < ?", query.created_before),
    )
    return [(clause, bound) for clause, bound in asked if bound is not None]


def search_executions(query: ExecutionQuery) -> FacetSearch:
    """Rows of body."""
    facets, where, args = [], [], []
    for column, value in (("job_id", query.job_id), ("worker_id", query.worker_id)):
        if value is not None:
            facets.append(_column_facet("executions", column, (value,)))
            where.append(f"{column} = ?")
            args.append(str(value))
    if query.states:
        states = tuple(state.value for state in query.states)
        facets.append(_column_facet("executions", "state", states))
        where.append(f"state IN ({', '.join('?' * len(states))})")
        args += states
    before = PAST_ALL_IDS if query.before is None else query.before
    return FacetSearch(
        table="executions",
        columns="body",
        facets=tuple(facets),
        where=tuple(where),
        args=tuple(args),
        before=before,
        limit=query.limit,
        look=query.look,
    )


def search_occurrences(query: OccurrenceQuery) -> tuple[str, tuple[Any, ...]]:
    """Rows of body. A schedule's ledger is read along its primary key."""
    where, args = ["schedule_id = ?"], [query.schedule_id, *(d.value for d in query.decisions)]
    if query.decisions:
        where.append(f"decision IN ({', '.join('?' * len(query.decisions))})")
    bounds: list[Any] = []
    for clause, bound in (("nominal > ?", query.after), ("nominal < ?", query.before)):
        if bound is not None:
            where.append(clause)
            bounds.append(bound)
    sql = f"SELECT body FROM occurrences WHERE {' AND '.join(where)} ORDER BY nominal DESC LIMIT ?"
    return sql, (*args, *bounds, query.limit)


def _column_facet(table: str, column: str, values: tuple[str, ...]) -> Facet:
    index = f"{table}_by_{column}"
    distinct = dict.fromkeys(values)
    return Facet(
        f"SELECT id FROM {table} INDEXED BY {index} WHERE {column} = ?",
        tuple((value,) for value in distinct),
    )


def _range_facet(after: str, before: str) -> Facet:
    # The table is in the order of its ids: a range of them needs no index.
    return Facet("SELECT id FROM jobs WHERE id > ? AND id < ?", ((after, before),))


def _label_facet(label: tuple[str, str]) -> Facet:
    # Named `id` inside, so that the page's bound reads the same for every facet.
    labels = "(SELECT job_id AS id, key, value FROM labels)"
    return Facet(f"SELECT id FROM {labels} WHERE key = ? AND value = ?", (label,))
