-- works with programs from: 1
-- without it: all that waits is kept in memory
--
-- Jobs on the shelf: the rear of long lines, which memory leaves to the store until it is their turn.
-- They have a table of their own: the live ones stay few, and a take-over reads only those. A program
-- that does not know it would neither find these jobs nor fold what happens to them, so the fold that
-- puts the first one there shuts such programs out (`works_from` in rota.migrations).

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
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX jobs_shelved_by_line ON rota.jobs_shelved (line, ordinal);
CREATE INDEX jobs_shelved_by_queue ON rota.jobs_shelved (queue, id);
CREATE INDEX jobs_shelved_by_tenant ON rota.jobs_shelved (tenant, id);
CREATE INDEX jobs_shelved_by_name ON rota.jobs_shelved (name, id);

-- How many jobs are in each line; one that is empty has no row.
CREATE TABLE rota.lines (
    line bigint PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- From the first job on the shelf on, programs that do not know of it may not use this schema. Runs
-- with the owner's rights: the servers' own role need not be able to change what was migrated.
CREATE FUNCTION rota.open_shelf() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE rota.migrations SET works_from = 5 WHERE number = 5 AND works_from < 5
$$;
