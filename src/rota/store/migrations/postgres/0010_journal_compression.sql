-- works with programs from: 1
-- without it: the journal is compressed by a slower method
--
-- A record of thousands of writes shrinks to a ninth. The newer method takes half as long for that,
-- or less; a server that was built without it goes on with the older one. What is written already
-- stays as it is.

DO $$
DECLARE
    piece regclass;
BEGIN
    FOR piece IN SELECT relid FROM pg_partition_tree('rota.journal') LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN body SET COMPRESSION lz4', piece);
    END LOOP;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;
