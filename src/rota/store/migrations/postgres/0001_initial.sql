-- works with programs from: 1
--
-- The journal is the truth; `leader`, `inbox`, logs and artifacts stand beside it, and every other
-- table is folded from it. Ids sort by their time of birth, and in "C" order as the program sorts.
--
-- Time leaves by dropping partitions. Each table of finished work is split by day on the id it is
-- found by, so that a look-up by id touches one partition, a page of the newest reads the
-- partitions one after the other, and the primary key needs no second column. Whatever has no
-- day's partition (late, or not a time-ordered id) is in the `_rest` partition.

CREATE TABLE rota.leader (
    id smallint PRIMARY KEY CHECK (id = 1),
    holder text NOT NULL,
    epoch bigint NOT NULL,
    nonce bigint NOT NULL,
    address text NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO rota.leader VALUES (1, '', 0, 0, '');

-- Split by place, not by day: a place must be unique over all partitions, for that is what fences.
CREATE TABLE rota.journal (
    seq bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL
) PARTITION BY RANGE (seq);

CREATE TABLE rota.meta (
    id smallint PRIMARY KEY CHECK (id = 1),
    folded_seq bigint NOT NULL,
    order_next bigint NOT NULL,
    submitted bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO rota.meta VALUES (1, 0, 0, 0);

CREATE TABLE rota.totals (
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (queue, state)
) WITH (fillfactor = 50);

-- Live jobs: few compared to all there ever were, changed and left all the time. The room in each
-- page lets a move stay on it; the fold is in wide batches, so vacuum goes by rows, not by share.
CREATE TABLE rota.jobs_live (
    id text COLLATE "C" PRIMARY KEY,
    state text COLLATE "C" NOT NULL,
    lives bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    created_at bigint NOT NULL,
    finished_at bigint,
    life bytea NOT NULL,
    spec bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
-- Nearly all live jobs are queued, and those are found by walking the primary key: an index of
-- them would cost at every submission and help nobody.
CREATE INDEX jobs_live_by_state ON rota.jobs_live (state, id) WHERE state <> 'queued';
CREATE INDEX jobs_live_by_queue ON rota.jobs_live (queue, id);
CREATE INDEX jobs_live_by_tenant ON rota.jobs_live (tenant, id);
CREATE INDEX jobs_live_by_name ON rota.jobs_live (name, id);

CREATE TABLE rota.jobs_done (
    LIKE rota.jobs_live INCLUDING DEFAULTS,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
-- As above: most finished jobs succeeded.
CREATE INDEX jobs_done_by_state ON rota.jobs_done (state, id) WHERE state <> 'succeeded';
CREATE INDEX jobs_done_by_queue ON rota.jobs_done (queue, id);
CREATE INDEX jobs_done_by_tenant ON rota.jobs_done (tenant, id);
CREATE INDEX jobs_done_by_name ON rota.jobs_done (name, id);
-- Rows come in the order of their end, so this costs next to nothing and finds the late ones.
CREATE INDEX jobs_done_by_end ON rota.jobs_done USING brin (finished_at) WITH (autosummarize = on);
CREATE TABLE rota.jobs_done_rest PARTITION OF rota.jobs_done DEFAULT;

CREATE TABLE rota.labels (
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (key, value, job_id)
) PARTITION BY RANGE (job_id);
CREATE TABLE rota.labels_rest PARTITION OF rota.labels DEFAULT;

-- Downstream only: upstream is in the child's own spec.
CREATE TABLE rota.edges (
    parent text COLLATE "C" NOT NULL,
    child text COLLATE "C" NOT NULL,
    condition text COLLATE "C" NOT NULL,
    PRIMARY KEY (parent, child, condition)
) PARTITION BY RANGE (child);
CREATE TABLE rota.edges_rest PARTITION OF rota.edges DEFAULT;

CREATE TABLE rota.executions_live (
    id text COLLATE "C" PRIMARY KEY,
    job_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    body bytea NOT NULL
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX executions_live_by_job_id ON rota.executions_live (job_id, id);
CREATE INDEX executions_live_by_worker_id ON rota.executions_live (worker_id, id);

CREATE TABLE rota.executions_done (
    LIKE rota.executions_live INCLUDING DEFAULTS,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX executions_done_by_job_id ON rota.executions_done (job_id, id);
CREATE INDEX executions_done_by_worker_id ON rota.executions_done (worker_id, id);
CREATE INDEX executions_done_by_state ON rota.executions_done (state, id)
    WHERE state <> 'succeeded';
CREATE TABLE rota.executions_done_rest PARTITION OF rota.executions_done DEFAULT;

CREATE TABLE rota.workers (
    id text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE rota.queues (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
) WITH (fillfactor = 50);

-- Split by day of `at`; that a key is there once is the fold's affair.
CREATE TABLE rota.keys (
    key text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    receipt bytea NOT NULL,
    at bigint NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX keys_by_key ON rota.keys (key);
CREATE TABLE rota.keys_rest PARTITION OF rota.keys DEFAULT;

-- Executions of deleted jobs whose logs and files are still to be removed: a crash forgets none.
CREATE TABLE rota.leftovers (
    execution_id text COLLATE "C" PRIMARY KEY
);

-- Submissions that wait for a leader, in order of arrival.
CREATE TABLE rota.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE rota.logs (
    execution_id text COLLATE "C" PRIMARY KEY,
    size bigint NOT NULL,
    dropped bigint NOT NULL
) PARTITION BY RANGE (execution_id);
CREATE TABLE rota.logs_rest PARTITION OF rota.logs DEFAULT WITH (fillfactor = 70);

CREATE TABLE rota.log_pieces (
    execution_id text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (execution_id, start)
) PARTITION BY RANGE (execution_id);
CREATE TABLE rota.log_pieces_rest PARTITION OF rota.log_pieces DEFAULT;

CREATE SEQUENCE rota.uploads;

CREATE TABLE rota.artifacts (
    execution_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    upload bigint NOT NULL,
    PRIMARY KEY (execution_id, name)
) PARTITION BY RANGE (execution_id);
CREATE TABLE rota.artifacts_rest PARTITION OF rota.artifacts DEFAULT;

CREATE TABLE rota.artifact_pieces (
    execution_id text COLLATE "C" NOT NULL,
    upload bigint NOT NULL,
    number bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (execution_id, upload, number)
) PARTITION BY RANGE (execution_id);
CREATE TABLE rota.artifact_pieces_rest PARTITION OF rota.artifact_pieces DEFAULT;

-- Milliseconds since 1970 in front, chance behind, as RFC 9562 has it. A random UUID has version 4
-- and the right variant already; two more bits make it a 7.
CREATE FUNCTION rota.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(
        set_bit(
            set_bit(
                overlay(
                    uuid_send(gen_random_uuid())
                    PLACING substring(
                        int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3
                    )
                    FROM 1 FOR 6
                ),
                52, 1
            ),
            53, 1
        ),
        'hex'
    )::uuid
$$;

-- Submits a job within the caller's transaction: it exists if and only if that commits. Runs with
-- the owner's rights, so an application needs no more than EXECUTE on it and USAGE on the schema.
CREATE FUNCTION rota.submit(spec jsonb) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job_id uuid := rota.new_id();
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'rota.submit takes a JSON object, as POST /jobs does'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO rota.inbox (kind, body) VALUES (
        'spec',
        convert_to(jsonb_build_object('job_id', job_id, 'spec', spec)::text, 'UTF8')
    );
    RETURN job_id;
END
$$;
REVOKE ALL ON FUNCTION rota.submit(jsonb) FROM PUBLIC;
