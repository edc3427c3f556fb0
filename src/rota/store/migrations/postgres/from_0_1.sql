-- From the last schema of 0.1 to the baseline. The recorded steps go, and with them the functions that
-- shut out servers of before 0.1. A server of 0.1 that still runs can neither lead nor append any more.
-- The hashes of the journal are computed by the program, which then forbids a record without one.

DROP FUNCTION rota.open_shelf();
DROP FUNCTION rota.open_agenda();
UPDATE rota.leader SET holder = '', epoch = epoch + 1, nonce = nonce + 1, address = '';
DROP TABLE rota.migrations;

ALTER TABLE rota.journal ADD COLUMN hash bytea;

CREATE TABLE rota.projection_shards (
    shard smallint PRIMARY KEY,
    folded_seq bigint NOT NULL DEFAULT 0,
    folded_hash bytea NOT NULL DEFAULT decode('00000000000000000000000000000000', 'hex'),
    order_next bigint NOT NULL DEFAULT 0,
    submitted bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO rota.projection_shards (shard, folded_seq, order_next, submitted)
    SELECT 0, folded_seq, order_next, submitted FROM rota.meta
    UNION ALL SELECT shard, folded_seq, 0, 0 FROM rota.meta, generate_series(1, 3) shard;

ALTER TABLE rota.meta RENAME TO meta_of_0_1;
ALTER TABLE rota.meta_of_0_1 DROP CONSTRAINT meta_pkey;
CREATE TABLE rota.meta (
    id smallint PRIMARY KEY CHECK (id = 1),
    cell text COLLATE "C" NOT NULL DEFAULT '',
    timeline bigint NOT NULL DEFAULT 0,
    failovers bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO rota.meta (id, cell) SELECT id, cell FROM rota.meta_of_0_1;
DROP TABLE rota.meta_of_0_1;

ALTER TABLE rota.totals RENAME TO totals_of_0_1;
ALTER TABLE rota.totals_of_0_1 DROP CONSTRAINT totals_pkey;
CREATE TABLE rota.totals (
    shard smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, queue, state)
) WITH (fillfactor = 50);
INSERT INTO rota.totals SELECT 0, queue, state, count FROM rota.totals_of_0_1;
DROP TABLE rota.totals_of_0_1;

ALTER TABLE rota.lines RENAME TO lines_of_0_1;
ALTER TABLE rota.lines_of_0_1 DROP CONSTRAINT lines_pkey;
CREATE TABLE rota.lines (
    shard smallint NOT NULL,
    line bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, line)
) WITH (fillfactor = 50);
INSERT INTO rota.lines SELECT 0, line, count FROM rota.lines_of_0_1;
DROP TABLE rota.lines_of_0_1;

CREATE TABLE rota.quarantine (
    job_id text COLLATE "C" PRIMARY KEY,
    shard smallint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    reason text NOT NULL
);
CREATE TABLE rota.quarantined_writes (
    job_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    index bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (job_id, seq, index)
);
CREATE TABLE rota.losses (
    timeline bigint NOT NULL,
    after bigint NOT NULL,
    at bigint NOT NULL,
    records bigint NOT NULL,
    PRIMARY KEY (timeline, after)
);
