-- Schedules, the ledger of what became of their instants, and calendars of holidays.

-- The course is written at every firing, the body only when the plan changes.
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    course BLOB NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- One record an instant, by its key. The ledger of a schedule is one stretch of the table.
CREATE TABLE occurrences (
    schedule_id TEXT NOT NULL,
    nominal INTEGER NOT NULL,
    decision TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (schedule_id, nominal)
) WITHOUT ROWID;
-- Finds the old ones, whichever schedule they are of.
CREATE INDEX occurrences_by_nominal ON occurrences (nominal);

CREATE TABLE decided (
    decision TEXT NOT NULL,
    why TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (decision, why)
) WITHOUT ROWID;

CREATE TABLE calendars (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;
