-- Schedules, the ledger of what became of their instants, and calendars of holidays; triggers, the
-- events that came, what triggers made of them, and webhook endpoints.

-- The course is written at every firing, the body only when the plan changes.
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    course BLOB NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- One record an instant, by its key. The ledger of a schedule is one stretch of the table.
CREATE TABLE occurrences (
    schedule_id TEXT NOT NULL,
    nominal INTEGER NOT NULL,
    decision TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (schedule_id, nominal)
) WITHOUT ROWID;
-- Finds the old ones, whichever schedule they are of.
CREATE INDEX occurrences_by_nominal ON occurrences (nominal);

CREATE TABLE decided (
    decision TEXT NOT NULL,
    why TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (decision, why)
) WITHOUT ROWID;

CREATE TABLE calendars (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE triggers (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- One row an event, by a hash of its source and id: the same again has no effect.
CREATE TABLE events (
    key TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    tenant TEXT NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_by_at ON events (at, key);
CREATE INDEX events_by_type ON events (type, at, key);
CREATE INDEX events_by_tenant ON events (tenant, at, key);

-- The ledger of a trigger is one stretch of the table. Ids begin with their time.
CREATE TABLE arrivals (
    trigger_id TEXT NOT NULL,
    id TEXT NOT NULL,
    verdict TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (trigger_id, id)
) WITHOUT ROWID;
CREATE INDEX arrivals_by_id ON arrivals (id);

-- Events that wait for others in a trigger's window.
CREATE TABLE held (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE reacted (
    word TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;

-- Beside the journal: the body holds secrets.
CREATE TABLE hooks (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;
