-- works with programs from: 1
-- without it: servers do not see each other, and what is submitted while nobody leads is not found by its key or id
--
-- Servers that follow: each tells of itself once a second, and takes submissions while nobody leads.

-- Few rows, changed all the time: the room in the page keeps every change on it.
CREATE TABLE rota.nodes (
    node text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The same key again, on whichever server, finds the submission that is there already.
ALTER TABLE rota.inbox ADD COLUMN key text COLLATE "C";
CREATE UNIQUE INDEX inbox_by_key ON rota.inbox (key) WHERE key IS NOT NULL;
-- No index: whoever asks for a job that is in no other table reads all of the inbox, which is empty
-- but for the moments when nobody leads, and then as cheap to fill as it can be.
ALTER TABLE rota.inbox ADD COLUMN job_ids text[] COLLATE "C" NOT NULL DEFAULT '{}';

CREATE OR REPLACE FUNCTION rota.submit(spec jsonb) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job_id uuid := rota.new_id();
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'rota.submit takes a JSON object, as POST /jobs does'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO rota.inbox (kind, body, job_ids) VALUES (
        'spec',
        convert_to(jsonb_build_object('job_id', job_id, 'spec', spec)::text, 'UTF8'),
        ARRAY[job_id::text]
    );
    RETURN job_id;
END
$$;
