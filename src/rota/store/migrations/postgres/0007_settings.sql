-- works with programs from: 1
-- without it: the policy and tenants' weights and quotas are forgotten when another server leads
--
-- The cell's policy, its tenants' weights and quotas, and how long jobs of each name ran.

CREATE TABLE rota.settings (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);
