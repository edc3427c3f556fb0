-- works with programs from: 1
-- without it: there are no schedules, triggers, events and webhooks
--
-- Schedules, the ledger of what became of their instants, and calendars of holidays; triggers, the
-- events that came, what triggers made of them, and webhook endpoints. A program that knows none of
-- it would lead without a word and fire nothing, so the fold that writes the first schedule or
-- trigger shuts such programs out (`works_from` in rota.migrations).

-- The course is written at every firing, the body only when the plan changes.
CREATE TABLE rota.schedules (
    id text COLLATE "C" PRIMARY KEY,
    course bytea NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- One record an instant, by its key; split by the day of the instant, and so dropped day by day.
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

-- Split by day of `at`; that an event is there once is the fold's affair.
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

-- Ids begin with their time: split by day, and so dropped day by day.
CREATE TABLE rota.arrivals (
    trigger_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    verdict text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (trigger_id, id)
) PARTITION BY RANGE (id);
CREATE TABLE rota.arrivals_rest PARTITION OF rota.arrivals DEFAULT;

-- Events that wait for others in a trigger's window.
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

-- Runs with the owner's rights: the servers' own role need not be able to change what was migrated.
CREATE FUNCTION rota.open_agenda() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE rota.migrations SET works_from = 6 WHERE number = 6 AND works_from < 6
$$;
