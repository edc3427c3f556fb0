-- works with programs from: 1
-- without it: bundles are refused, and large output files stay in the database
--
-- Bundles of code, large output files, and which objects of the storage are to be removed.

-- One row a large output file; the content is in object storage under its key. Not split by day: they
-- are few, and each has to be removed from the storage anyway.
CREATE TABLE rota.objects (
    execution_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    sha256 text NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (execution_id, name)
);

CREATE TABLE rota.bundles (
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    used_at bigint NOT NULL,
    body bytea NOT NULL,
    UNIQUE (tenant, sha256)
);

-- What may be in the storage and is nobody's from then on.
CREATE TABLE rota.doomed (
    key text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL
);
CREATE INDEX doomed_by_at ON rota.doomed (at);

-- Which storage the keys are of.
CREATE TABLE rota.storage (
    id int PRIMARY KEY CHECK (id = 1),
    mark text NOT NULL
);

-- Bundles, where no storage was named for them.
CREATE TABLE rota.object_pieces (
    key text COLLATE "C" NOT NULL,
    number int NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (key, number)
);
ALTER TABLE rota.object_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
