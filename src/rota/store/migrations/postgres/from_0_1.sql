-- From the last schema of 0.1 to the baseline. The recorded steps go, and with them the functions that
-- shut out servers of before 0.1. A server of 0.1 that still runs can neither lead nor append any more.
-- The program computes the hashes of the journal, and then forbids a record without one, and adds the
-- checksums of stored bodies.

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

ALTER TABLE rota.inbox ADD COLUMN submitted_by text COLLATE "C",
    ADD COLUMN failures integer NOT NULL DEFAULT 0;
CREATE TABLE rota.inbox_set_aside (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    body bytea,
    key text COLLATE "C",
    job_ids text[] COLLATE "C" NOT NULL,
    submitted_by text COLLATE "C",
    reason text NOT NULL,
    at bigint NOT NULL,
    epoch bigint
);
-- Replaced, so that the roles that may execute it still may.
CREATE OR REPLACE FUNCTION rota.submit(spec jsonb) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job_id uuid := rota.new_id();
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'rota.submit takes a JSON object, as POST /jobs does'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(spec::text) > 33554432 THEN
        RAISE EXCEPTION 'rota.submit takes a job of at most 33554432 bytes, this one has %',
                octet_length(spec::text)
            USING ERRCODE = 'program_limit_exceeded',
                HINT = 'Put large input into a file or bundle, and name it in the payload.';
    END IF;
    IF jsonb_path_exists(spec, 'strict $.**{66} ? (@.type() == "object" || @.type() == "array")') THEN
        RAISE EXCEPTION 'rota.submit takes a job nested at most 66 levels deep, this one is deeper'
            USING ERRCODE = 'program_limit_exceeded',
                HINT = 'Put such a value into the payload as text.';
    END IF;
    INSERT INTO rota.inbox (kind, body, job_ids, submitted_by) VALUES (
        'spec',
        convert_to(jsonb_build_object('job_id', job_id, 'spec', spec)::text, 'UTF8'),
        ARRAY[job_id::text],
        session_user
    );
    RETURN job_id;
END
$$;
CREATE VIEW rota.submissions WITH (security_barrier) AS SELECT id, state, reason FROM (
    SELECT i.job_ids[1]::uuid AS id, 'pending' AS state, a.reason
    FROM rota.inbox i LEFT JOIN rota.inbox_set_aside a ON a.id = i.id
    WHERE i.submitted_by = session_user
    UNION ALL
    SELECT a.job_ids[1]::uuid, 'refused', a.reason
    FROM rota.inbox_set_aside a
    WHERE a.submitted_by = session_user AND a.epoch IS NULL
        AND NOT EXISTS (SELECT FROM rota.inbox i WHERE i.id = a.id)
) own;
