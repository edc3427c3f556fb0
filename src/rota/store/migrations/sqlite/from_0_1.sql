-- From the last schema of 0.1 to the baseline: submissions can be set aside, and the recorded steps go.

ALTER TABLE inbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
CREATE TABLE inbox_set_aside (
    id INTEGER PRIMARY KEY,
    body BLOB,
    key TEXT,
    job_ids TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER
);
DROP TABLE migrations;
