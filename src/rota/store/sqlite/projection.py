"""Projects a window of the journal into SQLite's tables, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import apsw
import msgspec

from rota.core.model import Instant, JobId, Life, Spec
from rota.core.outcome import AnyWrite
from rota.store import rows
from rota.store.documents import setting_rows
from rota.store.journal import ChainReader
from rota.store.limits import (
    JOURNAL_AGE_MS,
    KEY_AGE_MS,
    OCCURRENCE_AGE_MS,
    PROJECTION_WINDOW_WRITES,
    PRUNE_MIN,
    PRUNE_PER_RECORD,
    StoreLimits,
)
from rota.store.projection.quarantine import Quarantine, set_aside
from rota.store.projection.shards import Window, jobs_looked_up
from rota.store.protocol import Head, JournalRecord, Seq
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch, run_in_bulk
from rota.store.sqlite.events import prune_events, write_events
from rota.store.sqlite.query_store import SPILLED
from rota.store.table_changes import JobStandings, TableChanges, project, spill_queue_of

_json = msgspec.json.Encoder()


def read_window(connection: apsw.Connection, after: Head) -> list[JournalRecord]:
    """Reads the next window after `after`; a record is never split."""
    chain_reader, writes, records = ChainReader(after), 0, list[JournalRecord]()
    found = connection.execute(
        "SELECT seq, epoch, at, hash, body FROM journal WHERE seq > ? ORDER BY seq", (after.seq,)
    )
    for row in found:
        records.append(chain_reader.read(*row))
        writes += len(records[-1].writes)
        if writes >= PROJECTION_WINDOW_WRITES:
            found.close()
            break
    return records


def read_positions(connection: apsw.Connection) -> dict[int, Head]:
    """Returns how far each shard of the projection is."""
    found = fetch(
        connection, "SELECT shard, folded_seq, folded_hash FROM projection_shards ORDER BY shard"
    )
    return {row[0]: Head(Seq(row[1]), row[2]) for row in found}


def project_window(
    connection: apsw.Connection, window: Window, quarantine: Quarantine, limits: StoreLimits
) -> bool:
    """Projects a window in one transaction; returns whether deleted jobs left logs and files."""
    # If a power cut undoes this, `folded_seq` goes back with it and the journal is projected again:
    # no need to wait for the disk. Whatever must be durable sets the pragma itself, so that a
    # projection that fails cannot leave an append unsafe.
    connection.pragma("synchronous", "normal")
    try:
        connection.execute("BEGIN IMMEDIATE")
        due = window.due()
        aside = set_aside(window.records, due, quarantine)
        run_in_bulk(
            connection,
            "INSERT INTO quarantined_writes VALUES",
            [(one.job_id, one.seq, one.index, one.body) for one in aside],
        )
        changes = write_changes(connection, due, min(window.positions))
        end, last_at = window.end, window.records[-1].at
        run_in_bulk(
            connection,
            "UPDATE projection_shards SET folded_seq = v.column2, folded_hash = v.column3"
            " FROM (VALUES",
            [(shard, end.seq, end.hash) for shard in window.positions],
            ") AS v WHERE shard = v.column1",
        )
        _prune_journal(connection, window, limits.journal_records_max)
        _prune_keys(connection, len(changes.keys), last_at)
        _prune_occurrences(connection, len(changes.occurrences), last_at)
        prune_events(connection, changes.events, last_at)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return bool(changes.dropped)


def write_changes(
    connection: apsw.Connection, due: Sequence[Sequence[AnyWrite]], shard: int
) -> TableChanges:
    """Writes what these writes come to, in the caller's transaction; sums go to this shard."""
    standings = _standings(connection, jobs_looked_up(due))
    changes = project(due, standings)
    _unlink_jobs(connection, [*changes.dropped, *(x for x in changes.specs if x in standings)])
    _drop_jobs(connection, changes)
    _write_jobs(connection, changes)
    _leave_spill_queues(connection, changes, standings)
    _write_others(connection, changes)
    _write_schedules(connection, changes)
    write_events(connection, changes.events)
    _write_sums(connection, changes, shard)
    return changes


def _as_json(ids: Sequence[str]) -> str:
    return _json.encode(ids).decode()


def _standings(connection: apsw.Connection, job_ids: Sequence[JobId]) -> JobStandings:
    # Ids mostly rise: those greater than all that are there are not looked up.
    newest = connection.execute("SELECT max(id) FROM jobs").get
    known = [] if newest is None else [job_id for job_id in job_ids if job_id <= newest]
    if not known:
        return {}
    # Aggregated into one row: see ROWS_PER_STATEMENT.
    found = connection.execute(
        "SELECT json_group_array(json_array(id,"
        " json_array(iif(line, 'queued', state), lives, queue, line))) FROM jobs"
        " WHERE id IN (SELECT value FROM json_each(?))",
        (_as_json(known),),
    )
    return rows.standings(found.get)


