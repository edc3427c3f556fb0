-- Leadership as many servers need it, and submissions that wait for a leader.

ALTER TABLE leader ADD COLUMN nonce INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leader ADD COLUMN address TEXT NOT NULL DEFAULT '';

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    body BLOB NOT NULL
);
