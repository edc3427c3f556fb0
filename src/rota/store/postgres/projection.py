"""Projects a window of the journal into PostgreSQL's tables, in few wide statements.

A transaction projects some shards up to one record: it locks their rows, looks up what is stored of
the jobs, and writes what the window came to together with the new positions. Shards that another
process is projecting are left alone; so two never write the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import asyncpg

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import Execution, ExecutionId, JobId, Life, Spec
from rota.core.outcome import AnyWrite
from rota.store import rows
from rota.store.documents import setting_rows
from rota.store.postgres.connect import Connection
from rota.store.postgres.plan_cache import BY_KEY, PLANNED, PlanCache
from rota.store.postgres.schedules_and_events import write_events, write_schedules
from rota.store.projection.quarantine import Quarantine, QuarantinedWrite, set_aside
from rota.store.projection.shards import Window, jobs_looked_up
from rota.store.protocol import Head, Seq
from rota.store.rows import Row
from rota.store.table_changes import JobStanding, TableChanges, project, spill_queue_of

SHARDS = 4
"""Fixed in the schema: a cell's servers must agree."""

_Job: TypeAlias = tuple[JobId, Spec, Life]
_JOB_COLUMNS = {"id": "text", "state": "text", "lives": "int8", "queue": "text", "tenant": "text",
                "name": "text", "priority": "int8", "created_at": "int8", "life": "bytea",
                "spec": "bytea", "finished_at": "int8"}  # fmt: skip
_SPILLED_COLUMNS = {
    **{name: _JOB_COLUMNS[name] for name in _JOB_COLUMNS if name not in ("state", "finished_at")},
    "line": "int8",
    "ordinal": "int8",
}
_LINE_COLUMNS = {"shard": "int2", "line": "int8", "count": "int8"}
_EXECUTION_COLUMNS = {"id": "text", "job_id": "text", "worker_id": "text", "state": "text",
                      "body": "bytea"}  # fmt: skip
_LABEL_COLUMNS = {"key": "text", "value": "text", "job_id": "text"}
_EDGE_COLUMNS = {"parent": "text", "child": "text", "condition": "text"}
_KEY_COLUMNS = {"key": "text", "fingerprint": "text", "receipt": "bytea", "at": "int8"}
_SETTING_COLUMNS = {"kind": "text", "name": "text", "body": "bytea"}
_TOTAL_COLUMNS = {"shard": "int2", "queue": "text", "state": "text", "count": "int8"}
_QUARANTINED_COLUMNS = {"job_id": "text", "seq": "int8", "index": "int8", "body": "bytea"}

_IDS = "unnest($1::text[]) AS v (id)"
"""With a join each id is looked up in its own day's partition; with an array in all partitions."""

_CARRIED = "j.tenant, j.name, j.priority, j.created_at, j.spec"
"""Columns of a job that never change while its spec does not."""
_TAKE_OUT = f"""
DELETE FROM rota.{{table}} j WHERE id = ANY ($1)
RETURNING j.id, {{state}}, j.lives, j.queue, {{line}}, {_CARRIED}
"""
_LOCK_SHARDS = """
SELECT shard, folded_seq, folded_hash FROM rota.projection_shards WHERE shard = ANY ($1::int2[])
ORDER BY shard FOR UPDATE NOWAIT
"""
_STILL = """
SELECT ARRAY(SELECT job_id FROM rota.quarantine ORDER BY 1),
    (SELECT hash FROM rota.journal WHERE seq = $1)
"""
"""What must be as it was when the window was read: a failover may have lost its records."""
_LOOKED_UP = ("jobs_live", "jobs_done", "executions_live", "executions_done", "jobs_shelved")
_NEWEST = "SELECT " + ", ".join(f"(SELECT max(id) FROM rota.{table})" for table in _LOOKED_UP)


