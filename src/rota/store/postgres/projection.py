"""Projects a window of the journal into PostgreSQL's tables, in few wide statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import Execution, ExecutionId, JobId, Life, Spec
from rota.store import rows
from rota.store.documents import setting_rows
from rota.store.limits import FOLD_SLICE_ROWS
from rota.store.postgres.connect import Connection
from rota.store.postgres.schedules_and_events import write_events, write_schedules
from rota.store.postgres.window import Window
from rota.store.projection.known import Stored
from rota.store.projection.precedence import GiveWay, in_slices
from rota.store.projection.tail import Tail
from rota.store.protocol import Seq
from rota.store.rows import Row
from rota.store.table_changes import TableChanges, jobs_touched, spill_queue_of

_Job: TypeAlias = tuple[JobId, Spec, Life, bytes | None]
"""A job to be written, and its spec as it is stored, if it is, without its checksum."""
_JOB_COLUMNS = {"id": "text", "state": "text", "lives": "int8", "queue": "text", "tenant": "text",
                "name": "text", "priority": "int8", "created_at": "int8", "life": "bytea",
                "spec": "bytea", "finished_at": "int8"}  # fmt: skip
_SPILLED_COLUMNS = {
    **{name: _JOB_COLUMNS[name] for name in _JOB_COLUMNS if name not in ("state", "finished_at")},
    "line": "int8",
    "ordinal": "int8",
}
_LINE_COLUMNS = {"line": "int8", "count": "int8"}
_MOVE_COLUMNS = {"id": "text", "state": "text", "lives": "int8", "finished_at": "int8",
                 "life": "bytea"}  # fmt: skip
_EXECUTION_COLUMNS = {"id": "text", "job_id": "text", "worker_id": "text", "state": "text",
                      "body": "bytea"}  # fmt: skip
_LABEL_COLUMNS = {"key": "text", "value": "text", "job_id": "text"}
_EDGE_COLUMNS = {"parent": "text", "child": "text", "condition": "text"}
_KEY_COLUMNS = {"key": "text", "fingerprint": "text", "receipt": "bytea", "at": "int8"}
_SETTING_COLUMNS = {"kind": "text", "name": "text", "body": "bytea"}
_TOTAL_COLUMNS = {"queue": "text", "state": "text", "count": "int8"}

_IDS = "unnest($1::text[]) AS v (id)"
"""With a join each id is looked up in its own day's partition; with an array in all partitions."""

_CARRIED = "j.queue, j.tenant, j.name, j.priority, j.created_at"
_MOVE_WITHIN = """
UPDATE rota.{table} j SET state = v.state, lives = v.lives, finished_at = v.finished_at,
    life = v.life
FROM {moved} WHERE j.id = v.id
"""
_MOVE_ACROSS = f"""
WITH gone AS (
    DELETE FROM rota.{{table}} j USING {{moved}} WHERE j.id = v.id
    RETURNING v.id, v.state, v.lives, {_CARRIED}, v.finished_at, v.life, j.spec
)
INSERT INTO rota.{{other}} (id, state, lives, queue, tenant, name, priority, created_at,
    finished_at, life, spec) SELECT * FROM gone
"""


class ProjectionOptions(msgspec.Struct, frozen=True):
    """Options of a projection: whether COPY works, and how it gives way to the loop."""

    copies: bool
    give_way: GiveWay


class WindowResult(msgspec.Struct, frozen=True):
    """Result of a projection: what is in the tables once its transaction is committed."""

    changes: TableChanges
    whole: bool
    """Whether all of the tail was written; else only jobs that have ended, and `folded_seq`
    stayed."""
    leaves_behind: bool
    """Whether deleted jobs left logs and files."""


