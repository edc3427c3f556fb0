-- Submissions that wait for a leader are found by their key, and by the jobs in them.

ALTER TABLE inbox ADD COLUMN key TEXT;
CREATE UNIQUE INDEX inbox_by_key ON inbox (key) WHERE key IS NOT NULL;
ALTER TABLE inbox ADD COLUMN job_ids TEXT NOT NULL DEFAULT '';
