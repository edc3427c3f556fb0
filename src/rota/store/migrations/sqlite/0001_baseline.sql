-- The journal is the truth, a chain: `hash` covers a record and the hash before it. Beside it stand `leader`, `inbox`, the tables of access and objects, and
-- `hooks`; all other tables are the projection, derived from the journal.
--
-- Each value of a column `body`, `life`, `spec`, `course` or `receipt`, except in `journal` and `inbox`,
-- ends in a checksum of its row's key and its own bytes (store/checksums.py).

CREATE TABLE leader (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    holder TEXT NOT NULL,
    nonce INTEGER NOT NULL DEFAULT 0,
    address TEXT NOT NULL DEFAULT ''
);
INSERT INTO leader VALUES (1, 0, '', 0, '');

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    hash BLOB NOT NULL
);

-- `cell`: the cell's name, which the ids made here carry.
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    cell TEXT NOT NULL DEFAULT ''
);
INSERT INTO meta VALUES (1, '');

-- The projection is made in shards by a hash of the job's id; here there is one (the store in memory
-- has four, as PostgreSQL has). Each says how far it is (`folded_seq`) and the journal's hash there.
CREATE TABLE projection_shards (
    shard INTEGER PRIMARY KEY,
    folded_seq INTEGER NOT NULL DEFAULT 0,
    folded_hash BLOB NOT NULL DEFAULT x'00000000000000000000000000000000',
    order_next INTEGER NOT NULL DEFAULT 0,
    submitted INTEGER NOT NULL DEFAULT 0
);
INSERT INTO projection_shards (shard) VALUES (0);

CREATE TABLE totals (
    shard INTEGER NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (shard, queue, state)
) WITHOUT ROWID;

-- Jobs whose writes cannot be projected are set aside, with all their later writes: readers and a
-- load apply these to the rows as they are.
CREATE TABLE quarantine (
    job_id TEXT PRIMARY KEY,
    shard INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE quarantined_writes (
    job_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    "index" INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (job_id, seq, "index")
) WITHOUT ROWID;

-- Restores and failovers that lost records: each raises all later fences.
CREATE TABLE losses (
    after INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    records INTEGER NOT NULL
);

-- Lists are read newest (largest id) first. With WITHOUT ROWID the table is in the order of its ids, and
-- every index below ends in the id, so that each answers "the next 50 before this id" without sorting.
-- The narrow columns come first: filters then never read the blobs' overflow pages.
-- Spilled jobs (the rear of long queues, which memory leaves to the store until it is their turn) have
-- a `line`, their spill queue. Their `state` is 'shelved' (an old word for spilled) here and queued for
-- readers, so that a start finds all other jobs in the index of states without reading them.
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
    spec BLOB NOT NULL,
    line INTEGER NOT NULL DEFAULT 0,
    ordinal INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- Also finds the live jobs at start.
CREATE INDEX jobs_by_state ON jobs (state);
-- Each of these can be rare among millions, where a scan would take minutes. Priority and time of
-- creation have no index: they are asked together with one of these.
CREATE INDEX jobs_by_queue ON jobs (queue);
CREATE INDEX jobs_by_tenant ON jobs (tenant);
CREATE INDEX jobs_by_name ON jobs (name);
CREATE INDEX jobs_by_line ON jobs (line, ordinal) WHERE line <> 0;

-- How many jobs are in each spill queue, as the sum over the shards.
CREATE TABLE lines (
    shard INTEGER NOT NULL,
    line INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (shard, line)
) WITHOUT ROWID;

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

-- Executions of deleted jobs whose logs and files are still to be removed, also after a crash.
CREATE TABLE leftovers (
    execution_id TEXT PRIMARY KEY
) WITHOUT ROWID;

-- Submissions that wait for a leader, found by their key, and by the jobs in them. `failures`: of turns.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    body BLOB NOT NULL,
    key TEXT,
    job_ids TEXT NOT NULL DEFAULT '',
    failures INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX inbox_by_key ON inbox (key) WHERE key IS NOT NULL;

-- The newest submissions that could not be accepted, for some days, with the reason. One that a newer
-- program may accept stays in the inbox; others leave it. `epoch`: the leader's, that leaves it there.
CREATE TABLE inbox_set_aside (
    id INTEGER PRIMARY KEY,
    body BLOB,
    key TEXT,
    job_ids TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER
);

-- Tokens and the audit log. Neither goes through the journal.

CREATE TABLE access (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL,
    secret BLOB
);
INSERT INTO access VALUES (1, 0, NULL);

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    role TEXT NOT NULL,
    tenant TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    token_id TEXT NOT NULL,
    token_name TEXT NOT NULL,
    method TEXT NOT NULL,
    route TEXT NOT NULL,
    target TEXT NOT NULL,
    status INTEGER NOT NULL,
    remote TEXT NOT NULL,
    node TEXT NOT NULL
);
CREATE INDEX audit_by_target ON audit (target, id);
CREATE INDEX audit_by_token ON audit (token_id, id);

-- Schedules, their occurrences, and calendars of holidays; triggers, accepted events, the decisions of
-- triggers (`arrivals`), buffered events (`held`), and webhook endpoints.

-- `course` is the schedule's state, written at every firing; the body only when its definition changes.
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    course BLOB NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- One row per instant: the occurrences of a schedule are one range of the table.
CREATE TABLE occurrences (
    schedule_id TEXT NOT NULL,
    nominal INTEGER NOT NULL,
    decision TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (schedule_id, nominal)
) WITHOUT ROWID;
-- Finds the old ones of all schedules.
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

-- One row per event, by a hash of its source and id: the same event again has no effect.
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

-- The decisions of a trigger are one range of the table. Ids begin with their time. `verdict`: the
-- decision.
CREATE TABLE arrivals (
    trigger_id TEXT NOT NULL,
    id TEXT NOT NULL,
    verdict TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (trigger_id, id)
) WITHOUT ROWID;
CREATE INDEX arrivals_by_id ON arrivals (id);

-- Events that are buffered in a trigger's window.
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

-- The cell's policy, its tenants' weights and quotas, and how long jobs of each name ran.

CREATE TABLE settings (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Bundles of code, large output files, and which objects of the storage are to be removed.

-- One row per large output file; the content is in object storage under its key.
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

-- Keys of objects that may be in the storage, and are to be deleted from `at` on.
CREATE TABLE doomed (
    key TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX doomed_by_at ON doomed (at);

-- The storage to which the keys belong.
CREATE TABLE storage (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    mark TEXT NOT NULL
);