class WindowProjection:
    """Projection of one window into the tail and the tables, inside the caller's transaction."""

    def __init__(
        self, connection: Connection, window: Window, tail: Tail, options: ProjectionOptions
    ) -> None:
        self._connection = connection
        self._window = window
        self._tail = tail
        self._copies = options.copies
        self._give_way = options.give_way
        self._newest: Mapping[str, str | None] = {}
        self._tables: tuple[str, ...] = ()
        """Tables to look jobs up in: mostly no job is spilled, and that table is left out."""

    async def run(self, newest: Mapping[str, str | None], *, whole: bool) -> WindowResult:
        """Writes all of the tail, or what can leave it.

        `newest` is the greatest id of each table before that.
        """
        self._newest = newest
        spilled_table = ("jobs_shelved",) if await self._has_spilled() else ()
        # If jobs are spilled, most of those that are not known are.
        self._tables = (*spilled_table, "jobs_live", "jobs_done")
        tail, window = self._tail, self._window
        await self._find(tail.strangers(jobs_touched(window.records)))
        tail.take_window(window.records, window.writes, self._give_way)
        whole = whole or tail.tangled
        changes = tail.changes if whole else tail.leave()
        leaves_behind = await self._write(changes)
        if whole:
            await self._write_rare_changes(changes)
        await self._write_figures(changes, window.last_seq if whole else None)
        await self._count_spilled(changes)
        return WindowResult(changes, whole, leaves_behind)

    async def _write(self, changes: TableChanges) -> bool:
        """Writes jobs and executions; returns whether deleted ones left logs and files."""
        replaced = [job_id for job_id in changes.specs if job_id in self._tail.standings]
        await self._remove_jobs([*changes.dropped, *replaced])
        leaves_behind = await self._drop_executions(changes)
        await self._write_jobs(changes)
        await self._move_jobs(changes)
        await self._write_executions(changes.executions)
        return leaves_behind

    async def _write_rare_changes(self, changes: TableChanges) -> None:
        await self._write_others(changes)
        await write_schedules(self._connection, changes)
        await write_events(self._connection, changes.events)

    async def _has_spilled(self) -> bool:
        return bool(await self._connection.fetchval("SELECT EXISTS (SELECT FROM rota.lines)"))

    async def _find(self, job_ids: Sequence[JobId]) -> None:
        """Looks up the standings of these jobs."""
        standings, tables = self._tail.standings, self._tail.tables
        for table in self._tables:
            where = "'queued', j.lives, j.queue, j.line"
            if table != "jobs_shelved":
                where = "j.state, j.lives, j.queue, 0"
            found = await self._look_up(table, where, job_ids)
            for job_id, *standing in found:
                standings[job_id] = rows.standing(*standing)
                tables[job_id] = table
            if found:
                job_ids = [job_id for job_id in job_ids if job_id not in standings]

    async def _remove_jobs(self, job_ids: Sequence[JobId]) -> None:
        """Removes jobs with their labels and edges, which are found through the old rows.

        An index by job on both tables would cost more at every submission.
        """
        if not job_ids:
            return
        old: list[tuple[JobId, Any]] = []
        for table in self._tables:
            found = await self._connection.fetch(
                f"DELETE FROM rota.{table} WHERE id = ANY ($1) RETURNING id, spec", job_ids
            )
            whole, damaged = rows.specs(map(tuple, found))
            old += whole
            if damaged:
                await self._unlink_damaged(damaged)
        await self._delete(
            "labels", _LABEL_COLUMNS, chain.from_iterable(rows.label_rows(*job) for job in old)
        )
        await self._delete(
            "edges", _EDGE_COLUMNS, chain.from_iterable(rows.edge_rows(*job) for job in old)
        )

    async def _unlink_damaged(self, job_ids: Sequence[JobId]) -> None:
        """Removes labels and edges of damaged jobs, whose specs cannot say which they are."""
        for table, column in (("labels", "job_id"), ("edges", "child")):
            await self._connection.execute(
                f"DELETE FROM rota.{table} WHERE {column} = ANY ($1)", job_ids
            )

    async def _drop_executions(self, changes: TableChanges) -> bool:
        if not changes.dropped:
            return False
        gone = list(changes.leftovers)
        for table in ("executions_live", "executions_done"):
            found = await self._connection.fetch(
                f"DELETE FROM rota.{table} WHERE job_id = ANY ($1) OR id = ANY ($2) RETURNING id",
                list(changes.dropped),
                changes.leftovers,
            )
            gone += [row[0] for row in found]
        await self._connection.execute(
            "INSERT INTO rota.leftovers SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", gone
        )
        return bool(gone)

    async def _write_jobs(self, changes: TableChanges) -> None:
        live: list[_Job] = []
        done: list[_Job] = []
        spilled: list[Row] = []
        moved, reloaded = self._known_moves(changes)
        # Deleted and inserted: an update would write all indexes too, and look up each row by
        # itself.
        await self._delete_ids("jobs_live", [one[0] for one in moved])
        await self._delete_ids("jobs_shelved", [one[0] for one in reloaded])
        put = ((*job, None) for job in changes.specs.items())
        for job_id, spec, encoded in chain(put, moved, reloaded):
            life = changes.lives[job_id]
            if life.line and (spill_queue := spill_queue_of(life)):
                row = rows.job_row(job_id, spec, life, encoded)
                spilled.append((row[0], *row[2:], spill_queue, spec.arrival_number))
                continue
            kept = done if life.state in JOB_FINAL else live
            kept.append((job_id, spec, life, encoded))
        await self._insert("jobs_live", _JOB_COLUMNS, live, _job_row)
        await self._insert("jobs_done", _JOB_COLUMNS, done, _job_row)
        if spilled:
            await self._insert("jobs_shelved", _SPILLED_COLUMNS, spilled)
        jobs = changes.specs.items()
        labels = chain.from_iterable(rows.label_rows(*job) for job in jobs if job[1].labels)
        edges = chain.from_iterable(rows.edge_rows(*job) for job in jobs if job[1].dependencies)
        # A spec may name a label or a parent twice.
        await self._insert("labels", _LABEL_COLUMNS, list(dict.fromkeys(labels)))
        await self._insert("edges", _EDGE_COLUMNS, list(dict.fromkeys(edges)))

    def _known_moves(self, changes: TableChanges) -> tuple[list[Stored], list[Stored]]:
        """Returns the moves of known live jobs, and of known spilled ones."""
        known, looked_up = self._tail.known, self._tail.tables
        moves = [id_ for id_, _ in changes.moves if id_ not in looked_up]
        live, spilled = known.rows(moves)
        assert len(live) + len(spilled) == len(moves), "every job is known or was looked up"
        return live, spilled

    async def _move_jobs(self, changes: TableChanges) -> None:
        ways: dict[tuple[str, str], list[Row]] = {}
        tables = self._tail.tables
        for job_id, life in changes.moves if tables else ():
            if job_id not in tables:
                continue
            options = (tables[job_id], "jobs_done" if life.state in JOB_FINAL else "jobs_live")
            ways.setdefault(options, []).append(_move_row(job_id, life))
        for (table, other), moved in ways.items():
            statement = _MOVE_WITHIN if table == other else _MOVE_ACROSS
            sql = statement.format(table=table, other=other, moved=_unnest(_MOVE_COLUMNS))
            await self._connection.execute(sql, *_columns(moved, _MOVE_COLUMNS))

    async def _write_executions(self, executions: Mapping[ExecutionId, Execution]) -> None:
        ids = list(executions)
        in_live = await self._ids_in("executions_live", ids)
        in_done = await self._ids_in("executions_done", [x for x in ids if x not in in_live])
        fresh: tuple[list[Execution], list[Execution]] = ([], [])
        changed: list[Row] = []
        leaving: list[ExecutionId] = []
        for execution_id, execution in executions.items():
            final = execution.state in EXECUTION_FINAL
            if execution_id in in_live and not final:
                changed.append(rows.execution_row(execution))
                continue
            fresh[final].append(execution)
            if execution_id in in_live:
                leaving.append(execution_id)
        await self._delete_ids("executions_live", leaving)
        await self._delete_ids("executions_done", list(in_done))
        await self._update_executions(changed)
        row_of = rows.execution_row
        await self._insert("executions_live", _EXECUTION_COLUMNS, fresh[False], row_of)
        await self._insert("executions_done", _EXECUTION_COLUMNS, fresh[True], row_of)

    async def _update_executions(self, changed: Sequence[Row]) -> None:
        if changed:
            await self._connection.execute(
                "UPDATE rota.executions_live x SET job_id = v.job_id, worker_id = v.worker_id,"
                f" state = v.state, body = v.body FROM {_unnest(_EXECUTION_COLUMNS)}"
                " WHERE x.id = v.id",
                *_columns(changed, _EXECUTION_COLUMNS),
            )

    async def _write_others(self, changes: TableChanges) -> None:
        for table, key, bodies in (
            ("workers", "id", [rows.worker_row(x) for x in changes.workers.values() if x]),
            ("queues", "name", [rows.queue_row(x) for x in changes.queues.values()]),
        ):
            if bodies:
                await self._connection.execute(
                    f"INSERT INTO rota.{table} SELECT * FROM unnest($1::text[], $2::bytea[])"
                    f" ON CONFLICT ({key}) DO UPDATE SET body = excluded.body",
                    *_columns(bodies, (key, "body")),
                )
        settings = setting_rows(changes)
        if settings:
            await self._connection.execute(
                f"INSERT INTO rota.settings SELECT v.* FROM {_unnest(_SETTING_COLUMNS)}"
                " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
                *_columns(settings, _SETTING_COLUMNS),
            )
        forgotten = [worker_id for worker_id, worker in changes.workers.items() if worker is None]
        await self._delete_ids("workers", forgotten)
        if changes.keys:
            await self._connection.execute(
                "DELETE FROM rota.keys WHERE key = ANY ($1)", list(changes.keys)
            )
            keys = [rows.key_row(record) for record in changes.keys.values()]
            await self._insert("keys", _KEY_COLUMNS, keys)

    async def _write_figures(self, changes: TableChanges, passed: Seq | None) -> None:
        ended = [(*what, count) for what, count in changes.finished.items() if count]
        if ended:
            await self._connection.execute(
                f"INSERT INTO rota.totals AS t SELECT v.* FROM {_unnest(_TOTAL_COLUMNS)}"
                " ON CONFLICT (queue, state) DO UPDATE SET count = t.count + excluded.count",
                *_columns(ended, _TOTAL_COLUMNS),
            )
        await self._connection.execute(
            "UPDATE rota.meta SET folded_seq = coalesce($1, folded_seq),"
            " order_next = greatest(order_next, $2), submitted = submitted + $3",
            passed,
            changes.next_arrival_number,
            changes.submitted,
        )

    async def _count_spilled(self, changes: TableChanges) -> None:
        counts = [(spill_queue, step) for spill_queue, step in changes.spill_counts.items() if step]
        if counts:
            await self._connection.execute(
                f"INSERT INTO rota.lines AS l SELECT v.* FROM {_unnest(_LINE_COLUMNS)}"
                " ON CONFLICT (line) DO UPDATE SET count = l.count + excluded.count",
                *_columns(counts, _LINE_COLUMNS),
            )
            await self._connection.execute(
                "DELETE FROM rota.lines WHERE line = ANY ($1) AND count = 0",
                [spill_queue for spill_queue, _ in counts],
            )

    async def _ids_in(self, table: str, ids: Sequence[str]) -> dict[str, None]:
        return dict.fromkeys(row[0] for row in await self._look_up(table, "0", ids))

    async def _look_up(self, table: str, what: str, ids: Sequence[str]) -> Sequence[Any]:
        """Returns id and `what` of those that are there. Ids mostly rise: new ones are not looked
        up."""
        newest = self._newest[table]
        known = [] if newest is None else [one for one in ids if one <= newest]
        if not known:
            return []
        return await self._connection.fetch(
            f"SELECT id, {what} FROM {_IDS} JOIN rota.{table} j USING (id)", known
        )

    async def _delete_ids(self, table: str, ids: Sequence[str]) -> None:
        if ids:
            await self._connection.execute(f"DELETE FROM rota.{table} WHERE id = ANY ($1)", ids)

    async def _delete(self, table: str, columns: Mapping[str, str], gone: Iterable[Row]) -> None:
        pending = list(gone)
        if pending:
            same = " AND ".join(f"t.{name} = v.{name}" for name in columns)
            await self._connection.execute(
                f"DELETE FROM rota.{table} t USING {_unnest(columns)} WHERE {same}",
                *_columns(pending, columns),
            )

    async def _insert(
        self,
        table: str,
        columns: Mapping[str, str],
        fresh: Sequence[Any],
        row_of: Callable[[Any], Row] = tuple,
    ) -> None:
        """Inserts rows; each is encoded just before it is sent, while the database works."""
        if not fresh:
            return
        pieces = in_slices([fresh], FOLD_SLICE_ROWS, self._give_way)
        made = chain.from_iterable(map(row_of, piece) for piece in pieces)
        if self._copies:
            await self._connection.copy_records_to_table(
                table, schema_name="rota", columns=list(columns), records=made
            )
        else:
            await self._connection.execute(
                f"INSERT INTO rota.{table} ({', '.join(columns)})"
                f" SELECT v.* FROM {_unnest(columns)}",
                *_columns(list(made), columns),
            )


def _job_row(job: _Job) -> Row:
    return (*rows.job_row(*job), job[2].finished_at)


def _move_row(job_id: JobId, life: Life) -> Row:
    row = rows.move_row(job_id, life)
    return (*row[:3], life.finished_at, row[3])


def _unnest(columns: Mapping[str, str]) -> str:
    """Returns SQL for all rows as one relation `v`, with one parameter per column."""
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), 1))
    return f"unnest({arrays}) AS v ({', '.join(columns)})"


def _columns(pending: Sequence[Row], columns: Iterable[str]) -> list[list[Any]]:
    return [[row[number] for row in pending] for number, _ in enumerate(columns)]
