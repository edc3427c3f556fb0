-- works with programs from: 2
--
-- Schedules, the ledger of what became of their instants, and calendars of holidays. A program that
-- does not know schedules cannot read journal records that have them, so older ones are shut out.

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
