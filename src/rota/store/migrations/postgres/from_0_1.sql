-- From the last schema of 0.1 to the baseline: submissions can be set aside, and their submitters see
-- why. The recorded steps go, and with them the functions that shut out servers of before 0.1. A server
-- of 0.1 that still runs can neither lead nor append any more.

DROP FUNCTION rota.open_shelf();
DROP FUNCTION rota.open_agenda();
UPDATE rota.leader SET holder = '', epoch = epoch + 1, nonce = nonce + 1, address = '';
DROP TABLE rota.migrations;

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
