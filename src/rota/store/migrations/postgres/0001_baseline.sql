-- The journal is the truth, a chain: `hash` covers a record and the hash before it. `leader`, `inbox`, `nodes`, `hooks`, access, objects, logs and artifacts
-- stand beside it, and every other table is the projection, derived from it. Ids sort by their time,
-- and in "C" order as the program sorts.
--
-- Old work is deleted by dropping partitions. Each table of finished work is partitioned by day of the
-- id by which it is looked up, so that a lookup by id reads one partition, a page of the newest reads
-- the partitions one after the other, and the primary key needs no second column. Rows without a day's
-- partition (late, or with an id that is not ordered by time) are in the `_rest` partition.
--
-- Each value of a column `body`, `life`, `spec`, `course` or `receipt`, except in `journal`, `inbox` and
-- `nodes`, and each piece of a log, ends in a checksum of its row's key and its own bytes
-- (store/checksums.py).

CREATE TABLE rota.leader (
    id smallint PRIMARY KEY CHECK (id = 1),
    holder text NOT NULL,
    epoch bigint NOT NULL,
    nonce bigint NOT NULL,
    address text NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO rota.leader VALUES (1, '', 0, 0, '');

-- Partitioned by position, not by day: positions must be unique over all partitions, as they fence.
CREATE TABLE rota.journal (
    seq bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    hash bytea NOT NULL
) PARTITION BY RANGE (seq);
-- A record of thousands of writes is compressed to a ninth. This method takes at most half as long as
-- the default; a server that was built without it uses the default.
DO $$
BEGIN
    ALTER TABLE rota.journal ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

-- `cell`: the cell's name. Every id made here carries the first three digits of its SHA-256 behind the
-- version: so a gateway can tell an id's cell. `timeline`: that of the database at the last claim of
-- leadership; `failovers`: how often it had changed. Both, and every loss, raise all later fences.
CREATE TABLE rota.meta (
    id smallint PRIMARY KEY CHECK (id = 1),
    cell text COLLATE "C" NOT NULL DEFAULT '',
    timeline bigint NOT NULL DEFAULT 0,
    failovers bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO rota.meta VALUES (1);

-- The projection is made in shards by a hash of the job's id; what has no job belongs to shard 0. Each
-- says in the transaction of its rows how far it is (`folded_seq`) and the journal's hash there. Sums
-- that several shards add to (`submitted`, totals, lines) are kept by shard: the sum is what counts.
CREATE TABLE rota.projection_shards (
    shard smallint PRIMARY KEY,
    folded_seq bigint NOT NULL DEFAULT 0,
    folded_hash bytea NOT NULL DEFAULT decode('00000000000000000000000000000000', 'hex'),
    order_next bigint NOT NULL DEFAULT 0,
    submitted bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO rota.projection_shards (shard) VALUES (0), (1), (2), (3);

CREATE TABLE rota.totals (
    shard smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, queue, state)
) WITH (fillfactor = 50);

-- Jobs whose writes cannot be projected are set aside, with all their later writes: readers and a
-- load apply these to the rows as they are.
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

-- Records that failovers of the database have lost, as far as any server knew them.
CREATE TABLE rota.losses (
    timeline bigint NOT NULL,
    after bigint NOT NULL,
    at bigint NOT NULL,
    records bigint NOT NULL,
    PRIMARY KEY (timeline, after)
);

-- The first id of a millisecond.
CREATE FUNCTION rota.id_at(at bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT substr(lpad(to_hex(at), 12, '0'), 1, 8) || '-' || substr(lpad(to_hex(at), 12, '0'), 9)
$$;

-- Live jobs: few compared to all jobs, and changed and deleted all the time. The fill factor leaves
-- space for updates on the same page; the projection writes wide batches, so vacuum is due by a number
-- of rows, not by a share.
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
-- Nearly all live jobs are queued, and those are found by scanning the primary key: an index of them
-- would cost time at every submission and gain nothing.
CREATE INDEX jobs_live_by_state ON rota.jobs_live (state, id) WHERE state <> 'queued';
-- An index that has the id in its second column can be used to find an id, by reading all of it. In a
-- table that counts as empty that looks as cheap as the primary key, and the tables of live jobs are
-- emptied and vacuumed all the time: later lookups would read everything, once for each id. These
-- conditions hold for every row. But the planner may use such an index only for queries that imply its
-- condition, as `queue = ...` does and an id alone does not.
CREATE INDEX jobs_live_by_queue ON rota.jobs_live (queue, id) WHERE queue IS NOT NULL;
CREATE INDEX jobs_live_by_tenant ON rota.jobs_live (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX jobs_live_by_name ON rota.jobs_live (name, id) WHERE name IS NOT NULL;
-- Most jobs have the default priority.
CREATE INDEX jobs_live_by_priority ON rota.jobs_live (priority, id) WHERE priority <> 0;
-- An id begins with the time at which its job was created, give or take a minute: so jobs of a time are
-- a range of ids. The few jobs for which that does not hold are in this index, which is searched too: a
-- job that an application submitted while nobody led, or one created before the clock was set.
CREATE INDEX jobs_live_astray ON rota.jobs_live (created_at, id)
    WHERE id NOT BETWEEN rota.id_at(created_at - 60000) AND rota.id_at(created_at + 60001);

-- Spilled jobs: the rear of long queues, which memory leaves to the store until it is their turn; a
-- `line` is a spill queue. They have a table of their own: the live ones stay few, and a new leader
-- reads only those. A row is written once and deleted once, and dead rows lie before the position from
-- which the table is read: so vacuum can be late and slow. Inserts alone are no reason to vacuum, for
-- the rows are deleted soon. (`shelved` is an old word for spilled.)
CREATE TABLE rota.jobs_shelved (
    id text COLLATE "C" PRIMARY KEY,
    lives bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    created_at bigint NOT NULL,
    life bytea NOT NULL,
    spec bytea NOT NULL,
    line bigint NOT NULL,
    ordinal bigint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);
CREATE INDEX jobs_shelved_by_line ON rota.jobs_shelved (line, ordinal);
CREATE INDEX jobs_shelved_by_queue ON rota.jobs_shelved (queue, id) WHERE queue IS NOT NULL;
CREATE INDEX jobs_shelved_by_tenant ON rota.jobs_shelved (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX jobs_shelved_by_name ON rota.jobs_shelved (name, id) WHERE name IS NOT NULL;
CREATE INDEX jobs_shelved_by_priority ON rota.jobs_shelved (priority, id) WHERE priority <> 0;
CREATE INDEX jobs_shelved_astray ON rota.jobs_shelved (created_at, id)
    WHERE id NOT BETWEEN rota.id_at(created_at - 60000) AND rota.id_at(created_at + 60001);

-- How many jobs are in each spill queue, as the sum over the shards.
CREATE TABLE rota.lines (
    shard smallint NOT NULL,
    line bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, line)
) WITH (fillfactor = 50);

CREATE TABLE rota.jobs_done (
    LIKE rota.jobs_live INCLUDING DEFAULTS,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
-- Lists over millions of finished jobs. The columns of other filters are in the index that is walked,
-- so that rows which do not match are skipped without reading the table; a page then reads only its own
-- rows. Each index has the columns that are often asked together with it; the narrower filter comes
-- first: a name is mostly of one tenant and one queue. As above, most finished jobs succeeded.
CREATE INDEX jobs_done_by_state ON rota.jobs_done (state, id)
    INCLUDE (queue, tenant, name) WHERE state <> 'succeeded';
CREATE INDEX jobs_done_by_queue ON rota.jobs_done (queue, id) INCLUDE (state);
CREATE INDEX jobs_done_by_tenant ON rota.jobs_done (tenant, id) INCLUDE (state, queue);
CREATE INDEX jobs_done_by_name ON rota.jobs_done (name, id) INCLUDE (state, queue, tenant);
CREATE INDEX jobs_done_by_priority ON rota.jobs_done (priority, id) WHERE priority <> 0;
CREATE INDEX jobs_done_astray ON rota.jobs_done (created_at, id)
    WHERE id NOT BETWEEN rota.id_at(created_at - 60000) AND rota.id_at(created_at + 60001);
-- Rows come in the order of their end, so this index costs next to nothing and finds the late ones. It
-- is used once for each day, when that is dropped. Ranges that were not summarised are read then, which
-- costs as much as to summarise them; with `autosummarize` each range that fills up would only add work
-- to autovacuum.
CREATE INDEX jobs_done_by_end ON rota.jobs_done USING brin (finished_at);
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
CREATE INDEX executions_live_by_job_id ON rota.executions_live (job_id, id)
    WHERE job_id IS NOT NULL;
CREATE INDEX executions_live_by_worker_id ON rota.executions_live (worker_id, id)
    WHERE worker_id IS NOT NULL;

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

-- Partitioned by day of `at`; the projector keeps keys unique.
CREATE TABLE rota.keys (
    key text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    receipt bytea NOT NULL,
    at bigint NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX keys_by_key ON rota.keys (key);
CREATE TABLE rota.keys_rest PARTITION OF rota.keys DEFAULT;

-- Executions of deleted jobs whose logs and files are still to be removed, also after a crash.
CREATE TABLE rota.leftovers (
    execution_id text COLLATE "C" PRIMARY KEY
);

-- Submissions that wait for a leader, in order of arrival. The same key again, on any server, finds the
-- submission that is there already. The jobs' ids have no index: a lookup of a job that is in no other
-- table reads all of the inbox, which is empty unless nobody leads, and should be cheap to fill then.
-- `submitted_by`: the role that submitted by SQL. `failures`: turns with this entry that failed.
CREATE TABLE rota.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    body bytea NOT NULL,
    key text COLLATE "C",
    job_ids text[] COLLATE "C" NOT NULL DEFAULT '{}',
    submitted_by text COLLATE "C",
    failures integer NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX inbox_by_key ON rota.inbox (key) WHERE key IS NOT NULL;

-- The newest submissions that could not be accepted, for some days, with the reason. One that a newer
-- program may accept stays in the inbox; others leave it. `epoch`: the leader's, that leaves it there.
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

-- Each server announces itself once a second. The rows are few and updated all the time: the fill
-- factor keeps every update on its page.
CREATE TABLE rota.nodes (
    node text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

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

-- A UUID of version 7 (RFC 9562): milliseconds since 1970, the cell's tag, then random bits. Runs with
-- the owner's rights, because it reads a table that is private to the servers.
CREATE FUNCTION rota.new_id() RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(
        overlay(
            uuid_send(gen_random_uuid())
            PLACING
                substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                || decode(
                    '7' || CASE cell
                        WHEN '' THEN '000'
                        ELSE left(encode(sha256(convert_to(cell, 'UTF8')), 'hex'), 3)
                    END,
                    'hex'
                )
            FROM 1 FOR 8
        ),
        'hex'
    )::uuid
    FROM rota.meta
$$;

-- Submits a job within the caller's transaction: it exists if and only if that commits. Runs with
-- the owner's rights, so an application needs no more than EXECUTE on it and USAGE on the schema. The
-- limits are those of POST /jobs: the size of its body, and the nesting of a payload (64) in an `http`
-- task (2 levels more). All else is checked when a leader reads the submission.
CREATE FUNCTION rota.submit(spec jsonb) RETURNS uuid
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
REVOKE ALL ON FUNCTION rota.submit(jsonb) FROM PUBLIC;

-- The submissions of the role that looks, which rota.submit noted: those that wait for a leader, and
-- those that were refused, with the reason. Accepted ones are jobs, and not here. The barrier keeps a
-- function in a caller's condition from seeing other rows; a bare UNION ALL would have none.
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

-- Tokens and the audit log. Neither goes through the journal.

CREATE TABLE rota.access (
    id integer PRIMARY KEY CHECK (id = 1),
    revision bigint NOT NULL,
    secret bytea
) WITH (fillfactor = 10);
INSERT INTO rota.access VALUES (1, 0, NULL);

CREATE TABLE rota.tokens (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    digest bytea NOT NULL UNIQUE,
    role text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

-- Rows are only added; a few of the oldest are deleted at a time, some more than were added.
CREATE TABLE rota.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    token_name text NOT NULL,
    method text COLLATE "C" NOT NULL,
    route text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    status integer NOT NULL,
    remote text NOT NULL,
    node text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX audit_by_target ON rota.audit (target, id);
CREATE INDEX audit_by_token ON rota.audit (token_id, id);

-- Schedules, their occurrences, and calendars of holidays; triggers, accepted events, the decisions of
-- triggers (`arrivals`), buffered events (`held`), and webhook endpoints.

-- `course` is the schedule's state, written at every firing; the body only when its definition changes.
CREATE TABLE rota.schedules (
    id text COLLATE "C" PRIMARY KEY,
    course bytea NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- One row per instant; partitioned by the day of the instant, and so dropped day by day.
CREATE TABLE rota.occurrences (
    schedule_id text COLLATE "C" NOT NULL,
    nominal bigint NOT NULL,
    decision text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (schedule_id, nominal)
) PARTITION BY RANGE (nominal);
CREATE TABLE rota.occurrences_rest PARTITION OF rota.occurrences DEFAULT;

CREATE TABLE rota.decided (
    decision text COLLATE "C" NOT NULL,
    why text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (decision, why)
) WITH (fillfactor = 50);

CREATE TABLE rota.calendars (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

CREATE TABLE rota.triggers (
    id text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

-- Partitioned by day of `at`; the projector keeps events unique.
CREATE TABLE rota.events (
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    body bytea NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX events_by_key ON rota.events (key);
CREATE INDEX events_by_at ON rota.events (at, key);
CREATE INDEX events_by_type ON rota.events (type, at, key);
CREATE INDEX events_by_tenant ON rota.events (tenant, at, key);
CREATE TABLE rota.events_rest PARTITION OF rota.events DEFAULT;

-- Ids begin with their time: partitioned by day, and so dropped day by day. `verdict`: the decision.
CREATE TABLE rota.arrivals (
    trigger_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    verdict text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (trigger_id, id)
) PARTITION BY RANGE (id);
CREATE TABLE rota.arrivals_rest PARTITION OF rota.arrivals DEFAULT;

-- Events that are buffered in a trigger's window.
CREATE TABLE rota.held (
    id text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

CREATE TABLE rota.reacted (
    word text COLLATE "C" PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- Beside the journal: the body holds secrets.
CREATE TABLE rota.hooks (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

-- The cell's policy, its tenants' weights and quotas, and how long jobs of each name ran.

CREATE TABLE rota.settings (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);

-- Bundles of code, large output files, and which objects of the storage are to be removed.

-- One row per large output file; the content is in object storage under its key. Not partitioned by
-- day: they are few, and each has to be removed from the storage anyway.
CREATE TABLE rota.objects (
    execution_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    sha256 text NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (execution_id, name)
);

CREATE TABLE rota.bundles (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    used_at bigint NOT NULL,
    body bytea NOT NULL,
    UNIQUE (tenant, sha256)
);

-- Keys of objects that may be in the storage, and are to be deleted from `at` on.
CREATE TABLE rota.doomed (
    key text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL
);
CREATE INDEX doomed_by_at ON rota.doomed (at);

-- The storage to which the keys belong.
CREATE TABLE rota.storage (
    id int PRIMARY KEY CHECK (id = 1),
    mark text NOT NULL
);

-- Content of bundles, if no object storage is named.
CREATE TABLE rota.object_pieces (
    key text COLLATE "C" NOT NULL,
    number int NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (key, number)
);
ALTER TABLE rota.object_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
