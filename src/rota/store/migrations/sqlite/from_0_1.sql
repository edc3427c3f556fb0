-- From the last schema of 0.1, which has the same tables, to the baseline: the recorded steps go. The
-- program adds the checksums.

DROP TABLE migrations;
