-- The cell's policy, its tenants' weights and quotas, and how long jobs of each name ran.

CREATE TABLE settings (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
