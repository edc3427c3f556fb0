-- works with programs from: 1
-- without it: lists with several filters, and bounds of time, are slow where there are millions of jobs
--
-- Lists over millions of finished jobs. What a filter asks is in the index that is walked, so that
-- rows which do not match are passed over without a look at the table; a page then fetches its own
-- rows only. Building these takes some minutes for ten million jobs: appends go on, the fold and
-- whoever waits for it do not.

DROP INDEX rota.jobs_done_by_state;
DROP INDEX rota.jobs_done_by_queue;
DROP INDEX rota.jobs_done_by_tenant;
DROP INDEX rota.jobs_done_by_name;
-- Each has what is asked together with it; the narrower filter comes first: a name is mostly of one
-- tenant and one queue.
CREATE INDEX jobs_done_by_state ON rota.jobs_done (state, id)
    INCLUDE (queue, tenant, name) WHERE state <> 'succeeded';
CREATE INDEX jobs_done_by_queue ON rota.jobs_done (queue, id) INCLUDE (state);
CREATE INDEX jobs_done_by_tenant ON rota.jobs_done (tenant, id) INCLUDE (state, queue);
CREATE INDEX jobs_done_by_name ON rota.jobs_done (name, id) INCLUDE (state, queue, tenant);
-- Most jobs have the priority that is given to those that name none.
CREATE INDEX jobs_done_by_priority ON rota.jobs_done (priority, id) WHERE priority <> 0;
CREATE INDEX jobs_live_by_priority ON rota.jobs_live (priority, id) WHERE priority <> 0;
CREATE INDEX jobs_shelved_by_priority ON rota.jobs_shelved (priority, id) WHERE priority <> 0;

-- Where the ids of a millisecond begin.
CREATE FUNCTION rota.id_at(at bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT substr(lpad(to_hex(at), 12, '0'), 1, 8) || '-' || substr(lpad(to_hex(at), 12, '0'), 9)
$$;

-- An id begins with the time at which its job was created, give or take a minute: a list of some
-- time is a range of ids. The few for which that does not hold are here, and are looked at beside
-- it: a job that an application submitted while nobody led, or one made before the clock was set.
CREATE INDEX jobs_live_astray ON rota.jobs_live (created_at, id)
    WHERE id NOT BETWEEN rota.id_at(created_at - 60000) AND rota.id_at(created_at + 60001);
CREATE INDEX jobs_shelved_astray ON rota.jobs_shelved (created_at, id)
    WHERE id NOT BETWEEN rota.id_at(created_at - 60000) AND rota.id_at(created_at + 60001);
CREATE INDEX jobs_done_astray ON rota.jobs_done (created_at, id)
    WHERE id NOT BETWEEN rota.id_at(created_at - 60000) AND rota.id_at(created_at + 60001);
