-- Tokens and the audit trail. Neither goes through the journal.

CREATE TABLE access (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL,
    secret BLOB
);
INSERT INTO access VALUES (1, 0, NULL);

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    role TEXT NOT NULL,
    tenant TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    token_id TEXT NOT NULL,
    token_name TEXT NOT NULL,
    method TEXT NOT NULL,
    route TEXT NOT NULL,
    target TEXT NOT NULL,
    status INTEGER NOT NULL,
    remote TEXT NOT NULL,
    node TEXT NOT NULL
);
CREATE INDEX audit_by_target ON audit (target, id);
CREATE INDEX audit_by_token ON audit (token_id, id);
