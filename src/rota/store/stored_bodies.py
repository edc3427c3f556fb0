"""Lists the columns that hold bodies with a checksum, and the columns that are their key."""

from __future__ import annotations

import msgspec


class StoredBodies(msgspec.Struct, frozen=True):
    """Columns of one table that hold bodies."""

    table: str
    what: str
    """The kind of row, as errors name it."""
    keys: tuple[str, ...]
    bodies: tuple[str, ...] = ("body",)


_JOB_BODIES = ("life", "spec")
_BODIES = (
    StoredBodies("workers", "worker", ("id",)),
    StoredBodies("queues", "queue", ("name",)),
    StoredBodies("keys", "idempotency key", ("key", "fingerprint", "at"), ("receipt",)),
    StoredBodies("schedules", "schedule", ("id",), ("course", "body")),
    StoredBodies("occurrences", "occurrence", ("schedule_id", "nominal")),
    StoredBodies("calendars", "calendar", ("name",)),
    StoredBodies("triggers", "trigger", ("id",)),
    StoredBodies("events", "event", ("key",)),
    StoredBodies("arrivals", "trigger decision", ("trigger_id", "id")),
    StoredBodies("held", "buffered event", ("id",)),
    StoredBodies("hooks", "webhook endpoint", ("name",)),
    StoredBodies("settings", "setting", ("kind", "name")),
    StoredBodies("bundles", "bundle", ("id",)),
)
_LOG_KEYS = ("execution_id", "start")
BODIES = {
    "sqlite": (
        StoredBodies("jobs", "job", ("id",), _JOB_BODIES),
        StoredBodies("executions", "execution", ("id",)),
        *_BODIES,
    ),
    "sqlite_logs": (StoredBodies("pieces", "log of execution", _LOG_KEYS, ("data",)),),
    "postgres": (
        StoredBodies("jobs_live", "job", ("id",), _JOB_BODIES),
        StoredBodies("jobs_shelved", "job", ("id",), _JOB_BODIES),
        StoredBodies("jobs_done", "job", ("id",), _JOB_BODIES),
        StoredBodies("executions_live", "execution", ("id",)),
        StoredBodies("executions_done", "execution", ("id",)),
        StoredBodies("log_pieces", "log of execution", _LOG_KEYS, ("data",)),
        *_BODIES,
    ),
}
"""By dialect, which is a folder of `migrations/`."""
SQLITE_LOG_KEY = {"execution_id": "(SELECT execution_id FROM logs WHERE logs.id = log_id)"}
"""SQL for the columns of a key that are in another table."""
