-- works with programs from: 1
-- without it: at full speed the database's log says that ranges were not summarised
--
-- The index is used once for each day, when that is dropped, to find what ended late. Ranges that
-- nobody has summarised are read then, which is no more work than to summarise them; and vacuum
-- does so on its way. Asked for with every range that fills up, it only fills the autovacuum's list.
-- An index over partitions cannot be altered itself: each new day comes with one that is.

DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN
        SELECT inhrelid FROM pg_inherits WHERE inhparent = 'rota.jobs_done_by_end'::regclass
    LOOP
        EXECUTE format('ALTER INDEX %s SET (autosummarize = off)', part);
    END LOOP;
END $$;
