-- Triggers, the events that came, what triggers made of them, and webhook endpoints.

CREATE TABLE triggers (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- One row an event, by a hash of its source and id: the same again has no effect.
CREATE TABLE events (
    key TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_by_at ON events (at, key);
CREATE INDEX events_by_type ON events (type, at, key);

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
