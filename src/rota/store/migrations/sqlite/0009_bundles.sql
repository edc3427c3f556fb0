-- Bundles of code, large output files, and which objects of the storage are to be removed.

-- One row a large output file; the content is in object storage under its key.
CREATE TABLE objects (
    execution_id TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (execution_id, name)
) WITHOUT ROWID;

CREATE TABLE bundles (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    used_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (tenant, sha256)
) WITHOUT ROWID;

-- What may be in the storage and is nobody's from then on.
CREATE TABLE doomed (
    key TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX doomed_by_at ON doomed (at);

-- Which storage the keys are of.
CREATE TABLE storage (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    mark TEXT NOT NULL
);
