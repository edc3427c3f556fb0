-- Logs live in a file of their own: their bulk must not hold up the journal.

CREATE TABLE logs (
    id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    dropped INTEGER NOT NULL
);

-- `data` ends in its checksum, which is no part of the log.
CREATE TABLE pieces (
    id INTEGER PRIMARY KEY,
    log_id INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX pieces_by_place ON pieces (log_id, start);
