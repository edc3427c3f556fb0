-- works with programs from: 1
-- without it: a long backlog is cleaned up at full speed while it is drained
--
-- A row of the shelf is written once and deleted once, and what is dead lies behind the place at
-- which the shelf is read: to clean up can wait, and need not hurry. Rows that were only inserted
-- are not worth a visit, for they are gone soon.

ALTER TABLE rota.jobs_shelved SET (
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 1
);
ALTER TABLE rota.jobs_shelved RESET (autovacuum_vacuum_insert_scale_factor);