class WindowProjection:
    """Projection of one window into the tables, inside the caller's transaction."""

    def __init__(
        self, connection: Connection, window: Window, quarantine: Quarantine, *, copies: bool
    ) -> None:
        self._connection = connection
        self._window = window
        self._quarantine = quarantine
        self._copies = copies
        self._newest: Mapping[str, str | None] = {}
        self._tables: tuple[str, ...] = ()
        """Tables to look jobs up in: mostly no job is spilled, and that table is left out."""
        self._stored: dict[JobId, Row] = {}
        """The columns that never change, of jobs that were taken out of the tables."""
        self._standings: dict[JobId, JobStanding] = {}

    async def run(self, plans: PlanCache) -> bool | None:
        """Writes the window; returns whether deleted jobs left logs and files.

        None: another process projects these shards, or has projected them.
        """
        window = self._window
        if not await self.lock():
            return None
        await self.begin(plans)
        due = window.due()
        await self._write_aside(set_aside(window.records, due, self._quarantine))
        leaves_behind = await self.project(due)
        await self._pass()
        return leaves_behind

    async def lock(self) -> bool:
        """Locks the shards; False: another process has them, or has moved them."""
        window = self._window
        try:
            found = await self._connection.fetch(_LOCK_SHARDS, list(window.positions))
        except asyncpg.LockNotAvailableError:
            return False
        there = {row[0]: Head(Seq(row[1]), row[2]) for row in found}
        if there != window.positions:
            return False
        aside, last = await self._connection.fetchrow(_STILL, window.end.seq) or ((), None)
        return last == window.end.hash and aside == sorted(self._quarantine)

    async def begin(self, plans: PlanCache) -> None:
        """Sets the planner for this transaction, and reads up to where ids must be looked up."""
        await plans.age(self._connection, self._window.size)
        await self._connection.execute(PLANNED)
        newest = await self._connection.fetchrow(_NEWEST)
        assert newest is not None, "a SELECT without FROM has one row"
        self._newest = dict(zip(_LOOKED_UP, newest, strict=True))
        await self._connection.execute(BY_KEY)

    async def project(self, due: Sequence[Sequence[AnyWrite]]) -> bool:
        """Writes what these writes come to; returns whether deleted jobs left logs and files."""
        spilled_table = ("jobs_shelved",) if self._newest["jobs_shelved"] is not None else ()
        # If jobs are spilled, most of those that move are.
        self._tables = (*spilled_table, "jobs_live", "jobs_done")
        await self._take_out(jobs_looked_up(due))
        changes = project(due, self._standings)
        leaves_behind = await self._write(changes)
        await self._write_others(changes)
        await write_schedules(self._connection, changes)
        await write_events(self._connection, changes.events)
        await self._write_sums(changes)
        return leaves_behind

    async def _write(self, changes: TableChanges) -> bool:
        """Writes jobs and executions; returns whether deleted ones left logs and files."""
        replaced = [job_id for job_id in changes.specs if job_id in self._standings]
        await self._unlink([*changes.dropped, *replaced])
        leaves_behind = await self._drop_executions(changes)
        await self._write_jobs(changes)
        await self._move_jobs(changes)
        await self._write_executions(changes.executions)
        return leaves_behind

    async def _take_out(self, job_ids: Sequence[JobId]) -> None:
        """Takes these jobs out of the tables and learns their standings.

        Each of them is written back by the window, changed, or is dropped.
        """
        for table in self._tables:
            if table == "jobs_done":
                columns = f"j.state, j.lives, j.queue, 0, {_CARRIED}"
                found = await self._look_up(table, columns, job_ids)
                await self._delete_ids(table, [row[0] for row in found])
            else:
                found = await self._delete_live(table, job_ids)
            for job_id, state, lives, queue, line, *carried in found:
                self._standings[job_id] = rows.standing(state, lives, queue, line)
                self._stored[job_id] = (queue, *carried)
            if found:
                job_ids = [job_id for job_id in job_ids if job_id not in self._standings]

    async def _delete_live(self, table: str, job_ids: Sequence[JobId]) -> Sequence[Any]:
        """Deletes those that are there and returns their rows: cheaper than a look and a delete."""
        newest = self._newest[table]
        known = [] if newest is None else [one for one in job_ids if one <= newest]
        if not known:
            return []
        is_spilled = table == "jobs_shelved"
        state, line = ("'queued'", "j.line") if is_spilled else ("j.state", "0")
        return await self._connection.fetch(
            _TAKE_OUT.format(table=table, state=state, line=line), known
        )

    async def _unlink(self, job_ids: Iterable[JobId]) -> None:
        """Removes labels and edges, which are found through the old specs.

        An index by job on both tables would cost more at every submission.
        """
        old = [(job_id, self._stored[job_id][-1]) for job_id in job_ids if job_id in self._stored]
        if not old:
            return
        whole, damaged = rows.specs(old)
        if damaged:
            await self._unlink_damaged(damaged)
        await self._delete(
            "labels", _LABEL_COLUMNS, chain.from_iterable(rows.label_rows(*job) for job in whole)
        )
        await self._delete(
            "edges", _EDGE_COLUMNS, chain.from_iterable(rows.edge_rows(*job) for job in whole)
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
        for job_id, spec in changes.specs.items():
            life = changes.lives[job_id]
            if spill_queue := spill_queue_of(life):
                row = rows.job_row(job_id, spec, life)
                spilled.append((row[0], *row[2:], spill_queue, spec.arrival_number))
                continue
            (done if life.state in JOB_FINAL else live).append((job_id, spec, life))
        await self._insert("jobs_live", _JOB_COLUMNS, live, _job_row)
        await self._insert("jobs_done", _JOB_COLUMNS, done, _job_row)
        await self._insert("jobs_shelved", _SPILLED_COLUMNS, spilled)
        jobs = changes.specs.items()
        labels = chain.from_iterable(rows.label_rows(*job) for job in jobs if job[1].labels)
        edges = chain.from_iterable(rows.edge_rows(*job) for job in jobs if job[1].dependencies)
        # A spec may name a label or a parent twice.
        await self._insert("labels", _LABEL_COLUMNS, list(dict.fromkeys(labels)))
        await self._insert("edges", _EDGE_COLUMNS, list(dict.fromkeys(edges)))

    async def _move_jobs(self, changes: TableChanges) -> None:
        fresh: dict[str, list[Row]] = {}
        for job_id, life in changes.moves:
            _, state, lives, encoded = rows.move_row(job_id, life)
            *carried, spec = self._stored[job_id]
            row = (job_id, state, lives, *carried, encoded, spec, life.finished_at)
            fresh.setdefault(_table_of(life), []).append(row)
        # Copied in after they were taken out: an update would write all indexes too, row by row.
        for table, each in fresh.items():
            await self._insert(table, _JOB_COLUMNS, each)

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

    async def _write_sums(self, changes: TableChanges) -> None:
        """Adds to the sums that several shards share: each adds to its own row."""
        shard = min(self._window.positions)
        ended = [(shard, *what, count) for what, count in changes.finished.items() if count]
        await self._add("totals", "(shard, queue, state)", _TOTAL_COLUMNS, ended)
        spilled = [(shard, *step) for step in changes.spill_counts.items() if step[1]]
        await self._add("lines", "(shard, line)", _LINE_COLUMNS, spilled)
        if spilled:
            await self._connection.execute(
                "DELETE FROM rota.lines WHERE shard = $1 AND line = ANY ($2) AND count = 0",
                shard,
                [one[1] for one in spilled],
            )
        if changes.submitted or changes.next_arrival_number:
            await self._connection.execute(
                "UPDATE rota.projection_shards SET order_next = greatest(order_next, $2),"
                " submitted = submitted + $3 WHERE shard = $1",
                shard,
                changes.next_arrival_number,
                changes.submitted,
            )

    async def _add(
        self, table: str, key: str, columns: Mapping[str, str], added: Sequence[Row]
    ) -> None:
        if added:
            await self._connection.execute(
                f"INSERT INTO rota.{table} AS t SELECT v.* FROM {_unnest(columns)}"
                f" ON CONFLICT {key} DO UPDATE SET count = t.count + excluded.count",
                *_columns(added, columns),
            )

    async def _write_aside(self, aside: Sequence[QuarantinedWrite]) -> None:
        if aside:
            await self._insert(
                "quarantined_writes",
                _QUARANTINED_COLUMNS,
                [(one.job_id, one.seq, one.index, one.body) for one in aside],
            )

    async def _pass(self) -> None:
        end = self._window.end
        await self._connection.execute(
            "UPDATE rota.projection_shards SET folded_seq = $2, folded_hash = $3"
            " WHERE shard = ANY ($1::int2[])",
            list(self._window.positions),
            end.seq,
            end.hash,
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
        made = map(row_of, fresh)
        if self._copies:
            await self._connection.copy_records_to_table(
                table, schema_name="rota", columns=list(columns), records=made
            )
        else:
            names = ", ".join(f'"{name}"' for name in columns)
            await self._connection.execute(
                f"INSERT INTO rota.{table} ({names}) SELECT v.* FROM {_unnest(columns)}",
                *_columns(list(made), columns),
            )


def _table_of(life: Life) -> str:
    return "jobs_done" if life.state in JOB_FINAL else "jobs_live"


def _job_row(job: _Job) -> Row:
    return (*rows.job_row(*job), job[2].finished_at)


def _unnest(columns: Mapping[str, str]) -> str:
    """Returns SQL for all rows as one relation `v`, with one parameter per column."""
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), 1))
    names = ", ".join(f'"{name}"' for name in columns)
    return f"unnest({arrays}) AS v ({names})"


def _columns(pending: Sequence[Row], columns: Iterable[str]) -> list[list[Any]]:
    return [[row[number] for row in pending] for number, _ in enumerate(columns)]
