-- The cell has a name, which the ids made here carry.

ALTER TABLE meta ADD COLUMN cell TEXT NOT NULL DEFAULT '';
