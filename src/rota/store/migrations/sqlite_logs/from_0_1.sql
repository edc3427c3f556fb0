-- From the schema of 0.1, which has the same tables, to the baseline: the recorded step goes. The program
-- adds the checksums.

DROP TABLE migrations;
