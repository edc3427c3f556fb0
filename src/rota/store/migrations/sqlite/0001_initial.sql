-- The journal is the truth; every other table but `leader` is folded from it.

CREATE TABLE leader (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    holder TEXT NOT NULL
);
INSERT INTO leader VALUES (1, 0, '');

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    folded_seq INTEGER NOT NULL,
    order_next INTEGER NOT NULL,
    submitted INTEGER NOT NULL
);
INSERT INTO meta VALUES (1, 0, 0, 0);

CREATE TABLE totals (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

-- Lists are read newest (largest id) first. WITHOUT ROWID makes the id the row's place, and every
-- index below ends in it, so that each answers "the next 50 before this id" without sorting.
-- The narrow columns come first: filters then never read the blobs' overflow pages.
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    lives INTEGER NOT NULL,
    queue TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    life BLOB NOT NULL,
    spec BLOB NOT NULL
) WITHOUT ROWID;
-- Also finds the live ones at start: no index of their own.
CREATE INDEX jobs_by_state ON jobs (state);
-- Each can be rare among millions (one customer, one kind of job), where a scan would take minutes.
-- Priority and time of creation have none: they are asked together with one of these.
CREATE INDEX jobs_by_queue ON jobs (queue);
CREATE INDEX jobs_by_tenant ON jobs (tenant);
CREATE INDEX jobs_by_name ON jobs (name);

CREATE TABLE labels (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (key, value, job_id)
) WITHOUT ROWID;

-- Downstream only: upstream is in the child's own spec.
CREATE TABLE edges (
    parent TEXT NOT NULL,
    child TEXT NOT NULL,
    condition TEXT NOT NULL,
    PRIMARY KEY (parent, child, condition)
) WITHOUT ROWID;

CREATE TABLE executions (
    id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    state TEXT NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX executions_by_job_id ON executions (job_id);
CREATE INDEX executions_by_worker_id ON executions (worker_id);
CREATE INDEX executions_by_state ON executions (state);

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE queues (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    receipt BLOB NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_by_at ON keys (at);

-- Executions of deleted jobs whose logs and files are still to be removed: a crash forgets none.
CREATE TABLE leftovers (
    execution_id TEXT PRIMARY KEY
) WITHOUT ROWID;
