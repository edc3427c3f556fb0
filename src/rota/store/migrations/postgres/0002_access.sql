-- works with programs from: 1
-- without it: tokens and the audit trail are not kept, and each server honours its own token only
-- Tokens and the audit trail. Neither goes through the journal.

CREATE TABLE rota.access (
    id integer PRIMARY KEY CHECK (id = 1),
    revision bigint NOT NULL,
    secret bytea
) WITH (fillfactor = 10);
INSERT INTO rota.access VALUES (1, 0, NULL);

CREATE TABLE rota.tokens (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    digest bytea NOT NULL UNIQUE,
    role text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

-- Only ever added to; the oldest leave a few at a time, as many as come and some more.
CREATE TABLE rota.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    token_name text NOT NULL,
    method text COLLATE "C" NOT NULL,
    route text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    status integer NOT NULL,
    remote text NOT NULL,
    node text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX audit_by_target ON rota.audit (target, id);
CREATE INDEX audit_by_token ON rota.audit (token_id, id);
