-- works with programs from: 3
--
-- Triggers, the events that came, what triggers made of them, and webhook endpoints. A program that
-- does not know triggers cannot read journal records that have them, so older ones are shut out.

CREATE TABLE rota.triggers (
    id text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);

-- Split by day of `at`; that an event is there once is the fold's affair.
CREATE TABLE rota.events (
    key text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    body bytea NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX events_by_key ON rota.events (key);
CREATE INDEX events_by_at ON rota.events (at, key);
CREATE INDEX events_by_type ON rota.events (type, at, key);
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
