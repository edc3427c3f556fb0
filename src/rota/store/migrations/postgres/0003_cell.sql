-- works with programs from: 1
-- without it: the cell has no name, and its ids carry none
--
-- The cell has a name, and every id made here carries the first three digits of its SHA-256 behind
-- the version: a gateway then knows an id's cell by looking at it.

ALTER TABLE rota.meta ADD COLUMN cell text COLLATE "C" NOT NULL DEFAULT '';

-- Runs with the owner's rights, for it reads a table that is nobody else's business.
CREATE OR REPLACE FUNCTION rota.new_id() RETURNS uuid
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