def _unlink_jobs(connection: apsw.Connection, job_ids: Sequence[JobId]) -> None:
    """Removes labels and edges of jobs that are deleted or changed.

    They are found through the old rows: an index by job would cost more at every submission. For a
    damaged row all labels and edges are read.
    """
    if not job_ids:
        return
    before = fetch(
        connection,
        "SELECT id, spec FROM jobs WHERE id IN (SELECT value FROM json_each(?))",
        (_as_json(job_ids),),
    )
    old, damaged = rows.specs(before)
    for job_id in damaged:
        connection.execute("DELETE FROM labels WHERE job_id = ?", (job_id,))
        connection.execute("DELETE FROM edges WHERE child = ?", (job_id,))
    labels = chain.from_iterable(rows.label_rows(*job) for job in old)
    run_in_bulk(connection, "DELETE FROM labels WHERE (key, value, job_id) IN (VALUES", labels, ")")
    edges = chain.from_iterable(rows.edge_rows(*job) for job in old)
    run_in_bulk(
        connection, "DELETE FROM edges WHERE (parent, child, condition) IN (VALUES", edges, ")"
    )


def remove_jobs(connection: apsw.Connection, job_ids: Sequence[JobId]) -> bool:
    """Removes jobs with all they have in the tables; returns whether they left logs and files."""
    _unlink_jobs(connection, job_ids)
    return _drop_jobs(connection, TableChanges(dropped=dict.fromkeys(job_ids)))


def _drop_jobs(connection: apsw.Connection, changes: TableChanges) -> bool:
    if not changes.dropped:
        return False
    leftovers = [(execution_id,) for execution_id in changes.leftovers]
    run_in_bulk(connection, "INSERT OR IGNORE INTO leftovers VALUES", leftovers)
    run_in_bulk(connection, "DELETE FROM executions WHERE id IN (VALUES", leftovers, ")")
    gone = (_as_json(list(changes.dropped)),)
    of_dropped = "WHERE job_id IN (SELECT value FROM json_each(?))"
    connection.execute(
        f"INSERT OR IGNORE INTO leftovers SELECT id FROM executions {of_dropped}", gone
    )
    connection.execute(f"DELETE FROM executions {of_dropped}", gone)
    connection.execute("DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?))", gone)
    return True


