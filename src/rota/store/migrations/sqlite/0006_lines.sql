-- Jobs on the shelf: the rear of long lines, which memory leaves to the store until it is their turn.
-- Their `state` is 'shelved' here and queued to everybody else, so that a start finds all the others
-- in the index of states without a look at them.

ALTER TABLE jobs ADD COLUMN line INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN ordinal INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_line ON jobs (line, ordinal) WHERE line <> 0;

-- How many jobs are in each line; one that is empty has no row.
CREATE TABLE lines (
    line INTEGER PRIMARY KEY,
    count INTEGER NOT NULL
);
