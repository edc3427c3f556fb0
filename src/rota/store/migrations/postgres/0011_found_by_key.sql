-- works with programs from: 1
-- without it: a fold may take long right after the tables of live jobs were cleaned up while empty
--
-- An index that has the id in its second column can be used to find an id, by reading all of it. In
-- a table that counts as empty that looks as cheap as the primary key, and the tables of live jobs
-- are emptied and cleaned up all the time: what comes next is then found by reading everything, for
-- each id once more. These conditions hold for every row. But the planner may use such an index only
-- for questions that imply its condition, as `queue = ...` does and an id alone does not.

DROP INDEX rota.jobs_live_by_queue;
DROP INDEX rota.jobs_live_by_tenant;
DROP INDEX rota.jobs_live_by_name;
CREATE INDEX jobs_live_by_queue ON rota.jobs_live (queue, id) WHERE queue IS NOT NULL;
CREATE INDEX jobs_live_by_tenant ON rota.jobs_live (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX jobs_live_by_name ON rota.jobs_live (name, id) WHERE name IS NOT NULL;

DROP INDEX rota.jobs_shelved_by_queue;
DROP INDEX rota.jobs_shelved_by_tenant;
DROP INDEX rota.jobs_shelved_by_name;
CREATE INDEX jobs_shelved_by_queue ON rota.jobs_shelved (queue, id) WHERE queue IS NOT NULL;
CREATE INDEX jobs_shelved_by_tenant ON rota.jobs_shelved (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX jobs_shelved_by_name ON rota.jobs_shelved (name, id) WHERE name IS NOT NULL;

DROP INDEX rota.executions_live_by_job_id;
DROP INDEX rota.executions_live_by_worker_id;
CREATE INDEX executions_live_by_job_id ON rota.executions_live (job_id, id)
    WHERE job_id IS NOT NULL;
CREATE INDEX executions_live_by_worker_id ON rota.executions_live (worker_id, id)
    WHERE worker_id IS NOT NULL;