def _write_jobs(connection: apsw.Connection, changes: TableChanges) -> None:
    put = [job_row(id_, spec, changes.lives[id_]) for id_, spec in changes.specs.items()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO jobs VALUES", put)
    moved = [rows.move_row(job_id, life) for job_id, life in changes.moves]
    run_in_bulk(
        connection,
        "UPDATE jobs SET state = v.column2, lives = v.column3, life = v.column4 FROM (VALUES",
        moved,
        ") AS v WHERE jobs.id = v.column1",
    )
    jobs = changes.specs.items()
    labels = chain.from_iterable(rows.label_rows(*job) for job in jobs if job[1].labels)
    run_in_bulk(connection, "INSERT OR IGNORE INTO labels VALUES", labels)
    edges = chain.from_iterable(rows.edge_rows(*job) for job in jobs if job[1].dependencies)
    run_in_bulk(connection, "INSERT OR IGNORE INTO edges VALUES", edges)


def job_row(job_id: JobId, spec: Spec, life: Life) -> Row:
    """Returns all columns of a job."""
    row, spill_queue = rows.job_row(job_id, spec, life), spill_queue_of(life)
    if spill_queue:
        return (row[0], SPILLED, *row[2:], spill_queue, spec.arrival_number)
    return (*row, 0, 0)


def _leave_spill_queues(
    connection: apsw.Connection, changes: TableChanges, standings: JobStandings
) -> None:
    """Runs apart from the moves: most jobs never were spilled, and their rows change less."""
    left = [(job_id,) for job_id, _ in changes.moves if standings[job_id].line]
    run_in_bulk(connection, "UPDATE jobs SET line = 0, ordinal = 0 WHERE id IN (VALUES", left, ")")


def _write_others(connection: apsw.Connection, changes: TableChanges) -> None:
    executions = [rows.execution_row(execution) for execution in changes.executions.values()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO executions VALUES", executions)
    workers = [rows.worker_row(worker) for worker in changes.workers.values() if worker is not None]
    run_in_bulk(connection, "INSERT OR REPLACE INTO workers VALUES", workers)
    forgotten = [(worker_id,) for worker_id, worker in changes.workers.items() if worker is None]
    run_in_bulk(connection, "DELETE FROM workers WHERE id IN (VALUES", forgotten, ")")
    queues = [rows.queue_row(queue) for queue in changes.queues.values()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO queues VALUES", queues)
    run_in_bulk(connection, "INSERT OR REPLACE INTO settings VALUES", setting_rows(changes))
    keys = [rows.key_row(record) for record in changes.keys.values()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO keys VALUES", keys)


def _write_schedules(connection: apsw.Connection, changes: TableChanges) -> None:
    put = [rows.schedule_row(one) for one in changes.schedules.values() if one is not None]
    run_in_bulk(connection, "INSERT OR REPLACE INTO schedules VALUES", put)
    gone = [(schedule_id,) for schedule_id, one in changes.schedules.items() if one is None]
    run_in_bulk(connection, "DELETE FROM schedules WHERE id IN (VALUES", gone, ")")
    run_in_bulk(
        connection,
        "UPDATE schedules SET course = v.column2 FROM (VALUES",
        [rows.schedule_state_row(*moved) for moved in changes.schedule_states.items()],
        ") AS v WHERE schedules.id = v.column1",
    )
    decided = [rows.occurrence_row(one) for one in changes.occurrences.values()]
    run_in_bulk(connection, "INSERT OR REPLACE INTO occurrences VALUES", decided)
    run_in_bulk(
        connection,
        "INSERT INTO decided VALUES",
        [(decision, why, count) for (decision, why), count in changes.decided.items()],
        "ON CONFLICT (decision, why) DO UPDATE SET count = count + excluded.count",
    )
    calendars = [rows.calendar_row(one) for one in changes.calendars.values() if one is not None]
    run_in_bulk(connection, "INSERT OR REPLACE INTO calendars VALUES", calendars)
    dropped = [(name,) for name, one in changes.calendars.items() if one is None]
    run_in_bulk(connection, "DELETE FROM calendars WHERE name IN (VALUES", dropped, ")")


def _write_sums(connection: apsw.Connection, changes: TableChanges, shard: int) -> None:
    add = "DO UPDATE SET count = count + excluded.count"
    run_in_bulk(
        connection,
        "INSERT INTO totals VALUES",
        [(shard, queue, state, count) for (queue, state), count in changes.finished.items()],
        f"ON CONFLICT (shard, queue, state) {add}",
    )
    counts = [(shard, line, step) for line, step in changes.spill_counts.items() if step]
    run_in_bulk(connection, "INSERT INTO lines VALUES", counts, f"ON CONFLICT (shard, line) {add}")
    if counts:
        connection.execute("DELETE FROM lines WHERE count = 0")
    connection.execute(
        "UPDATE projection_shards SET order_next = max(order_next, ?),"
        " submitted = submitted + ? WHERE shard = ?",
        (changes.next_arrival_number, changes.submitted, shard),
    )


def _prune_journal(connection: apsw.Connection, window: Window, records_max: int) -> None:
    """Deletes a few old records at each projection, in proportion to what was added."""
    slowest = fetch(connection, "SELECT min(folded_seq) FROM projection_shards")[0][0]
    connection.execute(
        "DELETE FROM journal WHERE seq IN ("
        " SELECT seq FROM (SELECT seq, at FROM journal ORDER BY seq LIMIT ?1)"
        " WHERE seq < ?2 AND (seq <= ?2 - ?3 OR at < ?4))",
        (
            PRUNE_MIN + PRUNE_PER_RECORD * len(window.records),
            slowest,
            records_max,
            window.records[-1].at - JOURNAL_AGE_MS,
        ),
    )


def _prune_keys(connection: apsw.Connection, added: int, now: Instant) -> None:
    connection.execute(
        "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE at < ? ORDER BY at LIMIT ?)",
        (now - KEY_AGE_MS, PRUNE_MIN + PRUNE_PER_RECORD * added),
    )


def _prune_occurrences(connection: apsw.Connection, added: int, now: Instant) -> None:
    if added:
        connection.execute(
            "DELETE FROM occurrences WHERE (schedule_id, nominal) IN ("
            " SELECT schedule_id, nominal FROM occurrences WHERE nominal < ?"
            " ORDER BY nominal LIMIT ?)",
            (now - OCCURRENCE_AGE_MS, PRUNE_MIN + PRUNE_PER_RECORD * added),
        )
