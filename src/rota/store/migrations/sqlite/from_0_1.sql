-- From the last schema of 0.1 to the baseline: the recorded steps go. The program computes the hashes of
-- the journal and adds the checksums of stored bodies.

ALTER TABLE inbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
CREATE TABLE inbox_set_aside (
    id INTEGER PRIMARY KEY,
    body BLOB,
    key TEXT,
    job_ids TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER
);
DROP TABLE migrations;

ALTER TABLE journal RENAME TO journal_of_0_1;
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    hash BLOB NOT NULL
);
INSERT INTO journal SELECT seq, epoch, at, body, x'' FROM journal_of_0_1;
DROP TABLE journal_of_0_1;

CREATE TABLE projection_shards (
    shard INTEGER PRIMARY KEY,
    folded_seq INTEGER NOT NULL DEFAULT 0,
    folded_hash BLOB NOT NULL DEFAULT x'00000000000000000000000000000000',
    order_next INTEGER NOT NULL DEFAULT 0,
    submitted INTEGER NOT NULL DEFAULT 0
);
INSERT INTO projection_shards (shard, folded_seq, order_next, submitted)
    SELECT 0, folded_seq, order_next, submitted FROM meta;

ALTER TABLE meta RENAME TO meta_of_0_1;
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    cell TEXT NOT NULL DEFAULT ''
);
INSERT INTO meta SELECT id, cell FROM meta_of_0_1;
DROP TABLE meta_of_0_1;

ALTER TABLE totals RENAME TO totals_of_0_1;
CREATE TABLE totals (
    shard INTEGER NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (shard, queue, state)
) WITHOUT ROWID;
INSERT INTO totals SELECT 0, queue, state, count FROM totals_of_0_1;
DROP TABLE totals_of_0_1;

ALTER TABLE lines RENAME TO lines_of_0_1;
CREATE TABLE lines (
    shard INTEGER NOT NULL,
    line INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (shard, line)
) WITHOUT ROWID;
INSERT INTO lines SELECT 0, line, count FROM lines_of_0_1;
DROP TABLE lines_of_0_1;

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
CREATE TABLE losses (
    after INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    records INTEGER NOT NULL
);
